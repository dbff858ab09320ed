//! `RunStore`: one row a run, written once a macrostep, before any effect of it leaves (decisions 1–4, 43, 44).

use jr2_shared::ids::RunId;
use std::future::Future;
use std::pin::Pin;

/// What one save writes, atomically.
#[derive(Clone, Debug, Default)]
pub struct Save {
    /// The run.
    pub run: Option<RunId>,
    /// The row's new bytes; `None` leaves it.
    pub row: Option<Vec<u8>>,
    /// One history entry: revision and bytes.
    pub history: Option<(u64, Vec<u8>)>,
    /// History revisions below this are dropped.
    pub history_from: Option<u64>,
    /// Pinned texts by hash; written once.
    pub texts: Vec<(String, Vec<u8>)>,
    /// Idempotency keys of starts: key → run id.
    pub start_keys: Vec<(String, RunId)>,
    /// Remove the run: row, history, start keys that name it.
    pub delete: bool,
}

/// Why the store refused or failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process holds it.
    #[error("another jr2 process owns the store at {path}")]
    Busy {
        /// The directory.
        path: String,
    },
    /// It did not open in time (decision 1).
    #[error("the store at {path} did not open within {seconds} s; run `jr2 store verify`")]
    OpenTimeout {
        /// The directory.
        path: String,
        /// The watchdog.
        seconds: u64,
    },
    /// The disk or the file said no.
    #[error("the store at {path} failed: {message}")]
    Failed {
        /// The directory.
        path: String,
        /// What the system said.
        message: String,
    },
    /// A key or a row is not what this build writes.
    #[error("the store holds something unreadable: {0}")]
    Unreadable(String),
}

/// A future that the object-safe store answers with.
pub type StoreFuture<T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send>>;

/// Where runs live.
pub trait RunStore: Send + Sync + 'static {
    /// Queues a save; resolves once it is durable. Saves of one run are applied in the order of the calls.
    fn save(&self, save: Save) -> StoreFuture<()>;
    /// Every row. One unreadable row never hides another.
    fn rows(&self) -> Result<Vec<(RunId, Vec<u8>)>, StoreError>;
    /// One row.
    fn row(&self, run: &RunId) -> Result<Option<Vec<u8>>, StoreError>;
    /// History entries of a run from revision `from` on, at most `limit`.
    fn history(&self, run: &RunId, from: u64, limit: usize) -> Result<Vec<(u64, Vec<u8>)>, StoreError>;
    /// A pinned text.
    fn text(&self, hash: &str) -> Result<Option<Vec<u8>>, StoreError>;
    /// The run an earlier start with this key made.
    fn start_key(&self, key: &str) -> Result<Option<RunId>, StoreError>;
    /// The owner epoch of this opening (decision 4): one higher than the last.
    fn epoch(&self) -> u64;
}
