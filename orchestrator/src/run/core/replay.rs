//! Re-stepping a recorded run (decision 44): same inputs, same times, same random bits, same rows.

use super::{Input, adopt, apply};
use crate::run::{HistoryEntry, Row};
use crate::workflow::Program;
use std::sync::Arc;

/// What a replay found.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Replay {
    /// Saves re-stepped.
    pub steps: u64,
    /// The first difference; `None` = the recorded run and the engine agree.
    pub difference: Option<Difference>,
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Difference {
    /// At this save.
    pub rev: u64,
    /// In this part.
    pub part: String,
    /// As recorded.
    pub recorded: String,
    /// As re-stepped.
    pub replayed: String,
}

/// Re-steps `entries` from `first` (the row before save 1) and compares with what was recorded and with `last`.
pub fn replay(
    program: Arc<Program>,
    first: Row,
    entries: &[HistoryEntry],
    last: &Row,
    programs: &dyn Fn(&str) -> Option<Arc<Program>>,
) -> Replay {
    let mut program = program;
    let mut row = first;
    let mut steps = 0;
    for entry in entries {
        let differs = |part: &str, recorded: String, replayed: String| {
            (recorded != replayed).then(|| Difference { rev: entry.rev, part: part.to_owned(), recorded, replayed })
        };
        let outcome = match &entry.input {
            Input::Adopt { program: hash } => {
                let Some(new) = programs(hash) else {
                    let difference = differs("program", hash.clone(), "not in the store".to_owned());
                    return Replay { steps, difference };
                };
                match adopt(&program, &new, &row, entry.facts) {
                    Ok(outcome) => {
                        program = new;
                        outcome
                    }
                    Err(problems) => {
                        return Replay { steps, difference: differs("adopt", "ok".to_owned(), problems.join("; ")) };
                    }
                }
            }
            input => apply(&program, &row, input, entry.facts),
        };
        let names: Vec<String> = outcome.effects.iter().map(super::Effect::name).collect();
        let difference = differs("rev", entry.rev.to_string(), outcome.row.rev.to_string())
            .or_else(|| differs("transitions", entry.transitions.join(", "), outcome.taken.join(", ")))
            .or_else(|| differs("effects", entry.effects.join(", "), names.join(", ")))
            .or_else(|| differs("feed", text(&entry.feed), text(&outcome.feed)));
        if difference.is_some() {
            return Replay { steps, difference };
        }
        row = outcome.row;
        steps += 1;
    }
    let rev = row.rev;
    let (recorded, replayed) = (text(last), text(&row));
    let difference = (recorded != replayed).then(|| Difference { rev, part: "row".to_owned(), recorded, replayed });
    Replay { steps, difference }
}

fn text(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
