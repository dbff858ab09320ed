//! What a Turn hears and what it asks the shell to do.

use super::kills::ListedKill;
use super::prompt::Prompt;
use super::state::{PendingAdmission, Turn};
use crate::workspace::LastEnd;
use jr2_shared::harness::{AdmitAnswer, AdmitRequest, AgentDefinition, Position, Settlement};
use jr2_shared::ids::Iid;
use jr2_shared::notice::CarriedNotice;
use jr2_shared::surface::PickAnswer;
use serde::{Deserialize, Serialize};

/// Something that happened. An input that does not fit the phase, or names another admission or Submission, is ignored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum TurnInput {
    /// Start.
    Begin {
        /// The conversation was admitted to by an earlier Turn (continued Turns only).
        held_before: bool,
    },
    /// Answers [`TurnEffect::AwaitAborts`].
    AbortsClear,
    /// Answers [`TurnEffect::AskHeld`].
    Held(bool),
    /// Answers [`TurnEffect::ReadKills`].
    Read {
        /// The list, oldest first; `None` = the read could not tell (spec N-43).
        kills: Option<Vec<ListedKill>>,
        /// How the Sandbox's Harness last ended, when it ever did.
        last_end: Option<LastEnd>,
    },
    /// The Harness read the surface of the Turn's newest admission (spec N-57).
    SurfaceRead,
    /// A guard kill on the stream of the Submission that is waited for (spec N-24).
    StreamKill {
        /// The Submission waited for.
        submission_id: String,
        /// The kill's id; an older Harness gives none (spec N-20).
        id: Option<String>,
        /// Its place on the stream.
        position: Position,
        /// Peak as a Size is written.
        peak: Option<String>,
        /// Limit as a Size is written.
        limit: Option<String>,
    },
    /// The Harness took the admission.
    Admitted {
        /// Which.
        admission_id: String,
        /// Its answer.
        answer: AdmitAnswer,
    },
    /// The Harness answered the admission with an error.
    AdmitRefused {
        /// Which.
        admission_id: String,
        /// HTTP status.
        status: u16,
        /// Its words.
        error: String,
        /// `Some(false)` = it does not hold the conversation and seated nothing (spec P-42).
        kept: Option<bool>,
    },
    /// No answer within the send window; it may still have arrived.
    AdmitUnreachable {
        /// Which.
        admission_id: String,
        /// Why.
        detail: String,
    },
    /// The Submission ended.
    Settled {
        /// How.
        settlement: Settlement,
        /// Picks allowed now, in Menu order.
        allowed: Vec<String>,
    },
    /// The wait was answered with 404.
    ConversationLost {
        /// The Submission waited for.
        submission_id: String,
    },
    /// The wait was answered with 401 or 403.
    Denied {
        /// The Submission waited for.
        submission_id: String,
        /// HTTP status.
        status: u16,
    },
    /// Answers [`TurnEffect::ReadLastEnd`]; `None` = not known, or no Sandbox.
    LastEnd(Option<LastEnd>),
    /// A pick of this Turn was delivered. A refused pick is none and is not fed.
    Pick {
        /// Its id; the shell makes one for a Harness that sends none.
        pick_id: String,
        /// What it was answered; `moved` and `outstanding` are read from it.
        answer: PickAnswer,
    },
    /// The route of the outstanding pick came back to the state (spec P-33).
    RouteReturned {
        /// The pick.
        pick_id: String,
        /// Its answer now.
        answer: PickAnswer,
        /// Picks allowed now, in Menu order.
        allowed: Vec<String>,
    },
    /// The picks allowed now, fed after every macrostep that leaves the Turn alive.
    Allowed(Vec<String>),
    /// The process started again and the Turn came out of the store.
    Restored,
}

/// What the shell must do, in order, after the save.
#[derive(Clone, Debug, PartialEq)]
pub enum TurnEffect {
    /// Wait until no abort stands before this Turn (decision 33), then feed `AbortsClear`.
    AwaitAborts,
    /// Ask the Harness whether it holds `iid` (spec 7.8), then feed `Held`.
    AskHeld {
        /// The conversation.
        iid: Iid,
    },
    /// Post the admission, then feed `Admitted`, `AdmitRefused` or `AdmitUnreachable`.
    Admit(Admit),
    /// Wait for the Submission, then feed `Settled`, `ConversationLost` or `Denied`.
    Watch(Watch),
    /// Read the memory-kill list, for at most 5 s, and the Sandbox's last end, then feed `Read` (spec N-41, N-79).
    ReadKills,
    /// Ask for an end of the Sandbox's Harness at `since` or later, for at most 5 s, then feed `LastEnd` (decision 39).
    ReadLastEnd {
        /// Wall milliseconds.
        since: u64,
    },
    /// Raise the conversation's epoch, in the save of the fault that follows (spec P-26).
    RaiseEpoch,
    /// `agent.fault {instanceId, reason}`; the Turn is over.
    Fault {
        /// Why.
        reason: String,
    },
    /// `agent.done {text}`; the Turn is over (decision 38).
    Done {
        /// The last assistant text.
        text: String,
    },
    /// `retry` telemetry on the run's feed (spec P-22).
    Say {
        /// Which try this is, from 1.
        attempt: u32,
        /// One of the `RETRY_*` words of [`super::faults`].
        reason: &'static str,
    },
}

/// One admission to post.
#[derive(Clone, Debug, PartialEq)]
pub struct Admit {
    /// `<iid>#<n>`.
    pub admission_id: String,
    /// The conversation.
    pub iid: Iid,
    /// The prompt.
    pub message: String,
    /// The Harness must already hold the conversation.
    pub kept: bool,
    /// Notices that ride along.
    pub notices: Vec<CarriedNotice>,
    /// The answer of the pick whose call was cut; the Harness words it after the re-admit text (decision 34).
    pub receipt: Option<PickAnswer>,
}

impl Admit {
    pub(super) fn of(turn: &Turn, pending: &PendingAdmission, notices: Vec<CarriedNotice>) -> Self {
        // Where the conversation is lost the answer rides as a notice instead.
        let goes_on = !matches!(pending.prompt, Prompt::Task | Prompt::ReadmitLost);
        let receipt = turn.receipt_due.as_deref().filter(|_| goes_on).and_then(|pick| turn.kept_answer(pick));
        Self {
            admission_id: pending.admission_id.clone(),
            iid: turn.iid.clone(),
            message: pending.prompt.text(turn.frame.task.as_deref()),
            kept: pending.kept,
            notices,
            receipt: receipt.cloned(),
        }
    }

    /// The body of `POST /agents/:name/:id`.
    pub fn request(&self, turn: &Turn, definition: AgentDefinition) -> AdmitRequest {
        AdmitRequest {
            message: self.message.clone(),
            cwd: turn.frame.cwd.clone(),
            definition,
            model: turn.frame.model.clone(),
            thinking_level: turn.frame.thinking_level,
            notices: self.notices.clone(),
            receipt: self.receipt.clone(),
            kept: self.kept,
            admission_id: Some(self.admission_id.clone()),
        }
    }
}

/// One Submission to wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    /// The conversation.
    pub iid: Iid,
    /// The admission's stream.
    pub stream_url: String,
    /// Where to read from.
    pub offset: String,
    /// The Submission.
    pub submission_id: String,
}
