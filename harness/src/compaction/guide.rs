//! What comes before a question: nothing, a cut, or the end (spec 6.9; F37 to F39). One guide a Submission.

use super::{Budget, Context, Plan, scaled};
use crate::model::Usage;

/// Cuts in a row that may leave the context too big before the Submission ends (F38).
pub const IN_A_ROW_MAX: u32 = 3;
/// What an overflow after our own count tells of that count: it was too low by at least this.
const OVERFLOW_SCALE: f64 = 4.0 / 3.0;

/// What comes next.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// Ask the model.
    Ask,
    /// Cut first.
    Compact(Plan),
    /// No question will fit: the Submission ends with these words.
    Fail(String),
}

/// The guide's memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Guide {
    /// Estimated tokens of the system prompt and the tools.
    pub fixed: u64,
    in_a_row: u32,
    scale: f64,
    /// Tokens of the context as it was last looked at.
    tokens: u64,
    /// The server refused the last question as too long.
    refused: bool,
}

impl Default for Guide {
    fn default() -> Self {
        Self { fixed: 0, in_a_row: 0, scale: 1.0, tokens: 0, refused: false }
    }
}

impl Guide {
    /// Decides over the context as it would be sent. Without a budget, or before the server counted anything since the
    /// last cut, there is none (spec H-35), unless the server itself refused the question.
    pub fn next(&mut self, context: &Context, budget: Option<Budget>) -> Next {
        if let Some(scale) = context.scale(self.fixed) {
            self.scale = scale;
        }
        let tokens = context.tokens(self.fixed, self.scale);
        self.tokens = tokens;
        let Some(budget) = budget else { return Next::Ask };
        let too_big = context.counted.is_some() && tokens > budget.threshold();
        if !self.refused && !too_big {
            return Next::Ask;
        }
        if self.in_a_row >= IN_A_ROW_MAX {
            let (n, window) = (self.in_a_row, budget.window);
            return Next::Fail(format!(
                "compacted {n} times in a row, and about {tokens} tokens are still too many for the window of {window}"
            ));
        }
        match context.cut(budget.keep(), self.scale) {
            Some(index) => {
                let kept = scaled(self.fixed + context.tail_from(index), self.scale);
                Next::Compact(Plan { from: context.from + index, tokens, kept, scale: self.scale, budget })
            }
            None if self.refused => Next::Fail(format!(
                "the window of {} tokens is too small, and nothing is left to compact",
                budget.window
            )),
            // One message alone passes the threshold: it may fit the window all the same.
            None => Next::Ask,
        }
    }

    /// A cut stands in the record.
    pub fn compacted(&mut self) {
        self.in_a_row += 1;
        self.refused = false;
    }

    /// The model answered: the context fits, and without a count nobody knows better.
    pub fn answered(&mut self, usage: Option<Usage>, budget: Option<Budget>) {
        self.refused = false;
        let counted = usage.and_then(|usage| usage.prompt_tokens);
        if counted.zip(budget).is_none_or(|(tokens, budget)| tokens <= budget.threshold()) {
            self.in_a_row = 0;
        }
    }

    /// Whether the server refused the last question as too long.
    pub fn was_refused(&self) -> bool {
        self.refused
    }

    /// The server refused the question as too long. Gives the tokens that were sent: the window is smaller.
    pub fn overflowed(&mut self) -> u64 {
        self.refused = true;
        self.scale = (self.scale * OVERFLOW_SCALE).min(4.0);
        self.tokens
    }
}
