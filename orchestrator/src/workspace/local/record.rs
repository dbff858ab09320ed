//! What the provider remembers of a Sandbox across its own death: one JSON file each, replaced atomically.

use super::cgroup::Cgroup;
use super::death::{Ended, Exit};
use super::process::ProcessId;
use crate::workspace::{LastEnd, SandboxSpec, SavedBranch};
use jr2_shared::size::format_memory;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Version of the file's shape.
const VERSION: u32 = 1;
/// Largest record read in bytes: a spec with its slots is a few KiB.
const RECORD_MAX_BYTES: u64 = 1 << 20;
/// Random bytes of a token: the strength of the Instance token (spec section 15).
const TOKEN_BYTES: usize = 32;
/// Random bytes of a uid.
const UID_BYTES: usize = 8;

/// How far a Sandbox has come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "stage")]
pub enum Stage {
    /// Its slots are being made; no Agent has seen them.
    Cloning,
    /// Its slots are whole: they are never made again.
    Cloned,
    /// It was torn down; kept until swept, so that a repeated teardown gives the same answer.
    Gone {
        /// Where its branches went.
        saved: Vec<SavedBranch>,
    },
}

/// One Sandbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// [`VERSION`].
    pub v: u32,
    /// Tells this Sandbox from an earlier one of the same name.
    pub uid: String,
    /// What it was asked to be.
    pub spec: SandboxSpec,
    /// How far it has come.
    #[serde(flatten)]
    pub stage: Stage,
    /// The Orchestrator's bearer towards the Harness.
    pub harness_token: String,
    /// The Harness's bearer towards the Custodian.
    pub sandbox_token: String,
    /// The Harness, once started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessId>,
    /// How the Harness last ended; stays until it ends again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ended>,
    /// The memory cgroup of its own, where it has one: only there is a limit enforced and a kernel kill counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<Cgroup>,
}

/// Why a record cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {error}")]
pub struct RecordError {
    path: PathBuf,
    error: std::io::Error,
}

impl Record {
    /// A new Sandbox with tokens of its own.
    pub fn new(spec: SandboxSpec, path: &Path) -> Result<Self, RecordError> {
        let text = |bytes: &mut [u8]| {
            getrandom::fill(bytes)
                .map_err(|e| RecordError { path: path.into(), error: std::io::Error::other(e.to_string()) })?;
            Ok::<_, RecordError>(jr2_shared::harness::base64url(bytes))
        };
        let mut uid = [0; UID_BYTES];
        text(&mut uid)?;
        Ok(Self {
            v: VERSION,
            uid: jr2_shared::ids::hex(&uid),
            spec,
            stage: Stage::Cloning,
            harness_token: text(&mut [0; TOKEN_BYTES])?,
            sandbox_token: text(&mut [0; TOKEN_BYTES])?,
            process: None,
            ended: None,
            cgroup: None,
        })
    }

    /// Notes the end of a Harness process, once. `kills` counts kernel kills since its start.
    pub fn note_end(&mut self, process: Option<&ProcessId>, exit: Exit, kills: Option<u64>, now: u64) -> LastEnd {
        if let Some(known) = self.ended.as_ref().filter(|e| process.is_some() && e.process.as_ref() == process) {
            return known.end.clone();
        }
        // Later ends are told apart by their instants, whatever the clock does.
        let at = now.max(self.ended.as_ref().map_or(0, |e| e.end.at + 1));
        let limit = self.cgroup.is_some().then(|| format_memory(self.spec.size.memory_bytes));
        let end = exit.end(kills, at, limit);
        self.ended = Some(Ended { process: process.cloned(), end: end.clone() });
        end
    }

    /// The Harness this record names has ended and nobody noted how.
    pub fn has_unnoted_end(&self) -> bool {
        let noted = self.ended.as_ref().and_then(|e| e.process.as_ref());
        self.process.is_some() && self.process.as_ref() != noted
    }

    /// Reads a record; `None` when there is none.
    pub fn load(path: &Path) -> Result<Option<Self>, RecordError> {
        let fail = |error| RecordError { path: path.into(), error };
        match std::fs::metadata(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(fail(error)),
            Ok(found) if found.len() > RECORD_MAX_BYTES => {
                return Err(fail(std::io::Error::other("larger than 1 MiB")));
            }
            Ok(_) => {}
        }
        let bytes = std::fs::read(path).map_err(fail)?;
        let record: Self = serde_json::from_slice(&bytes).map_err(|e| fail(e.into()))?;
        if record.v != VERSION {
            return Err(fail(std::io::Error::other(format!("version {} is not known here", record.v))));
        }
        Ok(Some(record))
    }

    /// Replaces the record: after this returns the new one survives a loss of power.
    pub fn save(&self, path: &Path) -> Result<(), RecordError> {
        let write = || {
            let part = path.with_extension("part");
            let mut file =
                std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part)?;
            file.write_all(&serde_json::to_vec(self)?)?;
            file.sync_all()?;
            std::fs::rename(&part, path)?;
            let folder = path.parent().unwrap_or(Path::new("/"));
            std::fs::File::open(folder)?.sync_all()
        };
        write().map_err(|error| RecordError { path: path.into(), error })
    }
}

/// The names that have a record.
pub fn names(folder: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|e| e.file_name().to_str().and_then(|n| n.strip_suffix(".json")).map(str::to_owned))
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ws-a.json");
        assert!(Record::load(&path).unwrap().is_none());
        let spec = SandboxSpec {
            name: "ws-a".into(),
            run: "r".into(),
            repos: vec![],
            branch: "b".into(),
            size: jr2_shared::size::Size::default(),
        };
        let mut record = Record::new(spec, &path).unwrap();
        record.process = Some(ProcessId { pid: 7, start_time: 9, boot: "x".into() });
        record.stage = Stage::Gone { saved: vec![] };
        assert!(record.has_unnoted_end());
        let process = record.process.clone();
        let end = record.note_end(process.as_ref(), Exit::Signal(9), None, 50);
        assert_eq!((end.at, end.oom, end.limit), (50, None, None));
        assert_eq!(record.note_end(process.as_ref(), Exit::Unknown, None, 60).at, 50, "an end is noted once");
        assert!(!record.has_unnoted_end());
        record.save(&path).unwrap();
        assert_eq!(Record::load(&path).unwrap().unwrap(), record);
        assert_eq!(names(dir.path()), ["ws-a"]);
        record.cgroup = Some(Cgroup { path: "/sys/fs/cgroup/x".into() });
        let end = record.note_end(None, Exit::Signal(9), Some(1), 7);
        assert_eq!((end.at, end.oom), (51, Some(true)), "ends are in order, whatever the clock does");
        assert_eq!(end.limit.as_deref(), Some(format_memory(record.spec.size.memory_bytes)).as_deref());
        std::fs::write(&path, "{").unwrap();
        assert!(Record::load(&path).is_err());
    }
}
