//! What becomes of the calls of one model answer: run, picked, or answered at once because they cannot run; and the watch
//! over calls that repeat (spec 6.8).

use crate::briefing;
use crate::menu::Menu;
use crate::model::{ModelAnswer, ToolCall, Verdict};
use crate::mutation::{self, Mutation};
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// Identical calls in a row at which a Submission is a runaway; the last of them never runs (spec H-28).
pub const IDENTICAL_CALLS_MAX: u32 = 4;
/// Working tools that change nothing: losing their record with the power loses nothing.
const READ_ONLY_TOOLS: [&str; 3] = ["read", "grep", "glob"];

/// What to do with one call.
#[derive(Clone, Debug, PartialEq)]
pub enum Plan {
    /// Answer it at once.
    Answer {
        /// The call's id.
        call: String,
        /// The tool named and the arguments as written, for the watch.
        written: (String, String),
        /// The answer.
        text: String,
    },
    /// Run a Working tool.
    Tool {
        /// The call's id.
        call: String,
        /// The tool.
        name: String,
        /// Its arguments.
        arguments: Map<String, Value>,
    },
    /// Post a pick.
    Pick {
        /// The call's id.
        call: String,
        /// The tool's name.
        tool: String,
        /// The event.
        event: String,
        /// Its arguments.
        arguments: Map<String, Value>,
    },
}

impl Plan {
    /// The call's id.
    pub fn call(&self) -> &str {
        match self {
            Self::Answer { call, .. } | Self::Tool { call, .. } | Self::Pick { call, .. } => call,
        }
    }

    /// Whether carrying it out may change something outside.
    pub fn has_effect(&self) -> bool {
        match self {
            Self::Answer { .. } => false,
            Self::Tool { name, .. } => !READ_ONLY_TOOLS.contains(&name.as_str()),
            Self::Pick { .. } => true,
        }
    }

    fn signature(&self) -> (String, Value) {
        match self {
            Self::Answer { written: (name, raw), .. } => (name.clone(), Value::String(raw.clone())),
            Self::Tool { name, arguments, .. } => (name.clone(), Value::Object(arguments.clone())),
            Self::Pick { tool, arguments, .. } => (tool.clone(), Value::Object(arguments.clone())),
        }
    }
}

/// Counts identical calls in a row: name and JSON arguments.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Watch {
    last: Option<(String, Value)>,
    count: u32,
}

impl Watch {
    /// Counts a call; true when it is one too many.
    pub fn trips(&mut self, plan: &Plan) -> bool {
        let signature = plan.signature();
        if self.last.as_ref() == Some(&signature) {
            self.count += 1;
        } else {
            self.last = Some(signature);
            self.count = 1;
        }
        self.count >= IDENTICAL_CALLS_MAX + u32::from(mutation::is(Mutation::RunawayAtFive))
    }
}

/// The calls of an answer as the conversation keeps them, each with its plan. Every call gets an id that is new in the
/// Submission, because picks are deduped by it; arguments that do not parse are kept as a stub, because servers refuse
/// a history that holds them.
pub fn plan(
    answer: &ModelAnswer,
    working: &[String],
    menu: &Menu,
    used: &mut BTreeSet<String>,
    step: u32,
) -> Vec<(ToolCall, Plan)> {
    let mut planned = Vec::with_capacity(answer.tool_calls.len());
    for (index, call) in answer.tool_calls.iter().enumerate() {
        let id = fresh_id(&call.id, used, step, index);
        let (kept, plan) = match answer.verdict(index) {
            Verdict::Run(arguments) => {
                (Value::Object(arguments.clone()).to_string(), one(&id, &call.name, arguments, working, menu))
            }
            Verdict::Cut(text) | Verdict::Invalid(text) => {
                let written = (call.name.clone(), call.arguments.clone());
                (briefing::bad_arguments_stub(&call.arguments), Plan::Answer { call: id.clone(), written, text })
            }
        };
        planned.push((ToolCall { id, name: call.name.clone(), arguments: kept }, plan));
    }
    planned
}

fn one(id: &str, name: &str, arguments: Map<String, Value>, working: &[String], menu: &Menu) -> Plan {
    if let Some(pick) = menu.by_tool(name) {
        return Plan::Pick { call: id.to_owned(), tool: name.to_owned(), event: pick.event.clone(), arguments };
    }
    if working.iter().any(|tool| tool == name) {
        return Plan::Tool { call: id.to_owned(), name: name.to_owned(), arguments };
    }
    let have: Vec<&str> =
        working.iter().map(String::as_str).chain(menu.picks.iter().map(|pick| pick.tool.as_str())).collect();
    let written = (name.to_owned(), Value::Object(arguments).to_string());
    Plan::Answer { call: id.to_owned(), written, text: briefing::no_such_tool(name, &have) }
}

fn fresh_id(given: &str, used: &mut BTreeSet<String>, step: u32, index: usize) -> String {
    let base = if given.is_empty() { format!("call-{step}-{index}") } else { given.to_owned() };
    let id = if used.contains(&base) && !mutation::is(Mutation::CallIdsRepeat) {
        format!("{base}-{step}-{index}")
    } else {
        base
    };
    used.insert(id.clone());
    id
}
