//! The surface of a live Turn: its fixed Menu and what is allowed now (spec P-2).

use super::machine::Work;
use super::picks::find_turn;
use super::{Facts, Place};
use crate::chart::StateIx;
use crate::run::view::TurnView;
use crate::run::{Invoked, InvokedKind, Row};
use crate::turn::TurnInput;
use crate::workflow::Program;
use jr2_shared::surface::{MenuItem, PICKS_KEYED, Surface, empty_object_schema};
use serde_json::Value;

/// The surface of a conversation, and the Sandbox its registration names. `None` = no live Turn.
pub fn surface(program: &Program, row: &Row, iid: &str) -> Option<(Surface, Option<String>)> {
    let work = Work::new(program, row.clone(), Facts { now: 0, seed: 0 });
    if row.status.is_ended() {
        return None;
    }
    let (at, _, serial) = find_turn(&work.row.root, 0, iid)?;
    let Some(Invoked { kind: InvokedKind::Agent(turn), .. }) = work.invoked(serial) else { return None };
    if !turn.takes_picks() {
        return None; // whoever asks is an earlier Turn's Submission of the same conversation, not aborted yet
    }
    let workflow = work.workflow(at)?;
    let menu = workflow.menus.get(&turn.frame.agent).cloned().unwrap_or_default();
    let menu = menu
        .into_iter()
        .filter_map(|name| {
            let definition = workflow.events.get(&name)?;
            Some(MenuItem {
                name,
                description: definition.description.clone(),
                input: definition.payload.clone().unwrap_or_else(empty_object_schema),
                semantics: "ack".to_owned(),
                briefing: definition.briefing.clone(),
            })
        })
        .collect();
    let Place { sandbox, .. } = work.place(at, turn);
    let surface = Surface {
        instance_id: iid.to_owned(),
        run_id: row.id.as_str().to_owned(),
        sandbox: sandbox.clone(),
        menu: Some(menu),
        allowed: Some(work.allowed(serial)),
        accepts: None,
        picks: Some(PICKS_KEYED.to_owned()),
    };
    Some((surface, sandbox))
}

impl Work<'_> {
    /// The Harness read the surface for the conversation's newest admission: its notices count as heard (spec N-57).
    pub fn surface_read(&mut self, iid: &str) {
        if let Some((_, _, serial)) = find_turn(&self.row.root, 0, iid) {
            self.turn_input(serial, TurnInput::SurfaceRead);
        }
    }
}

/// One open Gate of a row.
#[derive(Clone, Debug)]
pub struct OpenGate {
    /// Its id.
    pub gate: String,
    /// The workflow of its actor.
    pub workflow: String,
    /// Its state.
    pub state: StateIx,
    /// Entry ordinal of its state.
    pub ordinal: u64,
    /// What the person sees.
    pub meta: Value,
}

/// Every open Gate.
pub fn gates_of(program: &Program, row: &Row) -> Vec<OpenGate> {
    let work = Work::new(program, row.clone(), Facts { now: 0, seed: 0 });
    let mut found = Vec::new();
    for (gate, at, state, ordinal) in work.open_gates() {
        let Some(actor) = work.actor(at) else { continue };
        let Some(Invoked { kind: InvokedKind::Gate { meta }, .. }) = actor.invoked.get(&state) else { continue };
        found.push(OpenGate { gate, workflow: actor.workflow.clone(), state, ordinal, meta: meta.clone() });
    }
    found
}

/// Every live Turn as others see it.
pub fn turns_of(program: &Program, row: &Row) -> Vec<TurnView> {
    let work = Work::new(program, row.clone(), Facts { now: 0, seed: 0 });
    let mut found = Vec::new();
    for (serial, _) in work.live_turns() {
        let Some(Invoked { kind: InvokedKind::Agent(turn), .. }) = work.invoked(serial) else { continue };
        let phase = serde_json::to_value(&turn.phase).ok();
        let phase = phase.as_ref().and_then(|p| p.get("at")).and_then(Value::as_str).unwrap_or_default().to_owned();
        found.push(TurnView {
            instance_id: turn.iid.as_str().to_owned(),
            agent: turn.frame.agent.clone(),
            path: work.child_path(serial),
            phase,
        });
    }
    found
}

/// The words of a 404 (spec P-3).
pub fn surface_refusal(iid: &str) -> String {
    format!("no live agent surface for instance \"{iid}\"")
}
