//! The summariser's question: the part of a conversation that goes, as text, within a bound (F37).

use super::{BYTES_PER_TOKEN, Context, Plan};
use crate::briefing::{self, transcript_item};
use crate::model::ChatMessage;

/// Longest call or result in the transcript, in characters; the next one is tried when the whole is too long.
const CLIPS: [usize; 3] = [2_000, 500, 120];

/// The question that a plan asks the summariser: its system prompt and one user message. The whole of it, counted as
/// the plan counts, is within the budget's bound.
pub fn summary_question(context: &Context, plan: &Plan) -> Vec<ChatMessage> {
    let (system, ask) = (briefing::SUMMARY_SYSTEM, briefing::SUMMARY_REQUEST);
    let bytes = plan.budget.question() as f64 * BYTES_PER_TOKEN as f64 / plan.scale.max(1.0);
    // The marks around the transcript and of two messages.
    let room = (bytes as usize).saturating_sub(system.len() + ask.len() + 128);
    let gone = &context.tail[..plan.from - context.from];
    let transcript = transcript(context.summary.as_deref(), gone, room);
    vec![ChatMessage::System(system.to_owned()), ChatMessage::User(briefing::summary_request(&transcript))]
}

/// The transcript in at most `room` bytes. What is cut first: long calls and results, then what is oldest, but never the
/// beginning, which holds the earlier summary or the task.
fn transcript(summary: Option<&str>, messages: &[ChatMessage], room: usize) -> String {
    let mut items: Vec<String> = Vec::new();
    for clip in CLIPS {
        let earlier = summary.map(|text| ChatMessage::User(briefing::compacted(text)));
        items = earlier.iter().chain(messages).filter_map(|message| transcript_item(message, clip)).collect();
        if length(&items) <= room {
            return items.join("\n\n");
        }
    }
    let Some(first) = items.first().cloned() else { return String::new() };
    let first = head(&first, room / 2);
    let mut left = room.saturating_sub(first.len() + briefing::TRANSCRIPT_GAP.len() + 4);
    let mut newest: Vec<&str> = Vec::new();
    for item in items[1..].iter().rev() {
        if item.len() + 2 > left {
            // The newest of all is worth its end rather than nothing.
            if newest.is_empty() {
                newest.push(tail(item, left));
            }
            break;
        }
        left -= item.len() + 2;
        newest.push(item);
    }
    let kept = [first, briefing::TRANSCRIPT_GAP].into_iter().chain(newest.into_iter().rev()).collect::<Vec<_>>();
    head(&kept.join("\n\n"), room).to_owned()
}

fn length(items: &[String]) -> usize {
    items.iter().map(|item| item.len() + 2).sum()
}

fn head(text: &str, bytes: usize) -> &str {
    &text[..text.floor_char_boundary(bytes)]
}

fn tail(text: &str, bytes: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(bytes))..]
}
