//! Timers: delays and retry pauses. One thing fires a save (decision 41).

use super::ActorRef;
use super::machine::Work;
use crate::chart::{Event, EventScope, StateIx};
use crate::run::{Actor, InvokedKind, Row};
use serde_json::Value;

/// The run clock's instant at which something is due, or `None`. With `hold`, delays of states that have a live Turn are
/// left out: after a restart they wait until the Turn has re-attached (decision 41).
pub fn next_due(row: &Row, hold: bool) -> Option<u64> {
    if row.status.is_ended() {
        return None;
    }
    earliest(&row.root, 0, hold).map(|due| due.at)
}

struct Due {
    at: u64,
    actor: ActorRef,
    what: What,
}

enum What {
    Timer(usize),
    Retry(u64),
}

fn earliest(actor: &Actor, at: ActorRef, hold: bool) -> Option<Due> {
    let mut best: Option<Due> = None;
    let mut offer = |due: Due| {
        if best.as_ref().is_none_or(|b| due.at < b.at) {
            best = Some(due);
        }
    };
    for (place, timer) in actor.timers.iter().enumerate() {
        if !(hold && has_live_turn(actor, timer.state)) {
            offer(Due { at: timer.due, actor: at, what: What::Timer(place) });
        }
    }
    for invoked in actor.invoked.values() {
        if let Some(due) = invoked.retry_at {
            offer(Due { at: due, actor: at, what: What::Retry(invoked.serial) });
        }
        if let InvokedKind::Run(child) = &invoked.kind
            && let Some(due) = earliest(child, invoked.serial, hold)
        {
            offer(due);
        }
    }
    best
}

fn has_live_turn(actor: &Actor, state: StateIx) -> bool {
    actor.invoked.get(&state).is_some_and(|i| matches!(i.kind, InvokedKind::Agent(_)))
}

impl Work<'_> {
    /// Fires the earliest thing that is due.
    pub fn tick(&mut self, hold: bool) {
        let now = self.now();
        let Some(due) = earliest(&self.row.root, 0, hold).filter(|d| d.at <= now) else { return };
        self.changed = true;
        match due.what {
            What::Retry(serial) => self.again(serial),
            What::Timer(place) => {
                let Some(actor) = self.actor_mut(due.actor) else { return };
                let timer = actor.timers.remove(place);
                let scope = EventScope::Timer { state: timer.state, index: timer.index };
                let event = Event { name: "after".to_owned(), payload: Value::Null, scope };
                self.deliver_mechanism(due.actor, &event);
            }
        }
    }
}
