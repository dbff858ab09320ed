//! `jr2 store export|import`: a store as JSON lines (decision 1).
//!
//! The first line is a header with the format version, then comes one line a row, history entry, text and start key, and
//! the last line counts them, so that half a file is never taken for a whole one.

use super::committer::Medium;
use super::keys::{self, FORMAT, Key, META_EPOCH, META_FORMAT, META_IMPORTING};
use super::reader::{self, Keyspace};
use super::sled_store::{Disk, open_existing, open_to_fill};
use super::write_set::{self, ROW_MAX_BYTES, TEXT_MAX_BYTES, WriteSet, Writes};
use super::{Save, StoreError};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jr2_shared::ids::RunId;
use serde::{Deserialize, Serialize};
use std::io::{BufRead, Read as _, Write};
use std::path::Path;

/// Longest line an import reads, in bytes: the largest text in base64, with its key.
const LINE_MAX_BYTES: u64 = (TEXT_MAX_BYTES / 3 * 4 + 4096) as u64;
/// Bytes of lines that an import writes at once.
const BATCH_BYTES: usize = ROW_MAX_BYTES;

/// What an export wrote or an import read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TransferReport {
    /// Rows.
    pub rows: u64,
    /// History entries.
    pub history: u64,
    /// Pinned texts.
    pub texts: u64,
    /// Start keys.
    pub start_keys: u64,
}

/// One line of an export.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
enum Line {
    Header { format: String, epoch: u64 },
    Row { run: RunId, value: Value },
    History { run: RunId, rev: u64, value: Value },
    Text { hash: String, value: Value },
    StartKey { key: String, run: RunId },
    End(TransferReport),
}

/// A value in the most readable of three forms that keeps every byte.
#[derive(PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Value {
    Json(serde_json::Value),
    Text(String),
    Base64(String),
}

impl Value {
    fn of(bytes: &[u8]) -> Self {
        let json = serde_json::from_slice(bytes).ok().map(Self::Json).filter(|json| json.survives(bytes));
        json.or_else(|| std::str::from_utf8(bytes).ok().map(|text| Self::Text(text.to_owned())))
            .unwrap_or_else(|| Self::Base64(STANDARD.encode(bytes)))
    }

    /// Whether the bytes come back from a line: JSON with odd spacing, numbers or depth does not keep them.
    fn survives(&self, bytes: &[u8]) -> bool {
        let line = serde_json::to_string(self)
            .ok()
            .map(|json| format!("{{\"kind\":\"text\",\"hash\":\"\",\"value\":{json}}}"));
        match line.and_then(|line| serde_json::from_str(&line).ok()) {
            Some(Line::Text { value, .. }) => value.bytes().is_ok_and(|back| back == bytes),
            _ => false,
        }
    }

    fn bytes(self) -> Result<Vec<u8>, String> {
        match self {
            Self::Json(json) => serde_json::to_vec(&json).map_err(|error| error.to_string()),
            Self::Text(text) => Ok(text.into_bytes()),
            Self::Base64(text) => STANDARD.decode(text).map_err(|error| error.to_string()),
        }
    }
}

/// Writes the store in `dir` as JSON lines. The store must not be open elsewhere; nothing in it changes.
///
/// # Errors
/// As [`SledStore::open`](super::SledStore::open); [`StoreError::Unreadable`] at the first value that cannot be read.
pub fn export(dir: &Path, to: &mut dyn Write) -> Result<TransferReport, StoreError> {
    let disk = open_existing(dir)?;
    if !disk.check_format()? {
        return Err(disk.failed("there is no store".into()));
    }
    let mut report = TransferReport::default();
    let mut outcome = write_line(&disk, to, &Line::Header { format: FORMAT.into(), epoch: disk.epoch()? });
    disk.scan(&[], &[0xff], &mut |key, head| {
        if outcome.is_ok() {
            outcome = match line_of(&disk, key, head, &mut report) {
                Ok(Some(line)) => write_line(&disk, to, &line),
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
        }
        outcome.is_ok()
    })?;
    outcome?;
    write_line(&disk, to, &Line::End(report))?;
    to.flush().map_err(|error| disk.failed(format!("the export cannot be written: {error}")))?;
    Ok(report)
}

fn write_line(disk: &Disk, to: &mut dyn Write, line: &Line) -> Result<(), StoreError> {
    let mut text = serde_json::to_vec(line).map_err(|error| disk.failed(error.to_string()))?;
    text.push(b'\n');
    to.write_all(&text).map_err(|error| disk.failed(format!("the export cannot be written: {error}")))
}

fn line_of(disk: &Disk, key: &[u8], head: &[u8], report: &mut TransferReport) -> Result<Option<Line>, StoreError> {
    let value = || reader::put_together(disk, key, head).map(|bytes| Value::of(&bytes));
    Ok(match keys::parse(key) {
        Some(Key::Row(run)) => {
            report.rows += 1;
            Some(Line::Row { run, value: value()? })
        }
        Some(Key::History(run, rev)) => {
            report.history += 1;
            Some(Line::History { run, rev, value: value()? })
        }
        Some(Key::Text(hash)) => {
            report.texts += 1;
            Some(Line::Text { hash, value: value()? })
        }
        Some(Key::StartKey(name)) => {
            report.start_keys += 1;
            reader::start_key(disk, &name)?.map(|run| Line::StartKey { key: name, run })
        }
        Some(Key::StartOf(..) | Key::Chunk(..) | Key::Meta(_)) => None,
        None => return Err(StoreError::Unreadable(format!("an unknown key: {}", keys::shown(key)))),
    })
}

/// Fills the store in `dir` from an export. The store must be empty or missing. Until the last line is durable the store
/// is marked as half an import, and every opening refuses it.
///
/// # Errors
/// [`StoreError::Refused`] for a store that holds something and for a file that is no whole export, with the line.
pub fn import(from: &mut dyn BufRead, dir: &Path) -> Result<TransferReport, StoreError> {
    let disk = open_to_fill(dir)?;
    disk.check_format()?;
    for prefix in [b"r/", b"h/", b"t/", b"k/", b"c/", b"i/"] {
        let mut found = false;
        disk.scan(prefix, &keys::after(prefix), &mut |_, _| {
            found = true;
            false
        })?;
        if found {
            return Err(StoreError::Refused(format!("the store at {} is not empty", disk.path())));
        }
    }
    let mut lines = Lines { from, number: 0 };
    let Some(Line::Header { format, epoch }) = lines.next()? else {
        return Err(lines.wrong("this is no jr2 store export"));
    };
    if format != FORMAT {
        return Err(lines.wrong(&format!("its format is `{format}`; this build reads `{FORMAT}`")));
    }
    let epoch = epoch.max(disk.epoch()?);
    disk.apply(Writes::from([(META_IMPORTING.to_vec(), Some(Vec::new()))]))?;
    disk.flush()?;
    let report = fill(&disk, &mut lines)?;
    disk.apply(Writes::from([
        (META_IMPORTING.to_vec(), None),
        (META_FORMAT.to_vec(), Some(FORMAT.as_bytes().to_vec())),
        (META_EPOCH.to_vec(), Some(epoch.to_string().into_bytes())),
    ]))?;
    disk.flush()?;
    Ok(report)
}

fn fill(disk: &Disk, lines: &mut Lines<'_>) -> Result<TransferReport, StoreError> {
    let mut report = TransferReport::default();
    loop {
        let (mut set, mut bytes) = (WriteSet::new(disk), 0);
        while bytes < BATCH_BYTES {
            let save = match lines.next()? {
                Some(Line::End(counted)) if counted == report => {
                    disk.apply(set.into_writes())?;
                    return Ok(report);
                }
                Some(Line::End(_)) => return Err(lines.wrong("lines are missing before the end")),
                Some(line) => lines.save_of(line, &mut report)?,
                None => return Err(lines.wrong("the file ends before the end of the export")),
            };
            write_set::check(&save).map_err(|error| lines.wrong(&error.to_string()))?;
            bytes += write_set::weight(&save) + 64;
            set.stage(&save)?;
        }
        let writes = set.into_writes();
        disk.room_for(bytes)?;
        disk.apply(writes)?;
        disk.flush()?;
    }
}

/// The lines of an import, with their numbers for error messages.
struct Lines<'a> {
    from: &'a mut dyn BufRead,
    number: u64,
}

impl Lines<'_> {
    fn next(&mut self) -> Result<Option<Line>, StoreError> {
        self.number += 1;
        let mut line = Vec::new();
        let mut bounded = (&mut *self.from).take(LINE_MAX_BYTES + 1);
        let read = bounded.read_until(b'\n', &mut line).map_err(|error| self.wrong(&error.to_string()))?;
        if read as u64 > LINE_MAX_BYTES {
            return Err(self.wrong(&format!("longer than {LINE_MAX_BYTES} bytes")));
        }
        if line.is_empty() {
            return Ok(None);
        }
        serde_json::from_slice(&line).map(Some).map_err(|error| self.wrong(&format!("no line of an export: {error}")))
    }

    fn save_of(&self, line: Line, report: &mut TransferReport) -> Result<Save, StoreError> {
        let bytes = |value: Value| value.bytes().map_err(|error| self.wrong(&error));
        let save = Save::default();
        Ok(match line {
            Line::Row { run, value } => {
                report.rows += 1;
                Save { run: Some(run), row: Some(bytes(value)?), ..save }
            }
            Line::History { run, rev, value } => {
                report.history += 1;
                Save { run: Some(run), history: Some((rev, bytes(value)?)), ..save }
            }
            Line::Text { hash, value } => {
                report.texts += 1;
                Save { texts: vec![(hash, bytes(value)?)], ..save }
            }
            Line::StartKey { key, run } => {
                report.start_keys += 1;
                Save { start_keys: vec![(key, run)], ..save }
            }
            Line::Header { .. } | Line::End(_) => return Err(self.wrong("a header in the middle")),
        })
    }

    fn wrong(&self, why: &str) -> StoreError {
        StoreError::Refused(format!("line {} of the import: {why}", self.number))
    }
}
