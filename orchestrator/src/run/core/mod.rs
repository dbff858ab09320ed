//! The pure core of one run: `apply(program, row, input, facts) -> Outcome`. It reads no clock and awaits nothing; random
//! bits and the time come in with the input, so a recorded run re-steps to the same rows (decision 44).

mod adopt;
mod apply;
mod ends;
mod gates;
mod invoke;
mod machine;
mod picks;
mod replay;
mod restore;
mod routes;
mod surface;
mod timers;
mod turns;
mod workspaces;

#[cfg(test)]
mod tests;

pub use adopt::adopt;
pub use apply::apply;
pub use picks::{Delivery, delivery, turn_of};
pub use replay::{Difference, Replay, replay};
pub use restore::{Reattached, reattach};
pub use surface::{OpenGate, gates_of, surface, surface_refusal, turns_of};
pub use timers::next_due;

use super::{FeedEntry, Row, RowAbort};
use crate::turn::TurnInput;
use crate::workspace::{Provisioned, SandboxSpec, SavedBranch};
use jr2_shared::notice::CarriedNotice;
use jr2_shared::surface::PickAnswer;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Facts of one application: they are recorded with the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Wall milliseconds since the epoch.
    pub now: u64,
    /// Random bits for ids.
    pub seed: u64,
}

/// Everything that can happen to a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "t")]
pub enum Input {
    /// The run begins.
    Start,
    /// A person or outside system answers a Gate.
    Gate {
        /// The Gate's id.
        gate: String,
        /// The event.
        event: String,
        /// Its payload.
        payload: Value,
        /// The activation it was meant for (decision 35).
        activation: Option<String>,
        /// Idempotency key.
        key: Option<String>,
    },
    /// An outside event without a Gate.
    External {
        /// The event.
        event: String,
        /// Its payload.
        payload: Value,
        /// Idempotency key.
        key: Option<String>,
    },
    /// A person ends the run.
    Cancel {
        /// Keep its Sandboxes.
        keep: bool,
    },
    /// An Agent picks.
    Pick {
        /// The conversation.
        iid: String,
        /// Submission and tool call (decision 34).
        pick: Option<String>,
        /// The event.
        event: String,
        /// Its payload.
        payload: Value,
    },
    /// A Harness reads the surface of a conversation's newest admission (spec N-57).
    SurfaceRead {
        /// The conversation.
        iid: String,
    },
    /// Something happened to a Turn.
    Turn {
        /// The invocation.
        serial: u64,
        /// What.
        input: TurnInput,
    },
    /// A Harness answered an abort, or is gone.
    Aborted {
        /// The conversation.
        iid: String,
        /// The admission it went up to.
        up_to: Option<String>,
        /// Admissions it ended that no model was asked with (decision 32).
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unprompted: Vec<String>,
    },
    /// An Agent-less step ended.
    Done {
        /// The invocation.
        serial: u64,
        /// How.
        result: DoResult,
    },
    /// A Sandbox runs.
    Provisioned {
        /// Its name.
        sandbox: String,
        /// What was made.
        provisioned: Provisioned,
    },
    /// A Sandbox could not be made.
    ProvisionFailed {
        /// Its name.
        sandbox: String,
        /// Why.
        reason: String,
        /// For people.
        message: String,
    },
    /// A Sandbox is gone.
    SandboxLost {
        /// Its name.
        sandbox: String,
        /// Short word.
        reason: String,
        /// For people.
        message: String,
    },
    /// A Sandbox was removed.
    TornDown {
        /// Its name.
        sandbox: String,
        /// Its uid.
        uid: String,
        /// Where the work went.
        branches: Vec<SavedBranch>,
    },
    /// A Sandbox could not be removed and stays.
    TeardownFailed {
        /// Its name.
        sandbox: String,
        /// Its uid.
        uid: String,
        /// For people.
        message: String,
    },
    /// The clock moved: what is due fires, one thing a save.
    Tick {
        /// Delays of states with a live Turn wait for its re-attachment (decision 41).
        hold: bool,
    },
    /// The run was moved to a new text (`jr2 adopt`).
    Adopt {
        /// Hash of the new program.
        program: String,
    },
    /// Queued: an event for one machine.
    Raise {
        /// Actor path by invocation serials.
        actor: ActorRef,
        /// The event.
        event: crate::chart::Event,
    },
    /// Queued: a child run ended.
    ChildEnded {
        /// The parent's invocation.
        serial: u64,
        /// Its end.
        end: ChildEnd,
    },
    /// Queued: an invocation starts again after its pause, or a step that does nothing is done.
    Again {
        /// The invocation.
        serial: u64,
    },
}

impl Input {
    /// Somebody waits for the answer and can ask again.
    pub fn is_request(&self) -> bool {
        matches!(
            self,
            Self::Start
                | Self::Gate { .. }
                | Self::External { .. }
                | Self::Cancel { .. }
                | Self::Pick { .. }
                | Self::Adopt { .. }
        )
    }
}

/// An actor: the serial of the invocation it runs under; 0 is the root.
pub type ActorRef = u64;

/// How a child run ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChildEnd {
    /// With an output.
    Output(Value),
    /// In fault.
    Fault(String),
}

/// How an Agent-less step ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DoResult {
    /// With a result.
    Ok(Value),
    /// With a reason.
    Failed {
        /// Why; a prefix of it is what `retry.on` names.
        reason: String,
        /// What is known: exit code, output tail, status.
        detail: Value,
    },
}

/// A resolved Agent-less step: persisted before it runs, so a repeat runs the same thing under the same key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DoRequest {
    /// Nothing.
    Nothing,
    /// A command in the Workspace.
    Command {
        /// Shell text.
        command: String,
        /// Working directory.
        cwd: Option<String>,
        /// Extra environment.
        env: Vec<(String, String)>,
        /// Most milliseconds.
        timeout_ms: u64,
    },
    /// A request.
    Http {
        /// Method.
        method: String,
        /// URL.
        url: String,
        /// Headers.
        headers: Vec<(String, String)>,
        /// JSON body.
        body: Option<Value>,
        /// Most milliseconds.
        timeout_ms: u64,
    },
}

/// What leaves the process after the save (`docs/effects.md`).
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// POST an admission.
    Admit(Box<AdmitEffect>),
    /// Ask whether the Harness holds the conversation.
    AskHeld {
        /// The invocation.
        serial: u64,
        /// Where.
        place: Place,
    },
    /// Wait for the settlement.
    Watch {
        /// The invocation.
        serial: u64,
        /// Where.
        place: Place,
        /// The stream.
        stream_url: String,
        /// From here.
        offset: String,
        /// Of this Submission.
        submission: String,
    },
    /// Read the memory-kill list and the Sandbox's last end (spec N-41).
    ReadKills {
        /// The invocation.
        serial: u64,
        /// Where.
        place: Place,
    },
    /// Wait for the word on how the Sandbox's Harness ended.
    ReadLastEnd {
        /// The invocation.
        serial: u64,
        /// The Sandbox.
        sandbox: Option<String>,
        /// No earlier end counts, in wall milliseconds.
        since: u64,
    },
    /// Send an abort until it is answered.
    Abort(RowAbort),
    /// Run an Agent-less step.
    Do {
        /// The invocation.
        serial: u64,
        /// Its key (`JR2_STEP_KEY`, `Idempotency-Key`).
        key: String,
        /// Attempt, from 0.
        attempt: u32,
        /// The Sandbox it runs in.
        sandbox: Option<String>,
        /// What.
        request: DoRequest,
    },
    /// Make a Sandbox, or adopt the one that is there.
    Provision(SandboxSpec),
    /// Take over a Sandbox that ran before the restart.
    Adopt {
        /// Which.
        spec: SandboxSpec,
        /// Its uid.
        uid: String,
    },
    /// Save its branches and remove it.
    Teardown {
        /// Which.
        spec: SandboxSpec,
        /// Its uid.
        uid: String,
    },
    /// Stop whatever runs in the shell for this invocation.
    Forget {
        /// The invocation.
        serial: u64,
    },
}

/// Where a conversation lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The Sandbox; `None` = the Instance Harness.
    pub sandbox: Option<String>,
    /// The Agent's name.
    pub agent: String,
    /// The conversation.
    pub iid: String,
}

/// One admission, ready to send.
#[derive(Clone, Debug, PartialEq)]
pub struct AdmitEffect {
    /// The invocation.
    pub serial: u64,
    /// Where.
    pub place: Place,
    /// `<iid>#<n>`.
    pub admission_id: String,
    /// The prompt.
    pub message: String,
    /// Refuse unless held.
    pub kept: bool,
    /// Notices.
    pub notices: Vec<CarriedNotice>,
    /// The answer of the pick whose call was cut (decision 34).
    pub receipt: Option<PickAnswer>,
    /// Working directory.
    pub cwd: Option<String>,
    /// The Agent.
    pub definition: jr2_shared::harness::AgentDefinition,
    /// Dial.
    pub model: Option<String>,
    /// Dial.
    pub thinking: Option<jr2_shared::harness::ThinkingLevel>,
}

/// What an input got for an answer. It leaves only after the save.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// Nobody waits.
    None,
    /// A Gate answer, an event or a cancel: status and body.
    Http(super::StoredAnswer),
    /// A pick was taken.
    Pick(PickAnswer),
    /// A pick was refused.
    Refused {
        /// HTTP status.
        status: u16,
        /// Why.
        error: String,
        /// Allowed now.
        allowed: Option<Vec<String>>,
    },
}

/// What one application did.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The row after it.
    pub row: Row,
    /// False: nothing changed, nothing is saved.
    pub changed: bool,
    /// What leaves after the save.
    pub effects: Vec<Effect>,
    /// What watchers hear after the save.
    pub feed: Vec<FeedEntry>,
    /// Transitions taken, as `actor path:state path[index]`.
    pub taken: Vec<String>,
    /// The answer.
    pub reply: Reply,
}
