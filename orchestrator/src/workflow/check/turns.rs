//! Invocations: can their picks be made, can anybody answer, does a failure lead straight back?

use super::reach::reached;
use crate::chart::{self, StateIx, StateKind, Trigger};
use crate::workflow::codes;
use crate::workflow::definition::Definition;
use crate::workflow::diagnostic::Problems;
use crate::workflow::menu;
use crate::workflow::model::{InvocationKind, Workflow};
use crate::workflow::source::Span;
use std::collections::BTreeSet;

pub fn check(definition: &Definition, workflow: &Workflow, problems: &mut Problems) {
    let reached = reached(&workflow.chart);
    for (state, invocation) in &workflow.invocations {
        let ix = *state as usize;
        if !reached[ix] {
            continue;
        }
        let key = |name: &str| definition.states[ix].has(name).unwrap_or(definition.states[ix].key.span);
        match &invocation.kind {
            InvocationKind::Agent { agent, .. } => {
                picks(workflow, *state, agent, &reached, key("agent"), problems);
                fault(workflow, *state, "agent.fault", key("agent"), problems);
            }
            InvocationKind::Gate { accepts, .. } if accepts.is_empty() => {
                let message = format!("the Gate of `{}` accepts nothing", workflow.chart.states[ix].path);
                let help = "handle an event with `from: external` in this state";
                problems.add(&codes::GATE_ACCEPTS_NOTHING, key("gate"), message, help);
            }
            InvocationKind::Gate { .. } => {}
            InvocationKind::Run { .. } => fault(workflow, *state, "error.run", key("run"), problems),
            InvocationKind::Do(_) => fault(workflow, *state, "error.do", key("do"), problems),
        }
    }
}

/// Does one of the state's own or its ancestors' transitions match the event?
fn handles(workflow: &Workflow, state: StateIx, event: &str) -> bool {
    menu::and_ancestors(&workflow.chart, state).any(|ix| {
        let transitions = &workflow.chart.states[ix as usize].transitions;
        transitions.iter().any(|t| matches!(&t.trigger, Trigger::Events(d) if chart::matches(d, event)))
    })
}

fn picks(workflow: &Workflow, state: StateIx, agent: &str, reached: &[bool], span: Span, problems: &mut Problems) {
    let chart = &workflow.chart;
    let path = &chart.states[state as usize].path;
    let derived = workflow.derived.get(&state).map(Vec::as_slice).unwrap_or_default();
    if !derived.is_empty() {
        let part = chart.agent_part(state).into_iter().filter(|ix| reached[*ix as usize]);
        let handled: BTreeSet<&str> = part.flat_map(|ix| menu::names(chart, ix)).collect();
        if !derived.iter().any(|event| handled.contains(event.as_str())) {
            let message = format!("the picks of `{agent}` in `{path}` are handled only where the machine never is");
            let help = "handle one in this state, or lead a transition to the substate that does";
            problems.add(&codes::PICKS_OUT_OF_REACH, span, message, help);
        }
        return;
    }
    let waits =
        |ix: StateIx| chart.states[ix as usize].transitions.iter().any(|t| matches!(t.trigger, Trigger::After { .. }));
    let menu_empty = workflow.menus.get(agent).is_none_or(Vec::is_empty);
    let moves_on = menu_empty && handles(workflow, state, "agent.done");
    if moves_on || menu::and_ancestors(chart, state).any(waits) {
        return;
    }
    let (message, help) = if menu_empty {
        (
            format!("`{agent}` has no picks, and `{path}` does not handle `agent.done`"),
            "add `on: { agent.done: … }`, an event with `from: agent`, or an `after`",
        )
    } else {
        (
            format!("`{agent}` has picks in other states but none in `{path}`, so its Turn waits for ever"),
            "handle one of its events here, or add an `after`",
        )
    };
    problems.add(&codes::NO_WAY_ON, span, message, help);
}

/// Warns when a failure enters the state again at once.
fn fault(workflow: &Workflow, state: StateIx, event: &str, span: Span, problems: &mut Problems) {
    if workflow.invocations.get(&state).is_some_and(|i| i.retry.is_some()) {
        return;
    }
    let chart = &workflow.chart;
    let handler = menu::and_ancestors(chart, state).find_map(|ix| {
        let transitions = &chart.states[ix as usize].transitions;
        transitions.iter().find(|t| matches!(&t.trigger, Trigger::Events(d) if chart::matches(d, event)))
    });
    let Some(handler) = handler else { return };
    let mut entered = BTreeSet::new();
    let mut queue: Vec<StateIx> = handler.targets.clone();
    while let Some(ix) = queue.pop() {
        if !entered.insert(ix) {
            continue;
        }
        let target = &chart.states[ix as usize];
        match &target.kind {
            StateKind::Compound { initial, .. } => queue.extend(initial),
            StateKind::Parallel => queue.extend(&target.children),
            StateKind::History { default, .. } => queue.extend(default),
            _ => {}
        }
        queue.extend(target.transitions.iter().filter(|t| t.trigger == Trigger::Always).flat_map(|t| &t.targets));
    }
    if entered.contains(&state) {
        let message = format!("`{event}` leads straight back into `{}`", chart.states[state as usize].path);
        let help = "add `retry: { max: 3, backoff: 1s..5m }`, or lead the failure elsewhere";
        problems.add(&codes::FAULT_LOOP, span, message, help);
    }
}
