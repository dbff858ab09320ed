//! Invocations: how a state's Agent, Gate, child run or step begins, fails, repeats and stops.

use super::machine::{Work, expression_error};
use super::{ActorRef, ChildEnd, DoRequest, DoResult, Effect, Input};
use crate::chart::{Event, EventScope, StateIx};
use crate::expression::{ExpressionError, Scope, Template};
use crate::run::{Actor, FeedKind, Invoked, InvokedKind, RowAbort, WorkspacePhase};
use crate::turn;
use crate::workflow::{DoStep, InvocationKind, Workflow};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Why an invocation could not begin.
pub(super) enum BeginError {
    /// An expression failed: `error.expression`.
    Expression(ExpressionError),
    /// The party itself refuses: its own failure event.
    Refused(String),
}

impl From<ExpressionError> for BeginError {
    fn from(error: ExpressionError) -> Self {
        Self::Expression(error)
    }
}

impl Work<'_> {
    /// A state that invokes was entered and stayed: its invocation begins.
    pub fn start_invocation(&mut self, at: ActorRef, workflow: &Arc<Workflow>, state: StateIx, ordinal: u64) {
        let serial = self.serial();
        let placeholder =
            Invoked { serial, ordinal, attempts: 0, retry_at: None, route: None, kind: InvokedKind::Ended };
        if let Some(actor) = self.actor_mut(at) {
            actor.invoked.insert(state, placeholder);
        }
        self.begin_invocation(at, workflow, state, serial);
    }

    /// Begins an invocation (again): what runs gets the serial it stands under.
    fn begin_invocation(&mut self, at: ActorRef, workflow: &Arc<Workflow>, state: StateIx, serial: u64) {
        self.changed = true;
        self.grew = true;
        let Some(invocation) = workflow.invocations.get(&state) else { return };
        let begun = match &invocation.kind {
            InvocationKind::Agent { .. } => self.begin_turn(at, workflow, state, serial),
            InvocationKind::Gate { meta, .. } => self.begin_gate(at, workflow, state, serial, meta),
            InvocationKind::Run { workflow: name, input } => self.begin_child(at, workflow, state, serial, name, input),
            InvocationKind::Do(step) => self.begin_step(at, workflow, state, serial, step),
        };
        match begun {
            Ok(()) => {}
            Err(BeginError::Expression(error)) => {
                let place = place_of(workflow, state);
                let event = expression_error(&place, &error.to_string());
                self.row.queue.push_back(Input::Raise { actor: at, event });
            }
            Err(BeginError::Refused(reason)) => {
                let end = ChildEnd::Fault(reason);
                self.row.queue.push_back(Input::ChildEnded { serial, end });
            }
        }
    }

    /// Puts what runs under an invocation.
    pub fn set_invoked(&mut self, serial: u64, kind: InvokedKind) {
        if let Some(invoked) = self.invoked_mut(serial) {
            invoked.kind = kind;
            invoked.retry_at = None;
            invoked.route = None;
        }
    }

    /// Evaluates something with what the actor's expressions see outside a transition.
    pub fn with_scope<T>(&self, at: ActorRef, evaluate: impl FnOnce(&Scope<'_>) -> T) -> T {
        let sight = self.sight(at);
        let environment = sight.environment();
        let empty = Map::new();
        let context = self.actor(at).and_then(|a| a.chart.as_ref()).map_or(&empty, |c| &c.context);
        evaluate(&Scope {
            input: environment.input,
            context,
            event: None,
            run: environment.run,
            workspace: environment.workspace,
            actor: environment.actor,
        })
    }

    fn begin_gate(
        &mut self,
        at: ActorRef,
        workflow: &Workflow,
        state: StateIx,
        serial: u64,
        meta: &crate::expression::ValueSource,
    ) -> Result<(), BeginError> {
        let meta = self.with_scope(at, |scope| meta.evaluate(scope))?;
        let gate = self.gate_id(at, workflow, state);
        let ordinal = self.invoked(serial).map_or(0, |i| i.ordinal);
        self.say(FeedKind::Gate, json!({ "gate": gate, "activation": format!("{gate}#{ordinal}"), "meta": meta }));
        self.set_invoked(serial, InvokedKind::Gate { meta });
        Ok(())
    }

    fn begin_child(
        &mut self,
        at: ActorRef,
        workflow: &Workflow,
        state: StateIx,
        serial: u64,
        name: &str,
        input: &crate::expression::ValueSource,
    ) -> Result<(), BeginError> {
        let input = self.with_scope(at, |scope| input.evaluate(scope))?;
        let child = self.program.workflows.get(name).cloned();
        let child = child.ok_or_else(|| BeginError::Refused(format!("workflow `{name}` is not in this program")))?;
        let input = child
            .check_input(input)
            .map_err(|problems| BeginError::Refused(format!("input of `{name}`: {}", problems.join("; "))))?;
        let path = self.gate_id(at, workflow, state);
        let actor = Actor {
            workflow: name.to_owned(),
            path,
            input,
            workspace: None,
            chart: None,
            invoked: Default::default(),
            timers: Vec::new(),
            buffered: Vec::new(),
        };
        self.set_invoked(serial, InvokedKind::Run(Box::new(actor)));
        self.begin_actor(serial);
        Ok(())
    }

    fn begin_step(
        &mut self,
        at: ActorRef,
        workflow: &Workflow,
        state: StateIx,
        serial: u64,
        step: &DoStep,
    ) -> Result<(), BeginError> {
        let request = self.with_scope(at, |scope| resolve_step(step, scope))?;
        if matches!(request, DoRequest::Nothing) {
            self.set_invoked(serial, InvokedKind::Do(request));
            self.row.queue.push_back(Input::Again { serial });
            return Ok(());
        }
        let mut request = request;
        let sandbox = self.workspace_of(at).filter(|w| w.phase == WorkspacePhase::Running).cloned();
        if let DoRequest::Command { cwd, .. } = &mut request {
            let Some(provisioned) = sandbox.as_ref().and_then(|w| w.provisioned.as_ref()) else {
                return Err(BeginError::Refused("a `do` command needs a Workspace around it".to_owned()));
            };
            if cwd.is_none() {
                *cwd = provisioned.repos.first().map(|(_, path)| path.clone());
            }
        }
        let attempt = self.invoked(serial).map_or(0, |i| i.attempts);
        let key = self.step_key(at, workflow, state, serial);
        self.set_invoked(serial, InvokedKind::Do(request.clone()));
        self.effects.push(Effect::Do { serial, key, attempt, sandbox: sandbox.map(|w| w.spec.name), request });
        Ok(())
    }

    /// The key of a step: one entry of its state, whatever the attempt (`JR2_STEP_KEY`, `Idempotency-Key`).
    pub fn step_key(&self, at: ActorRef, workflow: &Workflow, state: StateIx, serial: u64) -> String {
        let ordinal = self.invoked(serial).map_or(0, |i| i.ordinal);
        format!("{}/{}#{ordinal}", self.row.id, self.gate_id(at, workflow, state))
    }

    /// The address of a state's invocation in the run: actor path and state path joined with `.` (spec G-1).
    pub fn gate_id(&self, at: ActorRef, workflow: &Workflow, state: StateIx) -> String {
        let own = workflow.chart.states.get(state as usize).map_or("", |s| s.path.as_str());
        let path = self.actor(at).map_or("", |a| a.path.as_str());
        let parts: Vec<&str> = [path, own].into_iter().filter(|p| !p.is_empty()).collect();
        if parts.is_empty() { "root".to_owned() } else { parts.join(".") }
    }

    /// A step ended.
    pub fn step_done(&mut self, serial: u64, result: &DoResult) {
        let Some((at, state)) = self.locate(serial) else { return };
        if !matches!(self.invoked(serial), Some(Invoked { kind: InvokedKind::Do(_), retry_at: None, .. })) {
            return;
        }
        self.changed = true;
        self.grew = true;
        match result {
            DoResult::Ok(value) => {
                if let Some(invoked) = self.invoked_mut(serial) {
                    invoked.kind = InvokedKind::Ended;
                }
                let payload = json!({ "result": value });
                let scope = EventScope::Invocation { state, pick: false };
                self.deliver_mechanism(at, &Event { name: "done.do".to_owned(), payload, scope });
            }
            DoResult::Failed { reason, detail } => self.invocation_failed(serial, "error.do", reason, detail.clone()),
        }
    }

    /// A party failed: its retry policy, or its failure event.
    pub fn invocation_failed(&mut self, serial: u64, name: &str, reason: &str, detail: Value) {
        let Some((at, state)) = self.locate(serial) else { return };
        let Some(workflow) = self.workflow(at) else { return };
        let now = self.now();
        let retry = workflow.invocations.get(&state).and_then(|i| i.retry.clone());
        let Some(invoked) = self.invoked_mut(serial) else { return };
        let child = std::mem::replace(&mut invoked.kind, InvokedKind::Ended);
        invoked.route = None; // a Turn that faulted waits for no answer
        let attempts = invoked.attempts;
        if let Some(retry) = retry.filter(|r| r.repeats(reason, attempts)) {
            invoked.attempts += 1;
            invoked.retry_at = Some(now + retry.pause_ms(attempts + 1));
            let path = self.gate_id(at, &workflow, state);
            let words = bounded(reason, FEED_REASON_MAX_CHARS);
            self.say(FeedKind::Retry, json!({ "child": path, "attempt": attempts + 1, "reason": words }));
            self.stop_leftover(at, child);
            return;
        }
        self.stop_leftover(at, child);
        let path = self.gate_id(at, &workflow, state);
        let words = bounded(reason, FEED_REASON_MAX_CHARS);
        self.say(FeedKind::Fault, json!({ "child": path, "event": name, "reason": words }));
        let mut payload = Map::new();
        if let Value::Object(fields) = detail {
            payload.extend(fields);
        }
        payload.insert("reason".to_owned(), Value::String(reason.to_owned()));
        let scope = EventScope::Invocation { state, pick: false };
        self.deliver_mechanism(at, &Event { name: name.to_owned(), payload: Value::Object(payload), scope });
    }

    /// A failed child leaves nothing running below it.
    fn stop_leftover(&mut self, at: ActorRef, kind: InvokedKind) {
        if let InvokedKind::Run(mut child) = kind {
            child.workspace = None; // a faulted child's Sandbox stays for a look (spec K-9); the sweep collects it
            let sandbox = self.workspace_of(at).map(|w| w.spec.name.clone());
            self.stop_child(*child, sandbox);
        }
    }

    /// The pause is over, or a step that does nothing is done.
    pub fn again(&mut self, serial: u64) {
        let Some((at, state)) = self.locate(serial) else { return };
        let Some(workflow) = self.workflow(at) else { return };
        match self.invoked(serial) {
            Some(Invoked { kind: InvokedKind::Do(DoRequest::Nothing), .. }) => {
                self.step_done(serial, &DoResult::Ok(Value::Null));
            }
            Some(Invoked { retry_at: Some(_), .. }) => {
                let fresh = self.serial(); // late answers to the failed attempt must not meet this one
                if let Some(invoked) = self.invoked_mut(serial) {
                    invoked.serial = fresh;
                    invoked.retry_at = None;
                }
                self.begin_invocation(at, &workflow, state, fresh);
            }
            _ => {}
        }
    }

    /// A state was left: what it invoked stops.
    pub fn stop_invoked(&mut self, at: ActorRef, invoked: Invoked) {
        let sandbox = self.workspace_of(at).map(|w| w.spec.name.clone());
        let workflow = self.actor(at).map(|a| a.workflow.clone()).unwrap_or_default();
        self.stop_invoked_in(&workflow, invoked, sandbox);
    }

    pub(super) fn stop_invoked_in(&mut self, workflow: &str, invoked: Invoked, sandbox: Option<String>) {
        self.changed = true;
        let serial = invoked.serial;
        match invoked.kind {
            InvokedKind::Agent(turn) => {
                self.effects.push(Effect::Forget { serial });
                self.remember_conversation(&turn);
                if let Some(route) = invoked.route {
                    self.route_cut(serial, &turn, *route);
                }
                self.abort_turn(workflow, &turn, sandbox);
            }
            InvokedKind::Run(child) => self.stop_child(*child, sandbox),
            InvokedKind::Do(_) => self.effects.push(Effect::Forget { serial }),
            InvokedKind::Gate { .. } | InvokedKind::Ended => {}
        }
    }

    /// Writes the abort into the row in the same save (decision 33).
    pub fn abort_turn(&mut self, workflow: &str, ended: &turn::Turn, sandbox: Option<String>) {
        let abort = turn::exit(ended, &mut self.row.ledger);
        self.changed = true;
        let Some(abort) = abort else { return };
        if sandbox.as_deref().is_some_and(|name| self.is_lost(name)) {
            return;
        }
        let agents = self.program.workflows.get(workflow).map(|w| &w.agents);
        let access = agents.and_then(|a| a.get(&ended.frame.agent)).map(|a| a.workspace);
        let on_instance = access == Some(jr2_shared::harness::Access::None);
        let abort = RowAbort {
            abort,
            sandbox: if on_instance { None } else { sandbox },
            writer: access == Some(jr2_shared::harness::Access::Write),
        };
        self.row.aborts.push(abort.clone());
        self.effects.push(Effect::Abort(abort));
    }
}

/// Longest reason on the feed, in characters.
const FEED_REASON_MAX_CHARS: usize = 500;

pub(super) fn bounded(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(max).collect();
    cut.push('…');
    cut
}

fn place_of(workflow: &Workflow, state: StateIx) -> String {
    workflow.chart.states.get(state as usize).map(|s| format!("states.{}", s.path)).unwrap_or_default()
}

fn resolve_step(step: &DoStep, scope: &Scope<'_>) -> Result<DoRequest, ExpressionError> {
    let pairs = |list: &[(String, Template)]| -> Result<Vec<(String, String)>, ExpressionError> {
        list.iter().map(|(name, value)| Ok((name.clone(), value.render_text(scope)?))).collect()
    };
    Ok(match step {
        DoStep::Nothing => DoRequest::Nothing,
        DoStep::Command { command, cwd, env, timeout_ms } => DoRequest::Command {
            command: command.render_text(scope)?,
            cwd: cwd.as_ref().map(|c| c.render_text(scope)).transpose()?,
            env: pairs(env)?,
            timeout_ms: *timeout_ms,
        },
        DoStep::Http { method, url, headers, body, timeout_ms } => DoRequest::Http {
            method: method.clone(),
            url: url.render_text(scope)?,
            headers: pairs(headers)?,
            body: body.as_ref().map(|b| b.evaluate(scope)).transpose()?,
            timeout_ms: *timeout_ms,
        },
    })
}
