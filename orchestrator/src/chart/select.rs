//! Which transitions an event enables: document order, inner states first, conflicts by descendants, guards.

use super::{Chart, Configuration, DONE_STATE, Environment, EventScope, ROOT, StateIx, StateKind, Transition, Trigger};
use crate::expression::Scope;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// One enabled transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enabled {
    /// Its source.
    pub source: StateIx,
    /// Its index in the source's transitions.
    pub index: usize,
    /// The state whose active descendants it leaves; `None` for a targetless one.
    pub domain: Option<StateIx>,
}

/// What is looked for.
#[derive(Clone, Copy, Debug)]
pub enum Sought<'a> {
    /// Eventless transitions.
    Always,
    /// Transitions for an event of this name.
    Event(&'a str, &'a EventScope),
}

/// Does one of the descriptors match the event's name? Tokens are compared from the left, `*` matches every name, a
/// trailing `.*` says nothing more. Paths hold dots too: `done.state.a` does not match `done.state.a.b`.
pub fn matches(descriptors: &[String], name: &str) -> bool {
    descriptors.iter().any(|descriptor| {
        if descriptor == "*" {
            return true;
        }
        let prefix = descriptor.strip_suffix(".*").or_else(|| descriptor.strip_suffix('.'));
        let exact = prefix.is_none() && descriptor.starts_with(DONE_STATE);
        match name.strip_prefix(prefix.unwrap_or(descriptor)) {
            Some(rest) => rest.is_empty() || (rest.starts_with('.') && !exact),
            None => false,
        }
    })
}

/// Selects the transitions that are taken together, in the order in which they run.
pub fn select(chart: &Chart, configuration: &Configuration, sought: Sought<'_>, scope: &Scope<'_>) -> Vec<Enabled> {
    let found = |source: StateIx, index: usize| {
        let transition = &chart.state(source).transitions[index];
        let holds = transition.guard.as_ref().is_none_or(|guard| guard.holds(scope).unwrap_or(false));
        holds.then(|| Enabled { source, index, domain: domain(chart, configuration, source, transition) })
    };
    if let Sought::Event(_, EventScope::Timer { state, index }) = sought {
        let is_there = configuration.active.contains(state) && *index < chart.state(*state).transitions.len();
        return if is_there { found(*state, *index).into_iter().collect() } else { Vec::new() };
    }
    let mut enabled: Vec<Enabled> = Vec::new();
    for &leaf in configuration.active.iter().filter(|ix| chart.state(**ix).is_leaf()) {
        if !takes_part(chart, sought, leaf) {
            continue;
        }
        let chosen = std::iter::once(leaf).chain(chart.ancestors(leaf)).find_map(|source| {
            if !may_enable(chart, sought, source) {
                return None;
            }
            let transitions = &chart.state(source).transitions;
            (0..transitions.len())
                .filter(|&index| is_sought(&transitions[index], sought))
                .find_map(|index| found(source, index))
        });
        if let Some(chosen) = chosen
            && !enabled.iter().any(|known| (known.source, known.index) == (chosen.source, chosen.index))
        {
            enabled.push(chosen);
        }
    }
    without_conflicts(chart, &configuration.active, enabled)
}

fn is_sought(transition: &Transition, sought: Sought<'_>) -> bool {
    match (&transition.trigger, sought) {
        (Trigger::Always, Sought::Always) => true,
        (Trigger::Events(descriptors), Sought::Event(name, _)) => matches(descriptors, name),
        _ => false,
    }
}

/// An invocation's event concerns only the leaves below its state: other regions do not take part.
fn takes_part(chart: &Chart, sought: Sought<'_>, leaf: StateIx) -> bool {
    match sought {
        Sought::Event(_, EventScope::Invocation { state, .. }) => leaf == *state || chart.is_descendant(leaf, *state),
        _ => true,
    }
}

/// May a transition of `source` be enabled (decision 37)?
fn may_enable(chart: &Chart, sought: Sought<'_>, source: StateIx) -> bool {
    match sought {
        Sought::Event(_, EventScope::Invocation { state, pick: true }) => chart.in_agent_part(*state, source),
        Sought::Event(_, EventScope::Invocation { state, pick: false }) => {
            source == *state || chart.is_descendant(*state, source)
        }
        _ => true,
    }
}

/// The states a transition really goes to: recorded history, or the history's default, in place of history states.
pub fn effective_targets(chart: &Chart, configuration: &Configuration, targets: &[StateIx]) -> Vec<StateIx> {
    let mut effective = Vec::with_capacity(targets.len());
    for &target in targets {
        match (&chart.state(target).kind, configuration.history.get(&target)) {
            (StateKind::History { .. }, Some(recorded)) => effective.extend(recorded),
            (StateKind::History { default, .. }, None) => effective.extend(default),
            _ => effective.push(target),
        }
    }
    effective
}

/// The state inside which a transition moves: everything active in there is left. The source itself when the transition is
/// internal: all targets are proper descendants of its compound source and it does not say `reenter`. Else the nearest
/// common ancestor of source and targets; where that is parallel it stays active, and all its regions are left.
pub fn domain(
    chart: &Chart,
    configuration: &Configuration,
    source: StateIx,
    transition: &Transition,
) -> Option<StateIx> {
    if transition.targets.is_empty() {
        return None;
    }
    let targets = effective_targets(chart, configuration, &transition.targets);
    let inside = |ix: StateIx| targets.iter().all(|&target| chart.is_descendant(target, ix));
    let is_compound = matches!(chart.state(source).kind, StateKind::Compound { .. });
    if is_compound && !transition.reenter && inside(source) {
        return Some(source);
    }
    Some(chart.ancestors(source).find(|&ancestor| inside(ancestor)).unwrap_or(ROOT))
}

/// The active states a transition leaves.
pub fn exit_set<'a>(
    chart: &Chart,
    active: &'a BTreeSet<StateIx>,
    domain: Option<StateIx>,
) -> impl Iterator<Item = StateIx> + use<'a> {
    let range = domain.map(|domain| domain + 1..=chart.state(domain).last).filter(|range| !range.is_empty());
    range.into_iter().flat_map(|range| active.range(range)).copied()
}

/// Drops transitions that would leave a state another one leaves: the inner source wins, then document order.
fn without_conflicts(chart: &Chart, active: &BTreeSet<StateIx>, enabled: Vec<Enabled>) -> Vec<Enabled> {
    if enabled.len() < 2 {
        return enabled;
    }
    let mut kept: Vec<Enabled> = Vec::with_capacity(enabled.len());
    for candidate in enabled {
        let conflicts = |other: &Enabled| {
            let leaves = |ix: StateIx| other.domain.is_some_and(|domain| chart.is_descendant(ix, domain));
            exit_set(chart, active, candidate.domain).any(leaves)
        };
        let rivals: Vec<Enabled> = kept.iter().filter(|other| conflicts(other)).copied().collect();
        if rivals.iter().all(|rival| chart.is_descendant(candidate.source, rival.source)) {
            kept.retain(|other| !rivals.contains(other));
            kept.push(candidate);
        }
    }
    kept
}

/// May `event`, sent as a pick by the Agent of `invoking`, enable a transition now? Guards that read the payload or fail
/// count as open (format "Menu, Allowed picks").
pub fn may_fire(
    chart: &Chart,
    configuration: &Configuration,
    event: &str,
    invoking: StateIx,
    env: &Environment<'_>,
) -> bool {
    if configuration.finished || !configuration.active.contains(&invoking) {
        return false;
    }
    let bare: Value = json!({ "type": event });
    let scope = env.scope(&configuration.context, Some(&bare));
    configuration.active.iter().filter(|&&ix| chart.in_agent_part(invoking, ix)).any(|&ix| {
        chart.state(ix).transitions.iter().any(|transition| {
            matches!(&transition.trigger, Trigger::Events(descriptors) if matches(descriptors, event))
                && transition
                    .guard
                    .as_ref()
                    .is_none_or(|guard| guard.reads_payload() || guard.holds(&scope).unwrap_or(true))
        })
    })
}
