//! Moving a run to a new text (decision 40): possible when its active, history and timer states exist there and its
//! context satisfies the new declaration.

use super::machine::Work;
use super::{Facts, Outcome};
use crate::chart::{Configuration, StateIx};
use crate::run::{Actor, FeedKind, Invoked, InvokedKind, Row};
use crate::turn::To;
use crate::workflow::{Agent, InvocationKind, Program, Workflow};
use jr2_shared::ids::Iid;
use jr2_shared::notice::Notice;
use serde_json::json;
use std::collections::BTreeMap;

/// Moves `row` from `old` to `new`, or says everything that stands against it.
pub fn adopt(old: &Program, new: &Program, row: &Row, facts: Facts) -> Result<Outcome, Vec<String>> {
    let mut problems = Vec::new();
    let mut changed = Vec::new();
    let mut moved = row.clone();
    move_actor(old, new, &mut moved.root, row, &mut problems, &mut changed);
    if !problems.is_empty() {
        return Err(problems);
    }
    moved.first_program = row.first_program.clone().or_else(|| Some(row.program.clone()));
    moved.program.clone_from(&new.hash);
    let mut work = Work::new(new, moved, facts);
    work.changed = true;
    for base in changed {
        new_conversation(&mut work.row, base);
    }
    work.say(FeedKind::Emit, json!({ "event": { "type": "adopted", "program": new.hash } }));
    work.say_status();
    work.row.clock = work.row.clock.max(facts.now);
    work.row.rev = row.rev + 1;
    Ok(Outcome {
        row: work.row,
        changed: true,
        effects: work.effects,
        feed: work.feed,
        taken: Vec::new(),
        reply: work.reply,
    })
}

/// A changed Agent's next continued Turn is a new conversation, and is told so when there was an old one.
fn new_conversation(row: &mut Row, base: String) {
    let epoch = row.epochs.get(&base).copied().unwrap_or(0);
    let old = Iid::continued(&Iid(base.clone()), epoch);
    if row.conversations.contains_key(old.as_str()) {
        let notice = Notice::ConversationNew { reason: DEFINITION_CHANGED.to_owned() };
        row.ledger.raise(notice, To::Conversation(base.clone()), None);
    }
    row.ledger.forget_conversation(old.as_str());
    row.epochs.insert(base, epoch + 1);
}

/// Why a conversation is new after an adoption (decision 40).
const DEFINITION_CHANGED: &str = "the workflow's text changed this Agent";

fn move_actor(
    old: &Program,
    new: &Program,
    actor: &mut Actor,
    row: &Row,
    problems: &mut Vec<String>,
    changed: &mut Vec<String>,
) {
    let name = actor.workflow.clone();
    let (Some(from), Some(to)) = (old.workflows.get(&name), new.workflows.get(&name)) else {
        problems.push(format!("workflow `{name}` is not in the new text"));
        return;
    };
    for (agent, definition) in &from.agents {
        if !same_agent(agent, definition, from, to) {
            changed.push(Iid::base(&row.id, &actor.path, agent).0);
        }
    }
    if let Some(configuration) = &mut actor.chart {
        move_configuration(from, to, &name, configuration, problems);
    }
    for timer in &mut actor.timers {
        let Some(state) = moved_state(from, to, timer.state, &name, "a timer", problems) else { continue };
        let exists = to.chart.states.get(state as usize).is_some_and(|s| timer.index < s.transitions.len());
        if !exists {
            problems.push(format!("{name}: the delay of `{}` is gone", path(from, timer.state)));
        }
        timer.state = state;
    }
    let mut invoked = BTreeMap::new();
    for (state, mut one) in std::mem::take(&mut actor.invoked) {
        let Some(target) = moved_state(from, to, state, &name, "an invocation", problems) else { continue };
        check_invoked(from, to, &name, state, target, &one, problems);
        match &mut one.kind {
            InvokedKind::Run(child) => move_actor(old, new, child, row, problems, changed),
            InvokedKind::Agent(turn) => turn.frame.state = target,
            _ => {}
        }
        if let Some(route) = &mut one.route {
            // What stands and is not in the new text was refused above, with its invocation or its delay.
            route.move_states(|state| find(to, path(from, state)));
        }
        invoked.insert(target, one);
    }
    actor.invoked = invoked;
}

fn move_configuration(
    from: &Workflow,
    to: &Workflow,
    name: &str,
    configuration: &mut Configuration,
    problems: &mut Vec<String>,
) {
    let mut states = |list: Vec<StateIx>, what: &str| -> Vec<StateIx> {
        list.into_iter().filter_map(|s| moved_state(from, to, s, name, what, problems)).collect()
    };
    configuration.active =
        states(configuration.active.iter().copied().collect(), "an active state").into_iter().collect();
    let mut history = BTreeMap::new();
    for (state, list) in std::mem::take(&mut configuration.history) {
        let list = states(list, "a history entry");
        if let Some(target) = states(vec![state], "a history state").first() {
            history.insert(*target, list);
        }
    }
    configuration.history = history;
    let ordinals = std::mem::take(&mut configuration.ordinals);
    configuration.ordinals =
        ordinals.into_iter().filter_map(|(state, n)| find(to, path(from, state)).map(|target| (target, n))).collect();
    for key in configuration.context.keys() {
        if !to.context.contains_key(key) {
            problems.push(format!("{name}: context `{key}` is not declared in the new text"));
        }
    }
    for (key, value) in &to.context {
        configuration.context.entry(key.clone()).or_insert_with(|| value.clone());
    }
    if let Err(error) = configuration.is_legal(&to.chart) {
        problems.push(format!("{name}: the present states are no configuration of the new text: {error}"));
    }
}

fn check_invoked(
    from: &Workflow,
    to: &Workflow,
    name: &str,
    state: StateIx,
    target: StateIx,
    one: &Invoked,
    problems: &mut Vec<String>,
) {
    let at = path(from, state);
    let fits = match (&one.kind, to.invocations.get(&target).map(|i| &i.kind)) {
        (InvokedKind::Agent(turn), Some(InvocationKind::Agent { agent, .. })) => {
            let same = from.agents.get(agent).is_some_and(|a| same_agent(agent, a, from, to));
            if *agent == turn.frame.agent && !same && !turn.is_over() {
                problems.push(format!("{name}: Agent `{agent}` changed and its Turn in `{at}` is running"));
            }
            *agent == turn.frame.agent
        }
        (InvokedKind::Gate { .. }, Some(InvocationKind::Gate { .. })) => true,
        (InvokedKind::Run(child), Some(InvocationKind::Run { workflow, .. })) => child.workflow == *workflow,
        (InvokedKind::Do(_), Some(InvocationKind::Do(_))) => true,
        (InvokedKind::Ended, _) => true,
        _ => false,
    };
    if !fits {
        problems.push(format!("{name}: `{at}` invokes something else in the new text"));
    }
}

/// Same Menu, instructions, model and access: its conversations go on.
fn same_agent(name: &str, agent: &Agent, from: &Workflow, to: &Workflow) -> bool {
    let menu = |w: &Workflow| -> Vec<_> {
        let names = w.menus.get(name).cloned().unwrap_or_default();
        names.into_iter().map(|n| (w.events.get(&n).map(|e| (e.payload.clone(), e.description.clone())), n)).collect()
    };
    to.agents.get(name).is_some_and(|other| {
        other.model == agent.model
            && other.instructions == agent.instructions
            && other.workspace == agent.workspace
            && menu(from) == menu(to)
    })
}

fn path(workflow: &Workflow, state: StateIx) -> &str {
    workflow.chart.states.get(state as usize).map_or("", |s| s.path.as_str())
}

fn find(workflow: &Workflow, path: &str) -> Option<StateIx> {
    workflow.chart.states.iter().position(|s| s.path == path).map(|at| at as StateIx)
}

fn moved_state(
    from: &Workflow,
    to: &Workflow,
    state: StateIx,
    name: &str,
    what: &str,
    problems: &mut Vec<String>,
) -> Option<StateIx> {
    let found = find(to, path(from, state));
    if found.is_none() {
        problems.push(format!("{name}: {what}, `{}`, does not exist in the new text", path(from, state)));
    }
    found
}
