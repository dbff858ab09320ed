//! The step function.

use super::{Chart, StateIx};
use crate::expression::ExpressionError;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Most microsteps of one macrostep (decision 36).
pub const MICROSTEPS_MAX: usize = 1_000;

/// The serialisable state of a chart. State indexes are stable because a run keeps its text (decision 40).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Configuration {
    /// All active states, ancestors included, the root too.
    pub active: BTreeSet<StateIx>,
    /// Recorded history by history pseudo-state.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub history: BTreeMap<StateIx, Vec<StateIx>>,
    /// How often each state has been entered: the entry ordinal of an active state.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ordinals: BTreeMap<StateIx, u64>,
    /// The context.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub context: Map<String, Value>,
    /// The output, once a top-level final state was entered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// A top-level final state was entered.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub finished: bool,
}

/// Facts that do not change during a macrostep.
#[derive(Clone, Copy, Debug)]
pub struct Environment<'a> {
    /// The run's input.
    pub input: &'a Value,
    /// `{id, workflow, started}`.
    pub run: &'a Value,
    /// `{repos, branch}`.
    pub workspace: Option<&'a Value>,
    /// `{path, id}`.
    pub actor: Option<&'a Value>,
}

/// One event from outside the chart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Its name.
    pub name: String,
    /// Its payload, an object.
    #[serde(default)]
    pub payload: Value,
    /// Whose transitions it may enable (decision 37).
    pub scope: EventScope,
}

/// Whose transitions an event may enable (decision 37).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventScope {
    /// Everybody's.
    Broadcast,
    /// The invoking state's and its ancestors'; for a pick, its descendants' in that Agent's part too.
    Invocation {
        /// The invoking state.
        state: StateIx,
        /// A pick.
        pick: bool,
    },
    /// The one delayed transition.
    Timer {
        /// Its state.
        state: StateIx,
        /// Its index in the state's transitions.
        index: usize,
    },
}

/// What a macrostep did.
#[derive(Clone, Debug, PartialEq)]
pub struct Macrostep {
    /// The configuration after it.
    pub configuration: Configuration,
    /// What the host must do, in order.
    pub effects: Vec<ChartEffect>,
    /// Transitions taken: source state and index in its transitions.
    pub taken: Vec<(StateIx, usize)>,
    /// The external event itself enabled a transition.
    pub moved: bool,
}

/// What the host must do after the macrostep's save.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChartEffect {
    /// Say to watchers.
    Emit(Value),
    /// A state with delayed transitions was entered.
    StartTimer {
        /// State.
        state: StateIx,
        /// Entry ordinal.
        ordinal: u64,
        /// Index of the transition.
        index: usize,
        /// Milliseconds from now.
        delay_ms: u64,
    },
    /// A state with delayed transitions was left: its timers of that entry are void.
    CancelTimers {
        /// State.
        state: StateIx,
        /// Entry ordinal.
        ordinal: u64,
    },
    /// A state that invokes was entered and is still active at the end (decision 36).
    Invoke {
        /// State.
        state: StateIx,
        /// Entry ordinal.
        ordinal: u64,
    },
    /// A state whose invocation had started was left.
    Uninvoke {
        /// State.
        state: StateIx,
        /// Entry ordinal.
        ordinal: u64,
    },
}

/// Why a macrostep was discarded whole (decision 36).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StepError {
    /// An expression failed outside a guard.
    #[error("{place}: {error}")]
    Expression {
        /// Where, as a path in the workflow.
        place: String,
        /// What.
        error: ExpressionError,
    },
    /// It did not end.
    #[error("the macrostep did not end after {MICROSTEPS_MAX} microsteps")]
    Microsteps,
    /// The context grew over its bound (decision 51).
    #[error("the context is larger than {0} bytes")]
    ContextTooLarge(usize),
}

/// Enters the initial configuration.
pub fn start(_chart: &Chart, _context: Map<String, Value>, _env: &Environment<'_>) -> Result<Macrostep, StepError> {
    todo!()
}

/// Takes one external event through a whole macrostep.
pub fn step(
    _chart: &Chart,
    _configuration: &Configuration,
    _event: &Event,
    _env: &Environment<'_>,
) -> Result<Macrostep, StepError> {
    todo!()
}

/// May `event`, sent as a pick by the Agent of `invoking`, enable a transition now? Guards that read the payload or fail
/// count as open (format "Menu, Allowed picks").
pub fn may_fire(
    _chart: &Chart,
    _configuration: &Configuration,
    _event: &str,
    _invoking: StateIx,
    _env: &Environment<'_>,
) -> bool {
    todo!()
}
