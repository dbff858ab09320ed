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

/// The root state of every chart.
pub const ROOT: StateIx = 0;

impl Chart {
    /// One state. A chart that passed [`Chart::check`] holds every index it mentions; a configuration that passed
    /// [`Configuration::is_legal`](super::Configuration::is_legal) mentions no other.
    pub fn state(&self, ix: StateIx) -> &State {
        &self.states[ix as usize]
    }

    /// The state with this path; `""` is the root.
    pub fn find(&self, path: &str) -> Option<StateIx> {
        self.states.iter().position(|state| state.path == path).and_then(|ix| StateIx::try_from(ix).ok())
    }

    /// Is `a` a proper descendant of `b`?
    pub fn is_descendant(&self, a: StateIx, b: StateIx) -> bool {
        b < a && a <= self.state(b).last
    }

    /// The proper ancestors of a state, its parent first, the root last.
    pub fn ancestors(&self, ix: StateIx) -> impl Iterator<Item = StateIx> + '_ {
        std::iter::successors(self.state(ix).parent, |&parent| self.state(parent).parent)
    }

    /// The children of a state without history pseudo-states.
    pub fn regions(&self, ix: StateIx) -> impl Iterator<Item = StateIx> + '_ {
        self.state(ix).children.iter().copied().filter(|&child| !self.state(child).is_history())
    }

    /// Is `ix` in the part of the Agent that `invoking` invokes? The state itself, its ancestors up to below the nearest
    /// one that invokes an Agent, and its descendants down to above those that invoke one (format "Menu, Allowed picks").
    pub fn in_agent_part(&self, invoking: StateIx, ix: StateIx) -> bool {
        let invokes_agent = |ix: StateIx| matches!(self.state(ix).invoke, Some(InvokeKind::Agent(_)));
        let (low, high) = (invoking.max(ix), invoking.min(ix));
        if low == high {
            return true;
        }
        self.is_descendant(low, high)
            && std::iter::once(low)
                .chain(self.ancestors(low))
                .take_while(|&on_way| on_way >= high)
                .all(|on_way| on_way == invoking || !invokes_agent(on_way))
    }

    /// The part of the Agent that `invoking` invokes, in document order; see [`Chart::in_agent_part`].
    pub fn agent_part(&self, invoking: StateIx) -> Vec<StateIx> {
        (ROOT..self.states.len() as StateIx).filter(|&ix| self.in_agent_part(invoking, ix)).collect()
    }

    /// Where a state stands in its workflow file: `states.review.states.open`.
    pub fn place(&self, ix: StateIx) -> String {
        let mut keys: Vec<&str> =
            std::iter::once(ix).chain(self.ancestors(ix)).map(|ix| self.state(ix).key.as_str()).collect();
        keys.pop();
        keys.iter().rev().map(|key| format!("states.{key}")).collect::<Vec<_>>().join(".")
    }

    /// Checks the shape the step function relies on: document order, targets that exist, initial states and history
    /// defaults inside their parent. The error names the first state that is wrong.
    pub fn check(&self) -> Result<(), String> {
        if self.states.is_empty() {
            return Err("the chart has no root".to_owned());
        }
        for (ix, state) in (ROOT..).zip(&self.states) {
            self.check_state(ix, state).map_err(|problem| format!("state `{}`: {problem}", state.path))?;
        }
        Ok(())
    }

    fn check_state(&self, ix: StateIx, state: &State) -> Result<(), String> {
        let count = self.states.len() as StateIx;
        let inside = |target: &StateIx| *target < count && self.is_descendant(*target, ix);
        let targets = state.transitions.iter().flat_map(|transition| &transition.targets);
        if targets.clone().any(|target| *target >= count || *target == ROOT) {
            return Err("a transition has a target that does not exist".to_owned());
        }
        let expected_last =
            state.children.last().map_or(ix, |child| self.states.get(*child as usize).map_or(ix, |s| s.last));
        let ordered = state.children.first().is_none_or(|first| *first == ix + 1)
            && state
                .children
                .windows(2)
                .all(|pair| self.states.get(pair[0] as usize).is_some_and(|s| s.last + 1 == pair[1]));
        let adopted =
            state.children.iter().all(|child| self.states.get(*child as usize).is_some_and(|s| s.parent == Some(ix)));
        if !ordered || !adopted || state.last != expected_last || (ix == ROOT) != state.parent.is_none() {
            return Err("its children are not in document order".to_owned());
        }
        match &state.kind {
            StateKind::Compound { initial, .. } if initial.is_empty() || !initial.iter().all(inside) => {
                Err("its initial state is not inside it".to_owned())
            }
            StateKind::Compound { initial, .. } if !self.is_legal_target_set(initial) => {
                Err("its initial states exclude each other".to_owned())
            }
            StateKind::History { default, .. } => {
                let parent = state.parent.unwrap_or(ROOT);
                let fits = |target: &StateIx| {
                    *target < count && self.is_descendant(*target, parent) && !self.state(*target).is_history()
                };
                if default.is_empty() || !default.iter().all(fits) {
                    return Err("its default is not a state beside it".to_owned());
                }
                Ok(())
            }
            StateKind::Parallel if self.regions(ix).next().is_none() => Err("it has no regions".to_owned()),
            StateKind::Atomic | StateKind::Final { .. } if !state.children.is_empty() => {
                Err("a state of its kind has no children".to_owned())
            }
            _ if !state.transitions.iter().all(|transition| self.is_legal_target_set(&transition.targets)) => {
                Err("a transition has targets that exclude each other".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Can these states be active together? Any two must lie in different regions of one parallel state.
    pub fn is_legal_target_set(&self, targets: &[StateIx]) -> bool {
        targets.iter().enumerate().all(|(at, &a)| {
            targets[at + 1..].iter().all(|&b| {
                let common = self.ancestors(a).find(|&ancestor| self.is_descendant(b, ancestor));
                a != b
                    && !self.is_descendant(a, b)
                    && !self.is_descendant(b, a)
                    && common.is_some_and(|common| matches!(self.state(common).kind, StateKind::Parallel))
            })
        })
    }
}

impl State {
    /// Is it a history pseudo-state?
    pub fn is_history(&self) -> bool {
        matches!(self.kind, StateKind::History { .. })
    }

    /// Is it active without an active child?
    pub fn is_leaf(&self) -> bool {
        matches!(self.kind, StateKind::Atomic | StateKind::Final { .. })
    }

    /// Has it delayed transitions?
    pub fn has_timers(&self) -> bool {
        self.transitions.iter().any(|transition| matches!(transition.trigger, Trigger::After { .. }))
    }
}
