//! One application at work: actors, their charts, and the delivery of events to them.

use super::routes::Asked;
use super::{ActorRef, Effect, Facts, Input, Reply};
use crate::chart::{self, ChartEffect, Environment, Event, EventScope, Macrostep, StateIx, StepError};
use crate::run::{Actor, Buffered, FeedEntry, FeedKind, Invoked, InvokedKind, Row, StoredAnswer, Timer};
use crate::workflow::{Program, Workflow};
use serde_json::{Value, json};
use std::sync::Arc;

/// Mechanism events that end the machine in fault when they enable nothing (decision 36; `error.do` likewise).
const MUST_BE_HANDLED: [&str; 5] = ["agent.fault", "error.run", "error.do", "error.expression", "workspace.lost"];

/// One application at work.
pub(super) struct Work<'p> {
    pub program: &'p Program,
    pub row: Row,
    pub facts: Facts,
    pub changed: bool,
    /// Something of unknown size joined the row: it is weighed before the save.
    pub grew: bool,
    pub effects: Vec<Effect>,
    pub feed: Vec<FeedEntry>,
    pub taken: Vec<String>,
    pub reply: Reply,
    /// Sandboxes are kept, not removed (`jr2 cancel --keep`).
    pub keep: bool,
    /// What the pick that was delivered last set going.
    pub asked: Asked,
    /// Turns whose own route takes the present macrostep.
    pub route_moves: Vec<u64>,
    drawn: u64,
}

/// What every expression of one actor sees, owned.
pub(super) struct Sight {
    input: Value,
    run: Value,
    workspace: Option<Value>,
    actor: Option<Value>,
}

impl Sight {
    /// As the chart takes it.
    pub fn environment(&self) -> Environment<'_> {
        Environment {
            input: &self.input,
            run: &self.run,
            workspace: self.workspace.as_ref(),
            actor: self.actor.as_ref(),
        }
    }
}

impl<'p> Work<'p> {
    pub fn new(program: &'p Program, row: Row, facts: Facts) -> Self {
        Self {
            program,
            row,
            facts,
            changed: false,
            grew: false,
            effects: Vec::new(),
            feed: Vec::new(),
            taken: Vec::new(),
            reply: Reply::None,
            keep: false,
            asked: Asked::default(),
            route_moves: Vec::new(),
            drawn: 0,
        }
    }

    /// The run's clock: never goes back (decision 41).
    pub fn now(&self) -> u64 {
        self.row.clock.max(self.facts.now)
    }

    /// The next random bits of this application, from its recorded seed (splitmix64).
    pub fn draw(&mut self) -> u64 {
        self.drawn += 1;
        let mut z = self.facts.seed.wrapping_add(self.drawn.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A fresh invocation serial.
    pub fn serial(&mut self) -> u64 {
        let serial = self.row.next_serial;
        self.row.next_serial += 1;
        serial
    }

    pub fn say(&mut self, kind: FeedKind, data: Value) {
        self.feed.push(FeedEntry { kind, data });
    }

    pub fn answer(&mut self, status: u16, body: Value) {
        self.reply = Reply::Http(StoredAnswer { status, body });
    }

    pub fn workflow_of(&self, actor: &Actor) -> Option<Arc<Workflow>> {
        self.program.workflows.get(&actor.workflow).cloned()
    }

    pub fn workflow(&self, at: ActorRef) -> Option<Arc<Workflow>> {
        self.actor(at).and_then(|a| self.workflow_of(a))
    }

    pub fn actor(&self, at: ActorRef) -> Option<&Actor> {
        chain(&self.row.root, at).and_then(|c| c.last().copied())
    }

    pub fn actor_mut(&mut self, at: ActorRef) -> Option<&mut Actor> {
        if at == 0 { Some(&mut self.row.root) } else { find_child_mut(&mut self.row.root, at) }
    }

    /// The actor and state of an invocation.
    pub fn locate(&self, serial: u64) -> Option<(ActorRef, StateIx)> {
        locate(&self.row.root, 0, serial)
    }

    pub fn invoked(&self, serial: u64) -> Option<&Invoked> {
        let (at, state) = self.locate(serial)?;
        self.actor(at)?.invoked.get(&state)
    }

    pub fn invoked_mut(&mut self, serial: u64) -> Option<&mut Invoked> {
        let (at, state) = self.locate(serial)?;
        self.actor_mut(at)?.invoked.get_mut(&state)
    }

    /// What the expressions of an actor see.
    pub fn sight(&self, at: ActorRef) -> Sight {
        let chain = chain(&self.row.root, at).unwrap_or_default();
        let actor = chain.last().copied().unwrap_or(&self.row.root);
        let workspace = chain.iter().rev().find_map(|a| a.workspace.as_ref()).and_then(|w| w.provisioned.as_ref());
        Sight {
            input: actor.input.clone(),
            run: json!({
                "id": self.row.id.as_str(),
                "workflow": self.row.workflow,
                "started": self.row.started,
            }),
            workspace: workspace.map(|p| {
                let repos: serde_json::Map<String, Value> =
                    p.repos.iter().map(|(slot, path)| (slot.clone(), Value::String(path.clone()))).collect();
                json!({ "repos": repos, "branch": p.branch })
            }),
            actor: Some(json!({ "path": actor.path, "id": at })),
        }
    }

    /// The nearest enclosing Workspace of an actor.
    pub fn workspace_of(&self, at: ActorRef) -> Option<&crate::run::WorkspaceRecord> {
        chain(&self.row.root, at)?.into_iter().rev().find_map(|a| a.workspace.as_ref())
    }

    /// Enters an actor's initial configuration.
    pub fn start_chart(&mut self, at: ActorRef) {
        let Some(workflow) = self.workflow(at) else { return };
        let sight = self.sight(at);
        match chart::start(&workflow.chart, workflow.context.clone(), &sight.environment()) {
            Ok(macrostep) => self.commit(at, &workflow, macrostep),
            Err(error) => self.fault_actor(at, &format!("error.expression: {error}")),
        }
    }

    /// Takes one event through a macrostep of an actor's chart. `Ok(true)`: it enabled a transition.
    pub fn deliver(&mut self, at: ActorRef, event: &Event) -> Result<bool, StepError> {
        let Some(workflow) = self.workflow(at) else { return Ok(false) };
        let sight = self.sight(at);
        let Some(configuration) = self.actor(at).and_then(|a| a.chart.as_ref()) else { return Ok(false) };
        if configuration.finished {
            return Ok(false);
        }
        self.hear_end(at, &workflow, event);
        let Some(configuration) = self.actor(at).and_then(|a| a.chart.as_ref()) else { return Ok(false) };
        let macrostep = chart::step(&workflow.chart, configuration, event, &sight.environment())?;
        let moved = macrostep.moved;
        if moved || !macrostep.taken.is_empty() {
            let own = self.follow_routes(at, &workflow, event, &macrostep);
            let outer = std::mem::replace(&mut self.route_moves, own);
            self.commit(at, &workflow, macrostep);
            self.route_moves = outer;
        }
        Ok(moved)
    }

    /// Delivers a mechanism event: one that must be handled and is not ends the machine in fault (decision 36).
    pub fn deliver_mechanism(&mut self, at: ActorRef, event: &Event) {
        let reason = || event.payload.get("reason").or(event.payload.get("message")).and_then(Value::as_str);
        match self.deliver(at, event) {
            Ok(true) => {}
            Ok(false) => {
                if MUST_BE_HANDLED.contains(&event.name.as_str()) {
                    let text = reason().map_or_else(|| event.name.clone(), |r| format!("{}: {r}", event.name));
                    self.fault_actor(at, &text);
                }
            }
            Err(error) if event.name == "error.expression" => {
                self.fault_actor(at, &format!("error.expression: {error}"));
            }
            Err(error) => {
                let place = match &error {
                    StepError::Expression { place, .. } => place.clone(),
                    _ => event.name.clone(),
                };
                self.deliver_mechanism(at, &expression_error(&place, &error.to_string()));
            }
        }
    }

    /// A queued event for one machine.
    pub fn raise(&mut self, at: ActorRef, event: &Event) {
        let buffers = matches!(event.scope, EventScope::Broadcast)
            && self.workflow(at).is_some_and(|w| w.events.get(&event.name).is_some_and(|d| d.buffer));
        if !buffers {
            return self.deliver_mechanism(at, event);
        }
        if !matches!(self.deliver(at, event), Ok(true))
            && let Some(actor) = self.actor_mut(at)
        {
            actor.buffered.push(Buffered { event: event.name.clone(), payload: event.payload.clone() });
        }
    }

    /// Takes a macrostep over into the row and turns its effects into the run's.
    fn commit(&mut self, at: ActorRef, workflow: &Arc<Workflow>, macrostep: Macrostep) {
        self.changed = true;
        self.grew = true;
        let Some(actor) = self.actor_mut(at) else { return };
        let finished = macrostep.configuration.finished;
        actor.chart = Some(macrostep.configuration);
        let path = actor.path.clone();
        for (state, index) in &macrostep.taken {
            let state = workflow.chart.states.get(*state as usize).map_or("", |s| s.path.as_str());
            self.taken.push(format!("{path}:{state}[{index}]"));
        }
        for effect in macrostep.effects {
            self.chart_effect(at, workflow, effect);
        }
        self.say_status();
        if finished {
            return self.actor_finished(at);
        }
        self.wake_idle_turns(at);
        self.offer_buffered(at, workflow);
    }

    fn chart_effect(&mut self, at: ActorRef, workflow: &Arc<Workflow>, effect: ChartEffect) {
        match effect {
            ChartEffect::Emit(value) => {
                let child = self.actor(at).map(|a| a.path.clone()).unwrap_or_default();
                self.say(FeedKind::Emit, json!({ "child": child, "event": value }));
            }
            ChartEffect::StartTimer { state, ordinal, index, delay_ms } => {
                let due = self.now().saturating_add(delay_ms);
                if let Some(actor) = self.actor_mut(at) {
                    actor.timers.push(Timer { state, ordinal, index, due });
                }
            }
            ChartEffect::CancelTimers { state, ordinal } => {
                if let Some(actor) = self.actor_mut(at) {
                    actor.timers.retain(|t| t.state != state || t.ordinal != ordinal);
                }
            }
            ChartEffect::Uninvoke { state, .. } => {
                if let Some(invoked) = self.actor_mut(at).and_then(|a| a.invoked.remove(&state)) {
                    self.stop_invoked(at, invoked);
                }
            }
            ChartEffect::Invoke { state, ordinal } => self.start_invocation(at, workflow, state, ordinal),
        }
    }

    /// Says where the run stands: level-triggered, so a reader that joins late misses nothing.
    pub fn say_status(&mut self) {
        let data = super::super::view::status_line(self.program, &self.row);
        match self.feed.last_mut() {
            Some(last) if last.kind == FeedKind::Status => last.data = data,
            _ => self.say(FeedKind::Status, data),
        }
    }

    /// Buffered events that a present state handles are queued, oldest first.
    fn offer_buffered(&mut self, at: ActorRef, workflow: &Workflow) {
        let Some(actor) = self.actor_mut(at) else { return };
        if actor.buffered.is_empty() {
            return;
        }
        let Some(configuration) = &actor.chart else { return };
        let accepted = chart::accepts(&workflow.chart, configuration);
        let Some(place) = actor.buffered.iter().position(|b| accepted.contains(&b.event)) else { return };
        let Buffered { event, payload } = actor.buffered.remove(place);
        let event = Event { name: event, payload, scope: EventScope::Broadcast };
        self.row.queue.push_back(Input::Raise { actor: at, event });
    }

    /// Every live actor, outermost first.
    pub fn actors(&self) -> Vec<ActorRef> {
        let mut found = vec![0];
        collect_children(&self.row.root, &mut found);
        found
    }
}

/// The event a failed expression raises (decision 36).
pub(super) fn expression_error(place: &str, message: &str) -> Event {
    Event {
        name: "error.expression".to_owned(),
        payload: json!({ "where": place, "message": message }),
        scope: EventScope::Broadcast,
    }
}

fn collect_children(actor: &Actor, found: &mut Vec<ActorRef>) {
    for invoked in actor.invoked.values() {
        if let InvokedKind::Run(child) = &invoked.kind {
            found.push(invoked.serial);
            collect_children(child, found);
        }
    }
}

/// Actors from the root to `at`.
pub(super) fn chain(root: &Actor, at: ActorRef) -> Option<Vec<&Actor>> {
    if at == 0 {
        return Some(vec![root]);
    }
    for invoked in root.invoked.values() {
        let InvokedKind::Run(child) = &invoked.kind else { continue };
        let below = if invoked.serial == at { Some(vec![&**child]) } else { chain(child, at) };
        if let Some(mut rest) = below {
            rest.insert(0, root);
            return Some(rest);
        }
    }
    None
}

fn find_child_mut(actor: &mut Actor, at: ActorRef) -> Option<&mut Actor> {
    for invoked in actor.invoked.values_mut() {
        let serial = invoked.serial;
        let InvokedKind::Run(child) = &mut invoked.kind else { continue };
        if serial == at {
            return Some(child);
        }
        if let Some(found) = find_child_mut(child, at) {
            return Some(found);
        }
    }
    None
}

fn locate(actor: &Actor, at: ActorRef, serial: u64) -> Option<(ActorRef, StateIx)> {
    for (state, invoked) in &actor.invoked {
        if invoked.serial == serial {
            return Some((at, *state));
        }
        if let InvokedKind::Run(child) = &invoked.kind
            && let Some(found) = locate(child, invoked.serial, serial)
        {
            return Some(found);
        }
    }
    None
}
