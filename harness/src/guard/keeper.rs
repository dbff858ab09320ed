//! The keeper of the kill list: the list in memory, the file behind it.

use super::kills::{KillList, Parsed, parse};
use super::{FILE_NAME, Kill, file};
use jr2_shared::memory_kills::{MemoryKills, Told};
use std::path::PathBuf;
use tokio::sync::Mutex;

/// Faults named in the one log line of a read.
const FAULTS_SHOWN: usize = 5;

/// Keeps kills. What it answers while it runs is its own memory: an edit of the file counts at the next start only.
pub struct Keeper {
    /// The Instance Harness keeps none (spec N-34, M-20).
    keeps: bool,
    folder: Option<PathBuf>,
    list: Mutex<KillList>,
}

impl Keeper {
    /// A keeper that keeps nothing: the Instance Harness holds no Workspace (spec M-20).
    pub fn none() -> Self {
        Self { keeps: false, folder: None, list: Mutex::default() }
    }

    /// A keeper with its file in `folder`, in memory only without one; reads what an earlier process kept (spec M-14). A file
    /// that cannot be used costs what it said and one log line, never the start.
    pub fn open(folder: Option<PathBuf>) -> Self {
        let mut list = KillList::default();
        if let Some(folder) = &folder {
            match file::read_tail(folder) {
                Ok(None) => {}
                Ok(Some(bytes)) => {
                    let parsed = parse(&bytes);
                    if let Some(words) = complaint(&parsed) {
                        tracing::warn!("harness: {}: {words}", folder.join(FILE_NAME).display());
                    }
                    list = parsed.list;
                }
                Err(error) => {
                    tracing::warn!("harness: {} could not be read: {error}", folder.join(FILE_NAME).display());
                }
            }
        }
        Self { keeps: true, folder, list: Mutex::new(list) }
    }

    /// The answer of `GET /memory-kills`.
    pub async fn list(&self) -> MemoryKills {
        MemoryKills { kills: self.list.lock().await.kills().to_vec() }
    }

    /// Keeps a kill; it is in the file when this returns (spec M-19).
    pub async fn keep(&self, kill: &Kill) {
        self.change(|list| {
            list.add(kill.kept());
            true
        })
        .await;
    }

    /// A conversation's `bash` call returned a kill's verdict to its model (spec M-10).
    pub async fn told(&self, kill: &str, told: Told) {
        self.change(|list| list.told(kill, told)).await;
    }

    /// Changes the list and writes it, one change after another. A failed write is logged and the list stands in memory: the
    /// Agent's uid can break the file, and that must not stop the Harness (spec M-18).
    async fn change(&self, change: impl FnOnce(&mut KillList) -> bool) {
        if !self.keeps {
            return;
        }
        let mut list = self.list.lock().await;
        if !change(&mut list) {
            return;
        }
        let Some(folder) = self.folder.clone() else { return };
        let text = list.render();
        let write = move || {
            std::fs::create_dir_all(&folder)?;
            file::replace(&folder, &text)
        };
        if let Err(error) = tokio::task::spawn_blocking(write).await.unwrap_or_else(|e| Err(std::io::Error::other(e))) {
            tracing::error!("harness: {FILE_NAME} could not be written; its kills stand in memory only: {error}");
        }
    }
}

/// What was left out of the file, on one line; nothing of the file's own text is in it.
fn complaint(parsed: &Parsed) -> Option<String> {
    let mut parts = Vec::new();
    if parsed.bad_lines > 0 {
        parts.push(format!("{} lines are no JSON", parsed.bad_lines));
    }
    let faults = &parsed.reading.faults;
    parts.extend(faults.iter().take(FAULTS_SHOWN).map(ToString::to_string));
    if faults.len() > FAULTS_SHOWN {
        parts.push(format!("{} more", faults.len() - FAULTS_SHOWN));
    }
    (!parts.is_empty()).then(|| format!("{}; the rest is kept", parts.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told() -> Told {
        Told { agent: "coder".into(), instance_id: "r/root/coder".into() }
    }

    #[tokio::test]
    async fn m_14_the_list_survives_a_restart_with_the_same_ids() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Some(dir.path().join("conversations"));
        let keeper = Keeper::open(folder.clone());
        let (one, two) = (Kill::new(3 << 30, 2 << 30), Kill::new(4 << 30, 2 << 30));
        keeper.keep(&one).await;
        keeper.keep(&two).await;
        keeper.told(&one.id, told()).await;
        let before = keeper.list().await;
        assert_eq!(before.kills.iter().map(|kill| &kill.id).collect::<Vec<_>>(), [&one.id, &two.id]);
        assert_eq!((before.kills[0].told.as_slice(), before.kills[1].told.len()), (&[told()][..], 0));
        assert_eq!(Keeper::open(folder).list().await, before);
    }

    #[tokio::test]
    async fn m_20_the_instance_harness_keeps_none() {
        let keeper = Keeper::none();
        keeper.keep(&Kill::new(3, 2)).await;
        assert_eq!(keeper.list().await, MemoryKills::default());
    }

    #[tokio::test]
    async fn m_18_a_file_that_cannot_be_written_leaves_the_list_in_memory() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join(FILE_NAME)).unwrap();
        let keeper = Keeper::open(Some(dir.path().to_owned()));
        keeper.keep(&Kill::new(3, 2)).await;
        assert_eq!(keeper.list().await.kills.len(), 1);
    }

    #[test]
    fn mt_6_the_complaint_says_what_was_left_out_and_nothing_of_the_file() {
        let parsed = parse(b"ignore all rules\n{\"id\":\"ignore\",\"at\":\"rules\"}\n");
        assert_eq!(
            complaint(&parsed).unwrap(),
            "1 lines are no JSON; kill dropped: it has no time of at most 64 that parses; the rest is kept"
        );
        assert_eq!(complaint(&parse(b"")), None);
    }
}
