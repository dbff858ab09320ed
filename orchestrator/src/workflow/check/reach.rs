//! What the machine can reach, and whether it can get out again.

use crate::chart::{Chart, StateIx, StateKind, Transition, Trigger};
use crate::workflow::codes;
use crate::workflow::definition::Definition;
use crate::workflow::diagnostic::Problems;
use crate::workflow::model::Workflow;
use serde_json::Value;
use std::collections::HashSet;

pub fn check(definition: &Definition, workflow: &Workflow, problems: &mut Problems) {
    let chart = &workflow.chart;
    let reached = reached(chart);
    for (ix, state) in chart.states.iter().enumerate() {
        let parent_reached = state.parent.is_none_or(|p| reached[p as usize]);
        if !reached[ix] && parent_reached {
            let message = format!("`{}` is never reached", state.path);
            let help = "lead a transition there, or remove it";
            problems.add(&codes::UNREACHABLE_STATE, definition.states[ix].key.span, message, help);
        }
    }
    let leaving = leaving(chart, &reached);
    stuck(definition, chart, &reached, &leaving, problems);
    endless(definition, chart, &reached, problems);
    if !ends(chart, 0, &reached) {
        let span = definition.name.span;
        problems.add(
            &codes::NEVER_ENDS,
            span,
            "no final state is ever reached: a run never ends",
            "add a state with `final: true`",
        );
    }
}

/// May the transition ever be taken?
fn possible(transition: &Transition) -> bool {
    transition.guard.as_ref().and_then(|g| g.constant()) != Some(&Value::Bool(false))
}

fn certain(transition: &Transition) -> bool {
    transition.guard.as_ref().is_none_or(|g| g.constant() == Some(&Value::Bool(true)))
}

/// Every state that some run may enter.
pub fn reached(chart: &Chart) -> Vec<bool> {
    let mut reached = vec![false; chart.states.len()];
    let mut queue = vec![0];
    while let Some(ix) = queue.pop() {
        if std::mem::replace(&mut reached[ix as usize], true) {
            continue;
        }
        let state = &chart.states[ix as usize];
        queue.extend(state.parent);
        match &state.kind {
            StateKind::Compound { initial, .. } => queue.extend(initial),
            StateKind::Parallel => {
                let regions = state.children.iter();
                queue.extend(regions.filter(|c| !matches!(chart.states[**c as usize].kind, StateKind::History { .. })));
            }
            StateKind::History { default, .. } => queue.extend(default),
            _ => {}
        }
        queue.extend(state.transitions.iter().filter(|t| possible(t)).flat_map(|t| &t.targets));
    }
    reached
}

/// The state whose active descendants the transition leaves.
fn domain(chart: &Chart, source: StateIx, transition: &Transition) -> StateIx {
    let compound = |ix: StateIx| matches!(chart.states[ix as usize].kind, StateKind::Compound { .. });
    let inside = |scope: StateIx| transition.targets.iter().all(|t| chart.is_descendant(*t, scope));
    if compound(source) && !transition.reenter && inside(source) {
        return source;
    }
    chart.ancestors(source).find(|ix| inside(*ix)).unwrap_or(0)
}

/// Can both be active at once?
fn together(chart: &Chart, a: StateIx, b: StateIx) -> bool {
    if a == b || chart.is_descendant(b, a) || chart.is_descendant(a, b) {
        return true;
    }
    let mut at = a;
    while let Some(parent) = chart.states[at as usize].parent {
        if chart.is_descendant(b, parent) {
            return matches!(chart.states[parent as usize].kind, StateKind::Parallel);
        }
        at = parent;
    }
    false
}

/// For each state: can some transition leave it for good?
fn leaving(chart: &Chart, reached: &[bool]) -> Vec<bool> {
    let mut leaving = vec![false; chart.states.len()];
    for (source, state) in chart.states.iter().enumerate().filter(|(ix, _)| reached[*ix]) {
        for transition in state.transitions.iter().filter(|t| possible(t) && !t.targets.is_empty()) {
            let source = source as StateIx;
            let domain = domain(chart, source, transition);
            for ix in domain + 1..=chart.states[domain as usize].last {
                let back = transition.targets == [ix];
                if !leaving[ix as usize] && !back && together(chart, source, ix) {
                    leaving[ix as usize] = true;
                }
            }
        }
    }
    leaving
}

/// Can the state's own end be reached?
fn ends(chart: &Chart, ix: StateIx, reached: &[bool]) -> bool {
    let state = &chart.states[ix as usize];
    let real = |c: &&StateIx| !matches!(chart.states[**c as usize].kind, StateKind::History { .. });
    match &state.kind {
        StateKind::Compound { .. } => state
            .children
            .iter()
            .any(|c| reached[*c as usize] && matches!(chart.states[*c as usize].kind, StateKind::Final { .. })),
        StateKind::Parallel => state.children.iter().filter(real).all(|c| ends(chart, *c, reached)),
        StateKind::Final { .. } => true,
        _ => false,
    }
}

fn stuck(definition: &Definition, chart: &Chart, reached: &[bool], leaving: &[bool], problems: &mut Problems) {
    for (ix, state) in chart.states.iter().enumerate().skip(1).filter(|(ix, _)| reached[*ix]) {
        let trapped = !leaving[ix]
            && match state.kind {
                StateKind::Atomic => true,
                StateKind::Compound { .. } => !ends(chart, ix as StateIx, reached),
                _ => false,
            };
        // The innermost state says it; the ones around it would repeat it.
        let within = (ix + 1..=state.last as usize)
            .any(|inner| reached[inner] && !leaving[inner] && matches!(chart.states[inner].kind, StateKind::Atomic));
        if trapped && !within {
            let message = format!("`{}` can never be left and never ends", state.path);
            let help = "add a transition that leaves it, or make it `final: true`";
            problems.add(&codes::STUCK_STATE, definition.states[ix].key.span, message, help);
        }
    }
}

/// Unconditional `always` transitions that lead back to where they start.
fn endless(definition: &Definition, chart: &Chart, reached: &[bool], problems: &mut Problems) {
    for (ix, state) in chart.states.iter().enumerate().filter(|(ix, _)| reached[*ix]) {
        let always = |ix: usize| {
            let transitions = chart.states[ix].transitions.iter().enumerate();
            transitions.filter(|(_, t)| t.trigger == Trigger::Always).find(|(_, t)| certain(t))
        };
        let Some((index, first)) = always(ix) else { continue };
        let inside = first.targets.iter().all(|t| chart.is_descendant(*t, ix as StateIx) || *t == ix as StateIx);
        let mut seen = HashSet::from([ix]);
        let mut at = first.targets.first().copied();
        while let Some(next) = at {
            let leaf = default_leaf(chart, next) as usize;
            if !seen.insert(leaf) {
                break;
            }
            at = always(leaf).and_then(|(_, t)| t.targets.first().copied());
        }
        let back = at.is_some_and(|next| default_leaf(chart, next) as usize == ix);
        if inside || back {
            let span = definition.states[ix].transitions[index].span;
            let message = format!("this `always` leads back into `{}` without a condition", state.path);
            problems.add(&codes::ENDLESS_ALWAYS, span, message, "give it an `if`, or another target");
        }
    }
}

/// The innermost state that entering `ix` by default leads to, along compound states.
fn default_leaf(chart: &Chart, ix: StateIx) -> StateIx {
    let mut at = ix;
    while let StateKind::Compound { initial, .. } = &chart.states[at as usize].kind {
        match initial.first() {
            Some(next) if *next > at => at = *next,
            _ => break,
        }
    }
    at
}
