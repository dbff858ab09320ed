//! How actors and runs end: output, fault, cancel.

use super::machine::Work;
use super::{ActorRef, ChildEnd, Effect, Input, Reply};
use crate::chart::{Event, EventScope};
use crate::run::{Actor, FeedKind, InvokedKind, RowDelete, Status, WorkspacePhase};
use serde_json::{Value, json};

impl Work<'_> {
    /// The run begins with its root machine.
    pub fn start_run(&mut self) {
        if self.row.root.chart.is_none() && self.row.root.workspace.is_none() {
            self.changed = true;
            self.begin_actor(0);
            self.say_status();
        }
    }

    /// A top-level final state was entered: the Sandbox goes first, then the actor ends (spec K-8).
    pub fn actor_finished(&mut self, at: ActorRef) {
        self.stop_invocations(at);
        let Some(actor) = self.actor_mut(at) else { return };
        actor.timers.clear();
        actor.buffered.clear();
        let running = actor.workspace.as_ref().is_some_and(|w| w.phase == WorkspacePhase::Running);
        if running {
            if let Some(workspace) = &mut actor.workspace {
                workspace.phase = WorkspacePhase::Teardown;
                let (spec, uid) = (workspace.spec.clone(), uid_of(workspace));
                self.remove_sandbox(spec, uid);
            }
        } else {
            self.actor_ended(at);
        }
    }

    /// The actor is over and so is its Sandbox.
    pub fn actor_ended(&mut self, at: ActorRef) {
        let output =
            self.actor(at).and_then(|a| a.chart.as_ref()).and_then(|c| c.output.clone()).unwrap_or(Value::Null);
        if at == 0 {
            self.row.output = Some(output);
            self.end_run(Status::Done, None);
        } else {
            self.row.queue.push_back(Input::ChildEnded { serial: at, end: ChildEnd::Output(output) });
        }
    }

    /// The actor ends in fault; its Sandbox stays so that a person can look (spec K-9).
    pub fn fault_actor(&mut self, at: ActorRef, reason: &str) {
        self.changed = true;
        self.stop_invocations(at);
        if let Some(actor) = self.actor_mut(at) {
            actor.timers.clear();
        }
        if at == 0 {
            self.end_run(Status::Error, Some(reason.to_owned()));
        } else {
            if let Some(actor) = self.actor_mut(at) {
                actor.chart = None; // nothing may move it any more
            }
            self.row.queue.push_back(Input::ChildEnded { serial: at, end: ChildEnd::Fault(reason.to_owned()) });
        }
    }

    /// The whole run ends in fault.
    pub fn fault_run(&mut self, reason: &str) {
        self.fault_actor(0, reason);
    }

    fn end_run(&mut self, status: Status, reason: Option<String>) {
        self.changed = true;
        self.row.status = status;
        self.row.reason = reason;
        self.row.ended = Some(self.now());
        self.row.queue.clear();
        // Nobody is left to hear them (decision 11); what was seen explains nothing any more.
        self.row.dropped_notices += self.row.ledger.pending.len() as u64;
        self.row.ledger.pending.clear();
        self.say_status();
    }

    /// A child run ended: its parent hears `done.run` or `error.run`.
    pub fn child_ended(&mut self, serial: u64, end: &ChildEnd) {
        let Some((at, state)) = self.locate(serial) else { return };
        self.changed = true;
        match end {
            ChildEnd::Fault(reason) => self.invocation_failed(serial, "error.run", reason, json!({})),
            ChildEnd::Output(output) => {
                if let Some(invoked) = self.invoked_mut(serial) {
                    invoked.kind = InvokedKind::Ended;
                }
                let event = Event {
                    name: "done.run".to_owned(),
                    payload: json!({ "output": output }),
                    scope: EventScope::Invocation { state, pick: false },
                };
                self.deliver_mechanism(at, &event);
            }
        }
    }

    /// A person ends the run: Turns are aborted, Sandboxes removed unless told to keep them (spec 4.5).
    pub fn cancel(&mut self, keep: bool) {
        self.keep = keep;
        self.stop_invocations(0);
        let root = &mut self.row.root;
        root.timers.clear();
        root.buffered.clear();
        self.abandon_workspace(0);
        self.end_run(Status::Cancelled, Some("cancelled by a person".to_owned()));
        self.answer(200, json!({ "ok": true }));
    }

    /// Stops everything an actor's states invoke.
    pub fn stop_invocations(&mut self, at: ActorRef) {
        let Some(actor) = self.actor_mut(at) else { return };
        for invoked in std::mem::take(&mut actor.invoked).into_values() {
            self.stop_invoked(at, invoked);
        }
    }

    /// Stops a child and everything below it; its Sandbox is removed: nothing refers to it any more.
    pub fn stop_child(&mut self, mut child: Actor, sandbox: Option<String>) {
        let own = child.workspace.as_ref().map(|w| w.spec.name.clone()).or(sandbox);
        for invoked in std::mem::take(&mut child.invoked).into_values() {
            self.stop_invoked_in(&child.workflow, invoked, own.clone());
        }
        if let Some(workspace) = child.workspace.take()
            && !matches!(workspace.phase, WorkspacePhase::Done | WorkspacePhase::Lost | WorkspacePhase::Teardown)
        {
            let uid = uid_of(&workspace);
            self.remove_sandbox(workspace.spec, uid);
        }
    }

    fn abandon_workspace(&mut self, at: ActorRef) {
        let Some(workspace) = self.actor_mut(at).and_then(|a| a.workspace.as_mut()) else { return };
        if matches!(workspace.phase, WorkspacePhase::Provisioning | WorkspacePhase::Running) {
            workspace.phase = WorkspacePhase::Teardown;
            let (spec, uid) = (workspace.spec.clone(), uid_of(workspace));
            self.remove_sandbox(spec, uid);
        }
    }

    fn remove_sandbox(&mut self, spec: crate::workspace::SandboxSpec, uid: String) {
        if self.keep {
            self.row.kept.push(spec.name);
            return;
        }
        self.row.deletes.push(RowDelete { spec: spec.clone(), uid: uid.clone() });
        if !uid.is_empty() {
            self.effects.push(Effect::Teardown { spec, uid }); // one still being made is removed once it is there
        }
    }

    /// Answers to aborts and teardowns: they come after a run ended too.
    pub fn settle_leftover(&mut self, input: &Input) {
        match input {
            Input::Aborted { iid, up_to, unprompted } => self.aborted(iid, up_to.as_deref(), unprompted),
            Input::Provisioned { sandbox, provisioned } => self.provisioned(sandbox, provisioned),
            Input::ProvisionFailed { sandbox, .. } => self.sandbox_gone(sandbox),
            Input::TornDown { sandbox, branches, .. } => {
                for branch in branches {
                    self.row.branches.push(branch.clone());
                    self.say(FeedKind::Branch, serde_json::to_value(branch).unwrap_or_default());
                }
                self.sandbox_gone(sandbox);
            }
            Input::TeardownFailed { sandbox, message, .. } => {
                self.row.kept_workspaces.push(message.clone());
                self.say(FeedKind::Branch, json!({ "sandbox": sandbox, "kept": true, "message": message }));
                self.sandbox_gone(sandbox);
            }
            _ => {}
        }
    }

    /// A removed (or deliberately kept) Sandbox: whoever waited for it goes on.
    pub fn sandbox_gone(&mut self, sandbox: &str) {
        let before = self.row.deletes.len();
        self.row.deletes.retain(|d| d.spec.name != sandbox);
        self.changed |= self.row.deletes.len() != before || !self.feed.is_empty();
        self.forget_workspace(sandbox);
        let aborts = self.row.aborts.len();
        self.row.aborts.retain(|a| a.sandbox.as_deref() != Some(sandbox));
        self.changed |= self.row.aborts.len() != aborts;
        for at in self.actors() {
            let Some(workspace) = self.actor_mut(at).and_then(|a| a.workspace.as_mut()) else { continue };
            if workspace.spec.name == sandbox && workspace.phase == WorkspacePhase::Teardown {
                workspace.phase = WorkspacePhase::Done;
                self.changed = true;
                if !self.row.status.is_ended() {
                    self.actor_ended(at);
                }
            }
        }
    }

    /// Requests to a run that ended get a clear no; late reports change nothing.
    pub fn refuse_ended(&mut self, input: &Input) {
        let error = format!("run {} is {}", self.row.id, super::super::view::status_word(self.row.status));
        match input {
            Input::Gate { key, .. } | Input::External { key, .. } if !self.replay_answer(key.as_deref()) => {
                self.answer(409, json!({ "error": error }));
            }
            Input::Cancel { .. } => self.answer(409, json!({ "error": error })),
            Input::Pick { iid, .. } => {
                self.reply = Reply::Refused { status: 404, error: super::surface_refusal(iid), allowed: None };
            }
            _ => {}
        }
    }
}

fn uid_of(workspace: &crate::run::WorkspaceRecord) -> String {
    workspace.provisioned.as_ref().map(|p| p.uid.clone()).unwrap_or_default()
}
