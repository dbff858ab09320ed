//! Notices as they travel on an admission: typed data, worded by the Harness alone (spec N-3, B-5).

use serde::{Deserialize, Serialize};

/// Most notices on one admission; the rest stay pending, oldest first (decision 12).
pub const NOTICES_MAX: usize = 32;
/// Most bytes of one Turn part (decision 12).
pub const TURN_PART_MAX_BYTES: usize = 16 << 10;

/// One notice on the wire with its ledger id (decision 31).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CarriedNotice {
    /// The ledger's id; answered back in `carried` when the Harness already holds the admission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What is said.
    #[serde(flatten)]
    pub notice: Notice,
}

/// What a notice says (spec N-3). Unknown kinds are dropped by the Harness, never an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Notice {
    /// The Sandbox's processes were killed at its memory limit.
    MemoryLimit {
        /// The Agent whose Turn was running, when known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        agent: Option<String>,
        /// The limit as a Size is written.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<String>,
        /// The peak; never without `limit` (spec N-4).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        peak: Option<String>,
    },
    /// The conversation is new; earlier context is gone.
    ConversationNew {
        /// Why, as the Orchestrator knows it.
        reason: String,
    },
    /// A pick's answer that had no call to return to.
    PickAnswer {
        /// The event's name.
        pick: String,
        /// Why the answer has no call: `left`, `stopped` (decision 7) or `restarted` (decision 34).
        cut: String,
        /// The last reply since the pick.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        answer: Option<crate::surface::PickReply>,
        /// True when the work did not finish.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stopped: Option<bool>,
    },
}

impl Notice {
    /// A memory kill; a peak without a limit is left out (spec N-4).
    pub fn memory_limit(agent: Option<String>, limit: Option<String>, peak: Option<String>) -> Self {
        let peak = peak.filter(|_| limit.is_some());
        Self::MemoryLimit { agent, limit, peak }
    }
}

/// Reads the notices of an admission body, dropping whatever is malformed or unknown (spec H-5).
pub fn read_notices(value: &serde_json::Value) -> Vec<CarriedNotice> {
    let Some(list) = value.as_array() else { return Vec::new() };
    list.iter().filter_map(|item| serde_json::from_value(item.clone()).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn n_03_unknown_kinds_are_dropped_and_the_rest_kept() {
        let list = json!([{"kind": "later"}, {"kind": "conversation-new", "reason": "x", "id": "n1"}, 7]);
        let read = read_notices(&list);
        assert_eq!(read.len(), 1);
        assert_eq!(read[0].id.as_deref(), Some("n1"));
    }

    #[test]
    fn n_04_a_memory_limit_alone_is_accepted() {
        let read = read_notices(&json!([{"kind": "memory-limit"}]));
        assert_eq!(read[0].notice, Notice::MemoryLimit { agent: None, limit: None, peak: None });
    }
}
