//! What an admission says: a name in the row, the text made from it and the Turn's task.

use jr2_shared::prompts;
use serde::{Deserialize, Serialize};

/// The prompt of an admission. The task itself stays in the Frame, so the row holds it once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum Prompt {
    /// The task alone: a Turn's first admission, a reroll, a refused nudge or wake (spec P-52).
    Task,
    /// The nudge (spec 7.11 N1).
    Nudge {
        /// Picks it names, in Menu order.
        allowed: Vec<String>,
    },
    /// The wake (decision 5).
    Wake,
    /// The re-admission into a conversation that was kept (decision 6).
    ReadmitKept {
        /// The task follows, because no model read it (spec P-48).
        with_task: bool,
    },
    /// The re-admission after the conversation was lost: the task follows (decision 6).
    ReadmitLost,
}

impl Prompt {
    /// Does its text hold the Turn's task?
    pub fn carries_task(&self) -> bool {
        match self {
            Self::Task | Self::ReadmitLost => true,
            Self::ReadmitKept { with_task } => *with_task,
            Self::Nudge { .. } | Self::Wake => false,
        }
    }

    /// The admission's `message`.
    pub fn text(&self, task: Option<&str>) -> String {
        let task = task.unwrap_or_default();
        match self {
            Self::Task => task.to_owned(),
            Self::Nudge { allowed } => prompts::nudge(allowed),
            Self::Wake => prompts::WAKE.to_owned(),
            Self::ReadmitKept { with_task: true } => format!("{}\n\n{task}", prompts::READMIT_KEPT),
            Self::ReadmitKept { with_task: false } => prompts::READMIT_KEPT.to_owned(),
            Self::ReadmitLost => prompts::readmit_lost(task),
        }
    }
}
