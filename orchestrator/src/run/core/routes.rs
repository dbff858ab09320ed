//! Picks that ask: what follows from a pick inside its state, until it comes back or the state is left (spec 7.6, format
//! "Menu, Allowed picks, and picks that ask"). What belongs to a route is said in `docs/decisions/routes.md`.

use super::ActorRef;
use super::machine::Work;
use super::picks::live_turns_with_route;
use crate::chart::{
    Chart, Configuration, Event, EventScope, InvokeKind, Macrostep, StateIx, StateKind, Trigger, matches,
};
use crate::run::{FeedKind, Invoked, InvokedKind, Route, StateEntry};
use crate::turn::{CUT_LEFT, Source, To, Turn, TurnInput};
use crate::workflow::{InvocationKind, Workflow};
use jr2_shared::notice::Notice;
use jr2_shared::surface::{PickAnswer, PickReply};
use serde_json::{Value, json};

/// `cut` of a pick's answer whose state something else left (decision 7).
pub const CUT_STOPPED: &str = "stopped";
/// Largest payload or output kept with a reply, in bytes of JSON: what the Harness says of it at most.
const REPLY_MAX_BYTES: usize = 64 << 10;
/// Answers of one Turn that keep their reply; only the last can still be asked for by its call.
const REPLIES_KEPT: usize = 16;
/// Ends of a party that are replies whether or not the machine moves on them.
const ENDS: [&str; 2] = ["done.run", "agent.done"];

/// What one pick set going inside its state.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Asked {
    /// Invocations that were started and stay.
    pub links: Vec<StateEntry>,
    /// States with delays that were entered and stay.
    pub timers: Vec<StateEntry>,
    /// It moved, came straight back, and nothing ran (spec P-37).
    pub nothing_ran: bool,
}

/// One macrostep as routes see it.
struct Passage<'a> {
    workflow: &'a Workflow,
    before: &'a Configuration,
    macrostep: &'a Macrostep,
    event: &'a Event,
}

impl Route {
    /// Is this state's invocation a link now?
    fn has_link(&self, state: StateIx) -> bool {
        self.links.iter().any(|link| link.state == state)
    }

    /// Is the state a link, or below one? What runs there runs for the route.
    fn covers(&self, chart: &Chart, state: StateIx) -> bool {
        self.has_link(state) || self.links.iter().any(|link| chart.is_descendant(state, link.state))
    }

    /// Names the states of another text (decision 40).
    pub(super) fn move_states(&mut self, moved: impl Fn(StateIx) -> Option<StateIx>) {
        for list in [&mut self.links, &mut self.timers] {
            list.retain_mut(|entry| {
                let target = moved(entry.state);
                entry.state = target.unwrap_or(entry.state);
                target.is_some()
            });
        }
    }
}

/// May a pick of `invoking`'s Agent ask what `state` invokes? Below a nested Agent's state, that Agent asks.
fn is_asked_by(chart: &Chart, invoking: StateIx, state: StateIx) -> bool {
    let between = |on_way: &StateIx| *on_way > invoking;
    chart.is_descendant(state, invoking)
        && !chart
            .ancestors(state)
            .take_while(between)
            .any(|on_way| matches!(chart.state(on_way).invoke, Some(InvokeKind::Agent(_))))
}

/// Can the two never be active together? Then the one that was entered took the place of the one that was left.
fn takes_place(chart: &Chart, entered: StateIx, left: StateIx) -> bool {
    let common = std::iter::once(entered)
        .chain(chart.ancestors(entered))
        .find(|&common| common == left || chart.is_descendant(left, common));
    common.is_some_and(|common| {
        common == entered || common == left || !matches!(chart.state(common).kind, StateKind::Parallel)
    })
}

impl Passage<'_> {
    fn chart(&self) -> &Chart {
        &self.workflow.chart
    }

    fn after(&self) -> &Configuration {
        &self.macrostep.configuration
    }

    /// Entries of invoking or delaying states that were made in this macrostep and stand.
    fn entered(&self) -> impl Iterator<Item = StateEntry> {
        let ordinals = self.after().ordinals.iter();
        ordinals
            .filter(|(state, ordinal)| {
                self.after().active.contains(state) && self.before.ordinals.get(state) != Some(ordinal)
            })
            .map(|(&state, &ordinal)| StateEntry { state, ordinal })
    }

    fn invokes(&self, entry: &StateEntry) -> bool {
        self.chart().state(entry.state).invoke.is_some()
    }

    fn delays(&self, entry: &StateEntry) -> bool {
        self.chart().state(entry.state).has_timers()
    }

    /// What the pick set going inside its state.
    fn asked(&self, invoking: StateIx) -> Asked {
        let inside = || self.entered().filter(|e| is_asked_by(self.chart(), invoking, e.state));
        Asked {
            links: inside().filter(|e| self.invokes(e)).collect(),
            timers: inside().filter(|e| self.delays(e)).collect(),
            nothing_ran: self.came_straight_back(),
        }
    }

    /// The pick's transition went somewhere, others followed, and the machine stands where it stood with nothing begun.
    fn came_straight_back(&self) -> bool {
        let taken = &self.macrostep.taken;
        let has_target =
            |(state, index): &(StateIx, usize)| !self.chart().state(*state).transitions[*index].targets.is_empty();
        taken.len() > 1
            && taken.iter().any(has_target)
            && self.before.active == self.after().active
            && !self.entered().any(|e| self.invokes(&e))
    }

    /// Did something of the route itself enable this macrostep?
    fn is_own(&self, route: &Route) -> bool {
        match self.event.scope {
            EventScope::Invocation { state, .. } => route.covers(self.chart(), state),
            EventScope::Timer { state, .. } => {
                route.timers.iter().any(|t| t.state == state) || route.covers(self.chart(), state)
            }
            EventScope::Broadcast => self.gate_meant(route).is_some(),
        }
    }

    /// The route's Gate whose own transition took an outside event that names no Gate: it was answered.
    fn gate_meant(&self, route: &Route) -> Option<StateIx> {
        let name = &self.event.name;
        let takes = |(state, index): &&(StateIx, usize)| {
            let trigger = &self.chart().state(*state).transitions[*index].trigger;
            matches!(trigger, Trigger::Events(descriptors) if matches(descriptors, name))
        };
        let is_gate = |state: StateIx| {
            let kind = self.workflow.invocations.get(&state).map(|i| &i.kind);
            matches!(kind, Some(InvocationKind::Gate { accepts, .. }) if accepts.contains(name))
        };
        let mut taken = self.macrostep.taken.iter().filter(takes).map(|(state, _)| *state);
        taken.find(|state| route.has_link(*state) && is_gate(*state))
    }

    /// The route after this macrostep, and whether the macrostep was its own.
    fn follow(&self, invoking: StateIx, route: &Route) -> (Route, bool) {
        let own = self.is_own(route);
        let speaker = match self.event.scope {
            EventScope::Invocation { state, .. } => Some(state),
            EventScope::Timer { .. } => None,
            EventScope::Broadcast => self.gate_meant(route),
        };
        let mut next = route.clone();
        if let Some(reply) = speaker.filter(|s| route.has_link(*s)).and_then(|s| reply(self.workflow, s, self.event)) {
            next.last_reply = Some(reply);
        }
        let stands =
            |e: &StateEntry| self.after().active.contains(&e.state) && self.after().ordinal(e.state) == e.ordinal;
        next.links.retain(stands);
        next.timers.retain(stands);
        let left: Vec<StateIx> = route.links.iter().filter(|e| !stands(e)).map(|e| e.state).collect();
        for entry in self.entered().filter(|e| is_asked_by(self.chart(), invoking, e.state)) {
            if !own && !left.iter().any(|&l| takes_place(self.chart(), entry.state, l)) {
                continue;
            }
            if self.invokes(&entry) {
                next.links.push(entry);
            }
            if self.delays(&entry) {
                next.timers.push(entry);
            }
        }
        (next, own)
    }
}

/// What an event of a state's invocation says to whoever asked it (spec P-32). A step is no party: it says nothing.
fn reply(workflow: &Workflow, state: StateIx, event: &Event) -> Option<PickReply> {
    let party =
        |party: String| PickReply::Party { party, event: event.name.clone(), payload: bounded(event.payload.clone()) };
    match &workflow.invocations.get(&state)?.kind {
        InvocationKind::Gate { accepts, .. } if accepts.contains(&event.name) => {
            Some(party(format!("Gate {}", workflow.chart.state(state).key)))
        }
        InvocationKind::Agent { agent, .. }
            if event.name == "agent.done" || matches!(event.scope, EventScope::Invocation { pick: true, .. }) =>
        {
            Some(party(agent.clone()))
        }
        InvocationKind::Run { workflow: child, .. } if event.name == "done.run" => Some(PickReply::Child {
            child: child.clone(),
            output: bounded(event.payload.get("output").cloned().unwrap_or_default()),
        }),
        _ => None,
    }
}

/// A value as it is, or the beginning of its JSON.
fn bounded(value: Value) -> Value {
    let mut text = value.to_string();
    if text.len() <= REPLY_MAX_BYTES {
        return value;
    }
    text.truncate(text.floor_char_boundary(REPLY_MAX_BYTES));
    Value::String(text)
}

impl Work<'_> {
    /// A party's end that is a reply is heard whatever the machine does with it.
    pub fn hear_end(&mut self, at: ActorRef, workflow: &Workflow, event: &Event) {
        let EventScope::Invocation { state, .. } = event.scope else { return };
        if !ENDS.contains(&event.name.as_str()) {
            return;
        }
        let Some(reply) = reply(workflow, state, event) else { return };
        let Some(actor) = self.actor_mut(at) else { return };
        let routes = actor.invoked.values_mut().filter_map(|i| i.route.as_mut());
        for route in routes.filter(|route| route.has_link(state)) {
            route.last_reply = Some(reply.clone());
        }
    }

    /// Before a macrostep is taken over: what a pick asked is noted, and every route of this machine goes on. Answers the
    /// Turns whose own route takes this macrostep.
    pub fn follow_routes(
        &mut self,
        at: ActorRef,
        workflow: &Workflow,
        event: &Event,
        macrostep: &Macrostep,
    ) -> Vec<u64> {
        let Some(actor) = self.actor(at) else { return Vec::new() };
        let Some(before) = &actor.chart else { return Vec::new() };
        let passage = Passage { workflow, before, macrostep, event };
        let asked = match event.scope {
            EventScope::Invocation { state, pick: true } => Some(passage.asked(state)),
            _ => None,
        };
        let routes = actor.invoked.iter().filter_map(|(state, invoked)| Some((*state, invoked.route.as_ref()?)));
        let followed: Vec<_> = routes.map(|(state, route)| (state, passage.follow(state, route))).collect();
        if let Some(asked) = asked {
            self.asked = asked;
        }
        let Some(actor) = self.actor_mut(at) else { return Vec::new() };
        let mut own = Vec::new();
        for (state, (route, is_own)) in followed {
            let Some(invoked) = actor.invoked.get_mut(&state) else { continue };
            invoked.route = Some(Box::new(route));
            if is_own {
                own.push(invoked.serial);
            }
        }
        own
    }

    /// At the end of an application: a route of which nothing runs any more has come back (spec P-33).
    pub fn settle_routes(&mut self) {
        for (serial, at) in live_turns_with_route(&self.row.root) {
            let Some(Invoked { route: Some(route), .. }) = self.invoked(serial) else { continue };
            if !route.links.iter().any(|link| self.runs(at, link)) {
                self.route_returned(serial);
            }
        }
    }

    /// Does a link still run, or is its failure still to be heard?
    fn runs(&self, at: ActorRef, link: &StateEntry) -> bool {
        let Some(invoked) = self.actor(at).and_then(|a| a.invoked.get(&link.state)) else { return false };
        let failed = |input: &super::Input| match input {
            super::Input::ChildEnded { serial, .. } => *serial == invoked.serial,
            super::Input::Raise { actor, event } => *actor == at && event.name == "error.expression",
            _ => false,
        };
        invoked.ordinal == link.ordinal
            && (invoked.kind != InvokedKind::Ended || invoked.retry_at.is_some() || self.row.queue.iter().any(failed))
    }

    fn route_returned(&mut self, serial: u64) {
        let allowed = self.allowed(serial);
        let Some(invoked) = self.invoked_mut(serial) else { return };
        let (Some(route), InvokedKind::Agent(turn)) = (invoked.route.take(), &mut invoked.kind) else { return };
        let replies = turn.picks.iter_mut().rev().filter(|kept| kept.answer.reply.is_some());
        replies.skip(REPLIES_KEPT - 1).for_each(|kept| kept.answer.reply = None); // the row has a bound
        let Route { pick_id, delivery_id, event, last_reply, .. } = *route;
        let answer = PickAnswer {
            delivered: true,
            event: event.clone(),
            moved: true,
            turn_complete: false,
            delivery_id: delivery_id.clone(),
            allowed: Some(allowed.clone()),
            outstanding: false,
            reply: last_reply,
            nothing_ran: false,
            answered: true,
        };
        self.changed = true;
        self.grew = true;
        let child = self.child_path(serial);
        let said = json!({ "child": child, "event": event, "moved": true, "delivery": delivery_id, "answered": true });
        self.say(FeedKind::Pick, said);
        self.turn_input(serial, TurnInput::RouteReturned { pick_id, answer, allowed });
    }

    /// The invoking state was left while its pick was outstanding (spec P-34 to P-36).
    pub fn route_cut(&mut self, serial: u64, turn: &Turn, route: Route) {
        if !turn.frame.continued || turn.is_over() {
            return; // no later Turn of that conversation will listen
        }
        let own = self.route_moves.contains(&serial);
        let notice = Notice::PickAnswer {
            pick: route.event,
            cut: if own { CUT_LEFT } else { CUT_STOPPED }.to_owned(),
            answer: route.last_reply,
            stopped: (!own).then_some(true),
        };
        let source = Source::Pick(turn.iid.as_str().to_owned(), route.delivery_id);
        self.row.ledger.raise(notice, To::Conversation(turn.frame.base.as_str().to_owned()), Some(source));
        self.changed = true;
        self.grew = true;
    }
}

#[cfg(test)]
mod tests;
