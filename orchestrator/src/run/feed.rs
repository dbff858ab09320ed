//! The feed of a run: what watchers hear, with ids `rev.index` (decision 43). It stands in the history entries, so a
//! reader only ever sees durable revisions.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::mpsc;

/// Place of an entry: revision and index within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FeedId {
    /// The save.
    pub rev: u64,
    /// Its place in the save.
    pub index: u32,
}

impl fmt::Display for FeedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.rev, self.index)
    }
}

impl FromStr for FeedId {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let (rev, index) = text.split_once('.').ok_or(())?;
        Ok(Self { rev: rev.parse().map_err(|_| ())?, index: index.parse().map_err(|_| ())? })
    }
}

/// Kinds of feed entries (spec Q-6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FeedKind {
    /// The run's status changed: level-triggered.
    Status,
    /// An author's `emit`.
    Emit,
    /// A nudge, a reroll, a re-admission, a retry.
    Retry,
    /// A party failed for good: what its state hears next.
    Fault,
    /// An admission was answered.
    Admission,
    /// A pick was taken.
    Pick,
    /// A Sandbox is waited for.
    Placing,
    /// A Sandbox runs.
    Placed,
    /// Where the Agent's work went.
    Branch,
    /// A Gate opened.
    Gate,
    /// What goes on beside the run: said to whoever listens, never saved, without an id.
    Activity,
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FeedEntry {
    /// Its kind.
    pub kind: FeedKind,
    /// Its data. Entries of open feeds are cut down by the API (spec Q-1, Q-2).
    pub data: Value,
}

/// Everything one save said, or one word that is not saved.
#[derive(Clone, Debug, PartialEq)]
pub struct FeedBatch {
    /// The run.
    pub run: jr2_shared::ids::RunId,
    /// The save.
    pub rev: u64,
    /// When.
    pub at: u64,
    /// Not of a save: its entries have no ids.
    pub passing: bool,
    /// Entries in order.
    pub entries: Vec<FeedEntry>,
}

/// Feed batches a watcher may lag behind before it is cut; it joins again with its last id.
const LAG_MAX: usize = 1_024;
/// Bytes a watcher may lag behind: a few large emits are as much as many small ones. One batch always fits.
const LAG_MAX_BYTES: usize = 4 << 20;

/// The host's end of a watcher's queue.
#[derive(Debug)]
pub struct Watcher {
    batches: mpsc::Sender<Arc<FeedBatch>>,
    queued: Arc<AtomicUsize>,
}

/// A reader's end of its queue.
#[derive(Debug)]
pub struct Heard {
    batches: mpsc::Receiver<Arc<FeedBatch>>,
    queued: Arc<AtomicUsize>,
}

/// A new watcher.
pub(super) fn watcher() -> (Watcher, Heard) {
    let (sender, batches) = mpsc::channel(LAG_MAX);
    let queued: Arc<AtomicUsize> = Arc::default();
    (Watcher { batches: sender, queued: queued.clone() }, Heard { batches, queued })
}

impl Watcher {
    /// Queues a batch; `false` when the reader is gone or too far behind.
    pub(super) fn offer(&self, batch: &Arc<FeedBatch>) -> bool {
        let bytes = batch.bytes();
        let before = self.queued.fetch_add(bytes, Ordering::AcqRel);
        let fits = before == 0 || before.saturating_add(bytes) <= LAG_MAX_BYTES;
        if fits && self.batches.try_send(batch.clone()).is_ok() {
            return true;
        }
        self.queued.fetch_sub(bytes, Ordering::AcqRel);
        false
    }

    /// Nobody reads any more.
    pub(super) fn is_closed(&self) -> bool {
        self.batches.is_closed()
    }
}

impl Heard {
    /// The next batch; `None` once the watcher was cut or the host stops.
    pub async fn recv(&mut self) -> Option<Arc<FeedBatch>> {
        let batch = self.batches.recv().await?;
        self.queued.fetch_sub(batch.bytes(), Ordering::AcqRel);
        Some(batch)
    }
}

impl FeedBatch {
    /// About how much memory it holds.
    fn bytes(&self) -> usize {
        self.entries.iter().map(|entry| entry.data.to_string().len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(bytes: usize) -> Arc<FeedBatch> {
        let entries = vec![FeedEntry { kind: FeedKind::Emit, data: Value::String("x".repeat(bytes)) }];
        Arc::new(FeedBatch { run: jr2_shared::ids::RunId("r".into()), rev: 1, at: 0, passing: false, entries })
    }

    #[tokio::test]
    async fn a_watchers_backlog_is_bounded_in_bytes_and_in_batches() {
        let (watcher, mut heard) = watcher();
        assert!(watcher.offer(&batch(2 * LAG_MAX_BYTES)), "one batch always fits");
        assert!(!watcher.offer(&batch(1)));
        heard.recv().await.unwrap();
        let half = batch(LAG_MAX_BYTES / 2 - 10);
        assert!(watcher.offer(&half) && watcher.offer(&half) && !watcher.offer(&half));
        heard.recv().await.unwrap();
        assert!(watcher.offer(&half), "what was read makes room");
        heard.recv().await.unwrap();
        heard.recv().await.unwrap();
        let taken = (0..2 * LAG_MAX).take_while(|_| watcher.offer(&batch(1))).count();
        assert_eq!(taken, LAG_MAX);
    }
}
