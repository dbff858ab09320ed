//! Keys that exclude each other, keys without their partner, reserved names, and values that must agree.

use crate::workflow::codes;
use crate::workflow::definition::{Definition, InvokeDef, StateDef};
use crate::workflow::diagnostic::Problems;
use crate::workflow::model::{Audience, DoStep, OPEN, model_parts};
use crate::workflow::parse::AUDIENCE_WORDS;
use crate::workflow::source::{Span, clip};
use jr2_shared::harness::Access;
use jr2_shared::surface::PICK_BRIEFING_MAX_CHARS;

/// First words of the mechanism's own events: an author's event of that name would catch them too.
pub const MECHANISM_WORDS: [&str; 4] = ["agent", "done", "error", "workspace"];
/// Keys that invoke something.
const INVOKE_KEYS: [&str; 4] = ["agent", "gate", "run", "do"];
/// Keys that say more about another key of the same state.
const PARTNERS: [(&str, &str); 8] = [
    ("prompt", "agent"),
    ("cwd", "agent"),
    ("continue", "agent"),
    ("model", "agent"),
    ("thinking", "agent"),
    ("input", "run"),
    ("output", "final"),
    ("to", "history"),
];

pub fn check(definition: &Definition, problems: &mut Problems) {
    for (ix, state) in definition.states.iter().enumerate() {
        kinds(ix, state, problems);
        if ix > 0 {
            partners(state, problems);
        }
        places(definition, state, problems);
    }
    names(definition, problems);
    workspace(definition, problems);
}

fn exclude(state: &StateDef, key: &str, others: &[&str], why: &str, problems: &mut Problems) {
    for other in others {
        if let Some(span) = state.has(other) {
            let message = format!("{why} cannot have `{other}`");
            problems.add(&codes::KEYS_EXCLUDE, span, message, format!("remove `{other}` or `{key}`"));
        }
    }
}

fn kinds(ix: usize, state: &StateDef, problems: &mut Problems) {
    let span = |key: &str| state.has(key).unwrap_or(state.key.span);
    if state.is_final {
        let others = ["states", "initial", "history", "on", "always", "after", "agent", "gate", "run", "do", "retry"];
        exclude(state, "final", &others, "a final state", problems);
    }
    if state.history.is_some() {
        let others = [
            "states", "initial", "parallel", "on", "always", "after", "enter", "exit", "agent", "gate", "run", "do",
            "retry",
        ];
        exclude(state, "history", &others, "a history state", problems);
        if state.default.is_empty() {
            let help = "add `to: STATE`, where to go before there is a history";
            problems.add(&codes::MISSING_KEY, span("history"), "a history state needs the key `to`", help);
        }
    }
    if state.parallel {
        exclude(state, "parallel", &["initial", "final"], "a parallel state", problems);
    }
    let mut invokes = INVOKE_KEYS.iter().filter_map(|key| Some((*key, state.has(key)?)));
    if let (true, Some((first, _))) = (ix > 0, invokes.next()) {
        for (other, span) in invokes {
            let message = format!("a state cannot have both `{first}` and `{other}`");
            problems.add(&codes::KEYS_EXCLUDE, span, message, format!("move `{other}` into a state of its own"));
        }
    }
    match (state.has("states"), state.children.first()) {
        (Some(span), None) => {
            problems.add(&codes::MISSING_KEY, span, "`states` is empty", "add a state, or remove the key");
        }
        (Some(_), Some(_)) if !state.parallel && state.has("initial").is_none() && !state.is_final => {
            let what = if ix == 0 { "the workflow".to_owned() } else { format!("`{}`", state.path) };
            let message = format!("{what} has states but no `initial`");
            problems.add(&codes::MISSING_KEY, span("states"), message, "add `initial: STATE`, the child to start in");
        }
        (None, _) if ix > 0 => {
            for key in ["initial", "parallel"] {
                if let Some(span) = state.has(key).filter(|_| key != "parallel" || state.parallel) {
                    let message = format!("`{key}` stands without `states`");
                    problems.add(
                        &codes::KEY_WITHOUT_PARTNER,
                        span,
                        message,
                        format!("add `states`, or remove `{key}`"),
                    );
                }
            }
        }
        _ => {}
    }
}

fn partners(state: &StateDef, problems: &mut Problems) {
    for (key, partner) in PARTNERS {
        if let (Some(span), None) = (state.has(key), state.has(partner)) {
            let message = format!("`{key}` stands without `{partner}`");
            problems.add(&codes::KEY_WITHOUT_PARTNER, span, message, format!("add `{partner}`, or remove `{key}`"));
        }
    }
    if let (Some(span), true) = (state.has("retry"), INVOKE_KEYS.iter().all(|key| state.has(key).is_none())) {
        let help = "add `agent`, `gate`, `run` or `do`, or remove `retry`";
        problems.add(&codes::KEY_WITHOUT_PARTNER, span, "`retry` stands in a state that invokes nothing", help);
    }
}

/// Where Agents and commands work.
fn places(definition: &Definition, state: &StateDef, problems: &mut Problems) {
    let slots: Vec<&str> =
        definition.workspace.iter().flat_map(|w| w.repos.iter().map(|(slot, _)| slot.value.as_str())).collect();
    let mut need = |span: Span, what: &str| {
        let message = format!("{what} must say where it works: the Workspace has {} repositories", slots.len());
        let help = format!("add `cwd: \"{{{{ workspace.repos.{} }}}}\"`", slots[0]);
        problems.add(&codes::CWD_NEEDED, span, message, help);
    };
    match &state.invoke {
        Some(InvokeDef::Agent { agent, model, .. }) => {
            let works =
                definition.agents.iter().any(|(n, a)| n.value == agent.value && a.agent.workspace != Access::None);
            if slots.len() > 1 && works && state.has("cwd").is_none() {
                need(agent.span, "this Turn");
            }
            let Some((_, text)) = model else { return };
            if !text.value.contains("{{") && model_parts(&text.value).is_none() {
                let message = format!("`{}` is not written as provider/model", clip(&text.value));
                problems.add(&codes::BAD_MODEL, text.span, message, "write it as in `openai/gpt-5-mini`");
            }
        }
        Some(InvokeDef::Do { span, step: DoStep::Command { cwd: None, .. } }) if slots.len() > 1 => {
            need(*span, "this command");
        }
        _ => {}
    }
}

fn names(definition: &Definition, problems: &mut Problems) {
    for (name, _) in &definition.agents {
        if AUDIENCE_WORDS.contains(&name.value.as_str()) {
            let message = format!("an Agent cannot be called `{}`: the word means somebody else in `from`", name.value);
            problems.add(&codes::RESERVED_NAME, name.span, message, "choose another name");
        }
    }
    let raised = definition.raises.iter();
    for name in definition.events.iter().map(|e| &e.name).chain(raised) {
        if MECHANISM_WORDS.contains(&name.value.as_str()) {
            let message =
                format!("an event cannot be called `{0}`: it would match the mechanism's own `{0}.…`", name.value);
            problems.add(&codes::RESERVED_NAME, name.span, message, "choose another name");
        }
    }
    for event in &definition.events {
        if let (Some(span), Audience::Agent | Audience::Agents(_)) = (event.buffer, &event.from) {
            let message = format!("`{}` comes from Agents only, so it cannot be buffered", event.name.value);
            problems.add(&codes::BUFFER_NOT_EXTERNAL, span, message, "remove `buffer`, or write `from: external`");
        }
        let Some(briefing) = &event.briefing else { continue };
        let chars = briefing.value.chars().count();
        if chars > PICK_BRIEFING_MAX_CHARS {
            let message = format!("`briefing` has {chars} characters; at most {PICK_BRIEFING_MAX_CHARS} are allowed");
            problems.add(&codes::TEXT_TOO_LONG, briefing.span, message, "shorten it");
        }
    }
    let agents = || definition.agents.iter().map(|(name, _)| name.value.as_str());
    let known = |name: &str| agents().any(|agent| agent == name);
    for sender in definition.events.iter().flat_map(|e| &e.senders).filter(|s| !known(&s.value)) {
        let message = format!("`from` names `{}`, which is no Agent", clip(&sender.value));
        let help = problems.suggest(&sender.value, agents().chain(AUDIENCE_WORDS));
        problems.add(&codes::UNKNOWN_AGENT, sender.span, message, help);
    }
}

fn workspace(definition: &Definition, problems: &mut Problems) {
    let Some(workspace) = &definition.workspace else { return };
    if workspace.repos.is_empty() && workspace.repos_open.is_none() {
        let help = "add a slot: `repos: { target: URL }`, or write `repos: open`";
        problems.add(&codes::MISSING_KEY, workspace.span, "a Workspace needs at least one repository", help);
    }
    if let Some(branch) = workspace.branch_text.as_ref().filter(|b| b.value.trim() == "default") {
        let help = "write another branch, such as `jr2/{{ run.id }}`";
        problems.add(&codes::BRANCH_DEFAULT, branch.span, "the branch cannot be called `default`", help);
    }
    for (_, repo) in workspace.repos.iter().filter(|(_, repo)| repo.text.value.trim().is_empty()) {
        let help = format!("write a URL or a path, or `{OPEN}`");
        problems.add(&codes::MISSING_KEY, repo.text.span, "a repository needs a URL or a path", help);
    }
}
