//! States, transitions and what states invoke.

use super::value::Texts;
use super::{Parser, named, word};
use crate::expression::ValueSource;
use crate::workflow::codes;
use crate::workflow::definition::{InvokeDef, Sight, StateDef, TransitionDef, TriggerDef};
use crate::workflow::model::{DoStep, Retry};
use crate::workflow::shape::{parse_backoff, parse_duration_ms};
use crate::workflow::source::{Entry, Node, NodeKind, Span, Spanned};

/// Most states of a workflow: checks and steps stay quick up to there.
pub const STATES_MAX: usize = 2_000;
/// How long a command may take when the file does not say: 10 minutes, a slow test suite.
pub const COMMAND_TIMEOUT_MS: u64 = 600_000;
/// How long a request may take when the file does not say: 30 seconds.
pub const REQUEST_TIMEOUT_MS: u64 = 30_000;
/// The pauses of a `retry` without `backoff`: 1 second up to 5 minutes.
pub const BACKOFF_DEFAULT_MS: (u64, u64) = (1_000, 300_000);

impl Parser<'_> {
    /// Reads a state and its descendants; the root is the file's top mapping.
    pub(super) fn state(&mut self, parent: Option<usize>, key: Spanned<String>, node: &Node) -> Option<usize> {
        let index = self.states.len();
        if index > STATES_MAX {
            if index == STATES_MAX + 1 && !self.problems.any(|d| d.code == codes::TOO_MANY_STATES.code) {
                let message = format!("the workflow has more than {STATES_MAX} states");
                self.problems.add(&codes::TOO_MANY_STATES, key.span, message, "split it and join the parts with `run`");
            }
            return None;
        }
        let path = match parent.map(|p| self.states[p].path.as_str()) {
            None => String::new(),
            Some("") => key.value.clone(),
            Some(above) => format!("{above}.{}", key.value),
        };
        self.states.push(StateDef {
            key,
            path,
            parent,
            children: Vec::new(),
            last: index,
            keys: node.entries().iter().map(|e| e.key.clone()).collect(),
            parallel: node.get("parallel").and_then(Node::flag) == Some(true),
            is_final: node.get("final").and_then(Node::flag) == Some(true),
            history: node.get("history").and_then(Node::text).map(|word| word == "deep"),
            initial: None,
            default: Vec::new(),
            output: None,
            transitions: Vec::new(),
            enter: Vec::new(),
            exit: Vec::new(),
            invoke: None,
            retry: None,
        });
        for entry in node.entries() {
            self.state_key(index, entry, node);
        }
        self.states[index].last = self.states.len() - 1;
        Some(index)
    }

    fn state_key(&mut self, index: usize, entry: &Entry, node: &Node) {
        let value = &entry.value;
        let root = index == 0;
        match entry.key.value.as_str() {
            "states" => {
                for child in value.entries() {
                    if let Some(child) = self.state(Some(index), child.key.clone(), &child.value) {
                        self.states[index].children.push(child);
                    }
                }
            }
            "initial" => {
                let (to, actions) = match value.get("to") {
                    Some(to) => (targets(to), self.actions(value, &Sight::State)),
                    None => (targets(value), Vec::new()),
                };
                self.states[index].initial = Some((to, actions));
            }
            "on" => {
                for (descriptors, value) in named(Some(value)) {
                    let events = descriptors_of(&descriptors);
                    let sight = Sight::Events(events.iter().map(|e| e.value.clone()).collect());
                    self.transitions(index, &TriggerDef::Events(events), descriptors.span, value, &sight);
                }
            }
            "always" => self.transitions(index, &TriggerDef::Always, entry.key.span, value, &Sight::AnyEvent),
            "after" => {
                for (duration, value) in named(Some(value)) {
                    if let Ok(ms) = parse_duration_ms(&duration.value) {
                        self.transitions(index, &TriggerDef::After(ms), duration.span, value, &Sight::State);
                    }
                }
            }
            "enter" => self.states[index].enter = self.actions(value, &Sight::State),
            "exit" => self.states[index].exit = self.actions(value, &Sight::State),
            _ if root => {}
            "to" => self.states[index].default = targets(value),
            "output" => self.states[index].output = Some(self.value(value, Texts::Interpolated, &Sight::State)),
            "retry" => self.states[index].retry = retry(value),
            "agent" | "gate" | "run" | "do" if self.states[index].invoke.is_none() => {
                let invoke = self.invoke(&entry.key, value, node);
                self.states[index].invoke = invoke;
            }
            _ => {}
        }
    }

    fn transitions(&mut self, index: usize, trigger: &TriggerDef, span: Span, value: &Node, sight: &Sight) {
        for item in value.one_or_many() {
            let (to, guard, actions) = match &item.kind {
                NodeKind::Text(_) => (targets(item), None, Vec::new()),
                NodeKind::Map(_) => {
                    let to = item.get("to").map(targets).unwrap_or_default();
                    let guard = item.get("if").and_then(|condition| self.condition(condition, sight));
                    (to, guard, self.actions(item, sight))
                }
                _ => continue,
            };
            let span = if matches!(value.kind, NodeKind::List(_)) { item.span } else { span };
            let reenter = item.get("reenter").and_then(Node::flag) == Some(true);
            let transition = TransitionDef {
                span,
                trigger: trigger.clone(),
                guard,
                guarded: item.get("if").is_some(),
                to,
                reenter,
                actions,
            };
            self.states[index].transitions.push(transition);
        }
    }

    fn invoke(&mut self, key: &Spanned<String>, value: &Node, node: &Node) -> Option<InvokeDef> {
        let sight = Sight::State;
        match key.value.as_str() {
            "agent" => Some(InvokeDef::Agent {
                agent: value.name()?,
                prompt: node.get("prompt").and_then(|n| self.template(n, &sight)),
                cwd: node.get("cwd").and_then(|n| self.template(n, &sight)),
                continued: node.get("continue").and_then(Node::flag) == Some(true),
                model: node.get("model").and_then(|n| Some((self.template(n, &sight)?, n.name()?))),
                thinking: word(node.get("thinking")),
            }),
            "gate" => Some(InvokeDef::Gate { span: key.span, meta: self.value(value, Texts::Interpolated, &sight) }),
            "run" => {
                let input = node.get("input").map(|n| self.value(n, Texts::Interpolated, &sight));
                Some(InvokeDef::Run {
                    workflow: value.name()?,
                    input: input.unwrap_or(ValueSource::Object(Vec::new())),
                })
            }
            _ => Some(InvokeDef::Do { span: key.span, step: self.step(value)? }),
        }
    }

    fn step(&mut self, node: &Node) -> Option<DoStep> {
        let sight = Sight::State;
        self.step_keys(node);
        let timeout = node.get("timeout").and_then(Node::text).and_then(|text| parse_duration_ms(text).ok());
        if let Some(command) = node.get("command") {
            return Some(DoStep::Command {
                command: self.template(command, &sight)?,
                cwd: node.get("cwd").and_then(|n| self.template(n, &sight)),
                env: self.template_map(node.get("env"), &sight),
                timeout_ms: timeout.unwrap_or(COMMAND_TIMEOUT_MS),
            });
        }
        let Some(http) = node.get("http") else { return Some(DoStep::Nothing) };
        let body = http.get("body").map(|n| self.value(n, Texts::Interpolated, &sight));
        let method = http.get("method").and_then(Node::text).unwrap_or(if body.is_some() { "POST" } else { "GET" });
        Some(DoStep::Http {
            method: method.to_owned(),
            url: self.template(http.get("url").unwrap_or(http), &sight)?,
            headers: self.template_map(http.get("headers"), &sight),
            body,
            timeout_ms: timeout.unwrap_or(REQUEST_TIMEOUT_MS),
        })
    }

    /// Which keys of a step go together.
    fn step_keys(&mut self, node: &Node) {
        if let (Some(_), Some(http)) = (node.get("command"), node.entry("http")) {
            let message = "a step cannot have both `command` and `http`";
            self.problems.add(&codes::KEYS_EXCLUDE, http.key.span, message, "move the request into a state of its own");
        }
        for (key, partners) in [("cwd", &["command"][..]), ("env", &["command"]), ("timeout", &["command", "http"])] {
            let Some(entry) = node.entry(key).filter(|_| partners.iter().all(|p| node.get(p).is_none())) else {
                continue;
            };
            let message = format!("`{key}` stands without `{}`", partners.join("` or `"));
            let help = format!("add `{}`, or remove `{key}`", partners[0]);
            self.problems.add(&codes::KEY_WITHOUT_PARTNER, entry.key.span, message, help);
        }
    }

    fn template_map(&mut self, node: Option<&Node>, sight: &Sight) -> Vec<(String, crate::expression::Template)> {
        named(node).filter_map(|(name, node)| Some((name.value, self.template(node, sight)?))).collect()
    }
}

/// One or several targets.
fn targets(node: &Node) -> Vec<Spanned<String>> {
    node.one_or_many().iter().filter_map(Node::name).collect()
}

/// Event descriptors parted by spaces, each with its place.
fn descriptors_of(key: &Spanned<String>) -> Vec<Spanned<String>> {
    if !key.value.contains(' ') {
        return vec![key.clone()];
    }
    key.value.split_whitespace().map(|word| Spanned::new(word.to_owned(), key.span)).collect()
}

fn retry(node: &Node) -> Option<Retry> {
    let NodeKind::Number(max) = &node.get("max")?.kind else { return None };
    let backoff = node.get("backoff").and_then(Node::text).and_then(|text| parse_backoff(text).ok());
    let (backoff_min_ms, backoff_max_ms) = backoff.unwrap_or(BACKOFF_DEFAULT_MS);
    let on = node.get("on").map(|n| n.one_or_many().iter().filter_map(Node::text).map(str::to_owned).collect());
    Some(Retry { max: u32::try_from(max.as_u64()?).ok()?, backoff_min_ms, backoff_max_ms, on: on.unwrap_or_default() })
}
