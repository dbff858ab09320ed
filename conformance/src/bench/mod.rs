//! Benchmarks with a command each: what a figure in the documentation was measured with.
//!
//! Every benchmark is a function from options to a report, and a report is printed as one JSON object. Nothing here is a
//! test: a figure depends on the machine, and is given with the machine's own limits beside it.

pub mod conversations;
pub mod fdatasync;
mod feed;
pub mod guard;
pub mod harness_step;
pub mod model_step;
pub(crate) mod process;
pub mod runs;
pub mod suite;

use serde::Serialize;
use std::time::Duration;

/// Why a benchmark has no figure.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A file, a process or a disk.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Why not.
        source: std::io::Error,
    },
    /// The wire.
    #[error("request failed: {0}")]
    Http(#[from] reqwest::Error),
    /// An answer that is none of the expected.
    #[error("{0}")]
    Unexpected(String),
    /// It took too long.
    #[error("gave up after {0:?}: {1}")]
    Deadline(Duration, String),
    /// The scripted model did not start.
    #[error(transparent)]
    Model(#[from] crate::model::StartError),
}

impl BenchError {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        |source| Self::Io { what, source }
    }
}

/// How long single steps took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Times {
    /// How many.
    pub count: usize,
    /// Half took less, in microseconds.
    pub p50_us: u64,
    /// 99 of 100 took less, in microseconds.
    pub p99_us: u64,
    /// The slowest, in microseconds.
    pub max_us: u64,
}

impl Times {
    /// Sums up measured durations.
    pub fn of(mut durations: Vec<Duration>) -> Self {
        durations.sort_unstable();
        let at = |part: usize| {
            let index = (durations.len() * part / 100).min(durations.len().saturating_sub(1));
            durations.get(index).map_or(0, |d| d.as_micros() as u64)
        };
        Self { count: durations.len(), p50_us: at(50), p99_us: at(99), max_us: at(100) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_sorted_times() {
        let times = Times::of((1..=200).rev().map(Duration::from_micros).collect());
        assert_eq!(times, Times { count: 200, p50_us: 101, p99_us: 199, max_us: 200 });
        assert_eq!(Times::of(Vec::new()), Times { count: 0, p50_us: 0, p99_us: 0, max_us: 0 });
    }
}
