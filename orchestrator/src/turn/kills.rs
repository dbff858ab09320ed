//! The memory-kill list as one Turn reads it: its mark, and which kills a re-prompt may say (spec 9.6 to 9.8).

use super::ledger::{Pending, Source};
use jr2_shared::memory_kills::{MemoryKill, millis_of};
use serde::{Deserialize, Serialize};

/// How far a pod's clock may run behind ours, in milliseconds (spec N-46).
pub const CLOCK_BEHIND_MS: u64 = 1_000;

/// One kill of the list, with what a Turn needs to know of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedKill {
    /// Its id.
    pub id: String,
    /// When, in wall milliseconds of the pod's clock.
    pub at: u64,
    /// Peak as a Size is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak: Option<String>,
    /// Limit as a Size is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// A bash call of the reading Turn's conversation returned its verdict (spec N-27).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub told: bool,
}

impl ListedKill {
    /// The list as the Turn of conversation `iid` reads it, oldest first.
    pub fn of(kills: Vec<MemoryKill>, iid: &str) -> Vec<Self> {
        let one = |kill: MemoryKill| Self {
            at: millis_of(&kill.at).unwrap_or(0),
            told: kill.told.iter().any(|told| told.instance_id == iid),
            id: kill.id,
            peak: kill.peak,
            limit: kill.limit,
        };
        kills.into_iter().map(one).collect()
    }
}

/// From where on a kill belongs to a Turn (spec N-45, N-46).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mark {
    /// After this kill, the newest that the Turn's first read saw.
    Kill(String),
    /// The first read saw an empty list: every kill is after it.
    None,
    /// The first read failed: after this instant, in wall milliseconds.
    Start(u64),
}

impl Mark {
    /// What the Turn's first read sets; a read that could not tell leaves the Turn's start (spec N-46).
    pub fn first(kills: Option<&[ListedKill]>, started: u64) -> Self {
        match kills {
            Some(kills) => kills.last().map_or(Self::None, |newest| Self::Kill(newest.id.clone())),
            None => Self::Start(started.saturating_sub(CLOCK_BEHIND_MS)),
        }
    }

    /// The first position of the list after the mark. A mark that has left the list stands before all of it (spec N-49).
    fn position(&self, kills: &[ListedKill]) -> usize {
        match self {
            Self::None => 0,
            Self::Kill(id) => kills.iter().position(|kill| kill.id == *id).map_or(0, |at| at + 1),
            Self::Start(since) => kills.iter().position(|kill| kill.at >= *since).unwrap_or(kills.len()),
        }
    }
}

/// The guard kills that a nudge, a wake or a re-admission may say: those that the list places after the mark and after
/// the newest kill that a bash call of this conversation already told (spec N-52 to N-56).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sayable {
    ids: Vec<String>,
}

impl Sayable {
    /// `kills` is `None` when the read could not tell: then none may be said (spec N-56, N-63).
    pub fn of(kills: Option<&[ListedKill]>, mark: Option<&Mark>) -> Self {
        let (Some(kills), Some(mark)) = (kills, mark) else { return Self::default() };
        let told = kills.iter().rposition(|kill| kill.told).map_or(0, |at| at + 1);
        let from = told.max(mark.position(kills)).min(kills.len());
        Self { ids: kills[from..].iter().map(|kill| kill.id.clone()).collect() }
    }

    /// May this notice be said within the Turn? It must be a guard kill of that Sandbox with a place in the list.
    pub fn holds(&self, pending: &Pending, workspace: &str) -> bool {
        let kill = pending.source.as_ref().and_then(Source::listed_kill);
        kill.is_some_and(|(of, id)| of == workspace && self.ids.iter().any(|one| one == id))
    }
}
