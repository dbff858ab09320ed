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
    /// Nothing of it is under way: it waits for a Gate, an outside event or a delay, or has ended and let everything go.
    #[serde(default)]
    pub idle: bool,
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
    /// Workspaces that are kept because their work could not be saved: where, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept_workspaces: Vec<String>,
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

use super::core::{gates_of, turns_of};
use super::{Actor, InvokedKind, Row, WorkspacePhase};
use crate::workflow::{InvocationKind, Program};
use serde_json::json;

/// The status as a word of the API.
pub fn status_word(status: Status) -> &'static str {
    match status {
        Status::Live => "live",
        Status::Done => "done",
        Status::Error => "error",
        Status::Cancelled => "cancelled",
        Status::Lost => "lost",
        Status::Drifted => "drifted",
    }
}

/// RFC 3339 in UTC with milliseconds.
pub fn instant(ms: u64) -> String {
    humantime::format_rfc3339_millis(std::time::UNIX_EPOCH + std::time::Duration::from_millis(ms)).to_string()
}

/// The feed's `status` entry: shape only, so that open feeds may say it (spec Q-1).
pub fn status_line(program: &Program, row: &Row) -> Value {
    json!({
        "runId": row.id.as_str(),
        "workflow": row.workflow,
        "status": row.status,
        "value": actor_value(program, &row.root),
    })
}

/// Active states of an actor: its Workspace's phase while the body does not run.
fn actor_value(program: &Program, actor: &Actor) -> Value {
    if let Some(workspace) = &actor.workspace {
        match workspace.phase {
            WorkspacePhase::Provisioning => return json!("provisioning"),
            WorkspacePhase::Teardown => return json!("teardown"),
            _ => {}
        }
    }
    match (program.workflows.get(&actor.workflow), &actor.chart) {
        (Some(workflow), Some(configuration)) => configuration.value(&workflow.chart),
        _ => Value::Null,
    }
}

/// The run list's row.
pub fn summary(program: &Program, row: &Row) -> RunSummary {
    RunSummary {
        run_id: row.id.as_str().to_owned(),
        workflow: row.workflow.clone(),
        status: row.status,
        value: actor_value(program, &row.root),
        started: instant(row.started),
        ended: row.ended.map(instant),
    }
}

/// The whole status.
pub fn run_status(program: &Program, row: &Row) -> RunStatus {
    let context = row.root.chart.as_ref().map_or(Value::Null, |c| Value::Object(c.context.clone()));
    let reason = row.reason.clone();
    let faulted = row.status == Status::Error;
    RunStatus {
        run_id: row.id.as_str().to_owned(),
        workflow: row.workflow.clone(),
        instance_id: row.id.as_str().to_owned(),
        status: row.status,
        value: actor_value(program, &row.root),
        context,
        children: children(program, &row.root),
        gates: if row.status.is_ended() { Vec::new() } else { gate_views(program, row) },
        turns: if row.status.is_ended() { Vec::new() } else { turns_of(program, row) },
        idle: row.queue.is_empty() && row.deletes.is_empty() && row.aborts.is_empty() && rests(&row.root),
        waiting: waits(&row.root),
        fault: if faulted { reason.clone() } else { None },
        reason: if faulted { None } else { reason },
        output: row.output.clone(),
        kept_workspaces: row.kept_workspaces.clone(),
        branches: row.branches.iter().filter_map(|b| serde_json::to_value(b).ok()).collect(),
        started: instant(row.started),
        ended: row.ended.map(instant),
        rev: row.rev,
    }
}

fn children(program: &Program, actor: &Actor) -> Vec<ChildView> {
    let runs = actor.invoked.values().filter_map(|invoked| match &invoked.kind {
        InvokedKind::Run(child) => Some(&**child),
        _ => None,
    });
    runs.map(|child| ChildView {
        id: child.path.clone(),
        src: child.workflow.clone(),
        status: if child.chart.as_ref().is_some_and(|c| c.finished) { "done" } else { "live" }.to_owned(),
        value: actor_value(program, child),
        children: children(program, child),
    })
    .collect()
}

/// Nothing an actor invoked is at work; a step that waits for its next attempt is.
fn rests(actor: &Actor) -> bool {
    let placed = actor
        .workspace
        .as_ref()
        .is_none_or(|w| !matches!(w.phase, WorkspacePhase::Provisioning | WorkspacePhase::Teardown));
    placed
        && actor.invoked.values().all(|invoked| match &invoked.kind {
            InvokedKind::Agent(_) | InvokedKind::Do(_) => false,
            InvokedKind::Run(child) => rests(child),
            InvokedKind::Gate { .. } | InvokedKind::Ended => true,
        })
}

fn waits(actor: &Actor) -> Vec<WaitView> {
    let mut found = Vec::new();
    if let Some(workspace) = actor.workspace.as_ref().filter(|w| w.phase == WorkspacePhase::Provisioning) {
        found.push(WaitView {
            child: actor.path.clone(),
            on: "local".to_owned(),
            message: format!("Sandbox {} is being made", workspace.spec.name),
            since: instant(workspace.since),
        });
    }
    for invoked in actor.invoked.values() {
        if let InvokedKind::Run(child) = &invoked.kind {
            found.extend(waits(child));
        }
    }
    found
}

fn gate_views(program: &Program, row: &Row) -> Vec<GateView> {
    let mut views = Vec::new();
    for open in gates_of(program, row) {
        let Some(workflow) = program.workflows.get(&open.workflow) else { continue };
        let Some(InvocationKind::Gate { accepts, .. }) = workflow.invocations.get(&open.state).map(|i| &i.kind) else {
            continue;
        };
        let accepts = accepts
            .iter()
            .map(|name| {
                let definition = workflow.events.get(name);
                GateEvent {
                    name: name.clone(),
                    description: definition.and_then(|d| d.description.clone()),
                    payload: definition.and_then(|d| d.payload.clone()),
                }
            })
            .collect();
        let path = workflow.chart.states.get(open.state as usize).map(|s| s.path.clone()).unwrap_or_default();
        views.push(GateView {
            activation: format!("{}#{}", open.gate, open.ordinal),
            gate: open.gate,
            path,
            accepts,
            meta: open.meta,
        });
    }
    views
}
