//! What a conversation's log gets when something starts or dies: plain entries, decided from the log alone.

use super::log::{Entry, Log};
use crate::briefing::CALL_OPEN_AT_RESTART;
use crate::model::ChatMessage;
use crate::turn::step::restarted;
use jr2_shared::harness::{Outcome, Settlement, SettlementError, error_type};

/// The entries that seat an admission; one whose abort came first is settled in the same write (decision 33).
pub fn seating(submission: &str, admission: Option<String>, carried: Vec<String>, aborted: bool) -> Vec<Entry> {
    let mut entries = vec![Entry::Admitted { submission: submission.to_owned(), admission, carried }];
    if aborted {
        let error = Some(SettlementError {
            kind: error_type::ABORTED.to_owned(),
            message: "the Submission was aborted before it arrived".to_owned(),
        });
        let submission_id = submission.to_owned();
        let prompted = Some(false);
        let settlement = Settlement { submission_id, outcome: Outcome::Aborted, error, prompted, text: None };
        entries.push(Entry::Settled { settlement });
    }
    entries
}

/// What closes a log whose process died: results for open calls, settlements for everyone in the queue.
pub fn closing(log: &Log) -> Vec<Entry> {
    let Some(first) = log.queue.first() else { return Vec::new() };
    let mut entries = close_calls(log, &first.submission);
    entries.extend(
        log.queue
            .waiting()
            .map(|waiting| Entry::Settled { settlement: restarted(&waiting.submission, waiting.prompted) }),
    );
    entries
}

/// Results for calls that nobody will answer any more (decision 32).
pub(super) fn close_calls(log: &Log, submission: &str) -> Vec<Entry> {
    let close = |call_id: String| Entry::Message {
        submission: submission.to_owned(),
        message: ChatMessage::Tool { call_id, content: CALL_OPEN_AT_RESTART.to_owned() },
    };
    log.open_calls().into_iter().map(close).collect()
}
