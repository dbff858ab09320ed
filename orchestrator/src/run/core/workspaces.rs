//! Workspaces: a Sandbox around an actor, made before its chart starts and removed after it ends (spec 3.6).

use super::invoke::BeginError;
use super::machine::{Work, expression_error};
use super::{ActorRef, Effect};
use crate::chart::{Event, EventScope};
use crate::expression::Scope;
use crate::run::{FeedKind, WorkspacePhase, WorkspaceRecord};
use crate::workflow::{OPEN, WorkspaceDefinition};
use crate::workspace::{Provisioned, RepoBinding, SandboxSpec};
use serde_json::json;

impl Work<'_> {
    /// Begins an actor: its Workspace first, when it has one.
    pub fn begin_actor(&mut self, at: ActorRef) {
        let Some(workflow) = self.workflow(at) else { return };
        let Some(definition) = &workflow.workspace else { return self.start_chart(at) };
        match self.sandbox_spec(at, definition) {
            Ok(spec) => {
                let since = self.now();
                let record = WorkspaceRecord {
                    spec: spec.clone(),
                    phase: WorkspacePhase::Provisioning,
                    provisioned: None,
                    since,
                };
                if let Some(actor) = self.actor_mut(at) {
                    actor.workspace = Some(record);
                }
                self.say(FeedKind::Placing, json!({ "child": self.path(at), "sandbox": spec.name }));
                self.effects.push(Effect::Provision(spec));
            }
            Err(BeginError::Expression(error)) => {
                let event = expression_error("workspace", &error.to_string());
                self.fault_actor(at, &format!("error.expression: workspace: {}", event.payload["message"]));
            }
            Err(BeginError::Refused(reason)) => self.fault_actor(at, &reason),
        }
    }

    fn path(&self, at: ActorRef) -> String {
        self.actor(at).map(|a| a.path.clone()).unwrap_or_default()
    }

    fn sandbox_spec(&self, at: ActorRef, definition: &WorkspaceDefinition) -> Result<SandboxSpec, BeginError> {
        let resolve = |scope: &Scope<'_>| -> Result<(Vec<RepoBinding>, String), BeginError> {
            let mut repos = Vec::new();
            for (slot, source) in &definition.repos {
                if source.url.source() == OPEN {
                    return Err(BeginError::Refused(format!("workspace.repos.{slot} is open")));
                }
                let url = source.url.render_text(scope)?;
                let reference = source.reference.as_ref().map(|r| r.render_text(scope)).transpose()?;
                repos.push(RepoBinding { slot: slot.clone(), url, reference });
            }
            Ok((repos, definition.branch.render_text(scope)?))
        };
        let sight = self.sight(at);
        let environment = sight.environment();
        let empty = serde_json::Map::new();
        let scope = Scope {
            input: environment.input,
            context: &empty,
            event: None,
            run: environment.run,
            workspace: None,
            actor: environment.actor,
        };
        let (repos, branch) = resolve(&scope)?;
        Ok(SandboxSpec {
            name: crate::workspace::sandbox_name(self.row.id.as_str(), &self.path(at), at),
            run: self.row.id.as_str().to_owned(),
            repos,
            branch,
            size: definition.size,
        })
    }

    /// A Sandbox runs: its actor's chart starts.
    pub fn provisioned(&mut self, sandbox: &str, provisioned: &Provisioned) {
        let Some(at) = self.owner(sandbox, WorkspacePhase::Provisioning) else {
            return self.remove_late_sandbox(sandbox);
        };
        let now = self.now();
        let Some(workspace) = self.actor_mut(at).and_then(|a| a.workspace.as_mut()) else { return };
        workspace.phase = WorkspacePhase::Running;
        workspace.provisioned = Some(provisioned.clone());
        let waited = now.saturating_sub(workspace.since);
        self.changed = true;
        let path = self.path(at);
        self.say(FeedKind::Placed, json!({ "child": path, "sandbox": sandbox, "afterMs": waited }));
        self.start_chart(at);
    }

    /// It came after nobody waited any more (spec K-11): removed now that it is there. No Agent has seen it, which is what
    /// a teardown without uid says: it has no work to keep.
    fn remove_late_sandbox(&mut self, sandbox: &str) {
        let waiting = self.row.deletes.iter().find(|d| d.spec.name == sandbox && d.uid.is_empty());
        let Some(spec) = waiting.map(|d| d.spec.clone()) else { return };
        self.changed = true;
        self.effects.push(Effect::Teardown { spec, uid: String::new() });
    }

    /// A Sandbox could not be made: the actor ends in fault, nothing is left behind.
    pub fn provision_failed(&mut self, sandbox: &str, reason: &str, message: &str) {
        let Some(at) = self.owner(sandbox, WorkspacePhase::Provisioning) else {
            return self.sandbox_gone(sandbox);
        };
        if let Some(workspace) = self.actor_mut(at).and_then(|a| a.workspace.as_mut()) {
            workspace.phase = WorkspacePhase::Done;
        }
        self.fault_actor(at, &format!("workspace {reason}: {message}"));
    }

    /// A Sandbox is gone: `workspace.lost`, once (spec E-6).
    pub fn sandbox_lost(&mut self, sandbox: &str, reason: &str, message: &str) {
        let Some(at) = self.owner(sandbox, WorkspacePhase::Running) else { return };
        if let Some(workspace) = self.actor_mut(at).and_then(|a| a.workspace.as_mut()) {
            workspace.phase = WorkspacePhase::Lost;
        }
        self.changed = true;
        self.forget_workspace(sandbox);
        let gone = |a: &crate::run::RowAbort| a.sandbox.as_deref() == Some(sandbox);
        let answered: Vec<String> =
            self.row.aborts.iter().filter(|a| gone(a)).map(|a| a.abort.iid.as_str().to_owned()).collect();
        for iid in answered {
            self.aborted(&iid, None, &[]); // the Sandbox is gone, and what ran in it (decision 33)
        }
        let payload = json!({ "reason": reason, "message": message });
        let event = Event { name: "workspace.lost".to_owned(), payload, scope: EventScope::Broadcast };
        self.deliver_mechanism(at, &event);
    }

    /// Nothing of a Sandbox that is gone can be read again, and nobody works in it any more (decision 10).
    pub fn forget_workspace(&mut self, sandbox: &str) {
        let before = self.row.ledger.clone();
        self.row.dropped_notices += self.row.ledger.forget_workspace(sandbox) as u64;
        self.changed |= self.row.ledger != before;
    }

    /// A Sandbox that is gone answers no abort: nothing of it runs any more (decision 33).
    pub fn is_lost(&self, sandbox: &str) -> bool {
        self.owner(sandbox, WorkspacePhase::Lost).is_some()
    }

    fn owner(&self, sandbox: &str, phase: WorkspacePhase) -> Option<ActorRef> {
        self.actors().into_iter().find(|at| {
            self.actor(*at)
                .and_then(|a| a.workspace.as_ref())
                .is_some_and(|w| w.spec.name == sandbox && w.phase == phase)
        })
    }
}
