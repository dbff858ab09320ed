//! Everything about a file that its shape does not say: which keys go together, whether names exist, whether the machine
//! can get anywhere.

mod events;
mod names;
mod reach;
mod schemas;
mod structure;
mod turns;

use super::codes;
pub use names::ROOTS;

use super::definition::Definition;
use super::diagnostic::Problems;
use super::lower::lower;
use super::model::Workflow;
use super::resolve::resolve;
use crate::workflow::codes::Severity;

/// Checks a definition and lowers it; `None` when there is an error.
pub fn check(definition: &Definition, problems: &mut Problems) -> Option<Workflow> {
    structure::check(definition, problems);
    let resolved = resolve(definition, problems);
    events::check(definition, problems);
    names::check(definition, problems);
    let validators = schemas::check(definition, problems);
    // What the machine can reach means nothing while targets or states are missing.
    let broken = |code: &str| {
        code < codes::UNDECLARED_EVENT.code
            || [&codes::UNDECLARED_EVENT, &codes::UNKNOWN_AGENT, &codes::TARGETS_CLASH, &codes::INITIAL_OUTSIDE]
                .iter()
                .any(|c| c.code == code)
    };
    if problems.any(|d| d.severity == Severity::Error && broken(d.code)) {
        return None;
    }
    let workflow = lower(definition, &resolved, validators);
    reach::check(definition, &workflow, problems);
    turns::check(definition, &workflow, problems);
    (!problems.any(|d| d.severity == Severity::Error)).then_some(workflow)
}
