//! The row of a run that has not started.

use super::clock::random;
use super::{Actor, ROW_FORMAT, Row, SEMANTICS, Status};
use crate::workflow::Program;
use jr2_shared::ids::RunId;
use serde_json::Value;
use std::collections::BTreeMap;

pub(super) fn new_row(program: &Program, workflow: &str, input: Value, now: u64) -> Row {
    let mut random_id = [0u8; 16];
    random_id[..8].copy_from_slice(&random().to_le_bytes());
    random_id[8..].copy_from_slice(&random().to_le_bytes());
    first_row(program, workflow, input, now, RunId::from_random(random_id))
}

/// The row of a run that has not started.
pub fn first_row(program: &Program, workflow: &str, input: Value, now: u64, id: RunId) -> Row {
    Row {
        v: ROW_FORMAT,
        semantics: SEMANTICS,
        id,
        workflow: workflow.to_owned(),
        program: program.hash.clone(),
        first_program: None,
        started: now,
        clock: now,
        ended: None,
        status: Status::Live,
        reason: None,
        rev: 0,
        next_serial: 1,
        root: Actor {
            workflow: workflow.to_owned(),
            path: String::new(),
            input,
            workspace: None,
            chart: None,
            invoked: BTreeMap::new(),
            timers: Vec::new(),
            buffered: Vec::new(),
        },
        output: None,
        epochs: BTreeMap::new(),
        conversations: BTreeMap::new(),
        ledger: Default::default(),
        dropped_notices: 0,
        aborts: Vec::new(),
        deletes: Vec::new(),
        kept: Vec::new(),
        branches: Vec::new(),
        kept_workspaces: Vec::new(),
        queue: Default::default(),
        answers: Default::default(),
    }
}
