//! Picks: an Agent's events, validated against the derived set and the payload's schema, answered once per pick id.

use super::machine::Work;
use super::routes::Asked;
use super::{ActorRef, Reply};
use crate::chart::{Event, EventScope, StateIx};
use crate::run::{Actor, FeedKind, Invoked, InvokedKind, Route, Row};
use crate::turn::{Turn, TurnInput};
use jr2_shared::surface::PickAnswer;
use serde_json::{Value, json};

/// First semantics of the engine in which a pick is outstanding while what it asked runs.
const ASKS_SINCE: u32 = 2;

impl Work<'_> {
    /// An Agent picks (spec P-4 to P-7, decisions 34 and 38).
    pub fn pick(&mut self, iid: &str, pick: Option<&str>, event: &str, payload: &Value) {
        let Some((at, state, serial)) = find_turn(&self.row.root, 0, iid) else {
            return self.refuse(404, super::surface_refusal(iid), None);
        };
        let Some(Invoked { kind: InvokedKind::Agent(turn), .. }) = self.invoked(serial) else { return };
        if let Some(kept) = pick.and_then(|p| turn.kept_answer(p)) {
            self.reply = Reply::Pick(kept.clone());
            return;
        }
        if !turn.takes_picks() {
            // A Submission that was given up must not pick for the Turn that followed it.
            return self.refuse(404, super::surface_refusal(iid), None);
        }
        if turn.outstanding.is_some() {
            return self.refuse(400, "a pick is outstanding".to_owned(), None);
        }
        let Some(workflow) = self.workflow(at) else { return };
        let derived = workflow.derived.get(&state).cloned().unwrap_or_default();
        let allowed = self.allowed(serial);
        if !derived.iter().any(|e| e == event) {
            let error = format!("\"{iid}\" does not accept \"{event}\" (accepts: {})", derived.join(", "));
            return self.refuse(400, error, Some(allowed));
        }
        if let Err(error) = workflow.check_payload(event, payload) {
            return self.refuse(400, error, Some(allowed));
        }
        let scope = EventScope::Invocation { state, pick: true };
        let sent = Event { name: event.to_owned(), payload: payload.clone(), scope };
        match self.deliver(at, &sent) {
            Err(error) => self.refuse(400, error.to_string(), Some(allowed)),
            Ok(moved) => self.picked(serial, pick, event, moved),
        }
    }

    fn picked(&mut self, serial: u64, pick: Option<&str>, event: &str, moved: bool) {
        let live = matches!(self.invoked(serial), Some(Invoked { kind: InvokedKind::Agent(t), .. }) if !t.is_over());
        let delivery = format!("d-{}", self.row.rev + 1);
        let asked = std::mem::take(&mut self.asked);
        // A run goes on as the engine it started under stepped it (decision 40).
        let asks = live && moved && self.row.semantics >= ASKS_SINCE;
        let outstanding = asks && !asked.links.is_empty();
        let answer = PickAnswer {
            delivered: true,
            event: event.to_owned(),
            moved,
            turn_complete: !live,
            delivery_id: delivery.clone(),
            allowed: Some(if live { self.allowed(serial) } else { Vec::new() }),
            outstanding,
            reply: None,
            nothing_ran: asks && asked.nothing_ran,
            answered: false,
        };
        self.changed = true;
        let mut said = json!({ "event": event, "moved": moved, "delivery": delivery });
        if outstanding {
            said["outstanding"] = json!(true);
        }
        self.say(FeedKind::Pick, said);
        if live {
            let pick_id = pick.map_or_else(|| delivery.clone(), str::to_owned);
            self.turn_input(serial, TurnInput::Pick { pick_id: pick_id.clone(), answer: answer.clone() });
            if outstanding && let Some(invoked) = self.invoked_mut(serial) {
                let Asked { links, timers, .. } = asked;
                let event = event.to_owned();
                let route = Route { pick_id, delivery_id: delivery, event, last_reply: None, links, timers };
                invoked.route = Some(Box::new(route));
            }
        }
        self.reply = Reply::Pick(answer);
    }

    fn refuse(&mut self, status: u16, error: String, allowed: Option<Vec<String>>) {
        self.reply = Reply::Refused { status, error, allowed };
    }
}

/// The live Turn of a conversation: actor, state, serial.
pub(super) fn find_turn(actor: &Actor, at: ActorRef, iid: &str) -> Option<(ActorRef, StateIx, u64)> {
    for (state, invoked) in &actor.invoked {
        match &invoked.kind {
            InvokedKind::Agent(turn) if !turn.is_over() && turn.iid.as_str() == iid => {
                return Some((at, *state, invoked.serial));
            }
            InvokedKind::Run(child) => {
                if let Some(found) = find_turn(child, invoked.serial, iid) {
                    return Some(found);
                }
            }
            _ => {}
        }
    }
    None
}

/// The live Turn under an invocation serial.
pub fn turn_of(row: &Row, serial: u64) -> Option<&Turn> {
    fn below(actor: &Actor, serial: u64) -> Option<&Turn> {
        actor.invoked.values().find_map(|invoked| match &invoked.kind {
            InvokedKind::Agent(turn) if invoked.serial == serial => Some(&**turn),
            InvokedKind::Run(child) => below(child, serial),
            _ => None,
        })
    }
    below(&row.root, serial)
}

/// Every live Turn that has a route: invocation serial and actor.
pub(super) fn live_turns_with_route(root: &Actor) -> Vec<(u64, ActorRef)> {
    fn below(actor: &Actor, at: ActorRef, found: &mut Vec<(u64, ActorRef)>) {
        for invoked in actor.invoked.values() {
            match &invoked.kind {
                InvokedKind::Agent(_) if invoked.route.is_some() => found.push((invoked.serial, at)),
                InvokedKind::Run(child) => below(child, invoked.serial, found),
                _ => {}
            }
        }
    }
    let mut found = Vec::new();
    below(root, 0, &mut found);
    found
}

/// Where an earlier delivery stands (decision 13).
#[derive(Clone, Debug, PartialEq)]
pub enum Delivery {
    /// This is its answer.
    Answered(Box<PickAnswer>),
    /// What it asked still runs.
    Outstanding,
    /// The Turn knows no such delivery.
    Unknown,
    /// The Turn is over.
    Gone,
}

/// Where a delivery of a conversation's live Turn stands.
pub fn delivery(row: &Row, iid: &str, delivery: &str) -> Delivery {
    let live = find_turn(&row.root, 0, iid).filter(|_| !row.status.is_ended());
    let Some(turn) = live.and_then(|(_, _, serial)| turn_of(row, serial)) else { return Delivery::Gone };
    let mut kept = turn.picks.iter().map(|kept| &kept.answer);
    match kept.find(|answer| answer.delivery_id == delivery) {
        Some(answer) if answer.outstanding => Delivery::Outstanding,
        Some(answer) => Delivery::Answered(Box::new(answer.clone())),
        None => Delivery::Unknown,
    }
}
