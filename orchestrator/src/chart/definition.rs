//! What a chart is: states in document order, transitions, executable content. Built once by `workflow`, never changed.

use crate::expression::{Expression, ValueSource};

/// Index of a state in [`Chart::states`]; document order; 0 is the root.
pub type StateIx = u32;

/// One statechart.
#[derive(Clone, Debug, Default)]
pub struct Chart {
    /// All states in document order (parents before children).
    pub states: Vec<State>,
}

/// One state.
#[derive(Clone, Debug)]
pub struct State {
    /// Its own key; empty for the root.
    pub key: String,
    /// Keys from below the root joined with `.`; empty for the root.
    pub path: String,
    /// The parent; `None` for the root.
    pub parent: Option<StateIx>,
    /// Children in document order, history pseudo-states included.
    pub children: Vec<StateIx>,
    /// The largest index among its descendants (itself when it has none): descendants are `ix+1..=last`.
    pub last: StateIx,
    /// What it is.
    pub kind: StateKind,
    /// Executable content on entry.
    pub enter: Vec<Action>,
    /// Executable content on exit.
    pub exit: Vec<Action>,
    /// Transitions in document order: `on`, `always` and `after` alike.
    pub transitions: Vec<Transition>,
    /// What it invokes; details live in the workflow.
    pub invoke: Option<InvokeKind>,
}

/// The kinds of state.
#[derive(Clone, Debug)]
pub enum StateKind {
    /// No children.
    Atomic,
    /// One child active; entered by this initial transition.
    Compound {
        /// Target states of the initial transition (usually one).
        initial: Vec<StateIx>,
        /// Executable content of the initial transition.
        actions: Vec<Action>,
    },
    /// All children active.
    Parallel,
    /// A final state with its output (`donedata`).
    Final {
        /// The output.
        output: Option<ValueSource>,
    },
    /// A history pseudo-state.
    History {
        /// Deep or shallow.
        deep: bool,
        /// Default targets when there is no history.
        default: Vec<StateIx>,
        /// Executable content of the default transition.
        actions: Vec<Action>,
    },
}

/// What kind of party a state invokes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvokeKind {
    /// An Agent, by name.
    Agent(String),
    /// A Gate.
    Gate,
    /// A child run.
    Run,
    /// An Agent-less step.
    Do,
}

/// What makes a transition eligible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// Event descriptors, SCXML matching: token prefixes, `*` matches all.
    Events(Vec<String>),
    /// Eventless (`always`).
    Always,
    /// Delayed (`after`): fires when the timer `(state, entry ordinal, index of this transition)` does.
    After {
        /// Milliseconds from the state's entry.
        delay_ms: u64,
    },
}

/// One transition.
#[derive(Clone, Debug)]
pub struct Transition {
    /// When it is eligible.
    pub trigger: Trigger,
    /// The guard.
    pub guard: Option<Expression>,
    /// Targets; empty = targetless.
    pub targets: Vec<StateIx>,
    /// Leave and enter again even where the format's default is internal.
    pub reenter: bool,
    /// Executable content.
    pub actions: Vec<Action>,
}

/// Executable content.
#[derive(Clone, Debug)]
pub enum Action {
    /// Writes context; all right-hand sides see the context before it (decision 36).
    Set(Vec<(String, ValueSource)>),
    /// Said to watchers.
    Emit(ValueSource),
    /// An internal event.
    Raise {
        /// Its name.
        event: String,
        /// Its payload (an object).
        payload: Option<ValueSource>,
    },
}
