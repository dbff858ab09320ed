//! The step function.

use super::microstep::Machine;
use super::select::{Sought, select};
use super::{Chart, Configuration, StateIx};
use crate::expression::{ExpressionError, Scope};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Most microsteps of one macrostep (decision 36).
pub const MICROSTEPS_MAX: usize = 1_000;
/// Most bytes of the context as compact JSON (decision 51): it is in every save.
pub const CONTEXT_BYTES_MAX: usize = 1024 * 1024;
/// What the names of the chart's own events start with when the children of a state are done; the state's path follows.
pub const DONE_STATE: &str = "done.state.";

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

impl<'a> Environment<'a> {
    /// What an expression sees with this context and event.
    pub fn scope(&self, context: &'a Map<String, Value>, event: Option<&'a Value>) -> Scope<'a> {
        Scope { input: self.input, context, event, run: self.run, workspace: self.workspace, actor: self.actor }
    }
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
pub fn start(chart: &Chart, context: Map<String, Value>, env: &Environment<'_>) -> Result<Macrostep, StepError> {
    let mut machine = Machine::new(chart, env, Configuration { context, ..Configuration::default() });
    machine.enter_initial()?;
    machine.settle()?;
    machine.finish(false)
}

/// Takes one external event through a whole macrostep. An event that enables nothing changes nothing and runs nothing
/// (`moved` is false). On an error nothing has happened: `configuration` is as it was.
pub fn step(
    chart: &Chart,
    configuration: &Configuration,
    event: &Event,
    env: &Environment<'_>,
) -> Result<Macrostep, StepError> {
    if configuration.finished {
        return Ok(unmoved(configuration));
    }
    let mut machine = Machine::new(chart, env, configuration.clone());
    machine.receive(&event.name, &event.payload);
    let enabled = select(chart, &machine.configuration, Sought::Event(&event.name, &event.scope), &machine.scope());
    if enabled.is_empty() {
        return Ok(unmoved(configuration));
    }
    machine.microstep(&enabled)?;
    machine.settle()?;
    machine.finish(true)
}

fn unmoved(configuration: &Configuration) -> Macrostep {
    Macrostep { configuration: configuration.clone(), effects: Vec::new(), taken: Vec::new(), moved: false }
}
