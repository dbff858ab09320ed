//! Runs as they lie in a store, read without starting anything: for `jr2 runs`, `status`, `history` and `replay` when no
//! Orchestrator runs.

use super::birth::new_row;
use super::core::{self, Input, Replay};
use super::host::HostError;
use super::view::{RunStatus, RunSummary, run_status, summary};
use super::{HistoryEntry, Row};
use crate::store::{RunStore, StoreError};
use crate::workflow::Program;
use jr2_shared::ids::{RUN_PREFIX_MIN, RunId};
use serde_json::Value;
use std::sync::Arc;

/// Most runs an ambiguous prefix names.
const HITS_MAX: usize = 10;

/// Reads runs of a store.
pub struct StoredRuns<'s> {
    store: &'s dyn RunStore,
}

fn unreadable(error: impl std::fmt::Display) -> HostError {
    HostError::Store(StoreError::Unreadable(error.to_string()))
}

impl<'s> StoredRuns<'s> {
    /// Of this store.
    pub fn new(store: &'s dyn RunStore) -> Self {
        Self { store }
    }

    /// The run list; rows that cannot be read are left out and logged.
    pub fn list(&self, workflow: Option<&str>) -> Result<Vec<RunSummary>, HostError> {
        let mut found = Vec::new();
        for (run, bytes) in self.store.rows()? {
            let Ok(row) = serde_json::from_slice::<Row>(&bytes) else {
                tracing::error!(%run, "a row is unreadable");
                continue;
            };
            if workflow.is_some_and(|w| w != row.workflow) {
                continue;
            }
            found.push(match self.program(&row.program) {
                Ok(program) => summary(&program, &row),
                Err(_) => super::host::bare_summary(&row),
            });
        }
        Ok(found)
    }

    /// The one run a prefix names (decision 19).
    pub fn resolve(&self, prefix: &str) -> Result<RunId, HostError> {
        if prefix.len() < RUN_PREFIX_MIN {
            let message = format!("\"{prefix}\" is too short: a run is named by {RUN_PREFIX_MIN} characters or more");
            return Err(HostError::Invalid { message, problems: Vec::new() });
        }
        let mut hits: Vec<String> = Vec::new();
        self.store.visit_rows(&mut |run, _| {
            if run.as_str().starts_with(prefix) && hits.len() < HITS_MAX {
                hits.push(run.as_str().to_owned());
            }
        })?;
        match hits.len() {
            0 => Err(HostError::NotFound(format!("no run \"{prefix}\""))),
            1 => Ok(RunId(hits.remove(0))),
            _ => Err(HostError::Ambiguous { prefix: prefix.to_owned(), hits }),
        }
    }

    /// The row of a run.
    pub fn row(&self, run: &RunId) -> Result<Row, HostError> {
        let bytes = self.store.row(run)?.ok_or_else(|| HostError::NotFound(format!("no run \"{run}\"")))?;
        serde_json::from_slice(&bytes).map_err(unreadable)
    }

    /// The whole status.
    pub fn status(&self, run: &RunId) -> Result<RunStatus, HostError> {
        let row = self.row(run)?;
        Ok(run_status(&*self.program(&row.program)?, &row))
    }

    /// History entries from revision `from` on.
    pub fn history(&self, run: &RunId, from: u64) -> Result<Vec<HistoryEntry>, HostError> {
        let raw = self.store.history(run, from, usize::MAX)?;
        raw.into_iter().map(|(_, bytes)| serde_json::from_slice(&bytes).map_err(unreadable)).collect()
    }

    /// A pinned program.
    pub fn program(&self, hash: &str) -> Result<Arc<Program>, HostError> {
        let text = self.store.text(hash)?.ok_or_else(|| unreadable("a program's text is not in the store"))?;
        let text = String::from_utf8(text).map_err(unreadable)?;
        Program::from_canonical(&text).map(Arc::new).map_err(unreadable)
    }

    /// Re-steps a run from its history and compares (decision 44).
    pub fn replay(&self, run: &RunId) -> Result<Replay, HostError> {
        let entries = self.history(run, 0)?;
        replay_row(&self.row(run)?, &entries, &|hash| self.program(hash))
    }
}

/// Re-steps `entries` and compares with them and with `row`.
pub(super) fn replay_row(
    row: &Row,
    entries: &[HistoryEntry],
    program: &dyn Fn(&str) -> Result<Arc<Program>, HostError>,
) -> Result<Replay, HostError> {
    let invalid = |message: String| HostError::Invalid { message, problems: Vec::new() };
    let run = &row.id;
    match entries.first() {
        Some(first) if first.rev == 1 => {}
        Some(first) => {
            let message = format!("the history of {run} begins at save {}: older saves were dropped", first.rev);
            return Err(invalid(message));
        }
        None => return Err(invalid(format!("run {run} has no history"))),
    }
    let adopted = entries.iter().any(|e| matches!(e.input, Input::Adopt { .. }));
    let hash = if adopted { row.first_program.as_ref().unwrap_or(&row.program) } else { &row.program };
    let known = program(hash)?;
    let input: Value = row.root.input.clone();
    let mut first = new_row(&known, &row.workflow, input, row.started);
    first.id = row.id.clone();
    first.semantics = row.semantics;
    Ok(core::replay(known, first, entries, row, &|hash| program(hash).ok()))
}
