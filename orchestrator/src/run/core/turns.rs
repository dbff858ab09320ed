//! The bridge to the Turn protocol: a Turn's effects become the run's.

use super::invoke::{BeginError, bounded};
use super::machine::Work;
use super::{ActorRef, AdmitEffect, Effect, Place};
use crate::chart::{self, Event, EventScope, StateIx};
use crate::run::{FeedKind, Invoked, InvokedKind, RowAbort, WorkspacePhase};
use crate::turn::{self, Frame, Turn, TurnEffect, TurnInput};
use crate::workflow::{InvocationKind, OPEN, Workflow};
use jr2_shared::harness::{Access, AgentDefinition, PROMPT_MAX_BYTES};
use jr2_shared::ids::Iid;
use serde_json::json;
use std::sync::Arc;

impl Work<'_> {
    /// Frames one Turn and begins it.
    pub fn begin_turn(
        &mut self,
        at: ActorRef,
        workflow: &Arc<Workflow>,
        state: StateIx,
        serial: u64,
    ) -> Result<(), BeginError> {
        let frame = self.frame(at, workflow, state, serial)?;
        let held_before = frame.continued && self.row.conversations.contains_key(frame.iid.as_str());
        self.set_invoked(serial, InvokedKind::Agent(Box::new(Turn::new(frame))));
        self.turn_input(serial, TurnInput::Begin { held_before });
        Ok(())
    }

    fn frame(&mut self, at: ActorRef, workflow: &Workflow, state: StateIx, serial: u64) -> Result<Frame, BeginError> {
        let Some(InvocationKind::Agent { agent, prompt, cwd, continued, model, thinking }) =
            workflow.invocations.get(&state).map(|i| &i.kind)
        else {
            return Err(BeginError::Refused("the state invokes no Agent".to_owned()));
        };
        let definition = workflow.agents.get(agent);
        let definition = definition.ok_or_else(|| BeginError::Refused(format!("Agent `{agent}` is not declared")))?;
        if definition.model == OPEN && model.is_none() {
            return Err(BeginError::Refused(format!("agents.{agent}.model is open")));
        }
        let task = self.with_scope(at, |scope| prompt.render_text(scope))?;
        if task.len() > PROMPT_MAX_BYTES {
            let text = format!("the prompt of `{agent}` is larger than {PROMPT_MAX_BYTES} bytes");
            return Err(BeginError::Refused(text));
        }
        let cwd = cwd.as_ref().map(|c| self.with_scope(at, |scope| c.render_text(scope))).transpose()?;
        let cwd = self.working_directory(at, definition.workspace, agent, cwd)?;
        let model = model.as_ref().map(|m| self.with_scope(at, |scope| m.render_text(scope))).transpose()?;
        let path = self.actor(at).map(|a| a.path.clone()).unwrap_or_default();
        let base = Iid::base(&self.row.id, &path, agent);
        let (iid, first_admission) = self.conversation(&base, *continued);
        Ok(Frame {
            agent: agent.clone(),
            base,
            iid,
            continued: *continued,
            state,
            ordinal: self.invoked(serial).map_or(0, |i| i.ordinal),
            task: Some(task),
            cwd,
            workspace: self.seat(at, definition.workspace),
            model,
            thinking_level: *thinking,
            menu_empty: workflow.menus.get(agent).is_none_or(Vec::is_empty),
            first_admission,
        })
    }

    /// Spec A-3: a fresh conversation, or the standing one of the present epoch.
    fn conversation(&mut self, base: &Iid, continued: bool) -> (Iid, u64) {
        if continued {
            let epoch = self.row.epochs.get(base.as_str()).copied().unwrap_or(0);
            let iid = Iid::continued(base, epoch);
            let first = self.row.conversations.get(iid.as_str()).copied().unwrap_or(1);
            return (iid, first);
        }
        let random = self.draw() as u32;
        (Iid::fresh(base, random.to_be_bytes()), 1)
    }

    /// Spec.
    fn working_directory(
        &self,
        at: ActorRef,
        access: Access,
        agent: &str,
        explicit: Option<String>,
    ) -> Result<Option<String>, BeginError> {
        if access == Access::None {
            return Ok(None);
        }
        let running = self.workspace_of(at).filter(|w| w.phase == WorkspacePhase::Running);
        let Some(provisioned) = running.and_then(|w| w.provisioned.as_ref()) else {
            let text = format!("Agent `{agent}` works on files and no Workspace encloses it");
            return Err(BeginError::Refused(text));
        };
        if let Some(cwd) = explicit {
            return Ok(Some(cwd));
        }
        match provisioned.repos.as_slice() {
            [(_, path)] => Ok(Some(path.clone())),
            slots => {
                let names: Vec<&str> = slots.iter().map(|(slot, _)| slot.as_str()).collect();
                let names = names.join(", ");
                let text = format!("the Turn of `{agent}` needs a `cwd`: the Workspace has the slots {names}");
                Err(BeginError::Refused(text))
            }
        }
    }

    /// Something happened to a Turn.
    pub fn turn_input(&mut self, serial: u64, input: TurnInput) {
        let Some(Invoked { kind: InvokedKind::Agent(turn), .. }) = self.invoked(serial) else { return };
        let turn = turn.clone();
        let restored = input == TurnInput::Restored;
        let (next, ledger, effects) = turn::step(&turn, &self.row.ledger, input, self.now());
        let same = next == *turn && ledger == self.row.ledger;
        if same && effects.is_empty() {
            return;
        }
        if !same {
            self.changed = true;
            self.grew = true;
            self.row.ledger = ledger;
        }
        let admitted =
            next.admission.as_ref().map(|a| &a.admission_id) != turn.admission.as_ref().map(|a| &a.admission_id);
        if admitted && !restored {
            let (agent, count) = (next.frame.agent.clone(), next.next_admission);
            let child = self.child_path(serial);
            self.say(FeedKind::Admission, json!({ "child": child, "agent": agent, "admission": count - 1 }));
        }
        if let Some(invoked) = self.invoked_mut(serial) {
            invoked.kind = InvokedKind::Agent(Box::new(next));
        }
        for effect in effects {
            self.turn_effect(serial, effect);
        }
        if restored {
            let allowed = self.allowed(serial);
            self.turn_input(serial, TurnInput::Allowed(allowed));
        }
    }

    /// What happened to a Turn, with the picks that are open now where the protocol asks for them.
    pub fn turn_report(&mut self, serial: u64, input: TurnInput) {
        if matches!(input, TurnInput::Read { .. }) && self.notices_unsettled(serial) {
            return; // the abort's answer asks again
        }
        let input = match input {
            TurnInput::Settled { settlement, .. } => TurnInput::Settled { settlement, allowed: self.allowed(serial) },
            other => other,
        };
        self.turn_input(serial, input);
    }

    pub(super) fn child_path(&self, serial: u64) -> String {
        let Some((at, state)) = self.locate(serial) else { return String::new() };
        self.workflow(at).map(|w| self.gate_id(at, &w, state)).unwrap_or_default()
    }

    fn turn_effect(&mut self, serial: u64, effect: TurnEffect) {
        let Some((at, _)) = self.locate(serial) else { return };
        let Some(Invoked { kind: InvokedKind::Agent(turn), .. }) = self.invoked(serial) else { return };
        let turn = turn.clone();
        let place = self.place(at, &turn);
        match effect {
            TurnEffect::AwaitAborts => {
                if !self.abort_stands_before(at, &turn) {
                    self.turn_input(serial, TurnInput::AbortsClear);
                }
            }
            TurnEffect::AskHeld { .. } => self.effects.push(Effect::AskHeld { serial, place }),
            TurnEffect::Admit(admit) => {
                let Some(definition) = self.definition(at, &turn.frame.agent) else { return };
                self.effects.push(Effect::Admit(Box::new(AdmitEffect {
                    serial,
                    place,
                    admission_id: admit.admission_id,
                    message: admit.message,
                    kept: admit.kept,
                    notices: admit.notices,
                    receipt: admit.receipt,
                    cwd: turn.frame.cwd.clone(),
                    definition,
                    model: turn.frame.model.clone(),
                    thinking: turn.frame.thinking_level,
                })));
            }
            TurnEffect::Watch(watch) => self.effects.push(Effect::Watch {
                serial,
                place,
                stream_url: watch.stream_url,
                offset: watch.offset,
                submission: watch.submission_id,
            }),
            TurnEffect::ReadKills => self.effects.push(Effect::ReadKills { serial, place }),
            TurnEffect::ReadLastEnd { since } => {
                self.effects.push(Effect::ReadLastEnd { serial, sandbox: place.sandbox, since });
            }
            TurnEffect::RaiseEpoch => {
                self.row.ledger.forget_conversation(turn.iid.as_str());
                *self.row.epochs.entry(turn.frame.base.as_str().to_owned()).or_insert(0) += 1;
                self.changed = true;
            }
            TurnEffect::Fault { reason } => self.turn_fault(serial, &turn, &reason),
            TurnEffect::Done { text } => self.turn_done(serial, &turn, &text),
            TurnEffect::Say { attempt, reason } => {
                let child = self.child_path(serial);
                self.say(FeedKind::Retry, json!({ "child": child, "attempt": attempt, "reason": reason }));
                self.changed = true;
            }
        }
    }

    fn turn_fault(&mut self, serial: u64, turn: &Turn, reason: &str) {
        let Some((at, _)) = self.locate(serial) else { return };
        self.effects.push(Effect::Forget { serial });
        self.remember_conversation(turn);
        let sandbox = self.workspace_of(at).map(|w| w.spec.name.clone());
        let workflow = self.actor(at).map(|a| a.workflow.clone()).unwrap_or_default();
        self.abort_turn(&workflow, turn, sandbox);
        let detail = json!({ "instanceId": turn.iid.as_str() });
        self.invocation_failed(serial, "agent.fault", &bounded(reason, FAULT_REASON_MAX_CHARS), detail);
    }

    fn turn_done(&mut self, serial: u64, turn: &Turn, text: &str) {
        let Some((at, state)) = self.locate(serial) else { return };
        self.remember_conversation(turn);
        turn::exit(turn, &mut self.row.ledger); // its Submission has ended: there is nothing to abort
        self.set_invoked(serial, InvokedKind::Ended);
        let payload = json!({ "text": text });
        let scope = EventScope::Invocation { state, pick: false };
        self.deliver_mechanism(at, &Event { name: "agent.done".to_owned(), payload, scope });
    }

    /// A continued conversation keeps its admission numbers over Turns (decision 31).
    pub fn remember_conversation(&mut self, turn: &Turn) {
        if turn.frame.continued && turn.next_admission > turn.frame.first_admission {
            self.row.conversations.insert(turn.iid.as_str().to_owned(), turn.next_admission);
        }
    }

    /// The Sandbox an Agent of this access works in; `None` = the Instance Harness (spec A-6).
    fn seat(&self, at: ActorRef, access: Access) -> Option<String> {
        match access {
            Access::None => None,
            Access::Read | Access::Write => self.workspace_of(at).map(|w| w.spec.name.clone()),
        }
    }

    /// Where a Turn's conversation lives.
    pub fn place(&self, at: ActorRef, turn: &Turn) -> Place {
        let access = self.workflow(at).and_then(|w| w.agents.get(&turn.frame.agent).map(|a| a.workspace));
        let sandbox = access.and_then(|access| self.seat(at, access));
        Place { sandbox, agent: turn.frame.agent.clone(), iid: turn.iid.as_str().to_owned() }
    }

    fn definition(&self, at: ActorRef, agent: &str) -> Option<AgentDefinition> {
        let workflow = self.workflow(at)?;
        let agent = workflow.agents.get(agent)?;
        Some(AgentDefinition {
            model: agent.model.clone(),
            instructions: agent.instructions.clone(),
            workspace: agent.workspace,
            thinking_level: agent.thinking,
            max_tokens: None,
            temperature: None,
        })
    }

    /// Decision 33: no admission of the same iid before its abort is answered, nor of another writer in that Workspace.
    fn abort_stands_before(&self, at: ActorRef, turn: &Turn) -> bool {
        let place = self.place(at, turn);
        let access = self.workflow(at).and_then(|w| w.agents.get(&turn.frame.agent).map(|a| a.workspace));
        self.row.aborts.iter().any(|pending| {
            let same = pending.abort.iid == turn.iid;
            let other_writer = pending.writer
                && access == Some(Access::Write)
                && place.sandbox.is_some()
                && pending.sandbox == place.sandbox;
            same || other_writer
        })
    }

    /// An abort stands in the Turn's Sandbox whose answer may free notices: an admission that went out now would miss them.
    fn notices_unsettled(&self, serial: u64) -> bool {
        let Some(Invoked { kind: InvokedKind::Agent(turn), .. }) = self.invoked(serial) else { return false };
        let here = |a: &&RowAbort| a.sandbox.is_some() && a.sandbox == turn.frame.workspace;
        self.row.aborts.iter().filter(here).any(|a| a.abort.carried.is_some())
    }

    /// An abort was answered: Turns that waited for it go on.
    pub fn aborted(&mut self, iid: &str, up_to: Option<&str>, unprompted: &[String]) {
        let meant = |a: &RowAbort| a.abort.iid.as_str() == iid && up_to.is_none_or(|u| u == a.abort.up_to);
        let (answered, left): (Vec<_>, Vec<_>) = std::mem::take(&mut self.row.aborts).into_iter().partition(meant);
        self.row.aborts = left;
        if answered.is_empty() {
            return;
        }
        self.changed = true;
        if !self.row.status.is_ended() {
            for one in &answered {
                turn::aborted(&one.abort, unprompted, &mut self.row.ledger);
            }
        }
        if self.row.aborts.is_empty() {
            self.say_status(); // whoever waits for the run to rest looks again
        }
        for (serial, at) in self.live_turns() {
            let Some(Invoked { kind: InvokedKind::Agent(turn), .. }) = self.invoked(serial) else { continue };
            if matches!(turn.phase, turn::Phase::Reading { .. }) && answered.iter().any(|a| a.abort.carried.is_some()) {
                self.turn_input(serial, TurnInput::Restored);
                continue;
            }
            let waits = matches!(turn.phase, turn::Phase::AwaitingAborts { .. });
            if waits && !self.abort_stands_before(at, &turn.clone()) {
                self.turn_input(serial, TurnInput::AbortsClear);
            }
        }
    }

    /// Every live Turn: invocation serial and actor.
    pub fn live_turns(&self) -> Vec<(u64, ActorRef)> {
        let mut found = Vec::new();
        for at in self.actors() {
            let Some(actor) = self.actor(at) else { continue };
            for invoked in actor.invoked.values() {
                if let InvokedKind::Agent(turn) = &invoked.kind
                    && !turn.is_over()
                {
                    found.push((invoked.serial, at));
                }
            }
        }
        found
    }

    /// After a macrostep: Turns whose model is idle hear what is allowed now (decision 5).
    pub fn wake_idle_turns(&mut self, at: ActorRef) {
        let Some(actor) = self.actor(at) else { return };
        let idle: Vec<u64> = actor
            .invoked
            .values()
            .filter(|i| matches!(&i.kind, InvokedKind::Agent(t) if t.phase == turn::Phase::Idle))
            .map(|i| i.serial)
            .collect();
        for serial in idle {
            let allowed = self.allowed(serial);
            self.turn_input(serial, TurnInput::Allowed(allowed));
        }
    }

    /// Allowed picks of a Turn, in Menu order (format "Menu, Allowed picks").
    pub fn allowed(&self, serial: u64) -> Vec<String> {
        let Some((at, state)) = self.locate(serial) else { return Vec::new() };
        let (Some(workflow), Some(actor)) = (self.workflow(at), self.actor(at)) else { return Vec::new() };
        let (Some(configuration), Some(derived)) = (&actor.chart, workflow.derived.get(&state)) else {
            return Vec::new();
        };
        let sight = self.sight(at);
        derived
            .iter()
            .filter(|e| chart::may_fire(&workflow.chart, configuration, e, state, &sight.environment()))
            .cloned()
            .collect()
    }
}

/// Longest fault reason kept, in characters.
const FAULT_REASON_MAX_CHARS: usize = 2_000;
