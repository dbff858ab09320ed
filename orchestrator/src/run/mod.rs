//! Runs: the pure core of one run, and the host that keeps every run through any crash.
//!
//! `core` decides: row and input in, row and effects out, no clock and no await. `task` owns one run: it saves what the
//! core decided and only then lets the effects leave. `host` owns all tasks.

mod birth;
mod clock;
pub mod core;
mod feed;
mod history;
mod host;
mod isolation;
mod kill_reads;
mod live_set;
mod row;
mod seats;
mod shared;
mod shell;
mod stored;
mod sweep;
mod task;
#[cfg(test)]
mod tests;
pub mod view;

pub use birth::first_row;
pub use clock::{Clock, SystemClock};
pub use feed::{FeedBatch, FeedEntry, FeedId, FeedKind, Heard};
pub use history::HistoryEntry;
pub use host::*;
pub use row::*;
pub use seats::PickRefusal;
pub use stored::StoredRuns;
pub use sweep::KEEP_ENDED_MS;
