//! What the Harness says about itself to machines: counters for Prometheus, a span for every model and tool call.

mod metrics;
mod spans;

pub use metrics::{metrics, text};
pub use spans::{Asked, Called};

use crate::conversation::Entry;
use jr2_shared::harness::Outcome;

/// Entries stand in the record: counts what they say.
pub fn recorded(entries: &[Entry]) {
    for entry in entries {
        match entry {
            Entry::Settled { settlement } => {
                let outcome = match settlement.outcome {
                    Outcome::Completed => "completed",
                    Outcome::Failed => "failed",
                    Outcome::Aborted => "aborted",
                };
                metrics().settled(outcome, settlement.error.as_ref().map_or("none", |error| error.kind.as_str()));
            }
            Entry::Compacted { .. } => {
                metrics().compactions.inc();
            }
            _ => {}
        }
    }
}
