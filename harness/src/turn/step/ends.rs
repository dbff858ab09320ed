//! How a Submission ends: its last messages and its settlement.

use super::{Effect, Phase, State, Stop, enter, entry};
use crate::conversation::Entry;
use crate::model::{ChatMessage, ModelAnswer, Usage};
use crate::mutation::{self, Mutation};
use jr2_shared::harness::{DONE_TEXT_MAX_BYTES, Outcome, Settlement, SettlementError, error_type};

/// An answer's text as a message of its own, without calls.
pub(super) fn spoken(answer: &ModelAnswer) -> ChatMessage {
    ChatMessage::Assistant { text: answer.text.clone(), reasoning: answer.reasoning.clone(), tool_calls: Vec::new() }
}

/// Results for every call that has none yet.
pub(super) fn close_open(state: &mut State, words: &str) -> Vec<ChatMessage> {
    let open = state.current.take().into_iter().chain(state.plans.drain(..));
    open.map(|plan| ChatMessage::Tool { call_id: plan.call().to_owned(), content: words.to_owned() }).collect()
}

/// Messages as entries, and what the server counted for the answer behind it. The answer itself counts only when it is
/// kept.
pub(super) fn entries(state: &mut State, messages: Vec<ChatMessage>) -> Vec<Entry> {
    let answer = messages.iter().position(|message| matches!(message, ChatMessage::Assistant { .. }));
    let mut entries: Vec<Entry> = messages.into_iter().map(|message| entry(state, message)).collect();
    if let Some(Usage { prompt_tokens: Some(asked), completion_tokens, .. }) = state.usage.take() {
        let (at, tokens) = match (answer, completion_tokens) {
            (Some(at), Some(said)) => (at + 1, asked.saturating_add(said)),
            (at, _) => (at.unwrap_or(0), asked),
        };
        entries.insert(at, Entry::Counted { tokens });
    }
    entries
}

pub(super) fn complete(state: &mut State, messages: Vec<ChatMessage>) -> Vec<Effect> {
    let end = state.last_text.floor_char_boundary(DONE_TEXT_MAX_BYTES);
    let settlement = Settlement {
        submission_id: state.frame.submission.clone(),
        outcome: Outcome::Completed,
        error: None,
        prompted: None,
        text: (end > 0).then(|| state.last_text[..end].to_owned()),
    };
    settling(state, messages, settlement)
}

pub(super) fn stopped(state: &mut State, messages: Vec<ChatMessage>) -> Vec<Effect> {
    match state.stop {
        Some(Stop::Drain) => {
            let settlement = restarted(&state.frame.submission, state.prompted);
            settling(state, messages, settlement)
        }
        _ => settle(state, messages, Outcome::Aborted, error_type::ABORTED, "the Submission was aborted"),
    }
}

pub(super) fn settle(
    state: &mut State,
    messages: Vec<ChatMessage>,
    outcome: Outcome,
    kind: &str,
    words: &str,
) -> Vec<Effect> {
    let error = Some(SettlementError { kind: kind.to_owned(), message: words.to_owned() });
    let submission_id = state.frame.submission.clone();
    let prompted = Some(state.prompted);
    let completes = outcome == Outcome::Failed && mutation::is(Mutation::FailedAsCompleted);
    let outcome = if completes { Outcome::Completed } else { outcome };
    settling(state, messages, Settlement { submission_id, outcome, error, prompted, text: None })
}

/// The last messages and the settlement stand in one write.
fn settling(state: &mut State, messages: Vec<ChatMessage>, settlement: Settlement) -> Vec<Effect> {
    let mut entries = entries(state, messages);
    entries.push(Entry::Settled { settlement });
    enter(state, Phase::Settling, Effect::Record { entries, sync: true, told: None })
}

/// The settlement of a Submission whose Harness ended under it (spec H-14, decision 32).
pub fn restarted(submission: &str, prompted: bool) -> Settlement {
    Settlement {
        submission_id: submission.to_owned(),
        outcome: if mutation::is(Mutation::RestartAborts) { Outcome::Aborted } else { Outcome::Failed },
        error: Some(SettlementError {
            kind: error_type::HARNESS_RESTARTED.to_owned(),
            message: "the Harness restarted while this Submission was open".to_owned(),
        }),
        prompted: Some(prompted),
        text: None,
    }
}
