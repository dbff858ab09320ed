//! Charts for tests, written as nested drafts whose targets are paths.

use super::*;
use crate::expression::{Expression, ValueSource};
use serde_json::{Map, Value, json};

/// One state to be.
#[derive(Clone, Debug)]
pub struct Draft {
    key: String,
    kind: Kind,
    invoke: Option<InvokeKind>,
    enter: Vec<Action>,
    exit: Vec<Action>,
    on: Vec<Way>,
    children: Vec<Draft>,
}

#[derive(Clone, Debug)]
enum Kind {
    Plain,
    Parallel,
    Final { output: Option<String> },
    History { deep: bool, default: String },
}

/// One transition to be.
#[derive(Clone, Debug)]
pub struct Way {
    trigger: Trigger,
    guard: Option<String>,
    targets: Vec<String>,
    reenter: bool,
    actions: Vec<Action>,
}

fn draft(key: &str, kind: Kind, children: Vec<Draft>) -> Draft {
    Draft { key: key.to_owned(), kind, invoke: None, enter: vec![], exit: vec![], on: vec![], children }
}

pub fn state(key: &str, children: Vec<Draft>) -> Draft {
    draft(key, Kind::Plain, children)
}

pub fn parallel(key: &str, children: Vec<Draft>) -> Draft {
    draft(key, Kind::Parallel, children)
}

pub fn done(key: &str) -> Draft {
    draft(key, Kind::Final { output: None }, vec![])
}

pub fn done_with(key: &str, output: &str) -> Draft {
    draft(key, Kind::Final { output: Some(output.to_owned()) }, vec![])
}

pub fn history(key: &str, deep: bool, default: &str) -> Draft {
    draft(key, Kind::History { deep, default: default.to_owned() }, vec![])
}

fn way(trigger: Trigger, targets: &str) -> Way {
    let targets = targets.split_whitespace().map(str::to_owned).collect();
    Way { trigger, guard: None, targets, reenter: false, actions: vec![] }
}

/// `on: {event: target}`; targets are paths, separated by blanks; none = targetless.
pub fn on(event: &str, targets: &str) -> Way {
    way(Trigger::Events(event.split_whitespace().map(str::to_owned).collect()), targets)
}

pub fn always(targets: &str) -> Way {
    way(Trigger::Always, targets)
}

pub fn after(delay_ms: u64, targets: &str) -> Way {
    way(Trigger::After { delay_ms }, targets)
}

impl Way {
    pub fn when(mut self, guard: &str) -> Self {
        self.guard = Some(guard.to_owned());
        self
    }

    pub fn reenter(mut self) -> Self {
        self.reenter = true;
        self
    }

    pub fn act(mut self, action: Action) -> Self {
        self.actions.push(action);
        self
    }
}

impl Draft {
    pub fn key(&self) -> &str {
        &self.key
    }

    pub fn invoke(mut self, kind: InvokeKind) -> Self {
        self.invoke = Some(kind);
        self
    }

    pub fn agent(self, name: &str) -> Self {
        self.invoke(InvokeKind::Agent(name.to_owned()))
    }

    pub fn way(mut self, way: Way) -> Self {
        self.on.push(way);
        self
    }

    pub fn on(self, event: &str, targets: &str) -> Self {
        self.way(on(event, targets))
    }

    pub fn enter(mut self, action: Action) -> Self {
        self.enter.push(action);
        self
    }

    /// Says `+path` on entry and `-path` on exit, here and below.
    pub fn traced(mut self, path: &str) -> Self {
        if !matches!(self.kind, Kind::History { .. }) {
            self.enter.push(emit(&format!("'+{path}'")));
            self.exit.push(emit(&format!("'-{path}'")));
        }
        let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
        self.children = self.children.into_iter().map(|child| child.clone().traced(&below(&child.key))).collect();
        self
    }
}

fn source(text: &str) -> ValueSource {
    ValueSource::Expression(Expression::parse(text).unwrap())
}

pub fn set(pairs: &[(&str, &str)]) -> Action {
    Action::Set(pairs.iter().map(|(key, value)| ((*key).to_owned(), source(value))).collect())
}

pub fn emit(value: &str) -> Action {
    Action::Emit(source(value))
}

pub fn raise(event: &str, payload: Option<&str>) -> Action {
    Action::Raise { event: event.to_owned(), payload: payload.map(source) }
}

/// The chart whose root holds `children`, the first one initial.
pub fn chart(children: Vec<Draft>) -> Chart {
    root(state("", children))
}

/// The chart with this root.
pub fn root(root: Draft) -> Chart {
    let mut chart = Chart::default();
    place(&root, None, "", &mut chart);
    resolve(&root, &mut 0, &mut chart);
    chart.check().unwrap();
    chart
}

fn place(draft: &Draft, parent: Option<StateIx>, path: &str, chart: &mut Chart) -> StateIx {
    let ix = chart.states.len() as StateIx;
    chart.states.push(State {
        key: draft.key.clone(),
        path: path.to_owned(),
        parent,
        children: vec![],
        last: ix,
        kind: StateKind::Atomic,
        enter: draft.enter.clone(),
        exit: draft.exit.clone(),
        transitions: vec![],
        invoke: draft.invoke.clone(),
    });
    for child in &draft.children {
        let path = if path.is_empty() { child.key.clone() } else { format!("{path}.{}", child.key) };
        let child = place(child, Some(ix), &path, chart);
        chart.states[ix as usize].children.push(child);
    }
    chart.states[ix as usize].last = chart.states.len() as StateIx - 1;
    ix
}

fn resolve(draft: &Draft, next: &mut StateIx, chart: &mut Chart) {
    let ix = *next;
    *next += 1;
    let found = |path: &str| chart.find(path).unwrap_or_else(|| panic!("no state {path}"));
    let kind = match &draft.kind {
        Kind::Plain if draft.children.is_empty() => StateKind::Atomic,
        Kind::Plain => StateKind::Compound { initial: vec![chart.state(ix).children[0]], actions: vec![] },
        Kind::Parallel => StateKind::Parallel,
        Kind::Final { output } => StateKind::Final { output: output.as_deref().map(source) },
        Kind::History { deep, default } => {
            StateKind::History { deep: *deep, default: vec![found(default)], actions: vec![] }
        }
    };
    let transitions = draft.on.iter().map(|way| Transition {
        trigger: way.trigger.clone(),
        guard: way.guard.as_deref().map(|guard| Expression::parse(guard).unwrap()),
        targets: way.targets.iter().map(|target| found(target)).collect(),
        reenter: way.reenter,
        actions: way.actions.clone(),
    });
    let transitions = transitions.collect();
    chart.states[ix as usize].kind = kind;
    chart.states[ix as usize].transitions = transitions;
    for child in &draft.children {
        resolve(child, next, chart);
    }
}

/// A chart that is being driven.
pub struct Drive {
    pub chart: Chart,
    pub now: Configuration,
    pub last: Macrostep,
}

static NULL: Value = Value::Null;

pub fn env() -> Environment<'static> {
    Environment { input: &NULL, run: &NULL, workspace: None, actor: None }
}

impl Drive {
    pub fn new(chart: Chart, context: Value) -> Self {
        let context: Map<String, Value> = context.as_object().unwrap().clone();
        let last = start(&chart, context, &env()).unwrap();
        Self { chart, now: last.configuration.clone(), last }
    }

    pub fn try_send(&self, name: &str, payload: Value, scope: EventScope) -> Result<Macrostep, StepError> {
        step(&self.chart, &self.now, &Event { name: name.to_owned(), payload, scope }, &env())
    }

    /// Takes the event; answers whether it moved.
    pub fn scoped(&mut self, name: &str, scope: EventScope) -> bool {
        self.last = self.try_send(name, json!({}), scope).unwrap();
        self.now = self.last.configuration.clone();
        self.now.is_legal(&self.chart).unwrap();
        self.last.moved
    }

    pub fn send(&mut self, name: &str) -> bool {
        self.scoped(name, EventScope::Broadcast)
    }

    pub fn value(&self) -> Value {
        self.now.value(&self.chart)
    }

    pub fn at(&self, path: &str) -> StateIx {
        self.chart.find(path).unwrap()
    }

    /// What the last macrostep said.
    pub fn said(&self) -> Vec<Value> {
        let emits = self.last.effects.iter().filter_map(|effect| match effect {
            ChartEffect::Emit(value) => Some(value.clone()),
            _ => None,
        });
        emits.collect()
    }

    /// Its other effects, in short.
    pub fn did(&self) -> Vec<String> {
        let path = |ix: &StateIx| self.chart.state(*ix).path.clone();
        let effects = self.last.effects.iter().filter_map(|effect| match effect {
            ChartEffect::Emit(_) => None,
            ChartEffect::StartTimer { state, ordinal, index, delay_ms } => {
                Some(format!("timer {}#{ordinal}[{index}] {delay_ms}", path(state)))
            }
            ChartEffect::CancelTimers { state, ordinal } => Some(format!("cancel {}#{ordinal}", path(state))),
            ChartEffect::Invoke { state, ordinal } => Some(format!("invoke {}#{ordinal}", path(state))),
            ChartEffect::Uninvoke { state, ordinal } => Some(format!("uninvoke {}#{ordinal}", path(state))),
        });
        effects.collect()
    }
}
