//! What the Orchestrator says about itself to machines: counters for Prometheus, a trace for every run.
//!
//! `seen` is pure: it tells what a save brought from the rows before and after it. Only durable saves are told, so a crash
//! counts nothing twice within one process, and what is counted has happened.

mod metrics;
mod seen;
mod spans;

pub use metrics::{metrics, text};
pub use seen::{NoticeState, Seen, seen};
pub use spans::spans;

use crate::run::core::Input;
use crate::run::{FeedEntry, Row};

/// A save is durable: counts and traces what it brought.
pub fn note(before: &Row, after: &Row, input: &Input, feed: &[FeedEntry]) {
    let all = seen(before, after, input, feed);
    for what in &all {
        metrics().note(what);
    }
    if jr2_telemetry::wanted() {
        spans(&after.id, &all).into_iter().for_each(jr2_telemetry::finish);
    }
}
