//! The list of claims that a build is known not to keep: one id a line, `#` begins a comment.

use crate::suite::cases;
use std::collections::BTreeSet;

/// Claims that are expected to fail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    ids: BTreeSet<String>,
}

/// Why a list cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpectedError {
    /// It names no claim of this suite.
    #[error("line {line}: `{id}` is no claim of this suite; --list shows them")]
    Unknown {
        /// Its line, from 1.
        line: usize,
        /// What stands there.
        id: String,
    },
}

impl Expected {
    /// Reads a list.
    pub fn parse(text: &str) -> Result<Self, ExpectedError> {
        let known: BTreeSet<&str> = cases::all().iter().map(|case| case.id).collect();
        let mut ids = BTreeSet::new();
        for (at, line) in text.lines().enumerate() {
            let id = line.split('#').next().unwrap_or_default().trim();
            if id.is_empty() {
                continue;
            }
            if !known.contains(id) {
                return Err(ExpectedError::Unknown { line: at + 1, id: id.chars().take(100).collect() });
            }
            ids.insert(id.to_owned());
        }
        Ok(Self { ids })
    }

    /// Whether the claim is expected to fail.
    pub fn has(&self, id: &str) -> bool {
        self.ids.contains(id)
    }
}
