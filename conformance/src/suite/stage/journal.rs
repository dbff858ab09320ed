//! What a check did and saw, for the one who reads its failure.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Lines a journal keeps: the newest.
const LINES_MAX: usize = 40;

/// One check's journal.
#[derive(Debug, Default)]
pub struct Journal {
    lines: Mutex<(VecDeque<String>, Option<String>)>,
}

impl Journal {
    /// Adds a line.
    pub fn note(&self, line: String) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.0.len() == LINES_MAX {
            lines.0.pop_front();
        }
        lines.0.push_back(line);
    }

    /// Says what is waited for.
    pub fn wait_for(&self, what: &str) {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).1 = Some(what.to_owned());
    }

    /// It came.
    pub fn waited(&self) {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).1 = None;
    }

    /// What is waited for now.
    pub fn waiting(&self) -> Option<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    /// The lines, one each.
    pub fn text(&self) -> String {
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.0.iter().flat_map(|line| ["  ", line, "\n"]).collect()
    }
}
