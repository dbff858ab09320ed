//! The feed of a run: what watchers hear, with ids `rev.index` (decision 43). It stands in the history entries, so a
//! reader only ever sees durable revisions.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use std::str::FromStr;

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
}

/// One entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FeedEntry {
    /// Its kind.
    pub kind: FeedKind,
    /// Its data. Entries of open feeds are cut down by the API (spec ).
    pub data: Value,
}

/// Everything one save said.
#[derive(Clone, Debug, PartialEq)]
pub struct FeedBatch {
    /// The run.
    pub run: jr2_shared::ids::RunId,
    /// The save.
    pub rev: u64,
    /// When.
    pub at: u64,
    /// Entries in order.
    pub entries: Vec<FeedEntry>,
}
