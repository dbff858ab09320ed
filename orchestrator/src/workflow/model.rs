//! A checked workflow: what the run host executes.

use super::input::Validators;
use crate::chart::{Chart, StateIx};
use crate::expression::{Template, ValueSource};
use jr2_shared::harness::{Access, ThinkingLevel};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The word for a part that whoever runs the workflow must bind (spec W-5).
pub const OPEN: &str = "open";

/// A workflow and every workflow it runs as a child, resolved and bound: what a run pins (decision 40).
#[derive(Clone, Debug)]
pub struct Program {
    /// Name of the workflow a run starts with.
    pub root: String,
    /// All of them by name.
    pub workflows: BTreeMap<String, Arc<Workflow>>,
    /// sha256 in hex of the canonical text.
    pub hash: String,
    /// The canonical text: JSON with the sources and the bindings; `Program::from_canonical` reads it back.
    pub canonical: Arc<str>,
}

/// One checked workflow.
#[derive(Clone, Debug)]
pub struct Workflow {
    /// Its name.
    pub name: String,
    /// For people.
    pub description: Option<String>,
    /// The door: JSON Schema of the input; `None` = any input passes.
    pub input: Option<Value>,
    /// Agents by name.
    pub agents: BTreeMap<String, Agent>,
    /// The vocabulary by event name.
    pub events: BTreeMap<String, EventDefinition>,
    /// The Sandbox that wraps the machine.
    pub workspace: Option<WorkspaceDefinition>,
    /// `repos: open`: whoever runs it names the slots too.
    pub repos_open: bool,
    /// Declared context with its first values.
    pub context: Map<String, Value>,
    /// The statechart.
    pub chart: Chart,
    /// What states invoke.
    pub invocations: BTreeMap<StateIx, Invocation>,
    /// Menu of each Agent: sorted union of its derived sets.
    pub menus: BTreeMap<String, Vec<String>>,
    /// Derived set of each state that invokes an Agent, sorted.
    pub derived: BTreeMap<StateIx, Vec<String>>,
    /// Compiled schemas of the door and the payloads.
    pub validators: Validators,
}

/// One Agent.
#[derive(Clone, Debug, PartialEq)]
pub struct Agent {
    /// `provider/model`, or [`OPEN`].
    pub model: String,
    /// First part of the system prompt.
    pub instructions: String,
    /// Working tools and placement.
    pub workspace: Access,
    /// Default thinking level.
    pub thinking: Option<ThinkingLevel>,
    /// Offered brain surface, kept as written.
    pub brain: Option<Value>,
}

/// Who may send an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Audience {
    /// Any Agent.
    Agent,
    /// People and outside systems.
    External,
    /// Everybody.
    Any,
    /// These Agents.
    Agents(Vec<String>),
}

/// One event of the vocabulary.
#[derive(Clone, Debug, PartialEq)]
pub struct EventDefinition {
    /// Who may send it.
    pub from: Audience,
    /// For the model and people.
    pub description: Option<String>,
    /// JSON Schema of the payload (an object); `None` = no payload.
    pub payload: Option<Value>,
    /// Author text for the Turn part (decision 8).
    pub briefing: Option<String>,
    /// Kept for the next state that handles it.
    pub buffer: bool,
}

/// The Sandbox around the machine.
#[derive(Clone, Debug)]
pub struct WorkspaceDefinition {
    /// Repo slots in order: name → url template (or [`OPEN`]) and optional ref template.
    pub repos: Vec<(String, RepoSource)>,
    /// The branch template.
    pub branch: Template,
    /// The Size.
    pub size: jr2_shared::size::Size,
}

/// Where a slot's repository comes from.
#[derive(Clone, Debug)]
pub struct RepoSource {
    /// URL or path.
    pub url: Template,
    /// Commit, tag or branch to start from; the source's default branch when absent.
    pub reference: Option<Template>,
}

/// What a state invokes, with its retry policy.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// What.
    pub kind: InvocationKind,
    /// How often again.
    pub retry: Option<Retry>,
}

/// What a state invokes.
#[derive(Clone, Debug)]
pub enum InvocationKind {
    /// One Turn of an Agent.
    Agent {
        /// The Agent.
        agent: String,
        /// The Frame's prompt.
        prompt: Template,
        /// The Frame's working directory.
        cwd: Option<Template>,
        /// Ride the standing conversation.
        continued: bool,
        /// Dial.
        model: Option<Template>,
        /// Dial.
        thinking: Option<ThinkingLevel>,
    },
    /// A person or outside system decides.
    Gate {
        /// What the person sees.
        meta: ValueSource,
        /// Events it takes: the external derived set.
        accepts: Vec<String>,
    },
    /// A child run.
    Run {
        /// The workflow's name.
        workflow: String,
        /// Its input.
        input: ValueSource,
    },
    /// One Agent-less step.
    Do(DoStep),
}

/// One Agent-less step (format `do`).
#[derive(Clone, Debug)]
pub enum DoStep {
    /// `do: {}`: nothing.
    Nothing,
    /// A command in the Workspace.
    Command {
        /// The shell text.
        command: Template,
        /// Where; the slot's worktree when absent.
        cwd: Option<Template>,
        /// Extra environment.
        env: Vec<(String, Template)>,
        /// Most milliseconds it may take.
        timeout_ms: u64,
    },
    /// A request.
    Http {
        /// `GET`, `POST`, …
        method: String,
        /// Where.
        url: Template,
        /// Headers.
        headers: Vec<(String, Template)>,
        /// JSON body.
        body: Option<ValueSource>,
        /// Most milliseconds it may take.
        timeout_ms: u64,
    },
}

/// `retry: { max, backoff: 1s..5m, on: [prefix] }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// Most attempts after the first.
    pub max: u32,
    /// First pause in milliseconds; doubles.
    pub backoff_min_ms: u64,
    /// Longest pause in milliseconds.
    pub backoff_max_ms: u64,
    /// Reason prefixes that are retried; empty = all.
    pub on: Vec<String>,
}

impl Retry {
    /// The pause before attempt `n` (1 = the first repeat), in milliseconds.
    pub fn pause_ms(&self, n: u32) -> u64 {
        let doubled = self.backoff_min_ms.saturating_mul(1u64 << n.saturating_sub(1).min(32));
        doubled.min(self.backoff_max_ms)
    }

    /// Does this policy repeat a failure with `reason` after `attempts` repeats?
    pub fn repeats(&self, reason: &str, attempts: u32) -> bool {
        attempts < self.max && (self.on.is_empty() || self.on.iter().any(|p| reason.starts_with(p.as_str())))
    }
}

/// `provider/model` split at the first slash; `None` when it is not of that form.
pub fn model_parts(model: &str) -> Option<(&str, &str)> {
    let (provider, name) = model.split_once('/')?;
    let word = |s: &str| !s.is_empty() && !s.chars().any(|c| c.is_whitespace() || c.is_control());
    (word(provider) && word(name)).then_some((provider, name))
}
