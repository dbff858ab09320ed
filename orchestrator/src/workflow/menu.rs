//! Menus and derived sets (format "Menu, Allowed picks, and picks that ask").

use super::model::{Audience, Workflow};
use crate::chart::{Chart, InvokeKind, StateIx, Trigger};
use std::collections::{BTreeMap, BTreeSet};

/// The state and its ancestors, from inside out.
pub fn and_ancestors(chart: &Chart, state: StateIx) -> impl Iterator<Item = StateIx> + '_ {
    std::iter::once(state).chain(chart.ancestors(state))
}

/// The names of events a state's own transitions handle; catch-alls offer nothing.
pub fn names(chart: &Chart, state: StateIx) -> impl Iterator<Item = &str> {
    let transitions = chart.states[state as usize].transitions.iter();
    transitions.flat_map(|t| if let Trigger::Events(d) = &t.trigger { d.as_slice() } else { &[] }).map(String::as_str)
}

/// Fills in the derived set of each state that invokes an Agent and the Menu of each Agent.
pub fn derive(workflow: &mut Workflow) {
    let mut menus: BTreeMap<String, BTreeSet<String>> =
        workflow.agents.keys().map(|name| (name.clone(), BTreeSet::new())).collect();
    let mut derived = BTreeMap::new();
    for (ix, state) in workflow.chart.states.iter().enumerate() {
        let Some(InvokeKind::Agent(agent)) = &state.invoke else { continue };
        let part = workflow.chart.agent_part(ix as StateIx);
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
