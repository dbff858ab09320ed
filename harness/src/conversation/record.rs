//! A conversation's record on disk: one append-only file of batches, one line each (spec H-12 to H-15, decision 32).
//!
//! A batch is one line, so a torn write loses a whole batch or nothing. `Written` survives the death of the process,
//! `Synced` the loss of power too.

use super::files;
use super::log::{Batch, Entry, Log};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use std::fs::File;
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
/// Largest head in bytes: a few names.
const HEAD_MAX_BYTES: u64 = 16 << 10;
/// The folder of the one append-only file.
const RECORD: &str = "record";
/// It.
const LOG_FILE: &str = "log.jsonl";
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
    /// Makes the folder, its head and an empty log; what is in the way (an unreadable record, something foreign) is set
    /// aside first. Everything is synced but the log's content.
    pub fn create(root: &Path, agent: &str, iid: &str) -> io::Result<Self> {
        let inside = Path::new(&segment(agent)).join(segment(iid));
        for place in [root.join(segment(agent)), root.join(&inside)] {
            let is_folder = std::fs::symlink_metadata(&place).is_ok_and(|meta| meta.is_dir());
            if !is_folder || (place.ends_with(&inside) && !is_unused(root, &inside)) {
                files::set_aside(&place)?;
            }
        }
        let record = files::folder(root, &inside.join(RECORD), true)?;
        let folder = files::folder(root, &inside, false)?;
        let head = Head { v: VERSION, agent: agent.to_owned(), instance_id: iid.to_owned() };
        let mut file = files::file(&folder, HEAD_FILE, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC)?;
        file.write_all(serde_json::to_string(&head).map_err(io::Error::other)?.as_bytes())?;
        file.sync_all()?;
        let file = files::file(&record, LOG_FILE, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::APPEND)?;
        for folder in [record, folder, files::folder(root, Path::new(&segment(agent)), false)?] {
            File::from(folder).sync_all()?;
        }
        File::open(root)?.sync_all()?;
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

/// Every conversation under `root`, with the folders that could not be read. Foreign files are passed over; folders whose
/// removal had begun are removed. An error means that the process lacks something: then nothing may be taken for lost.
pub fn rebuild_all(root: &Path) -> io::Result<(Vec<Rebuilt>, Vec<Unreadable>)> {
    let (mut rebuilt, mut unreadable) = (Vec::new(), Vec::new());
    for agent in folders(root)? {
        let found = match folders(&root.join(&agent)) {
            Err(error) if !files::is_shortage(&error) => {
                unreadable.push((root.join(&agent), error.into()));
                continue;
            }
            other => other?,
        };
        for conversation in found {
            let inside = Path::new(&agent).join(conversation);
            match rebuild(root, &inside) {
                Ok(Some(conversation)) => rebuilt.push(conversation),
                // Nothing was ever seated there: no answer left for it.
                Ok(None) => {}
                Err(RecordError::Io(error)) if files::is_shortage(&error) => return Err(error),
                Err(error) => unreadable.push((root.join(inside), error)),
            }
        }
    }
    Ok((rebuilt, unreadable))
}

/// Names of folders that are ours: a dot never stands in one, so hidden and set-aside folders are passed over.
fn folders(root: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if !entry.file_type()?.is_dir() {
            continue;
        }
        if files::is_freed(&name) {
            let _ = std::fs::remove_dir_all(entry.path());
        } else if !name.contains('.') {
            found.push(name);
        }
    }
    found.sort();
    Ok(found)
}

/// Whether nothing was ever seated in a folder: its first write was cut.
fn is_unused(root: &Path, inside: &Path) -> bool {
    matches!(rebuild(root, inside), Ok(None))
}

fn rebuild(root: &Path, inside: &Path) -> Result<Option<Rebuilt>, RecordError> {
    let folder = files::folder(root, inside, false)?;
    let record = match files::folder(root, &inside.join(RECORD), false) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let bytes = match files::read(&record, LOG_FILE, RECORD_MAX_BYTES) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?.ok_or_else(|| RecordError::Shape(format!("its record is over {RECORD_MAX_BYTES} bytes")))?,
    };
    let (log, kept) = fold(&bytes)?;
    if log.batches == 0 {
        return Ok(None);
    }
    let head = files::read(&folder, HEAD_FILE, HEAD_MAX_BYTES)?
        .ok_or_else(|| RecordError::Shape(format!("{HEAD_FILE} is over {HEAD_MAX_BYTES} bytes")))?;
    let head: Head =
        serde_json::from_slice(&head).map_err(|error| RecordError::Shape(format!("{HEAD_FILE}: {error}")))?;
    if head.v != VERSION {
        return Err(RecordError::Shape(format!("its version is {}, this Harness reads {VERSION}", head.v)));
    }
    // Two folders must never be one conversation.
    if inside != Path::new(&segment(&head.agent)).join(segment(&head.instance_id)) {
        return Err(RecordError::Shape(format!("{HEAD_FILE} names another conversation")));
    }
    let file = files::file(&record, LOG_FILE, OFlags::WRONLY | OFlags::APPEND)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ChatMessage;
    use proptest::prelude::*;
    use std::os::unix::ffi::OsStrExt as _;

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
        // A folder that nothing was seated in is used, not set aside: a full disk would leave one at every start.
        Record::create(root.path(), "a", "r/a/1").unwrap();
        assert!(!root.path().join("a/r%2Fa%2F1.unreadable-2").exists());
    }

    /// What somebody may put beside a good record: (what it is, its place, how it comes there, whether it is reported).
    type Foreign = (&'static str, &'static str, fn(&Path), bool);

    #[test]
    fn h_13_foreign_files_neither_stop_the_start_nor_take_a_place() {
        let pipe =
            |at: &Path| rustix::fs::mknodat(rustix::fs::CWD, at, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let foreign: &[Foreign] = &[
            ("a pipe for a log", "a/r/record/log.jsonl", pipe, true),
            (
                "a device for a log",
                "a/r/record/log.jsonl",
                |at| std::os::unix::fs::symlink("/dev/zero", at).unwrap(),
                true,
            ),
            ("a folder for a log", "a/r/record/log.jsonl", |at| std::fs::create_dir(at).unwrap(), true),
            ("a link for a record", "a/r/record", |at| std::os::unix::fs::symlink("../g/record", at).unwrap(), true),
            ("a file for a record", "a/r/record", |at| std::fs::write(at, "x").unwrap(), true),
            ("a file for a conversation", "a/r", |at| std::fs::write(at, "x").unwrap(), false),
            ("a link for a conversation", "a/r", |at| std::os::unix::fs::symlink("g", at).unwrap(), false),
            (
                "a log that is no text",
                "a/r/record/log.jsonl",
                |at| std::fs::write(at, [0u8, 159, 10, 65, 10]).unwrap(),
                true,
            ),
            (
                "a deep log",
                "a/r/record/log.jsonl",
                |at| std::fs::write(at, "[".repeat(1 << 20) + "\n\n").unwrap(),
                true,
            ),
            ("an empty log", "a/r/record/log.jsonl", |at| std::fs::write(at, "").unwrap(), false),
            ("a file beside the Agents", "notes.txt", |at| std::fs::write(at, "x").unwrap(), false),
            (
                "a name that is no text",
                "a/r",
                |at| {
                    let name = std::ffi::OsStr::from_bytes(&[b'r', 0xff]);
                    std::fs::create_dir(at.parent().unwrap().join(name)).unwrap();
                },
                false,
            ),
        ];
        for (what, place, put, reported) in foreign {
            let root = tempfile::tempdir().unwrap();
            let good = Record::create(root.path(), "a", "g").unwrap();
            good.write(&line(0, 1, &entries(0)).unwrap()).unwrap();
            let at = root.path().join(place);
            std::fs::create_dir_all(at.parent().unwrap()).unwrap();
            put(&at);
            let (rebuilt, unreadable) = rebuild_all(root.path()).unwrap();
            assert_eq!((rebuilt.len(), unreadable.len()), (1, usize::from(*reported)), "{what}: {unreadable:?}");
            let fresh = Record::create(root.path(), "a", "r").unwrap();
            fresh.write(&line(0, 1, &entries(0)).unwrap()).unwrap();
            assert_eq!(rebuild_all(root.path()).unwrap().0.len(), 2, "{what}: the place is free");
        }
    }

    #[test]
    fn two_folders_are_never_one_conversation() {
        let root = tempfile::tempdir().unwrap();
        let record = Record::create(root.path(), "a", "g").unwrap();
        record.write(&line(0, 1, &entries(0)).unwrap()).unwrap();
        let copy = |to: &str| {
            std::fs::create_dir_all(root.path().join(to).join("record")).unwrap();
            for name in [HEAD_FILE, "record/log.jsonl"] {
                std::fs::copy(root.path().join("a/g").join(name), root.path().join(to).join(name)).unwrap();
            }
        };
        copy("a/%67");
        copy("b/g");
        let (rebuilt, unreadable) = rebuild_all(root.path()).unwrap();
        assert_eq!((rebuilt.len(), unreadable.len()), (1, 2));
    }

    #[test]
    fn a_removal_that_was_cut_is_finished_and_brings_nothing_back() {
        let root = tempfile::tempdir().unwrap();
        let record = Record::create(root.path(), "a", "g").unwrap();
        record.write(&line(0, 1, &entries(0)).unwrap()).unwrap();
        let away = files::set_freed(&root.path().join("a/g")).unwrap().unwrap();
        let (rebuilt, unreadable) = rebuild_all(root.path()).unwrap();
        assert_eq!((rebuilt.len(), unreadable.len()), (0, 0));
        assert!(!away.exists());
    }
}
