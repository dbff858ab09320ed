//! The notices' words (spec 8.5) and the words of a pick's answer (spec N-87).

use super::one_line;
use jr2_shared::ids::menu_tool_name;
use jr2_shared::memory_kills::{NAME_MAX, is_guard_size};
use jr2_shared::notice::Notice;
use jr2_shared::surface::PickReply;
use serde_json::Value;

/// Longest reason of a new conversation, in characters: one Orchestrator sentence or two.
const REASON_MAX_CHARS: usize = 1_000;
/// Longest payload of an answer in bytes; the workflow bounds it tighter, this holds for any Orchestrator.
const PAYLOAD_MAX_BYTES: usize = 64 << 10;

/// The line of one notice; `None` for a `pick-answer` whose cut this build does not know.
pub fn notice_line(notice: &Notice, shm_private: bool) -> Option<String> {
    Some(format!("Notice: {}", words(notice, shm_private)?))
}

fn words(notice: &Notice, shm_private: bool) -> Option<String> {
    match notice {
        Notice::MemoryLimit { agent, limit, peak } => {
            Some(memory_words(agent.as_deref(), limit.as_deref(), peak.as_deref(), shm_private))
        }
        Notice::ConversationNew { reason } => {
            let reason: String = one_line(reason).chars().take(REASON_MAX_CHARS).collect();
            Some(format!("This conversation is new; earlier context is gone ({reason})."))
        }
        Notice::PickAnswer { pick, cut, answer, stopped } => {
            pick_words(pick, cut, answer.as_ref(), *stopped == Some(true))
        }
    }
}

/// NT1 to NT4, and their variants without `/dev/shm` (decision 45).
fn memory_words(agent: Option<&str>, limit: Option<&str>, peak: Option<&str>, shm_private: bool) -> String {
    let limit = limit.filter(|text| is_guard_size(text));
    let size = match (limit, peak.filter(|text| is_guard_size(text))) {
        (Some(limit), Some(peak)) => format!(" (peak {peak} of {limit})"),
        (Some(limit), None) => format!(" of {limit}"),
        // A peak never stands alone (spec N-4).
        (None, _) => String::new(),
    };
    let during = agent.filter(|name| is_name(name)).map(|name| format!(" during `{name}`'s Turn")).unwrap_or_default();
    let shm = if shm_private { "; /dev/shm was cleared" } else { "" };
    format!(
        "the Sandbox's processes were killed at its memory limit{size}{during}{shm}. Anything that was running in the \
         Sandbox at that time is gone."
    )
}

/// NT6, NT7, and the cut of decision 34.
fn pick_words(pick: &str, cut: &str, answer: Option<&PickReply>, stopped: bool) -> Option<String> {
    let tool = menu_tool_name(pick);
    if stopped || cut == "stopped" {
        let reply = answer.map(|reply| format!(" {}", answer_words(reply))).unwrap_or_default();
        return Some(format!(
            "your pick did not finish: the workflow left the state that asked for your last turn while it ran, and that \
             stopped it. It was `{tool}`.{reply}"
        ));
    }
    let how = match cut {
        "left" => "the workflow left the state of your last turn while your pick was outstanding",
        "restarted" => "the Harness restarted while your pick was outstanding",
        _ => return None,
    };
    let reply = answer.map_or_else(|| super::NO_REPLY.to_owned(), answer_words);
    Some(format!("{how}. It was `{tool}`. {reply}"))
}

/// R8: the words of an answer, the same in a receipt and in a notice (spec N-87).
pub fn answer_words(reply: &PickReply) -> String {
    match reply {
        PickReply::Party { party, event, payload } => {
            format!("Its answer: {} from {}{}.", one_line(event), one_line(party), with(payload))
        }
        PickReply::Child { child, output } => format!("Its answer: output from {}{}.", one_line(child), with(output)),
    }
}

fn with(payload: &Value) -> String {
    let empty = payload.is_null() || payload.as_object().is_some_and(serde_json::Map::is_empty);
    if empty {
        return String::new();
    }
    let text = payload.to_string();
    let end = text.floor_char_boundary(PAYLOAD_MAX_BYTES);
    if end < text.len() { format!(", with {}… (cut)", &text[..end]) } else { format!(", with {text}") }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.chars().count() <= NAME_MAX && !text.chars().any(|c| c.is_control() || c == '`')
}
