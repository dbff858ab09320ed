//! `jr2 store verify`: walks every key of a store and says what is wrong with it (decision 1).

use super::StoreError;
use super::keys::{self, Key};
use super::reader::{self, Keyspace};
use super::sled_store::{Disk, open_existing};
use super::write_set::sha256_hex;
use jr2_shared::ids::RunId;
use std::collections::BTreeMap;
use std::path::Path;

/// Problems a report lists; beyond them only their number is kept.
const PROBLEMS_MAX: usize = 100;

/// What [`verify`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VerifyReport {
    /// The owner epoch of the last opening.
    pub epoch: u64,
    /// Rows.
    pub rows: u64,
    /// History entries.
    pub history: u64,
    /// Pinned texts.
    pub texts: u64,
    /// Start keys.
    pub start_keys: u64,
    /// Bytes of all keys and values.
    pub live_bytes: u64,
    /// Bytes on disk.
    pub disk_bytes: u64,
    /// How many problems there are.
    pub problem_count: u64,
    /// The first problems, one sentence each.
    pub problems: Vec<String>,
}

impl VerifyReport {
    /// Whether nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.problem_count == 0
    }

    fn problem(&mut self, text: String) {
        self.problem_count += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(text);
        }
    }
}

/// Opens the store in `dir` (no epoch is raised, no key written) and checks every key and value.
///
/// # Errors
/// As [`SledStore::open`](super::SledStore::open); what is wrong inside an open store is in the report.
pub fn verify(dir: &Path) -> Result<VerifyReport, StoreError> {
    let disk = open_existing(dir)?;
    let mut report = VerifyReport { disk_bytes: disk.bytes()?, ..VerifyReport::default() };
    if let Err(error) = disk.check_format() {
        report.problem(error.to_string());
    }
    match disk.epoch() {
        Ok(epoch) => report.epoch = epoch,
        Err(error) => report.problem(error.to_string()),
    }
    Walk { disk: &disk, report: &mut report, chunks: BTreeMap::new(), last: None }.run()?;
    Ok(report)
}

struct Walk<'a> {
    disk: &'a Disk,
    report: &'a mut VerifyReport,
    /// Chunks seen and not yet claimed by a value: owner → how many. They sort before every value.
    chunks: BTreeMap<Vec<u8>, u32>,
    last: Option<(RunId, u64)>,
}

impl Walk<'_> {
    fn run(mut self) -> Result<(), StoreError> {
        let disk = self.disk;
        disk.scan(&[], &[0xff], &mut |key, value| {
            self.report.live_bytes += (key.len() + value.len()) as u64;
            match keys::parse(key) {
                Some(parsed) => self.pair(key, value, parsed),
                None => self.report.problem(format!("an unknown key: {}", keys::shown(key))),
            }
            true
        })?;
        for owner in self.chunks.keys() {
            self.report.problem(format!("chunks of {} belong to no value", keys::shown(owner)));
        }
        Ok(())
    }

    fn pair(&mut self, key: &[u8], value: &[u8], parsed: Key) {
        match parsed {
            Key::Chunk(owner, _) => *self.chunks.entry(owner).or_default() += 1,
            Key::Row(run) => {
                self.report.rows += 1;
                self.json(key, value, &format!("the row of {run}"));
            }
            Key::History(run, revision) => {
                self.report.history += 1;
                self.json(key, value, &format!("history {revision} of {run}"));
                if let Some((before, last)) = &self.last
                    && *before == run
                    && last.checked_add(1) != Some(revision)
                {
                    self.report.problem(format!("the history of {run} jumps from {last} to {revision}"));
                }
                self.last = Some((run, revision));
            }
            Key::Text(hash) => {
                self.report.texts += 1;
                if self.whole(key, value).is_some_and(|text| sha256_hex(&text) != hash) {
                    self.report.problem(format!("the text {hash} does not hash to its key"));
                }
            }
            Key::StartKey(name) => {
                self.report.start_keys += 1;
                let run = std::str::from_utf8(value).ok().filter(|run| keys::is_run_id(run));
                let known = run.map(|run| self.disk.get(&keys::start_of(&RunId(run.to_owned()), &name)));
                if !matches!(known, Some(Ok(Some(_)))) {
                    self.report.problem(format!("the start key `{name}` names no run that knows it"));
                }
            }
            Key::StartOf(run, name) => {
                let named = self.disk.get(&keys::start_key(&name));
                if !matches!(named, Ok(Some(bytes)) if bytes == run.as_str().as_bytes()) {
                    self.report.problem(format!("{run} knows a start key `{name}` that does not name it"));
                }
            }
            Key::Meta(_) => {}
        }
    }

    fn json(&mut self, key: &[u8], head: &[u8], what: &str) {
        let Some(value) = self.whole(key, head) else { return };
        if let Err(error) = serde_json::from_slice::<serde::de::IgnoredAny>(&value) {
            self.report.problem(format!("{what} is no JSON: {error}"));
        }
    }

    fn whole(&mut self, key: &[u8], head: &[u8]) -> Option<Vec<u8>> {
        let chunks = self.chunks.remove(key).unwrap_or(0);
        if let Ok(keys::Packed::Chunked(count, _)) = keys::unpack(key, head)
            && count < chunks
        {
            self.report.problem(format!("{} has {chunks} chunks where it needs {count}", keys::shown(key)));
        }
        if let Ok(keys::Packed::Whole(_)) = keys::unpack(key, head)
            && chunks > 0
        {
            self.report.problem(format!("{} has {chunks} chunks where it needs none", keys::shown(key)));
        }
        match reader::put_together(self.disk, key, head) {
            Ok(value) => Some(value),
            Err(error) => {
                self.report.problem(error.to_string());
                None
            }
        }
    }
}
