//! One macrostep under way: leaving, running content, entering, until nothing more is enabled.

use super::select::{Enabled, Sought, effective_targets, exit_set, select};
use super::{
    Action, CONTEXT_BYTES_MAX, Chart, ChartEffect, Configuration, DONE_STATE, Environment, EventScope, MICROSTEPS_MAX,
    Macrostep, ROOT, StateIx, StateKind, StepError, Transition, Trigger,
};
use crate::expression::{ExpressionError, Scope, ValueSource};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The working copy of a macrostep.
pub struct Machine<'a> {
    chart: &'a Chart,
    env: &'a Environment<'a>,
    /// Becomes the result.
    pub configuration: Configuration,
    /// The present event: payload fields and `type`.
    event: Option<Value>,
    queue: VecDeque<(String, Value)>,
    effects: Vec<ChartEffect>,
    taken: Vec<(StateIx, usize)>,
    /// States entered in this macrostep and not left since, in order of entry: their invocations have not started.
    fresh: Vec<StateIx>,
    microsteps: usize,
    wrote_context: bool,
}

/// What is to be entered.
#[derive(Default)]
struct EntrySet {
    states: BTreeSet<StateIx>,
    by_default: BTreeSet<StateIx>,
    /// Content of a history's default transition, by the history's parent.
    history_content: BTreeMap<StateIx, StateIx>,
}

type Step = Result<(), StepError>;

impl<'a> Machine<'a> {
    /// Starts from a configuration.
    pub fn new(chart: &'a Chart, env: &'a Environment<'a>, configuration: Configuration) -> Self {
        Self {
            chart,
            env,
            configuration,
            event: None,
            queue: VecDeque::new(),
            effects: Vec::new(),
            taken: Vec::new(),
            fresh: Vec::new(),
            microsteps: 0,
            wrote_context: false,
        }
    }

    /// What expressions see now.
    pub fn scope(&self) -> Scope<'_> {
        self.env.scope(&self.configuration.context, self.event.as_ref())
    }

    /// Makes an event the present one.
    pub fn receive(&mut self, name: &str, payload: &Value) {
        let mut fields = payload.as_object().cloned().unwrap_or_default();
        fields.insert("type".to_owned(), name.into());
        self.event = Some(Value::Object(fields));
    }

    /// Enters the root and its initial states.
    pub fn enter_initial(&mut self) -> Step {
        let mut entry = EntrySet::default();
        self.add_descendants(&mut entry, ROOT, ROOT);
        self.enter(&entry)
    }

    /// Takes eventless transitions and internal events until nothing is enabled.
    pub fn settle(&mut self) -> Step {
        while !self.configuration.finished {
            let mut enabled = select(self.chart, &self.configuration, Sought::Always, &self.scope());
            if enabled.is_empty() {
                let Some((name, payload)) = self.queue.pop_front() else { break };
                self.receive(&name, &payload);
                let sought = Sought::Event(&name, &EventScope::Broadcast);
                enabled = select(self.chart, &self.configuration, sought, &self.scope());
            }
            if !enabled.is_empty() {
                self.microstep(&enabled)?;
            }
        }
        Ok(())
    }

    /// Takes transitions together.
    pub fn microstep(&mut self, enabled: &[Enabled]) -> Step {
        if self.microsteps == MICROSTEPS_MAX {
            return Err(StepError::Microsteps);
        }
        self.microsteps += 1;
        self.exit(enabled)?;
        let chart = self.chart;
        for transition in enabled {
            self.taken.push((transition.source, transition.index));
            let source = chart.state(transition.source);
            self.run(&source.transitions[transition.index].actions, &|| {
                place_of(chart, transition.source, &source.transitions[transition.index])
            })?;
        }
        let entry = self.entry_set(enabled);
        self.enter(&entry)
    }

    /// The result, with the effects of what was entered and stays.
    pub fn finish(mut self, moved: bool) -> Result<Macrostep, StepError> {
        if self.configuration.finished {
            self.leave_all()?;
        }
        if self.wrote_context {
            let bytes = json_bytes(&self.configuration.context);
            if bytes > CONTEXT_BYTES_MAX {
                return Err(StepError::ContextTooLarge(CONTEXT_BYTES_MAX));
            }
        }
        for &state in &self.fresh {
            let ordinal = self.configuration.ordinal(state);
            let definition = self.chart.state(state);
            for (index, transition) in definition.transitions.iter().enumerate() {
                if let Trigger::After { delay_ms } = transition.trigger {
                    self.effects.push(ChartEffect::StartTimer { state, ordinal, index, delay_ms });
                }
            }
            if definition.invoke.is_some() {
                self.effects.push(ChartEffect::Invoke { state, ordinal });
            }
        }
        Ok(Macrostep { configuration: self.configuration, effects: self.effects, taken: self.taken, moved })
    }

    fn exit(&mut self, enabled: &[Enabled]) -> Step {
        let mut leaving = BTreeSet::new();
        for transition in enabled {
            leaving.extend(exit_set(self.chart, &self.configuration.active, transition.domain));
        }
        for &state in &leaving {
            self.record_history(state);
        }
        for &state in leaving.iter().rev() {
            self.leave(state)?;
            self.configuration.active.remove(&state);
        }
        Ok(())
    }

    fn record_history(&mut self, state: StateIx) {
        let chart = self.chart;
        for &child in &chart.state(state).children {
            if let StateKind::History { deep, .. } = chart.state(child).kind {
                let active = &self.configuration.active;
                let below = active.range(state + 1..=chart.state(state).last).copied();
                let recorded = below
                    .filter(|&ix| if deep { chart.state(ix).is_leaf() } else { chart.state(ix).parent == Some(state) });
                let recorded: Vec<StateIx> = recorded.collect();
                self.configuration.history.insert(child, recorded);
            }
        }
    }

    /// Runs a state's exit content and ends what its entry began.
    fn leave(&mut self, state: StateIx) -> Step {
        let chart = self.chart;
        let definition = chart.state(state);
        self.run(&definition.exit, &|| format!("{}.exit", chart.place(state)))?;
        let ordinal = self.configuration.ordinal(state);
        if let Some(at) = self.fresh.iter().position(|fresh| *fresh == state) {
            self.fresh.remove(at);
            return Ok(());
        }
        if definition.has_timers() {
            self.effects.push(ChartEffect::CancelTimers { state, ordinal });
        }
        if definition.invoke.is_some() {
            self.effects.push(ChartEffect::Uninvoke { state, ordinal });
        }
        Ok(())
    }

    /// A top-level final state was entered: everything is left in order, the output is computed.
    fn leave_all(&mut self) -> Step {
        let active: Vec<StateIx> = self.configuration.active.iter().rev().copied().collect();
        for state in active {
            self.leave(state)?;
            if self.chart.state(state).parent == Some(ROOT)
                && let StateKind::Final { output: Some(output) } = &self.chart.state(state).kind
            {
                let value = self.evaluate(output, &|| format!("{}.output", self.chart.place(state)))?;
                self.configuration.output = Some(value);
            }
        }
        Ok(())
    }

    fn entry_set(&self, enabled: &[Enabled]) -> EntrySet {
        let mut entry = EntrySet::default();
        for transition in enabled {
            let definition = &self.chart.state(transition.source).transitions[transition.index];
            let Some(inside) = transition.domain else { continue };
            for &target in &definition.targets {
                self.add_descendants(&mut entry, target, inside);
            }
            // History may have been recorded while leaving: these are the states really entered.
            for target in effective_targets(self.chart, &self.configuration, &definition.targets) {
                self.add_ancestors(&mut entry, target, inside);
            }
            if matches!(self.chart.state(inside).kind, StateKind::Parallel) {
                // It stayed active while all its regions were left.
                self.add_regions(&mut entry, inside, inside);
            }
        }
        entry
    }

    /// `inside` is the transition's domain: it and what is above it stay active, so they are not entered. A history whose
    /// parent is one of those would bring them in otherwise.
    fn add_descendants(&self, entry: &mut EntrySet, state: StateIx, inside: StateIx) {
        let definition = self.chart.state(state);
        match &definition.kind {
            StateKind::History { default, .. } => {
                let parent = definition.parent.unwrap_or(ROOT);
                let recorded = self.configuration.history.get(&state);
                if recorded.is_none() {
                    entry.history_content.insert(parent, state);
                }
                let targets = recorded.unwrap_or(default);
                for &target in targets {
                    self.add_descendants(entry, target, inside);
                }
                let top = if self.chart.is_descendant(inside, parent) { inside } else { parent };
                for &target in targets {
                    self.add_ancestors(entry, target, top);
                }
            }
            StateKind::Compound { initial, .. } => {
                entry.states.insert(state);
                entry.by_default.insert(state);
                for &target in initial {
                    self.add_descendants(entry, target, state);
                }
                for target in effective_targets(self.chart, &self.configuration, initial) {
                    self.add_ancestors(entry, target, state);
                }
            }
            StateKind::Parallel => {
                entry.states.insert(state);
                self.add_regions(entry, state, inside);
            }
            StateKind::Atomic | StateKind::Final { .. } => {
                entry.states.insert(state);
            }
        }
    }

    fn add_ancestors(&self, entry: &mut EntrySet, state: StateIx, inside: StateIx) {
        for ancestor in self.chart.ancestors(state).take_while(|&ancestor| ancestor != inside) {
            entry.states.insert(ancestor);
            if matches!(self.chart.state(ancestor).kind, StateKind::Parallel) {
                self.add_regions(entry, ancestor, inside);
            }
        }
    }

    /// Every region of a parallel state in which nothing is entered yet.
    fn add_regions(&self, entry: &mut EntrySet, parallel: StateIx, inside: StateIx) {
        for region in self.chart.regions(parallel) {
            if entry.states.range(region..=self.chart.state(region).last).next().is_none() {
                self.add_descendants(entry, region, inside);
            }
        }
    }

    fn enter(&mut self, entry: &EntrySet) -> Step {
        let chart = self.chart;
        for &state in &entry.states {
            let definition = chart.state(state);
            self.configuration.active.insert(state);
            if definition.invoke.is_some() || definition.has_timers() {
                *self.configuration.ordinals.entry(state).or_default() += 1;
                self.fresh.push(state);
            }
            self.run(&definition.enter, &|| format!("{}.enter", chart.place(state)))?;
            if let StateKind::Compound { actions, .. } = &definition.kind
                && entry.by_default.contains(&state)
            {
                self.run(actions, &|| format!("{}.initial", chart.place(state)))?;
            }
            if let Some(history) = entry.history_content.get(&state)
                && let StateKind::History { actions, .. } = &chart.state(*history).kind
            {
                self.run(actions, &|| chart.place(*history))?;
            }
            if let StateKind::Final { output } = &definition.kind {
                self.complete(state, output.as_ref())?;
            }
        }
        Ok(())
    }

    /// A final state was entered: its parent is done, and a parallel grandparent may be.
    fn complete(&mut self, state: StateIx, output: Option<&ValueSource>) -> Step {
        let chart = self.chart;
        let parent = chart.state(state).parent.unwrap_or(ROOT);
        if parent == ROOT {
            self.configuration.finished = true;
            return Ok(());
        }
        let payload = match output {
            None => Value::Object(Map::new()),
            Some(output) => match self.evaluate(output, &|| format!("{}.output", chart.place(state)))? {
                object @ Value::Object(_) => object,
                other => Value::Object(Map::from_iter([("output".to_owned(), other)])),
            },
        };
        self.queue.push_back((format!("{DONE_STATE}{}", chart.state(parent).path), payload));
        let Some(grandparent) = chart.state(parent).parent else { return Ok(()) };
        if matches!(chart.state(grandparent).kind, StateKind::Parallel) && self.is_done(grandparent) {
            if grandparent == ROOT {
                self.configuration.finished = true;
            } else {
                let name = format!("{DONE_STATE}{}", chart.state(grandparent).path);
                self.queue.push_back((name, Value::Object(Map::new())));
            }
        }
        Ok(())
    }

    fn is_done(&self, state: StateIx) -> bool {
        let chart = self.chart;
        match chart.state(state).kind {
            StateKind::Compound { .. } => chart.regions(state).any(|child| {
                matches!(chart.state(child).kind, StateKind::Final { .. }) && self.configuration.active.contains(&child)
            }),
            StateKind::Parallel => chart.regions(state).all(|region| self.is_done(region)),
            _ => false,
        }
    }

    /// Runs executable content; `place` names where it stands.
    fn run(&mut self, actions: &[Action], place: &dyn Fn() -> String) -> Step {
        for action in actions {
            match action {
                Action::Set(assignments) => {
                    let mut values = Vec::with_capacity(assignments.len());
                    for (key, source) in assignments {
                        values.push((key, self.evaluate(source, &|| format!("{}.set.{key}", place()))?));
                    }
                    self.wrote_context = true;
                    for (key, value) in values {
                        match self.configuration.context.get_mut(key) {
                            Some(slot) => *slot = value,
                            None => drop(self.configuration.context.insert(key.clone(), value)),
                        }
                    }
                }
                Action::Emit(source) => {
                    let value = self.evaluate(source, &|| format!("{}.emit", place()))?;
                    self.effects.push(ChartEffect::Emit(value));
                }
                Action::Raise { event, payload } => {
                    let place = || format!("{}.raise", place());
                    let payload = match payload {
                        None => Value::Object(Map::new()),
                        Some(source) => self.evaluate(source, &place)?,
                    };
                    if !payload.is_object() {
                        let error = ExpressionError {
                            message: "the payload of an event is an object".to_owned(),
                            offset: None,
                        };
                        return Err(StepError::Expression { place: place(), error });
                    }
                    self.queue.push_back((event.clone(), payload));
                }
            }
        }
        Ok(())
    }

    fn evaluate(&self, source: &ValueSource, place: &dyn Fn() -> String) -> Result<Value, StepError> {
        let at = |error| StepError::Expression { place: place().trim_start_matches('.').to_owned(), error };
        source.evaluate(&self.scope()).map_err(at)
    }
}

/// Where a transition stands in its workflow file.
fn place_of(chart: &Chart, source: StateIx, transition: &Transition) -> String {
    let key = match &transition.trigger {
        Trigger::Events(names) => format!("on.{}", names.join(" ")),
        Trigger::Always => "always".to_owned(),
        Trigger::After { .. } => "after".to_owned(),
    };
    match chart.place(source) {
        place if place.is_empty() => key,
        place => format!("{place}.{key}"),
    }
}

/// The length of a context as compact JSON, without building the text.
fn json_bytes(context: &Map<String, Value>) -> usize {
    struct Counter(usize);
    impl std::io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter(0);
    // Writing to a counter cannot fail, and every map key is a text.
    let _ = serde_json::to_writer(&mut counter, context);
    counter.0
}
