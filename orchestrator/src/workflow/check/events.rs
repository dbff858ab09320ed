//! Events, Agents and context keys: declared, handled, used.

use super::structure::MECHANISM_WORDS;
use crate::workflow::codes;
use crate::workflow::definition::{Definition, InvokeDef, StateDef, TransitionDef, TriggerDef};
use crate::workflow::diagnostic::Problems;
use crate::workflow::shape::NameRule;
use crate::workflow::source::{Span, Spanned, clip};
use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// The mechanism's own events, with what their payloads hold where that is fixed.
pub const MECHANISM_EVENTS: [(&str, Option<&[&str]>); 9] = [
    ("agent.fault", Some(&["instanceId", "reason"])),
    ("agent.done", Some(&["text"])),
    ("done.run", Some(&["output"])),
    ("error.run", None),
    ("done.do", Some(&["result"])),
    ("error.do", None),
    ("done.state", None),
    ("error.expression", Some(&["where", "message"])),
    ("workspace.lost", Some(&["reason", "message"])),
];

pub fn check(definition: &Definition, problems: &mut Problems) {
    let handled = handled(definition);
    let raised = definition.raises.iter().map(|r| r.value.as_str());
    let own: HashSet<&str> = definition.events.iter().map(|e| e.name.value.as_str()).chain(raised).collect();
    for descriptor in &handled {
        known_event(definition, &own, descriptor, problems);
    }
    for state in &definition.states {
        shadowed(state, problems);
    }
    unused(definition, &handled, problems);
    agents(definition, problems);
    for key in definition.sets.iter().filter(|key| !definition.context.contains_key(&key.value)) {
        let message = format!("`set` writes `{}`, which is not under `context`", clip(&key.value));
        let near = problems.suggest(&key.value, definition.context.keys().map(String::as_str));
        let help = if near.starts_with("did") { near } else { format!("add `{}` under `context`", clip(&key.value)) };
        problems.add(&codes::UNDECLARED_CONTEXT, key.span, message, help);
    }
}

/// Every descriptor of every `on`.
fn handled(definition: &Definition) -> Vec<&Spanned<String>> {
    let transitions = definition.states.iter().flat_map(|s| &s.transitions);
    transitions
        .flat_map(|t| if let TriggerDef::Events(events) = &t.trigger { events.as_slice() } else { &[] })
        .collect()
}

/// A descriptor without the `.*` or `.` that changes nothing.
pub fn stem(descriptor: &str) -> &str {
    descriptor.strip_suffix(".*").or_else(|| descriptor.strip_suffix('.')).unwrap_or(descriptor)
}

fn known_event(definition: &Definition, own: &HashSet<&str>, descriptor: &Spanned<String>, problems: &mut Problems) {
    let name = stem(&descriptor.value);
    // What is no name at all was reported with its shape.
    if !NameRule::Events.admits(&descriptor.value) {
        return;
    }
    if name == "*" || own.contains(name) || MECHANISM_WORDS.contains(&name) {
        return;
    }
    let mechanism = MECHANISM_EVENTS.map(|(event, _)| event);
    if mechanism.contains(&name) {
        return;
    }
    if let Some(path) = name.strip_prefix("done.state.") {
        let below =
            |s: &&StateDef| s.path == path || s.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
        if definition.states.iter().any(|s| below(&s)) {
            return;
        }
        let paths = definition.states.iter().filter(|s| !s.children.is_empty() && !s.path.is_empty());
        let message = format!("`{}` names no state that has children", clip(&descriptor.value));
        let help = problems.suggest(path, paths.map(|s| s.path.as_str()));
        problems.add(&codes::UNKNOWN_TARGET, descriptor.span, message, help);
        return;
    }
    let message = format!("the event `{}` is handled but not declared", clip(name));
    let help = problems.suggest(name, own.iter().copied().chain(mechanism));
    let help = if help.starts_with("did") { help } else { format!("add `{}` under `events`", clip(name)) };
    problems.add(&codes::UNDECLARED_EVENT, descriptor.span, message, help);
}

/// Transitions that an earlier one always wins over, and conditions that are plainly false.
fn shadowed(state: &StateDef, problems: &mut Problems) {
    let mut always_taken: HashMap<String, Span> = HashMap::new();
    for transition in &state.transitions {
        let constant = transition.guard.as_ref().and_then(|g| g.constant());
        if constant == Some(&Value::Bool(false)) {
            let help = "remove it, or correct its `if`";
            problems.add(&codes::SHADOWED, transition.span, "this transition's condition is never true", help);
            continue;
        }
        let keys = trigger_keys(transition);
        if let Some(first) = keys.iter().find_map(|key| always_taken.get(key)) {
            let (line, _) = if problems.is_full() { (0, 0) } else { problems.source.position(first.start) };
            let message = format!("this transition is never taken: the one on line {line} always is");
            problems.add(
                &codes::SHADOWED,
                transition.span,
                message,
                "give the earlier one an `if`, or remove this one",
            );
        } else if !transition.guarded || constant == Some(&Value::Bool(true)) {
            always_taken.extend(keys.into_iter().map(|key| (key, transition.span)));
        }
    }
}

fn trigger_keys(transition: &TransitionDef) -> Vec<String> {
    match &transition.trigger {
        TriggerDef::Events(events) => events.iter().map(|e| format!("on {}", stem(&e.value))).collect(),
        TriggerDef::Always => vec!["always".to_owned()],
        TriggerDef::After(ms) => vec![format!("after {ms}")],
    }
}

fn unused(definition: &Definition, handled: &[&Spanned<String>], problems: &mut Problems) {
    let stems: HashSet<&str> = handled.iter().map(|d| stem(&d.value)).collect();
    let caught = |name: &str| stems.contains("*") || stems.contains(name);
    for event in definition.events.iter().filter(|e| !caught(&e.name.value)) {
        let message = format!("the event `{}` is never handled", event.name.value);
        problems.add(&codes::EVENT_UNUSED, event.name.span, message, "handle it in a state, or remove it");
    }
    for event in definition.raises.iter().filter(|e| !caught(&e.value)) {
        let message = format!("`{}` is raised but handled nowhere", clip(&event.value));
        problems.add(&codes::RAISED_UNHANDLED, event.span, message, "handle it, or use `emit` to tell watchers");
    }
}

fn agents(definition: &Definition, problems: &mut Problems) {
    let mut used = HashSet::new();
    for state in &definition.states {
        let Some(InvokeDef::Agent { agent, prompt, .. }) = &state.invoke else { continue };
        used.insert(agent.value.as_str());
        if !definition.agents.iter().any(|(name, _)| name.value == agent.value) {
            let message = format!("there is no Agent `{}`", clip(&agent.value));
            let help = problems.suggest(&agent.value, definition.agents.iter().map(|(name, _)| name.value.as_str()));
            problems.add(&codes::UNKNOWN_AGENT, agent.span, message, help);
        }
        if prompt.is_none() && state.has("prompt").is_none() {
            let message = format!("`{}` is invoked without a prompt", clip(&agent.value));
            problems.add(&codes::NO_PROMPT, agent.span, message, "add `prompt: …`");
        }
    }
    for (name, _) in definition.agents.iter().filter(|(name, _)| !used.contains(name.value.as_str())) {
        let message = format!("the Agent `{}` is never invoked", name.value);
        problems.add(&codes::AGENT_UNUSED, name.span, message, "invoke it in a state, or remove it");
    }
}
