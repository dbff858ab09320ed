//! The serialisable state of a chart, and what people and the host ask of it.

use super::{Chart, ROOT, StateIx, StateKind, Trigger};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// The serialisable state of a chart. State indexes are stable because a run keeps its text (decision 40).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Configuration {
    /// All active states, ancestors included, the root too. A finished chart keeps its last ones.
    pub active: BTreeSet<StateIx>,
    /// Recorded history by history pseudo-state.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub history: BTreeMap<StateIx, Vec<StateIx>>,
    /// How often each state that invokes or has delayed transitions has been entered: the entry ordinal of an active one.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ordinals: BTreeMap<StateIx, u64>,
    /// The context.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub context: Map<String, Value>,
    /// The output, once a top-level final state was entered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// A top-level final state was entered.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub finished: bool,
}

impl Configuration {
    /// The active states as a person reads them: `"working"`, `{"review": "open"}`, and a field per region of a parallel
    /// state, with `{}` for a region without states of its own.
    pub fn value(&self, chart: &Chart) -> Value {
        self.value_below(chart, ROOT)
    }

    fn value_below(&self, chart: &Chart, ix: StateIx) -> Value {
        let is_parallel = matches!(chart.state(ix).kind, StateKind::Parallel);
        let mut fields = Map::new();
        for child in chart.regions(ix).filter(|child| self.active.contains(child)) {
            let state = chart.state(child);
            if state.is_leaf() && !is_parallel {
                return Value::String(state.key.clone());
            }
            fields.insert(state.key.clone(), self.value_below(chart, child));
        }
        Value::Object(fields)
    }

    /// Is this a configuration the chart can be in? The error says what is wrong. A restored one must pass before a step.
    pub fn is_legal(&self, chart: &Chart) -> Result<(), String> {
        let count = chart.states.len() as StateIx;
        let recorded = self.history.iter().flat_map(|(history, states)| std::iter::once(history).chain(states));
        if let Some(unknown) = self.active.iter().chain(recorded).chain(self.ordinals.keys()).find(|ix| **ix >= count) {
            return Err(format!("state {unknown} does not exist"));
        }
        if !self.active.contains(&ROOT) {
            return Err("the root is not active".to_owned());
        }
        for &ix in &self.active {
            let state = chart.state(ix);
            if state.parent.is_some_and(|parent| !self.active.contains(&parent)) {
                return Err(format!("`{}` is active without its parent", state.path));
            }
            let active = chart.regions(ix).filter(|child| self.active.contains(child)).count();
            let expected = match state.kind {
                StateKind::Atomic | StateKind::Final { .. } => 0,
                StateKind::Compound { .. } => 1,
                StateKind::Parallel => chart.regions(ix).count(),
                StateKind::History { .. } => return Err(format!("the history state `{}` is active", state.path)),
            };
            if active != expected {
                return Err(format!("`{}` has {active} active children instead of {expected}", state.path));
            }
        }
        for (&history, states) in &self.history {
            let parent = chart.state(history).parent.unwrap_or(ROOT);
            if !chart.state(history).is_history() || states.iter().any(|&ix| !chart.is_descendant(ix, parent)) {
                return Err(format!("the history of `{}` names states outside of it", chart.state(history).path));
            }
        }
        Ok(())
    }

    /// The entry ordinal of an active state that invokes or has delayed transitions; 0 for others.
    pub fn ordinal(&self, ix: StateIx) -> u64 {
        self.ordinals.get(&ix).copied().unwrap_or(0)
    }
}

/// The event descriptors that active states have transitions for, sorted; `done.state` events, which only the chart itself
/// sends, are left out. Guards are not asked.
pub fn accepts(chart: &Chart, configuration: &Configuration) -> Vec<String> {
    let mut names = BTreeSet::new();
    if configuration.finished {
        return Vec::new();
    }
    for &ix in &configuration.active {
        for transition in &chart.state(ix).transitions {
            if let Trigger::Events(descriptors) = &transition.trigger {
                names.extend(descriptors.iter().filter(|name| !name.starts_with(super::DONE_STATE)));
            }
        }
    }
    names.into_iter().cloned().collect()
}
