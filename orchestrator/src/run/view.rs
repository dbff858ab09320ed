//! What others see of a run (spec Q-4).

use super::Status;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The whole status: instance token only (spec Q-1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunStatus {
    /// The run.
    pub run_id: String,
    /// Its workflow.
    pub workflow: String,
    /// Same as `runId` for the root machine.
    pub instance_id: String,
    /// Where it stands.
    #[schema(value_type = String)]
    pub status: Status,
    /// Active states: a name, or an object by parent.
    pub value: Value,
    /// The context.
    pub context: Value,
    /// Child runs.
    #[schema(no_recursion)]
    pub children: Vec<ChildView>,
    /// Open Gates.
    pub gates: Vec<GateView>,
    /// Running Turns.
    pub turns: Vec<TurnView>,
    /// Waits for a Sandbox.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<WaitView>,
    /// Why it ended in fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
    /// Why it is lost, drifted or cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// Where the Agent's work went.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub branches: Vec<Value>,
    /// RFC 3339.
    pub started: String,
    /// RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// Last durable save.
    pub rev: u64,
}

/// One child run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ChildView {
    /// Its path.
    pub id: String,
    /// Its workflow.
    pub src: String,
    /// `live` or `done`.
    pub status: String,
    /// Active states.
    pub value: Value,
    /// Its children.
    #[schema(no_recursion)]
    pub children: Vec<ChildView>,
}

/// One open Gate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct GateView {
    /// Its id.
    pub gate: String,
    /// `<gate>#<ordinal>` (decision 35).
    pub activation: String,
    /// State path.
    pub path: String,
    /// Events it takes.
    pub accepts: Vec<GateEvent>,
    /// What the author shows.
    pub meta: Value,
}

/// One event a Gate takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct GateEvent {
    /// Its name.
    pub name: String,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON Schema of its payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
}

/// One running Turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnView {
    /// The conversation.
    pub instance_id: String,
    /// The Agent.
    pub agent: String,
    /// State path.
    pub path: String,
    /// Phase of the Turn protocol.
    pub phase: String,
}

/// One wait for a Sandbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WaitView {
    /// Actor path.
    pub child: String,
    /// `node`, `quota`, or `local`.
    pub on: String,
    /// For people.
    pub message: String,
    /// RFC 3339.
    pub since: String,
}

/// A row of the run list: open band, no run state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunSummary {
    /// The run.
    pub run_id: String,
    /// Its workflow.
    pub workflow: String,
    /// Where it stands.
    #[schema(value_type = String)]
    pub status: Status,
    /// Active states.
    pub value: Value,
    /// RFC 3339.
    pub started: String,
    /// RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
}
