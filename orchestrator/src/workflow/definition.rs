//! A workflow file as written: the same parts as a checked [`Workflow`](super::Workflow), each with its place, and with
//! names that are not resolved yet.

use super::model::{Agent, Audience, DoStep, Retry};
use super::source::{Node, SourceText, Span, Spanned};
use crate::chart::Action;
use crate::expression::{Expression, Template, ValueSource};
use jr2_shared::size::Size;
use serde_json::{Map, Value};
use std::sync::Arc;

/// One file.
#[derive(Clone, Debug)]
pub struct Definition {
    /// The text it was read from.
    pub source: Arc<SourceText>,
    /// `workflow`.
    pub name: Spanned<String>,
    /// `description`.
    pub description: Option<String>,
    /// `input`.
    pub input: Option<Node>,
    /// `agents` in order.
    pub agents: Vec<(Spanned<String>, AgentDef)>,
    /// `events` in order.
    pub events: Vec<EventDef>,
    /// `workspace`.
    pub workspace: Option<WorkspaceDef>,
    /// `context`.
    pub context: Map<String, Value>,
    /// All states in document order; 0 is the root. The index is the chart's.
    pub states: Vec<StateDef>,
    /// Every expression and template with what it names.
    pub sites: Vec<Site>,
    /// Every context key that some `set` writes.
    pub sets: Vec<Spanned<String>>,
    /// Every event that some `raise` raises.
    pub raises: Vec<Spanned<String>>,
}

/// One Agent.
#[derive(Clone, Debug)]
pub struct AgentDef {
    /// It.
    pub agent: Agent,
    /// Where its model stands.
    pub model: Span,
}

/// One event.
#[derive(Clone, Debug)]
pub struct EventDef {
    /// Its name.
    pub name: Spanned<String>,
    /// Who may send it.
    pub from: Audience,
    /// Agents that `from` names.
    pub senders: Vec<Spanned<String>>,
    /// `description`.
    pub description: Option<String>,
    /// `payload`.
    pub payload: Option<Node>,
    /// `briefing`.
    pub briefing: Option<Spanned<String>>,
    /// Where `buffer: true` stands.
    pub buffer: Option<Span>,
}

/// `workspace`.
#[derive(Clone, Debug)]
pub struct WorkspaceDef {
    /// Where the key stands.
    pub span: Span,
    /// Slots in order with their sources.
    pub repos: Vec<(Spanned<String>, RepoDef)>,
    /// Where `repos: open` stands.
    pub repos_open: Option<Span>,
    /// The branch.
    pub branch: Template,
    /// Where the branch stands, when it is written.
    pub branch_text: Option<Spanned<String>>,
    /// The Size.
    pub size: Size,
    /// The Size is written in the file.
    pub sized: bool,
}

/// One slot.
#[derive(Clone, Debug)]
pub struct RepoDef {
    /// URL or path.
    pub url: Template,
    /// The url as written.
    pub text: Spanned<String>,
    /// `ref`.
    pub reference: Option<Template>,
}

/// One state.
#[derive(Clone, Debug)]
pub struct StateDef {
    /// Its key.
    pub key: Spanned<String>,
    /// Keys below the root joined with `.`.
    pub path: String,
    /// The parent; `None` for the root.
    pub parent: Option<usize>,
    /// Children in order.
    pub children: Vec<usize>,
    /// The last descendant, itself when it has none.
    pub last: usize,
    /// The keys written on it, with their places.
    pub keys: Vec<Spanned<String>>,
    /// `parallel: true`.
    pub parallel: bool,
    /// `final: true`.
    pub is_final: bool,
    /// `history`: deep or not.
    pub history: Option<bool>,
    /// `initial` with the content of its transition.
    pub initial: Option<(Vec<Spanned<String>>, Vec<Action>)>,
    /// `to` of a history state.
    pub default: Vec<Spanned<String>>,
    /// `output`.
    pub output: Option<ValueSource>,
    /// `on`, `always` and `after` in document order.
    pub transitions: Vec<TransitionDef>,
    /// `enter`.
    pub enter: Vec<Action>,
    /// `exit`.
    pub exit: Vec<Action>,
    /// What it invokes.
    pub invoke: Option<InvokeDef>,
    /// `retry`.
    pub retry: Option<Retry>,
}

impl StateDef {
    /// Where a key stands, if it is written.
    pub fn has(&self, key: &str) -> Option<Span> {
        self.keys.iter().find(|k| k.value == key).map(|k| k.span)
    }
}

/// One transition.
#[derive(Clone, Debug)]
pub struct TransitionDef {
    /// Where it stands.
    pub span: Span,
    /// When it is eligible.
    pub trigger: TriggerDef,
    /// `if`.
    pub guard: Option<Expression>,
    /// `if` is written, whether it could be parsed or not.
    pub guarded: bool,
    /// `to`.
    pub to: Vec<Spanned<String>>,
    /// `reenter`.
    pub reenter: bool,
    /// `set`, `emit`, `raise` in the order written.
    pub actions: Vec<Action>,
}

/// When a transition is eligible.
#[derive(Clone, Debug)]
pub enum TriggerDef {
    /// `on`: descriptors.
    Events(Vec<Spanned<String>>),
    /// `always`.
    Always,
    /// `after`: milliseconds.
    After(u64),
}

/// What a state invokes.
#[derive(Clone, Debug)]
pub enum InvokeDef {
    /// `agent`.
    Agent {
        /// Its name.
        agent: Spanned<String>,
        /// `prompt`.
        prompt: Option<Template>,
        /// `cwd`.
        cwd: Option<Template>,
        /// `continue`.
        continued: bool,
        /// `model`.
        model: Option<(Template, Spanned<String>)>,
        /// `thinking`.
        thinking: Option<jr2_shared::harness::ThinkingLevel>,
    },
    /// `gate`.
    Gate {
        /// Where the key stands.
        span: Span,
        /// What people see.
        meta: ValueSource,
    },
    /// `run`.
    Run {
        /// The workflow.
        workflow: Spanned<String>,
        /// `input`.
        input: ValueSource,
    },
    /// `do`.
    Do {
        /// Where the key stands.
        span: Span,
        /// The step.
        step: DoStep,
    },
}

/// One expression or template, for the checks of names.
#[derive(Clone, Debug)]
pub struct Site {
    /// Where the text stands.
    pub span: Span,
    /// The text.
    pub text: String,
    /// What it names: path and byte offset in the text.
    pub names: Vec<(Vec<String>, usize)>,
    /// What it can see.
    pub sight: Sight,
}

/// What an expression can see beside `input` and `run`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sight {
    /// Nothing: the Workspace's own texts.
    Workspace,
    /// Everything but `event`.
    State,
    /// Everything; the event is one of these.
    Events(Vec<String>),
    /// Everything; the event is whichever came last.
    AnyEvent,
}
