//! Gates and outside events: accepted by name and schema, answered once per activation and key (decision 35).

use super::ActorRef;
use super::machine::Work;
use crate::chart::{self, Event, EventScope, StateIx};
use crate::run::{ANSWERS_KEPT, BUFFERED_MAX, Buffered, InvokedKind, StoredAnswer};
use crate::workflow::{Audience, InvocationKind};
use serde_json::{Value, json};

impl Work<'_> {
    /// A person or outside system answers a Gate.
    pub fn gate(&mut self, gate: &str, event: &str, payload: &Value, activation: Option<&str>, key: Option<&str>) {
        if self.replay_answer(key) {
            return;
        }
        let Some((at, state, ordinal)) = self.find_gate(gate) else {
            return self.answer(404, json!({ "error": format!("no open gate \"{gate}\""), "gates": self.gate_ids() }));
        };
        let present = format!("{gate}#{ordinal}");
        if let Some(stale) = activation.filter(|a| *a != present) {
            let error = format!("activation {stale} is over: the gate is open as {present}");
            return self.answer(409, json!({ "error": error, "activation": present }));
        }
        let Some(workflow) = self.workflow(at) else { return };
        let accepts = match workflow.invocations.get(&state).map(|i| &i.kind) {
            Some(InvocationKind::Gate { accepts, .. }) => accepts.clone(),
            _ => Vec::new(),
        };
        if !accepts.iter().any(|e| e == event) {
            let error = format!("gate \"{gate}\" does not accept \"{event}\" (accepts: {})", accepts.join(", "));
            return self.answer(400, json!({ "error": error, "accepts": accepts }));
        }
        if let Err(error) = workflow.check_payload(event, payload) {
            return self.answer(400, json!({ "error": error, "accepts": accepts }));
        }
        let scope = EventScope::Invocation { state, pick: false };
        let sent = Event { name: event.to_owned(), payload: payload.clone(), scope };
        match self.deliver(at, &sent) {
            Err(error) => self.answer(400, json!({ "error": error.to_string(), "accepts": accepts })),
            Ok(false) => {
                let error = format!("\"{event}\" enables no transition with these arguments now");
                self.answer(400, json!({ "error": error, "accepts": accepts }));
            }
            Ok(true) => self.taken(key, json!({ "ok": true, "activation": present })),
        }
    }

    /// An outside event without a Gate: the outermost machine that moves on it takes it (decision 37).
    pub fn external(&mut self, event: &str, payload: &Value, key: Option<&str>) {
        if self.replay_answer(key) {
            return;
        }
        let mut keeper = None;
        let mut accepted = Vec::new();
        for at in self.actors() {
            let Some(workflow) = self.workflow(at) else { continue };
            if let Some(c) = self.actor(at).and_then(|a| a.chart.as_ref()) {
                let names = chart::accepts(&workflow.chart, c);
                accepted.extend(names.into_iter().filter(|n| is_external(&workflow, n)));
            }
            if !is_external(&workflow, event) {
                continue;
            }
            if let Err(error) = workflow.check_payload(event, payload) {
                return self.answer(400, json!({ "error": error }));
            }
            let sent = Event { name: event.to_owned(), payload: payload.clone(), scope: EventScope::Broadcast };
            match self.deliver(at, &sent) {
                Err(error) => return self.answer(400, json!({ "error": error.to_string() })),
                Ok(true) => return self.taken(key, json!({ "ok": true })),
                Ok(false) => {}
            }
            if keeper.is_none() && workflow.events.get(event).is_some_and(|d| d.buffer) {
                keeper = Some(at);
            }
        }
        accepted.sort();
        accepted.dedup();
        match keeper {
            Some(at) => self.keep(at, event, payload, key),
            None => {
                let error = format!("nobody handles \"{event}\" now (accepted now: {})", accepted.join(", "));
                self.answer(400, json!({ "error": error, "accepts": accepted }));
            }
        }
    }

    fn keep(&mut self, at: ActorRef, event: &str, payload: &Value, key: Option<&str>) {
        let kept: usize = self.actors().iter().filter_map(|a| self.actor(*a)).map(|a| a.buffered.len()).sum();
        if kept >= BUFFERED_MAX {
            let error = format!("the run already keeps {BUFFERED_MAX} events");
            return self.answer(409, json!({ "error": error }));
        }
        if let Some(actor) = self.actor_mut(at) {
            actor.buffered.push(Buffered { event: event.to_owned(), payload: payload.clone() });
        }
        self.grew = true;
        self.taken(key, json!({ "ok": true, "buffered": true }));
    }

    /// The request was taken: answered, and remembered under its key.
    fn taken(&mut self, key: Option<&str>, body: Value) {
        self.changed = true;
        if let Some(key) = key {
            let stored = StoredAnswer { status: 200, body: body.clone() };
            self.row.answers.push_back((key.to_owned(), stored));
            while self.row.answers.len() > ANSWERS_KEPT {
                self.row.answers.pop_front();
            }
        }
        self.answer(200, body);
    }

    /// A known key gets the stored answer.
    pub fn replay_answer(&mut self, key: Option<&str>) -> bool {
        let Some(key) = key else { return false };
        let stored = self.row.answers.iter().find(|(k, _)| k == key).map(|(_, a)| a.clone());
        stored.is_some_and(|stored| {
            self.answer(stored.status, stored.body);
            true
        })
    }

    fn find_gate(&self, gate: &str) -> Option<(ActorRef, StateIx, u64)> {
        self.open_gates().into_iter().find(|(id, ..)| id == gate).map(|(_, at, state, ordinal)| (at, state, ordinal))
    }

    fn gate_ids(&self) -> Vec<String> {
        self.open_gates().into_iter().map(|(id, ..)| id).collect()
    }

    /// Every open Gate: id, actor, state, entry ordinal.
    pub fn open_gates(&self) -> Vec<(String, ActorRef, StateIx, u64)> {
        let mut found = Vec::new();
        for at in self.actors() {
            let (Some(actor), Some(workflow)) = (self.actor(at), self.workflow(at)) else { continue };
            for (state, invoked) in &actor.invoked {
                if matches!(invoked.kind, InvokedKind::Gate { .. }) {
                    found.push((self.gate_id(at, &workflow, *state), at, *state, invoked.ordinal));
                }
            }
        }
        found
    }
}

fn is_external(workflow: &crate::workflow::Workflow, event: &str) -> bool {
    workflow.events.get(event).is_some_and(|d| matches!(d.from, Audience::External | Audience::Any))
}
