//! Menus and derived sets (format "Menu, Allowed picks, and picks that ask").

use super::model::{Audience, Workflow};
use crate::chart::{Chart, InvokeKind, StateIx, Trigger};
use std::collections::{BTreeMap, BTreeSet};

/// The state and its ancestors, from inside out.
pub fn and_ancestors(chart: &Chart, state: StateIx) -> impl Iterator<Item = StateIx> + '_ {
    std::iter::successors(Some(state), |ix| chart.states[*ix as usize].parent)
}

/// The names of events a state's own transitions handle; catch-alls offer nothing.
pub fn names(chart: &Chart, state: StateIx) -> impl Iterator<Item = &str> {
    let transitions = chart.states[state as usize].transitions.iter();
    transitions.flat_map(|t| if let Trigger::Events(d) = &t.trigger { d.as_slice() } else { &[] }).map(String::as_str)
}

/// The part of the chart that belongs to the Agent a state invokes: the state, its ancestors below the nearest one that
/// invokes an Agent, and its descendants down to the next states that do.
pub fn part(chart: &Chart, state: StateIx) -> Vec<StateIx> {
    let invokes = |ix: StateIx| matches!(chart.states[ix as usize].invoke, Some(InvokeKind::Agent(_)));
    let mut part: Vec<StateIx> = vec![state];
    part.extend(and_ancestors(chart, state).skip(1).take_while(|ix| !invokes(*ix)));
    let mut ix = state + 1;
    while ix <= chart.states[state as usize].last {
        if invokes(ix) {
            ix = chart.states[ix as usize].last + 1;
        } else {
            part.push(ix);
            ix += 1;
        }
    }
    part
}

/// Fills in the derived set of each state that invokes an Agent and the Menu of each Agent.
pub fn derive(workflow: &mut Workflow) {
    let mut menus: BTreeMap<String, BTreeSet<String>> =
        workflow.agents.keys().map(|name| (name.clone(), BTreeSet::new())).collect();
    let mut derived = BTreeMap::new();
    for (ix, state) in workflow.chart.states.iter().enumerate() {
        let Some(InvokeKind::Agent(agent)) = &state.invoke else { continue };
        let part = part(&workflow.chart, ix as StateIx);
        let handled = part.iter().flat_map(|ix| names(&workflow.chart, *ix));
        let set: BTreeSet<String> = handled.filter(|e| workflow.may_pick(agent, e)).map(str::to_owned).collect();
        menus.entry(agent.clone()).or_default().extend(set.iter().cloned());
        derived.insert(ix as StateIx, set.into_iter().collect());
    }
    workflow.derived = derived;
    workflow.menus = menus.into_iter().map(|(agent, set)| (agent, set.into_iter().collect())).collect();
}

impl Workflow {
    /// May this Agent send this event at all?
    pub fn may_pick(&self, agent: &str, event: &str) -> bool {
        self.events.get(event).is_some_and(|definition| match &definition.from {
            Audience::Agent | Audience::Any => true,
            Audience::External => false,
            Audience::Agents(names) => names.iter().any(|name| name == agent),
        })
    }

    /// May people and outside systems send this event at all?
    pub fn is_external(&self, event: &str) -> bool {
        self.events.get(event).is_some_and(|d| matches!(d.from, Audience::External | Audience::Any))
    }

    /// The external events that a state or one of its ancestors handles, sorted: what its Gate takes, and what may be sent
    /// to a run while the state is active (spec G-2).
    pub fn accepts_external(&self, state: StateIx) -> Vec<String> {
        let handled = and_ancestors(&self.chart, state).flat_map(|ix| names(&self.chart, ix));
        let set: BTreeSet<&str> = handled.filter(|event| self.is_external(event)).collect();
        set.into_iter().map(str::to_owned).collect()
    }
}
