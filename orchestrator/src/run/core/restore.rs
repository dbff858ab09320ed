//! What a restored row asks for: everything that was under way when the process died.

use super::machine::Work;
use super::{Effect, Facts, Input};
use crate::run::{InvokedKind, Row, WorkspacePhase};
use crate::turn::TurnInput;
use crate::workflow::Program;

/// What to do after a restart, in order: Sandboxes first, then what runs in them.
#[derive(Clone, Debug, Default)]
pub struct Reattached {
    /// Effects that leave again: each is keyed, so a repeat does nothing twice.
    pub effects: Vec<Effect>,
    /// Inputs to apply: Turns re-attach.
    pub inputs: Vec<Input>,
}

/// Derives it from the row alone.
pub fn reattach(program: &Program, row: &Row) -> Reattached {
    let work = Work::new(program, row.clone(), Facts { now: 0, seed: 0 });
    let mut out = Reattached::default();
    for at in work.actors() {
        let Some(actor) = work.actor(at) else { continue };
        if let Some(workspace) = actor.workspace.as_ref().filter(|_| !row.status.is_ended()) {
            match (workspace.phase, &workspace.provisioned) {
                (WorkspacePhase::Provisioning, _) => out.effects.push(Effect::Provision(workspace.spec.clone())),
                (WorkspacePhase::Running, Some(p)) => {
                    out.effects.push(Effect::Adopt { spec: workspace.spec.clone(), uid: p.uid.clone() });
                }
                _ => {}
            }
        }
    }
    for delete in &row.deletes {
        out.effects.push(Effect::Teardown { spec: delete.spec.clone(), uid: delete.uid.clone() });
    }
    for abort in &row.aborts {
        out.effects.push(Effect::Abort(abort.clone()));
    }
    if row.status.is_ended() {
        return out;
    }
    for at in work.actors() {
        let (Some(actor), Some(workflow)) = (work.actor(at), work.workflow(at)) else { continue };
        for (state, invoked) in &actor.invoked {
            match &invoked.kind {
                InvokedKind::Agent(turn) if !turn.is_over() => {
                    out.inputs.push(Input::Turn { serial: invoked.serial, input: TurnInput::Restored });
                }
                InvokedKind::Do(request) if invoked.retry_at.is_none() && *request != super::DoRequest::Nothing => {
                    out.effects.push(Effect::Do {
                        serial: invoked.serial,
                        key: work.step_key(at, &workflow, *state, invoked.serial),
                        attempt: invoked.attempts,
                        sandbox: work.workspace_of(at).map(|w| w.spec.name.clone()),
                        request: request.clone(),
                    });
                }
                _ => {}
            }
        }
    }
    out
}
