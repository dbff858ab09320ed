//! A conversation's record on disk: one append-only file of batches, one line each (spec H-12 to H-15, decision 32).
//!
//! A batch is one line, so a torn write loses a whole batch or nothing. `Written` survives the death of the process,
//! `Synced` the loss of power too.

use super::log::{Batch, Entry, Log};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Path segments keep letters, digits, `-` and `_`; a dot becomes `%2E`, so no name of ours is a hidden or parent
/// folder (spec H-12).
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_');
/// Longest encoded path segment in bytes: file systems stop at 255, and a folder set aside gets a suffix.
pub const SEGMENT_MAX_BYTES: usize = 230;
/// Largest record that is rebuilt, in bytes: far above what any model window can hold.
const RECORD_MAX_BYTES: u64 = 512 << 20;
/// Version of the record's shape.
const VERSION: u32 = 1;
/// The one append-only file.
const LOG_FILE: &str = "record/log.jsonl";
/// Who the conversation is.
const HEAD_FILE: &str = "conversation.json";

/// `conversation.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Head {
    v: u32,
    agent: String,
    instance_id: String,
}

/// Why a record cannot be rebuilt.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// A file could not be read or cut.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It says something that is no record.
    #[error("{0}")]
    Shape(String),
}

/// The folder of a conversation: `<agent>/<iid>`, each percent-encoded (spec H-12).
pub fn folder(root: &Path, agent: &str, iid: &str) -> PathBuf {
    root.join(segment(agent)).join(segment(iid))
}

/// One encoded path segment.
pub fn segment(name: &str) -> String {
    utf8_percent_encode(name, SEGMENT).to_string()
}

/// An open record.
#[derive(Clone, Debug)]
pub struct Record {
    file: Arc<File>,
}

impl Record {
    /// Makes the folder, its head and an empty log; a folder that is in the way (its record was unreadable) is set
    /// aside first. Everything is synced but the log's content.
    pub fn create(root: &Path, agent: &str, iid: &str) -> io::Result<Self> {
        let dir = folder(root, agent, iid);
        set_aside(&dir)?;
        std::fs::create_dir_all(dir.join("record"))?;
        let head = Head { v: VERSION, agent: agent.to_owned(), instance_id: iid.to_owned() };
        let mut file = File::create(dir.join(HEAD_FILE))?;
        file.write_all(serde_json::to_string(&head).map_err(io::Error::other)?.as_bytes())?;
        file.sync_all()?;
        let file = OpenOptions::new().create(true).append(true).open(dir.join(LOG_FILE))?;
        for folder in
            [dir.join("record"), dir.clone()].iter().map(PathBuf::as_path).chain(dir.ancestors().skip(1).take(2))
        {
            File::open(folder)?.sync_all()?;
        }
        Ok(Self { file: Arc::new(file) })
    }

    /// Appends one line. It survives the process from here on, and the machine after [`Record::sync`].
    pub fn write(&self, line: &str) -> io::Result<()> {
        let mut file: &File = &self.file;
        file.write_all(line.as_bytes())
    }

    /// Makes everything written durable. Blocking.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// The line of one batch, with its newline.
pub fn line(batch: u64, at: u64, entries: &[Entry]) -> io::Result<String> {
    let mut text = serde_json::to_string(&Batch { b: batch, at, e: entries.to_vec() }).map_err(io::Error::other)?;
    text.push('\n');
    Ok(text)
}

/// A conversation read back.
#[derive(Debug)]
pub struct Rebuilt {
    /// The Agent's name.
    pub agent: String,
    /// The iid.
    pub iid: String,
    /// The fold of its record.
    pub log: Log,
    /// The record, open for more.
    pub record: Record,
}

/// A folder that could not be read, and why.
pub type Unreadable = (PathBuf, RecordError);

/// Every conversation under `root`, with the folders that could not be read.
pub fn rebuild_all(root: &Path) -> io::Result<(Vec<Rebuilt>, Vec<Unreadable>)> {
    let (mut rebuilt, mut unreadable) = (Vec::new(), Vec::new());
    for agent in folders(root)? {
        for dir in folders(&agent)? {
            match rebuild(&dir) {
                Ok(Some(conversation)) => rebuilt.push(conversation),
                // Nothing was ever seated there: no answer left for it.
                Ok(None) => {}
                Err(error) => unreadable.push((dir, error)),
            }
        }
    }
    Ok((rebuilt, unreadable))
}

/// Folders whose names are ours: a dot never stands in one, so hidden and set-aside folders are passed over.
fn folders(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() && !entry.file_name().to_string_lossy().contains('.') {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

fn rebuild(dir: &Path) -> Result<Option<Rebuilt>, RecordError> {
    let path = dir.join(LOG_FILE);
    let bytes = match std::fs::metadata(&path) {
        Ok(meta) if meta.len() > RECORD_MAX_BYTES => {
            return Err(RecordError::Shape(format!("its record is over {RECORD_MAX_BYTES} bytes")));
        }
        Ok(_) => std::fs::read(&path)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let (log, kept) = fold(&bytes)?;
    if log.batches == 0 {
        return Ok(None);
    }
    let head: Head = serde_json::from_slice(&std::fs::read(dir.join(HEAD_FILE))?)
        .map_err(|error| RecordError::Shape(format!("{HEAD_FILE}: {error}")))?;
    if head.v != VERSION {
        return Err(RecordError::Shape(format!("its version is {}, this Harness reads {VERSION}", head.v)));
    }
    let name = dir.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if percent_decode_str(&name).decode_utf8_lossy() != head.instance_id {
        return Err(RecordError::Shape(format!("{HEAD_FILE} names another conversation")));
    }
    let file = OpenOptions::new().append(true).open(&path)?;
    if kept < bytes.len() {
        file.set_len(kept as u64)?;
        file.sync_all()?;
    }
    Ok(Some(Rebuilt { agent: head.agent, iid: head.instance_id, log, record: Record { file: Arc::new(file) } }))
}

/// Folds a record's bytes; answers how many of them hold. What follows the last good line is a torn write.
fn fold(bytes: &[u8]) -> Result<(Log, usize), RecordError> {
    let mut log = Log::default();
    let mut kept = 0;
    for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
        let last = kept + piece.len() == bytes.len();
        if last && !piece.ends_with(b"\n") {
            break;
        }
        match serde_json::from_slice::<Batch>(piece) {
            Ok(batch) if batch.b == log.batches => log.apply(&batch.e),
            Ok(batch) => {
                return Err(RecordError::Shape(format!("batch {} stands where {} belongs", batch.b, log.batches)));
            }
            // A torn write can leave a newline of its own behind, at the end only.
            Err(_) if last => break,
            Err(error) => return Err(RecordError::Shape(format!("batch {}: {error}", log.batches))),
        }
        kept += piece.len();
    }
    Ok((log, kept))
}

/// Renames a folder that is in the way to `<name>.unreadable-<n>`.
fn set_aside(dir: &Path) -> io::Result<()> {
    if !dir.exists() {
        return Ok(());
    }
    for n in 1..=u32::MAX {
        let aside = PathBuf::from(format!("{}.unreadable-{n}", dir.display()));
        if !aside.exists() {
            return std::fs::rename(dir, aside);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ChatMessage;
    use proptest::prelude::*;

    fn entries(n: u64) -> Vec<Entry> {
        vec![
            Entry::Admitted { submission: format!("s-{n}"), admission: Some(format!("r/a#{n}")), carried: vec![] },
            Entry::Message { submission: format!("s-{n}"), message: ChatMessage::User(format!("zwölf {n}\n")) },
        ]
    }

    fn bytes(batches: u64) -> (Vec<u8>, Vec<usize>) {
        let mut text = String::new();
        let mut ends = vec![0];
        for n in 0..batches {
            text.push_str(&line(n, 7, &entries(n)).unwrap());
            ends.push(text.len());
        }
        (text.into_bytes(), ends)
    }

    proptest! {
        #[test]
        fn h_13_a_record_cut_anywhere_keeps_every_whole_batch(cut in 0usize..2_000) {
            let (all, ends) = bytes(6);
            let cut = cut.min(all.len());
            let (log, kept) = fold(&all[..cut]).unwrap();
            let whole = ends.iter().filter(|end| **end <= cut).count() - 1;
            prop_assert_eq!(log.batches, whole as u64);
            prop_assert_eq!(kept, ends[whole]);
        }
    }

    #[test]
    fn h_13_a_bad_line_in_the_middle_is_unreadable_and_at_the_end_is_cut() {
        let (mut all, ends) = bytes(3);
        all[ends[1] + 1] = b'#';
        assert!(fold(&all).is_err());
        let (mut all, ends) = bytes(3);
        all[ends[2] + 1] = 0;
        assert_eq!(fold(&all).unwrap().1, ends[2]);
    }

    #[test]
    fn a_batch_out_of_order_is_unreadable() {
        let text = format!("{}{}", line(0, 1, &entries(0)).unwrap(), line(2, 1, &entries(2)).unwrap());
        assert!(matches!(fold(text.as_bytes()), Err(RecordError::Shape(_))));
    }

    #[test]
    fn h_12_folders_are_percent_encoded() {
        let dir = folder(Path::new("/c"), "co.der", "r/root/co der/00ff");
        assert_eq!(dir, Path::new("/c/co%2Eder/r%2Froot%2Fco%20der%2F00ff"));
        assert_eq!(segment(".."), "%2E%2E");
    }

    #[test]
    fn an_unreadable_folder_is_set_aside_and_the_rest_is_rebuilt() {
        let root = tempfile::tempdir().unwrap();
        for iid in ["r/a/1", "r/a/2"] {
            let record = Record::create(root.path(), "a", iid).unwrap();
            record.write(&line(0, 1, &entries(0)).unwrap()).unwrap();
            record.sync().unwrap();
        }
        std::fs::write(folder(root.path(), "a", "r/a/1").join(HEAD_FILE), "{").unwrap();
        let (rebuilt, unreadable) = rebuild_all(root.path()).unwrap();
        assert_eq!((rebuilt.len(), unreadable.len()), (1, 1));
        Record::create(root.path(), "a", "r/a/1").unwrap();
        assert!(root.path().join("a/r%2Fa%2F1.unreadable-1").is_dir());
        let (rebuilt, unreadable) = rebuild_all(root.path()).unwrap();
        assert_eq!((rebuilt.len(), unreadable.len()), (1, 0), "the set-aside and the empty one are passed over");
    }
}
