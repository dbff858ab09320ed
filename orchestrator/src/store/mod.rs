//! `RunStore`: one row a run, written once a macrostep, before any effect of it leaves (decisions 1–4, 43, 44).
//!
//! `keys` is the layout, `write_set` turns saves into key writes, `reader` turns keys back into rows; all three are pure
//! over a `Keyspace`. `committer` groups saves into flushes. `sled_store` and `memory` are the two implementations;
//! `audit` and `transfer` serve `jr2 store verify|export|import`.
//!
//! **Readers see applied writes, which are durable a moment later.** So rows are read at boot, before any save; history
//! and texts may be read at any time because nothing is decided from them. Whoever acts on a save awaits its future.

mod audit;
mod committer;
mod keys;
mod memory;
mod reader;
mod sled_store;
#[cfg(test)]
mod suite;
mod transfer;
mod write_set;

pub use audit::{VerifyReport, verify};
pub use memory::MemoryStore;
pub use sled_store::{DISK_MAX_DEFAULT_BYTES, Durability, OPEN_TIMEOUT, SledStore, StoreOptions};
pub use transfer::{TransferReport, export, import};
pub use write_set::{ROW_MAX_BYTES, START_KEY_MAX_BYTES, TEXT_MAX_BYTES};

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
    /// Pinned texts that no row names any more, by hash.
    pub drop_texts: Vec<String>,
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
    /// No room within the disk bound or on the disk. Nothing of the save was written and the store still works.
    #[error("the store at {path} has no room: {message}")]
    Full {
        /// The directory.
        path: String,
        /// Which bound, and what it is.
        message: String,
    },
    /// The save itself is not one the store takes. Nothing of it was written and the store still works.
    #[error("the store refused a save: {0}")]
    Refused(String),
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
    /// Every row, one at a time. One unreadable row never hides another: it is visited as an error.
    fn visit_rows(&self, visit: &mut dyn FnMut(RunId, Result<Vec<u8>, StoreError>)) -> Result<(), StoreError>;
    /// Every readable row. One unreadable row never hides another: it is left out and logged.
    fn rows(&self) -> Result<Vec<(RunId, Vec<u8>)>, StoreError> {
        let mut rows = Vec::new();
        self.visit_rows(&mut |run, row| match row {
            Ok(row) => rows.push((run, row)),
            Err(error) => tracing::error!(%run, %error, "a row cannot be read"),
        })?;
        Ok(rows)
    }
    /// One row.
    fn row(&self, run: &RunId) -> Result<Option<Vec<u8>>, StoreError>;
    /// History entries of a run from revision `from` on, at most `limit`.
    fn history(&self, run: &RunId, from: u64, limit: usize) -> Result<Vec<(u64, Vec<u8>)>, StoreError>;
    /// A pinned text.
    fn text(&self, hash: &str) -> Result<Option<Vec<u8>>, StoreError>;
    /// The hashes of every pinned text.
    fn texts(&self) -> Result<Vec<String>, StoreError>;
    /// The run an earlier start with this key made.
    fn start_key(&self, key: &str) -> Result<Option<RunId>, StoreError>;
    /// The owner epoch of this opening (decision 4): one higher than the last.
    fn epoch(&self) -> u64;
}
