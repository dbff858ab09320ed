//! What a run came to: verdicts, the table, JSON, JUnit, and which results were expected.

mod expected;
mod json;
mod junit;
mod table;

pub use expected::{Expected, ExpectedError};
pub use json::json;
pub use junit::junit;
pub use table::{line, list, table};

use super::case::{Case, Halt, Outcome};
use std::time::Duration;

/// One claim's result.
#[derive(Clone)]
pub struct Verdict {
    /// The claim.
    pub case: &'static Case,
    /// How its check ended.
    pub outcome: Outcome,
    /// It is on the list of expected failures.
    pub expected: bool,
    /// How long it took.
    pub took: Duration,
}

impl Verdict {
    /// A failure nobody expected, or a claim that holds though it was expected to fail.
    pub fn is_unexpected(&self) -> bool {
        match self.outcome {
            Ok(()) => self.expected,
            Err(Halt::Failed(_)) => !self.expected,
            Err(Halt::NotRun(_)) => false,
        }
    }

    /// `ok`, `FAILED`, `not run`, `failed (expected)` or `OK, BUT EXPECTED TO FAIL`.
    pub fn word(&self) -> &'static str {
        match (&self.outcome, self.expected) {
            (Ok(()), false) => "ok",
            (Ok(()), true) => "OK, BUT EXPECTED TO FAIL",
            (Err(Halt::Failed(_)), false) => "FAILED",
            (Err(Halt::Failed(_)), true) => "failed (expected)",
            (Err(Halt::NotRun(_)), _) => "not run",
        }
    }

    /// What was seen, or why it was not run; empty for a claim that holds.
    pub fn words(&self) -> &str {
        match &self.outcome {
            Ok(()) => "",
            Err(Halt::Failed(words) | Halt::NotRun(words)) => words,
        }
    }
}

/// A run's result.
#[derive(Clone)]
pub struct Report {
    /// One a claim, in the order of the list.
    pub verdicts: Vec<Verdict>,
    /// How long the run took.
    pub took: Duration,
}

/// How many of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Hold.
    pub passed: usize,
    /// Do not hold.
    pub failed: usize,
    /// Nothing is known.
    pub not_run: usize,
    /// Of all, those nobody expected.
    pub unexpected: usize,
}

impl Report {
    /// How many of each.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for verdict in &self.verdicts {
            match verdict.outcome {
                Ok(()) => counts.passed += 1,
                Err(Halt::Failed(_)) => counts.failed += 1,
                Err(Halt::NotRun(_)) => counts.not_run += 1,
            }
            counts.unexpected += usize::from(verdict.is_unexpected());
        }
        counts
    }

    /// Whether every result was expected.
    pub fn is_as_expected(&self) -> bool {
        self.verdicts.iter().all(|verdict| !verdict.is_unexpected())
    }

    /// The results nobody expected.
    pub fn unexpected(&self) -> impl Iterator<Item = &Verdict> {
        self.verdicts.iter().filter(|verdict| verdict.is_unexpected())
    }
}

#[cfg(test)]
mod tests;
