//! When a conversation is compacted, where it is cut, and what the summariser is asked (spec 6.9). Pure.
//!
//! Nothing is thrown away: the record keeps every message, a cut only says from which one on the model is sent them
//! verbatim, and what stands in for the rest.

mod budget;
mod guide;
mod transcript;

pub use budget::Budget;
pub use guide::{Guide, IN_A_ROW_MAX, Next};
pub use transcript::summary_question;

use crate::briefing;
use crate::model::ChatMessage;

/// Bytes of text that count as one token where the server has not said better: what common tokenisers need for prose.
const BYTES_PER_TOKEN: u64 = 4;
/// Tokens a message costs beside its text: its role and its marks in the template.
const TOKENS_PER_MESSAGE: u64 = 4;

/// Tokens the server counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Of the system prompt, the tools and the messages before `at`.
    pub tokens: u64,
    /// The first message not in it, counted from the conversation's first.
    pub at: usize,
}

/// What the model is sent of a conversation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Context {
    /// The message that stands in for everything before `from`; none before the first cut.
    pub summary: Option<String>,
    /// Index of the first message that is sent verbatim.
    pub from: usize,
    /// The messages from `from` on.
    pub tail: Vec<ChatMessage>,
    /// What the server counted last; none after a cut until it answers again (spec H-35).
    pub counted: Option<Counted>,
}

impl Context {
    /// The messages as the model is sent them, after the system prompt.
    pub fn into_messages(self) -> Vec<ChatMessage> {
        let summary = self.summary.map(|text| ChatMessage::User(briefing::compacted(&text)));
        summary.into_iter().chain(self.tail).collect()
    }

    /// Estimated tokens before the tail: `fixed` (system prompt and tools) and the summary.
    fn head(&self, fixed: u64) -> u64 {
        fixed + self.summary.as_ref().map_or(0, |text| tokens_of_bytes(text.len()) + TOKENS_PER_MESSAGE)
    }

    /// Estimated tokens of the tail from its message `index` on.
    fn tail_from(&self, index: usize) -> u64 {
        self.tail.iter().skip(index).map(tokens_of).sum()
    }

    /// How many tokens the server counts for one we estimate; `None` before it counted.
    fn scale(&self, fixed: u64) -> Option<f64> {
        let counted = self.counted?;
        let estimated = (self.head(fixed) + self.tail_from(0)).saturating_sub(self.tail_from(counted.at - self.from));
        // A count far off is a server's fault (F35), and must not make us cut everything or nothing.
        Some((counted.tokens as f64 / estimated.max(1) as f64).clamp(0.5, 4.0))
    }

    /// Tokens of the next request: what the server counted and what came since, else all of it estimated.
    fn tokens(&self, fixed: u64, scale: f64) -> u64 {
        match self.counted {
            Some(counted) => counted.tokens + scaled(self.tail_from(counted.at - self.from), scale),
            None => scaled(self.head(fixed) + self.tail_from(0), scale),
        }
    }

    /// Where to cut so that about `keep` tokens stay, as an index into the tail; `None` when nothing can go. A call and
    /// its results stay together: no cut stands before a result.
    fn cut(&self, keep: u64, scale: f64) -> Option<usize> {
        let keep = keep.min(scaled(self.tail_from(0), scale) / 2);
        let mut kept = 0;
        let edge = self.tail.iter().rposition(|message| {
            kept += scaled(tokens_of(message), scale);
            kept >= keep
        })?;
        let may_begin = |index: &usize| *index > 0 && !matches!(self.tail[*index], ChatMessage::Tool { .. });
        (edge..self.tail.len()).find(may_begin).or_else(|| (1..edge).rev().find(may_begin))
    }
}

/// A cut that is to be made.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Index of the first message that stays, counted from the conversation's first.
    pub from: usize,
    /// Tokens of the context as it is.
    pub tokens: u64,
    /// Estimated tokens of what goes on being sent beside the new summary.
    pub kept: u64,
    /// Tokens the server counts for one we estimate.
    pub scale: f64,
    /// The budget it was made for.
    pub budget: Budget,
}

/// Estimated tokens of a text of so many bytes.
pub fn tokens_of_bytes(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(BYTES_PER_TOKEN)
}

/// Estimated tokens of a message. Reasoning is left out: most servers are not sent it.
pub fn tokens_of(message: &ChatMessage) -> u64 {
    let bytes = match message {
        ChatMessage::System(text) | ChatMessage::User(text) => text.len(),
        ChatMessage::Tool { call_id, content } => call_id.len() + content.len(),
        ChatMessage::Assistant { text, tool_calls, .. } => {
            text.len() + tool_calls.iter().map(|c| c.id.len() + c.name.len() + c.arguments.len()).sum::<usize>()
        }
    };
    tokens_of_bytes(bytes) + TOKENS_PER_MESSAGE
}

fn scaled(tokens: u64, scale: f64) -> u64 {
    (tokens as f64 * scale).ceil() as u64
}

#[cfg(test)]
mod tests;
