//! Why a Turn faulted, in the fixed words that people and workflows read (spec 7.7, P-27, decision 24).

use super::state::{READMISSIONS_MAX, WAKES_MAX};
use crate::workspace::LastEnd;
use jr2_shared::harness::SettlementError;

/// Longest fault reason in bytes: a provider's error page is no reason.
pub const REASON_MAX_BYTES: usize = 4 << 10;
/// Starts the reason of a refused or unanswered admission.
pub const ADMISSION_FAILED: &str = "harness admission failed";
/// Starts the reason of a Submission that failed.
pub const SETTLED_FAILED: &str = "submission settled failed";
/// Starts the reason of a Submission that was aborted under a live Turn.
pub const SETTLED_ABORTED: &str = "submission settled aborted";
/// Starts the reason of a wait that was denied (decision 30).
pub const WAIT_DENIED: &str = "submission wait denied";
/// Starts the reason of a lost conversation.
pub const CONVERSATION_LOST: &str = "conversation lost";
/// Starts the reason of a kernel kill; nothing stands before it.
pub const MEMORY_LIMIT: &str = "memory limit";
/// Starts the reason of an exhausted provider; nothing stands before it.
pub const PROVIDER_LIMIT: &str = "provider limit";
/// Starts the reason of a Turn cut once too often.
pub const TURN_LOST: &str = "Turn lost";
/// Starts the reason of a Turn that was nudged in vain (spec P-23).
pub const NO_PICK: &str = "agent completed its turn without calling any of";
/// `retry` reason of a nudge (spec P-22).
pub const RETRY_NUDGE: &str = "no-signal nudge";
/// `retry` reason of a reroll (spec P-22).
pub const RETRY_REROLL: &str = "runaway reroll";
/// `retry` reason of a re-admission.
pub const RETRY_READMIT: &str = "re-admission";
/// The refusal of another pick while one is outstanding (decision 34).
pub const PICK_OUTSTANDING: &str = "a pick is outstanding";

/// Why a conversation is new when its Harness does not know it (spec 8.5).
pub const HOLDS_NO_LONGER: &str = "the Harness no longer holds it";
/// Longest reason of a new conversation in bytes: it is one line of a prompt.
pub(super) const NEW_REASON_MAX_BYTES: usize = 600;

/// Said after a lost conversation that no task can follow.
const NOTHING_TO_SEND: &str = "; the Turn has no task, so nothing could be re-admitted";

pub(super) fn admission_refused(status: u16, error: &str) -> String {
    format!("{ADMISSION_FAILED} ({status}): {error}")
}

pub(super) fn admission_unreachable(detail: &str) -> String {
    format!("{ADMISSION_FAILED}: {detail}")
}

pub(super) fn settled_failed(error: Option<&SettlementError>) -> String {
    let detail = error.map_or("no reason given", |error| error.message.as_str());
    if detail.starts_with(PROVIDER_LIMIT) || detail.starts_with(MEMORY_LIMIT) {
        return detail.to_owned();
    }
    format!("{SETTLED_FAILED}: {detail}")
}

pub(super) fn settled_aborted(error: Option<&SettlementError>) -> String {
    let detail = error.map_or("no reason given", |error| error.message.as_str());
    format!("{SETTLED_ABORTED}: {detail}")
}

pub(super) fn wait_denied(status: u16, submission_id: &str) -> String {
    format!("{WAIT_DENIED} ({status}) for submission \"{submission_id}\"")
}

pub(super) fn conversation_lost(submission_id: &str) -> String {
    format!("{CONVERSATION_LOST}: the harness answered 404 for submission \"{submission_id}\"")
}

pub(super) fn conversation_lost_without_task(what: &str) -> String {
    format!("{what}{NOTHING_TO_SEND}")
}

pub(super) fn conversation_not_held() -> String {
    format!("{CONVERSATION_LOST}: the harness holds this conversation no longer")
}

/// Spec 8.5: it can reach the notice that a conversation is new, so it says what a person can do.
pub(super) fn memory_limit(last_end: &LastEnd) -> String {
    let limit = last_end.limit.as_ref().map(|limit| format!(", limit {limit}")).unwrap_or_default();
    format!(
        "{MEMORY_LIMIT} (OOMKilled{limit}): the Workspace's processes passed the Harness container's memory limit and the \
         kernel killed the container, the conversation with it. Use fewer workers, or give the Workspace a larger Size \
         (ADR-0060, ADR-0061)."
    )
}

pub(super) fn turn_lost(last_end: Option<&LastEnd>) -> String {
    let how = match last_end {
        Some(end) => format!("{}, exit {}", end.reason, end.exit_code),
        None => "how it ended is unknown".to_owned(),
    };
    format!("{TURN_LOST} (Harness restarted: {how}) after {READMISSIONS_MAX} re-admissions")
}

pub(super) fn lost_too_often(what: &str) -> String {
    format!("{what}, after {READMISSIONS_MAX} re-admissions")
}

pub(super) fn no_pick(allowed: &[String]) -> String {
    format!("{NO_PICK}: {}", allowed.join(", "))
}

pub(super) fn wakes_exhausted() -> String {
    format!("no pick taken after {WAKES_MAX} wakes")
}

/// Cuts a text at a character boundary so that it has at most `max` bytes.
pub(super) fn bounded(mut text: String, max: usize) -> String {
    text.truncate(text.floor_char_boundary(max));
    text
}
