//! One run is one row: what is saved once a macrostep, and all a restart needs (architecture "Persistence").

use super::core::Input;
use crate::chart::{Configuration, StateIx};
use crate::turn::{Ledger, PendingAbort, Turn};
use crate::workspace::{Provisioned, SandboxSpec, SavedBranch};
use jr2_shared::ids::RunId;
use jr2_shared::surface::PickReply;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};

/// Version of the row's form; a row with a higher one is not restored.
pub const ROW_FORMAT: u32 = 1;
/// The engine's semantics number (decision 40): raised when a recorded run would step differently.
///
/// 2: a pick that asks is outstanding until its route ends.
pub const SEMANTICS: u32 = 2;
/// Largest row in bytes (decision 36).
pub const ROW_MAX_BYTES: usize = 4 << 20;
/// Answers kept by idempotency key (decision 35).
pub const ANSWERS_KEPT: usize = 64;
/// Buffered events of one run (format "Semantics").
pub const BUFFERED_MAX: usize = 16;

/// Where a run stands (spec 4.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It goes on.
    #[default]
    Live,
    /// It reached a final state.
    Done,
    /// It ended in fault.
    Error,
    /// A person ended it.
    Cancelled,
    /// Restore could not place it.
    Lost,
    /// Its text or semantics is not one this engine runs.
    Drifted,
}

impl Status {
    /// Nothing will happen to it any more.
    pub fn is_ended(self) -> bool {
        self != Self::Live
    }
}

/// The row of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// [`ROW_FORMAT`].
    pub v: u32,
    /// [`SEMANTICS`] of the engine that started it.
    pub semantics: u32,
    /// The run.
    pub id: RunId,
    /// The workflow it started with.
    pub workflow: String,
    /// Hash of its pinned program (decision 40).
    pub program: String,
    /// Hash of the program it started under, once it was moved to another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_program: Option<String>,
    /// Wall milliseconds since the epoch at its start.
    pub started: u64,
    /// The run's own clock: never goes back (decision 41).
    pub clock: u64,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<u64>,
    /// Where it stands.
    pub status: Status,
    /// Why it ended in fault, was cancelled, is lost or drifted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Counts saves.
    pub rev: u64,
    /// Next invocation serial.
    pub next_serial: u64,
    /// The root machine.
    pub root: Actor,
    /// Output of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// Conversation epochs by base iid (spec A-4).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub epochs: BTreeMap<String, u64>,
    /// Continued conversations that were admitted before: iid → the next admission's number (decision 31).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub conversations: BTreeMap<String, u64>,
    /// Notices of every Agent of the run (spec N-1).
    #[serde(default, skip_serializing_if = "Ledger::is_empty")]
    pub ledger: Ledger,
    /// Pending notices that went with the run's end or with their Sandbox (decision 11).
    #[serde(default, skip_serializing_if = "is_zero_u64")]
    pub dropped_notices: u64,
    /// Aborts not answered yet (decision 33).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aborts: Vec<RowAbort>,
    /// Sandboxes to remove, not confirmed yet (decision 42).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deletes: Vec<RowDelete>,
    /// Sandboxes kept after a cancel, by name, until the row goes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<String>,
    /// Where the Agent's work went (decision 47).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub branches: Vec<SavedBranch>,
    /// Workspaces whose branches could not be saved: where each is kept, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept_workspaces: Vec<String>,
    /// Work that follows from what was saved: taken one at a time, each with its own save.
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    pub queue: VecDeque<Input>,
    /// Answers by idempotency key, oldest first (decision 35).
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    pub answers: VecDeque<(String, StoredAnswer)>,
}

/// An answer kept under its idempotency key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredAnswer {
    /// HTTP status.
    pub status: u16,
    /// Body.
    pub body: Value,
}

/// An abort with its address.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RowAbort {
    /// What to send.
    #[serde(flatten)]
    pub abort: PendingAbort,
    /// The Sandbox whose Harness holds the conversation; `None` = the Instance Harness.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// The Agent may write: other writers of that Workspace wait for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub writer: bool,
}

/// A Sandbox to remove.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RowDelete {
    /// Which.
    pub spec: SandboxSpec,
    /// Its uid.
    pub uid: String,
}

/// One machine of the run: the root or a child run (decision 42).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Actor {
    /// Its workflow in the program.
    pub workflow: String,
    /// State paths from the root machine joined with `.`; empty for the root.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// Its input.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub input: Value,
    /// The Sandbox that wraps it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<WorkspaceRecord>,
    /// Its chart; `None` until its Workspace runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chart: Option<Configuration>,
    /// What its states invoke now.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub invoked: BTreeMap<StateIx, Invoked>,
    /// Running delays.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timers: Vec<Timer>,
    /// Events kept for a later state.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub buffered: Vec<Buffered>,
}

/// One running delay (decision 41).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timer {
    /// State.
    pub state: StateIx,
    /// Entry ordinal.
    pub ordinal: u64,
    /// Index of the delayed transition.
    pub index: usize,
    /// When, in the run's clock.
    pub due: u64,
}

/// An event kept for a later state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Buffered {
    /// Its name.
    pub event: String,
    /// Its payload.
    pub payload: Value,
}

/// The Sandbox of one actor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkspaceRecord {
    /// What was asked for.
    pub spec: SandboxSpec,
    /// How far it is.
    pub phase: WorkspacePhase,
    /// What was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioned: Option<Provisioned>,
    /// When the wait began.
    pub since: u64,
}

/// Phases of a Workspace (spec K-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkspacePhase {
    /// Being made.
    Provisioning,
    /// The body runs.
    Running,
    /// Gone under the body.
    Lost,
    /// Being removed.
    Teardown,
    /// Removed, or kept on purpose.
    Done,
}

/// One live invocation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Invoked {
    /// Names this invocation in the whole run: answers with another one are stale.
    pub serial: u64,
    /// Entry ordinal of its state.
    pub ordinal: u64,
    /// Failed attempts so far.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempts: u32,
    /// When the next attempt starts; `None` = it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_at: Option<u64>,
    /// The route of its Turn's outstanding pick.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<Box<Route>>,
    /// What it is.
    pub kind: InvokedKind,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_zero_u64(n: &u64) -> bool {
    *n == 0
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// An outstanding pick and what follows from it (spec P-31).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Route {
    /// The pick.
    pub pick_id: String,
    /// Its delivery.
    pub delivery_id: String,
    /// Its event.
    pub event: String,
    /// The last reply since the pick (spec P-32).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_reply: Option<PickReply>,
    /// Entries of invoking states that belong to it and still stand.
    pub links: Vec<StateEntry>,
    /// Entries of states with delays that belong to it and still stand.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timers: Vec<StateEntry>,
}

/// One entry of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateEntry {
    /// The state.
    pub state: StateIx,
    /// Its entry ordinal.
    pub ordinal: u64,
}

/// What runs under an invocation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InvokedKind {
    /// A Turn.
    Agent(Box<Turn>),
    /// A Gate with what the person sees.
    Gate {
        /// `meta`.
        meta: Value,
    },
    /// A child run.
    Run(Box<Actor>),
    /// An Agent-less step, resolved.
    Do(super::core::DoRequest),
    /// It ended, or could not start; its state has not been left yet.
    Ended,
}
