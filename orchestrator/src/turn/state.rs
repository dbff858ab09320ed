//! What a Turn is between two inputs: plain data, a part of the run's row.

use super::kills::Mark;
use super::ledger::{Pending, Source, To};
use super::prompt::Prompt;
use crate::workspace::LastEnd;
use jr2_shared::harness::ThinkingLevel;
use jr2_shared::ids::Iid;
use jr2_shared::notice::Notice;
use jr2_shared::surface::PickAnswer;
use serde::{Deserialize, Serialize};

/// Nudges between two picks that moved (spec P-22, decision 38).
pub const NUDGES_MAX: u32 = 2;
/// Wakes of one Turn (decision 5).
pub const WAKES_MAX: u32 = 16;
/// Rerolls of one Turn (spec P-22).
pub const REROLLS_MAX: u32 = 1;
/// Re-admissions of one Turn that no kernel kill caused (decision 39).
pub const READMISSIONS_MAX: u32 = 3;
/// Kernel kills of one Turn that are re-admitted; the next one faults (decision 39).
pub const KERNEL_KILLS_MAX: u32 = 1;
/// Pick answers kept for re-sends. A Harness re-sends only the call that is open, so the oldest may go.
pub const PICKS_KEPT_MAX: usize = 256;

/// `cut` of a pick's answer whose state was left before the answer was said (decision 7).
pub const CUT_LEFT: &str = "left";
/// `cut` of a pick's answer that a lost conversation would have had (decision 34).
pub(super) const CUT_RESTARTED: &str = "restarted";

/// What a Turn was framed with. It never changes while the Turn lives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Frame {
    /// The Agent's slot.
    pub agent: String,
    /// The Agent's base iid (spec A-3).
    pub base: Iid,
    /// The conversation the Turn begins in: fresh or continued (spec A-3).
    pub iid: Iid,
    /// It rides the Agent's standing conversation.
    #[serde(default)]
    pub continued: bool,
    /// The invoking state's index.
    pub state: u32,
    /// The invoking state's entry ordinal: with the iid it names the registration (decision 37).
    pub ordinal: u64,
    /// The Sandbox it works in; `None` = the Agent is Menu-only and runs on the Instance Harness (spec N-9, N-41).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// The prompt; `None` = the state gives none, so nothing can be sent again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Absolute working directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Dial: another model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Dial: another thinking level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking_level: Option<ThinkingLevel>,
    /// The Menu itself has no event: the Turn is done when its model stops (decision 38).
    #[serde(default)]
    pub menu_empty: bool,
    /// The `n` of the first admission id. 1 for a fresh conversation. For a continued one the shell gives the
    /// [`Turn::next_admission`] that the conversation's last Turn ended with, because ids are unique by conversation.
    pub first_admission: u64,
}

/// One Turn of one Agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Turn {
    /// What it was framed with.
    pub frame: Frame,
    /// The conversation it is in now; a reroll changes it, and the registration moves with it.
    pub iid: Iid,
    /// Where it stands.
    pub phase: Phase,
    /// When it began, in wall milliseconds.
    #[serde(default)]
    pub started: u64,
    /// From where on a kill belongs to it; set by its first list read (spec N-45).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<Mark>,
    /// What its answered admissions carried, oldest first (spec 9.9).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub carried: Vec<Carried>,
    /// The pick whose route came back while its call was cut: its receipt follows the re-admit text (decision 34).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt_due: Option<String>,
    /// The `n` of the next admission id (decision 31).
    pub next_admission: u64,
    /// The last answered admission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission: Option<Admission>,
    /// The admission whose Submission may still run: what an abort must name (decision 33).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub live: Option<String>,
    /// Nudges since the last pick that moved.
    #[serde(default)]
    pub nudges: u32,
    /// Wakes.
    #[serde(default)]
    pub wakes: u32,
    /// Rerolls.
    #[serde(default)]
    pub rerolls: u32,
    /// Re-admissions, those after a kernel kill not counted.
    #[serde(default)]
    pub readmissions: u32,
    /// Kernel kills that cut this Turn.
    #[serde(default)]
    pub kernel_kills: u32,
    /// The kernel kill behind the re-admission that goes on now: the fault's words if it fails (decision 39).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_kill: Option<String>,
    /// How the Harness ended in that kernel kill: what a fault's notice is raised from (spec N-81).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_end: Option<LastEnd>,
    /// The newest end of its Sandbox's Harness that it knows: a later cut has a later one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub known_end: u64,
    /// A pick of this Turn moved the machine.
    #[serde(default)]
    pub moved: bool,
    /// The pick whose route still runs (spec P-31).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outstanding: Option<String>,
    /// Answers by pick id, oldest first, at most [`PICKS_KEPT_MAX`] (decision 34).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub picks: Vec<KeptPick>,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_zero(n: &u64) -> bool {
    *n == 0
}

impl Turn {
    /// A Turn that waits for [`super::TurnInput::Begin`].
    pub fn new(frame: Frame) -> Self {
        Self {
            iid: frame.iid.clone(),
            phase: Phase::New,
            started: 0,
            mark: None,
            carried: Vec::new(),
            receipt_due: None,
            next_admission: frame.first_admission,
            admission: None,
            live: None,
            nudges: 0,
            wakes: 0,
            rerolls: 0,
            readmissions: 0,
            kernel_kills: 0,
            kernel_kill: None,
            kernel_end: None,
            known_end: 0,
            moved: false,
            outstanding: None,
            picks: Vec::new(),
            frame,
        }
    }

    /// It faulted or is done: it takes no input any more and its registration is gone.
    pub fn is_over(&self) -> bool {
        self.phase == Phase::Ended
    }

    /// May a pick be this Turn's? Before its admission one could only come from an earlier Turn's Submission of the same
    /// conversation that is not aborted yet; after the Submission's end none can come. The shell refuses those.
    pub fn takes_picks(&self) -> bool {
        matches!(self.phase, Phase::Admitting { .. } | Phase::Waiting)
    }

    /// The answer already given to a pick id, for a Harness that asks again (decision 34).
    pub fn kept_answer(&self, pick_id: &str) -> Option<&PickAnswer> {
        self.picks.iter().find(|kept| kept.pick_id == pick_id).map(|kept| &kept.answer)
    }

    /// The answer that is still to be said, as a notice: it has no call to return to.
    pub(super) fn receipt_notice(&self, cut: &str) -> Option<(Notice, To, Source)> {
        let answer = self.receipt_due.as_deref().and_then(|pick| self.kept_answer(pick))?.clone();
        let to = if self.frame.continued {
            To::Conversation(self.frame.base.as_str().to_owned())
        } else {
            To::Turn(self.frame.iid.as_str().to_owned())
        };
        let source = Source::Pick(self.iid.as_str().to_owned(), answer.delivery_id);
        let notice =
            Notice::PickAnswer { pick: answer.event, cut: cut.to_owned(), answer: answer.reply, stopped: None };
        Some((notice, to, source))
    }
}

/// Where a Turn stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "at", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum Phase {
    /// Framed, nothing asked yet.
    New,
    /// An abort of this conversation, or of another writer's in the Workspace, is not answered yet (decision 33).
    AwaitingAborts {
        /// The conversation was admitted to by an earlier Turn.
        held_before: bool,
    },
    /// Does the Harness still hold the conversation (spec 7.8)?
    AskingHeld {
        /// What the answer decides.
        question: HeldQuestion,
    },
    /// The memory-kill list and the Sandbox's last end are read before the admission goes out (spec N-41).
    Reading {
        /// What goes out then.
        plan: Plan,
    },
    /// The admission is durable here and its POST may have left.
    Admitting {
        /// It.
        pending: PendingAdmission,
    },
    /// The Submission of [`Turn::admission`] runs.
    Waiting,
    /// The Submission completed without a pick and none is open, or one is outstanding; a wake may come.
    Idle,
    /// The Submission was cut while a pick is outstanding: the route ends first (decision 34).
    Held {
        /// What cut it.
        cut: Cut,
    },
    /// The Submission was cut and the Sandbox is asked how its Harness ended (decision 39).
    ReadingLastEnd {
        /// What cut it.
        cut: Cut,
    },
    /// It faulted or is done.
    Ended,
}

/// What the answer to "held?" decides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum HeldQuestion {
    /// The first admission of a continued Turn.
    Begin,
    /// The re-admission after a cut.
    Readmit,
}

/// What cut a Submission.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum Cut {
    /// It settled `harness_restarted`.
    Restart,
    /// Its conversation answered 404.
    Lost {
        /// The Submission.
        submission_id: String,
    },
}

/// An admission before its notices are taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// What it says.
    pub prompt: Prompt,
    /// The Harness must already hold the conversation (spec P-41).
    pub kept: bool,
    /// Notices it carries whatever else its scope leaves out, by number (spec N-64).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<u64>,
}

/// What one answered admission carried, and whether the Harness read its surface (spec N-57, N-58).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Carried {
    /// The admission.
    pub admission_id: String,
    /// It carried the Turn's task (spec N-65).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub with_task: bool,
    /// Its surface was read, so its Submission may have been prompted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read: bool,
    /// Its notices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Pending>,
}

/// An admission that has no answer yet. Sent again, it is the same to the byte.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingAdmission {
    /// `<iid>#<n>`.
    pub admission_id: String,
    /// What it says.
    pub prompt: Prompt,
    /// The Harness must already hold the conversation (spec P-41).
    pub kept: bool,
    /// Its surface was read before its answer came: it arrived.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read: bool,
    /// A pick that asks and came before its answer: its Submission may be lost, and another one be seated in its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<String>,
}

impl Admission {
    /// Whether its Submission made this pick: a pick id is `<submission>/<call>` (decision 34).
    pub(super) fn made(&self, pick_id: &str) -> bool {
        pick_id.strip_prefix(&*self.submission_id).is_some_and(|rest| rest.starts_with('/'))
    }
}

/// An admission the Harness answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Admission {
    /// `<iid>#<n>`.
    pub admission_id: String,
    /// Its stream.
    pub stream_url: String,
    /// Where its stream begins; re-attaching reads from here (spec 4.6).
    pub offset: String,
    /// Its Submission.
    pub submission_id: String,
    /// When it was answered, in wall milliseconds.
    #[serde(default)]
    pub at: u64,
    /// What it said.
    pub prompt: Prompt,
}

/// The answer to one pick.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptPick {
    /// Submission id and tool-call id.
    pub pick_id: String,
    /// What was answered.
    pub answer: PickAnswer,
}

/// An abort that must be answered before the conversation is admitted to again (decision 33).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingAbort {
    /// The Agent's slot.
    pub agent: String,
    /// The conversation.
    pub iid: Iid,
    /// Ends the Submission of this admission and earlier ones.
    pub up_to: String,
    /// What its admission carried, read but perhaps never prompted: the Harness's answer tells (decision 32).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carried: Option<Carried>,
}
