//! History entries: what `jr2 history` prints and `jr2 replay` re-steps (decision 44). The feed stands in them.

use super::core::{Facts, Input};
use super::{FeedEntry, FeedId};
use serde::{Deserialize, Serialize};

/// Most revisions kept.
pub const HISTORY_MAX: u64 = 1_000;
/// Bytes after which an older half is dropped: two halves are at most 1 MiB.
const HALF_MAX_BYTES: usize = 512 << 10;

/// One save.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// Its revision.
    pub rev: u64,
    /// Wall time and random bits.
    #[serde(flatten)]
    pub facts: Facts,
    /// What came in.
    pub input: Input,
    /// Transitions taken.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transitions: Vec<String>,
    /// Effects that left after the save, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<String>,
    /// What watchers heard.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub feed: Vec<FeedEntry>,
}

impl HistoryEntry {
    /// Feed entries after `from`, with their ids.
    pub fn feed_after(&self, from: Option<FeedId>) -> impl Iterator<Item = (FeedId, &FeedEntry)> {
        let rev = self.rev;
        self.feed.iter().enumerate().filter_map(move |(index, entry)| {
            let id = FeedId { rev, index: index as u32 };
            from.is_none_or(|f| id > f).then_some((id, entry))
        })
    }
}

/// Decides what to drop: keeps the last [`HISTORY_MAX`] revisions and at most two halves of bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HistoryBound {
    older_from: u64,
    newer_from: u64,
    newer_bytes: usize,
}

impl HistoryBound {
    /// Counts one entry; answers the revision below which entries go, when it moved.
    pub fn add(&mut self, rev: u64, bytes: usize) -> Option<u64> {
        let before = self.older_from;
        self.newer_bytes += bytes;
        if self.newer_bytes > HALF_MAX_BYTES {
            self.older_from = self.newer_from;
            self.newer_from = rev + 1;
            self.newer_bytes = 0;
        }
        let floor = (rev + 1).saturating_sub(HISTORY_MAX);
        self.older_from = self.older_from.max(floor);
        (self.older_from != before).then_some(self.older_from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_keeps_the_last_thousand_and_at_most_two_halves() {
        let mut bound = HistoryBound::default();
        assert_eq!(bound.add(1, 10), None);
        assert_eq!(bound.add(1_000, 10), Some(1));
        let mut bytes = HistoryBound::default();
        let mut from = 0;
        for rev in 1..=100 {
            from = bytes.add(rev, 100 << 10).unwrap_or(from);
            assert!((rev - from) as usize * (100 << 10) <= 2 * HALF_MAX_BYTES + (200 << 10));
        }
        assert!(from > 80);
    }
}
