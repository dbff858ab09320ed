//! What holds for every chart and every sequence of events.

use super::draft::{emit, env, raise, set};
use super::*;
use crate::expression::Expression;
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The shape of one state.
#[derive(Clone, Debug)]
enum Shape {
    Atomic,
    Final,
    History(bool),
    Compound(Vec<Shape>),
    Parallel(Vec<Shape>),
}

/// One transition in raw numbers, read modulo what there is.
type RawWay = (u16, u8, Vec<u16>, u8, u8, bool);

#[derive(Clone, Debug)]
struct Raw {
    shape: Vec<Shape>,
    ways: Vec<RawWay>,
    invokes: Vec<u16>,
}

const EVENTS: [&str; 5] = ["a", "b", "b.c", "d", "done.state.s1"];
const GUARDS: [&str; 5] =
    ["context.n < 4", "context.n % 2 == 0", "context.missing", "event.type == 'b'", "has(event.x)"];

fn shapes() -> impl Strategy<Value = Vec<Shape>> {
    let leaf =
        prop_oneof![6 => Just(Shape::Atomic), 1 => Just(Shape::Final), 1 => any::<bool>().prop_map(Shape::History)];
    let tree = leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            3 => prop::collection::vec(inner.clone(), 1..4).prop_map(Shape::Compound),
            2 => prop::collection::vec(inner, 1..4).prop_map(Shape::Parallel),
        ]
    });
    let top = prop::collection::vec(tree, 2..5);
    top.prop_map(|mut shapes| {
        shapes.push(Shape::Final);
        shapes
    })
}

fn raw() -> impl Strategy<Value = Raw> {
    let way =
        (any::<u16>(), any::<u8>(), prop::collection::vec(any::<u16>(), 0..3), any::<u8>(), any::<u8>(), any::<bool>());
    (shapes(), prop::collection::vec(way, 0..24), prop::collection::vec(any::<u16>(), 0..4))
        .prop_map(|(shape, ways, invokes)| Raw { shape, ways, invokes })
}

fn place(shape: &Shape, parent: Option<StateIx>, chart: &mut Chart) -> StateIx {
    let ix = chart.states.len() as StateIx;
    let key = if parent.is_none() { String::new() } else { format!("s{ix}") };
    let is_history = matches!(shape, Shape::History(_));
    let trace = |sign: &str| if is_history { vec![] } else { vec![emit(&format!("'{sign}{ix}'"))] };
    chart.states.push(State {
        path: key.clone(),
        key,
        parent,
        children: vec![],
        last: ix,
        kind: StateKind::Atomic,
        enter: trace("+"),
        exit: trace("-"),
        transitions: vec![],
        invoke: None,
    });
    let children: Vec<Shape> = match shape {
        Shape::Compound(children) => children.clone(),
        // A parallel state's children are regions: no final states.
        Shape::Parallel(children) => children.iter().filter(|c| !matches!(c, Shape::Final)).cloned().collect(),
        _ => vec![],
    };
    let has_real = children.iter().any(|child| !matches!(child, Shape::History(_)));
    for child in children.iter().filter(|_| has_real) {
        let child = place(child, Some(ix), chart);
        chart.states[ix as usize].children.push(child);
    }
    chart.states[ix as usize].last = chart.states.len() as StateIx - 1;
    let first = chart.regions(ix).next();
    chart.states[ix as usize].kind = match (shape, first) {
        (Shape::Final, _) => StateKind::Final { output: None },
        (Shape::History(deep), _) => StateKind::History { deep: *deep, default: vec![], actions: vec![] },
        (Shape::Parallel(_), Some(_)) => StateKind::Parallel,
        (_, Some(first)) => StateKind::Compound { initial: vec![first], actions: vec![] },
        (_, None) => StateKind::Atomic,
    };
    ix
}

fn build(raw: &Raw) -> Chart {
    let mut chart = Chart::default();
    place(&Shape::Compound(raw.shape.clone()), None, &mut chart);
    let count = chart.states.len();
    for ix in 1..count {
        let beside = chart.states[ix].parent.and_then(|parent| chart.regions(parent).next());
        if let (StateKind::History { default, .. }, Some(beside)) = (&mut chart.states[ix].kind, beside) {
            *default = vec![beside];
        }
    }
    for &(source, trigger, ref targets, guard, action, reenter) in &raw.ways {
        let source = usize::from(source) % count;
        if chart.states[source].is_history() || matches!(chart.states[source].kind, StateKind::Final { .. }) {
            continue;
        }
        let mut targets: Vec<StateIx> =
            targets.iter().map(|&t| 1 + StateIx::from(t) % (count as StateIx - 1)).collect();
        if !chart.is_legal_target_set(&targets) {
            targets.truncate(1);
        }
        // Most eventless transitions end by themselves; some run into the bound.
        let counts = trigger % 8 == 0 && guard % 16 != 0;
        let guard =
            GUARDS.get(if counts { 0 } else { usize::from(guard) % 10 }).map(|text| Expression::parse(text).unwrap());
        let trigger = match trigger % 8 {
            0 => Trigger::Always,
            1 => Trigger::After { delay_ms: 5 },
            n => Trigger::Events(vec![EVENTS[usize::from(n) % EVENTS.len()].to_owned()]),
        };
        let actions = match if counts { 0 } else { action % 8 } {
            0 => vec![set(&[("n", "context.n + 1")])],
            1 => vec![raise("d", None)],
            2 => vec![raise("b.c", Some("{'x': context.n}")), set(&[("n", "context.n + 1"), ("m", "context.n")])],
            3 if trigger == Trigger::Always => vec![],
            3 => vec![set(&[("n", "context.n + 1"), ("m", "context.text + 1")])],
            _ => vec![],
        };
        chart.states[source].transitions.push(Transition { trigger, guard, targets, reenter, actions });
    }
    for &ix in &raw.invokes {
        let ix = usize::from(ix) % count;
        if ix > 0 && !chart.states[ix].is_history() && !matches!(chart.states[ix].kind, StateKind::Final { .. }) {
            chart.states[ix].invoke = Some(InvokeKind::Agent("x".to_owned()));
        }
    }
    chart.check().unwrap();
    chart
}

/// What a host would have running, kept by nothing but the effects.
#[derive(Clone, Default)]
struct Observed {
    active: BTreeSet<StateIx>,
    invoked: BTreeMap<StateIx, u64>,
    timers: BTreeSet<(StateIx, u64, usize)>,
    highest: BTreeMap<StateIx, u64>,
}

impl Observed {
    fn watch(&mut self, chart: &Chart, macrostep: &Macrostep) -> Result<(), TestCaseError> {
        for effect in &macrostep.effects {
            match effect {
                ChartEffect::Emit(Value::String(text)) => {
                    let ix: StateIx = text[1..].parse().unwrap();
                    if text.starts_with('+') {
                        let parent = chart.state(ix).parent;
                        prop_assert!(
                            parent.is_none_or(|parent| self.active.contains(&parent)),
                            "{} before its parent",
                            ix
                        );
                        prop_assert!(self.active.insert(ix), "{} entered twice", ix);
                    } else {
                        prop_assert!(
                            chart.regions(ix).all(|child| !self.active.contains(&child)),
                            "{} before its child",
                            ix
                        );
                        prop_assert!(self.active.remove(&ix), "{} left without being entered", ix);
                    }
                }
                ChartEffect::Emit(other) => prop_assert!(false, "unknown emit {}", other),
                ChartEffect::Invoke { state, ordinal } => {
                    prop_assert_eq!(self.invoked.insert(*state, *ordinal), None);
                    prop_assert!(self.highest.insert(*state, *ordinal).is_none_or(|before| before < *ordinal));
                }
                ChartEffect::Uninvoke { state, ordinal } => {
                    prop_assert_eq!(self.invoked.remove(state), Some(*ordinal));
                }
                ChartEffect::StartTimer { state, ordinal, index, .. } => {
                    prop_assert!(self.timers.insert((*state, *ordinal, *index)));
                }
                ChartEffect::CancelTimers { state, ordinal } => {
                    self.timers.retain(|timer| (timer.0, timer.1) != (*state, *ordinal));
                }
            }
        }
        let now = &macrostep.configuration;
        if now.finished {
            prop_assert!(self.active.is_empty() && self.invoked.is_empty() && self.timers.is_empty());
            return Ok(());
        }
        prop_assert_eq!(&self.active, &now.active);
        let invoking = now.active.iter().filter(|&&ix| chart.state(ix).invoke.is_some());
        let expected: BTreeMap<StateIx, u64> = invoking.map(|&ix| (ix, now.ordinal(ix))).collect();
        prop_assert_eq!(&self.invoked, &expected);
        prop_assert!(self.timers.iter().all(|(state, ordinal, _)| now.ordinal(*state) == *ordinal));
        Ok(())
    }
}

fn restored(configuration: &Configuration) -> Configuration {
    serde_json::from_str(&serde_json::to_string(configuration).unwrap()).unwrap()
}

fn context() -> Map<String, Value> {
    json!({"n": 0, "m": 0, "text": "t"}).as_object().unwrap().clone()
}

/// The event a raw number stands for.
fn event(chart: &Chart, configuration: &Configuration, raw: u16) -> Event {
    let active: Vec<StateIx> = configuration.active.iter().copied().collect();
    let state = active[usize::from(raw) / 8 % active.len()];
    let name = EVENTS[usize::from(raw) % 4].to_owned();
    let timer = chart.state(state).transitions.iter().position(|t| matches!(t.trigger, Trigger::After { .. }));
    let scope = match (raw % 8, timer) {
        (0..4, _) => EventScope::Broadcast,
        (4, Some(index)) => EventScope::Timer { state, index },
        (n, _) => EventScope::Invocation { state, pick: n % 2 == 0 },
    };
    Event { name, payload: json!({}), scope }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn every_step_keeps_the_promises(raw in raw(), events in prop::collection::vec(any::<u16>(), 0..24)) {
        let chart = build(&raw);
        let started = start(&chart, context(), &env());
        prop_assert_eq!(&started, &start(&chart, context(), &env()));
        let Ok(started) = started else { return Ok(()) };
        let mut observed = Observed::default();
        observed.watch(&chart, &started)?;
        let mut now = started.configuration;
        for raw in events {
            prop_assert_eq!(now.is_legal(&chart), Ok(()));
            prop_assert_eq!(&restored(&now), &now);
            let event = event(&chart, &now, raw);
            let before = now.clone();
            let outcome = step(&chart, &now, &event, &env());
            prop_assert_eq!(&outcome, &step(&chart, &restored(&now), &event, &env()));
            prop_assert_eq!(&now, &before);
            let Ok(macrostep) = outcome else { continue };
            if let EventScope::Invocation { state, pick: true } = event.scope {
                prop_assert!(!macrostep.moved || may_fire(&chart, &now, &event.name, state, &env()), "a pick moved that was not allowed");
            }
            if macrostep.moved && !matches!(event.scope, EventScope::Timer { .. }) {
                prop_assert!(matches(&accepts(&chart, &now), &event.name));
            }
            if !macrostep.moved {
                prop_assert_eq!(&macrostep.configuration, &now);
                prop_assert!(macrostep.effects.is_empty() && macrostep.taken.is_empty());
            }
            observed.watch(&chart, &macrostep)?;
            now = macrostep.configuration;
        }
    }

    #[test]
    fn parts_are_disjoint_below_and_meet_their_state(raw in raw()) {
        let chart = build(&raw);
        let invoking = (0..chart.states.len() as StateIx).filter(|&ix| chart.state(ix).invoke.is_some());
        for ix in invoking {
            let part = chart.agent_part(ix);
            prop_assert!(part.contains(&ix));
            let others = part.iter().filter(|&&other| other != ix && chart.state(other).invoke.is_some());
            prop_assert_eq!(others.count(), 0);
            for &member in &part {
                prop_assert!(member == ix || chart.is_descendant(member, ix) || chart.is_descendant(ix, member));
            }
        }
    }
}

#[test]
fn generated_charts_move_end_and_fail() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let (mut moved, mut finished, mut failed, mut histories) = (0, 0, 0, 0);
    for _ in 0..300 {
        let chart = build(&raw().new_tree(&mut runner).unwrap().current());
        let Ok(started) = start(&chart, context(), &env()) else { continue };
        let mut now = started.configuration;
        for raw in (0..16).map(|n| n * 37) {
            match step(&chart, &now, &event(&chart, &now, raw), &env()) {
                Ok(macrostep) => {
                    moved += usize::from(macrostep.moved);
                    now = macrostep.configuration;
                }
                Err(_) => failed += 1,
            }
        }
        finished += usize::from(now.finished);
        histories += now.history.len();
    }
    assert!(moved > 500 && finished > 10 && failed > 10 && histories > 10, "{moved} {finished} {failed} {histories}");
}
