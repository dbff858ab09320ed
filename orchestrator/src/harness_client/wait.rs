//! Waiting for a Submission's end on its updates stream (spec P-20).

use super::connection::{Answer, CallError, Request};
use super::ladder::Ladder;
use super::{HarnessClient, conversation_path, segment};
use crate::turn::{TurnInput, Watch};
use jr2_shared::harness::{Outcome, Settlement, SettlementError, error_type};
use reqwest::Method;
use serde_json::Value;
use std::time::Duration;
use tokio::time::Instant;

/// Longest page of a stream in bytes: many prompts of the largest size.
const PAGE_MAX_BYTES: usize = 64 << 20;
/// Longest offset taken from a header, in bytes: it is opaque and short.
const OFFSET_MAX_BYTES: usize = 1 << 10;
/// A poll that brings nothing in less time than this did not wait: the next one is paused.
const POLL_MIN: Duration = Duration::from_secs(1);

/// How a wait ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitEnd {
    /// The Submission ended.
    Settled(Settlement),
    /// 404: the Harness does not know the conversation.
    ConversationLost,
    /// 401 or 403 (decision 30).
    Denied {
        /// HTTP status.
        status: u16,
    },
}

impl WaitEnd {
    /// The Turn's input; `allowed` are the picks allowed now.
    pub fn into_input(self, submission_id: &str, allowed: Vec<String>) -> TurnInput {
        let submission_id = submission_id.to_owned();
        match self {
            Self::Settled(settlement) => TurnInput::Settled { settlement, allowed },
            Self::ConversationLost => TurnInput::ConversationLost { submission_id },
            Self::Denied { status } => TurnInput::Denied { submission_id, status },
        }
    }
}

impl HarnessClient {
    /// Reads the stream from the watch's offset until its Submission has settled, for ever. Any trouble asks again at
    /// the same offset. `observe` gets every event on the way, also those before the settlement of another
    /// Submission; it may get one twice when an answer carries no offset.
    pub async fn wait_settlement(
        &self,
        agent: &str,
        watch: &Watch,
        observe: &(dyn Fn(&Value) + Send + Sync),
    ) -> WaitEnd {
        let stream = stream_path(&watch.stream_url).unwrap_or_else(|| conversation_path(agent, &watch.iid));
        let mut offset = watch.offset.clone();
        let mut ladder = Ladder::endless(self.timing.backoff_first, self.timing.backoff_max);
        loop {
            let asked = Instant::now();
            let path = poll_path(&stream, &offset);
            let request = Request {
                method: Method::GET,
                path: &path,
                body: None,
                answer_max: PAGE_MAX_BYTES,
                timeout: self.timing.long_poll,
            };
            match self.call(request).await.and_then(|answer| read(&answer)) {
                Ok(Page::End(end)) => return end,
                Ok(Page::Events { events, next_offset }) => {
                    for event in &events {
                        observe(event);
                        if let Some(settlement) = settlement_of(event, &watch.submission_id) {
                            return WaitEnd::Settled(settlement);
                        }
                    }
                    let moved = next_offset.is_some_and(|next| {
                        let moved = next != offset;
                        offset = next;
                        moved
                    });
                    if (moved && !events.is_empty()) || asked.elapsed() >= POLL_MIN {
                        ladder.reset();
                        continue;
                    }
                }
                Err(CallError::NotUp) => {}
                Err(trouble) => {
                    tracing::debug!(%trouble, conversation = %watch.iid, "a Submission's stream is asked again");
                }
            }
            if let Some(pause) = ladder.next(Duration::ZERO, Self::random_bits()) {
                tokio::time::sleep(pause).await;
            }
        }
    }
}

/// One answer of the stream.
enum Page {
    End(WaitEnd),
    Events { events: Vec<Value>, next_offset: Option<String> },
}

fn read(answer: &Answer) -> Result<Page, CallError> {
    let next_offset = answer.next_offset.clone().filter(|offset| offset.len() <= OFFSET_MAX_BYTES);
    match answer.status {
        404 => Ok(Page::End(WaitEnd::ConversationLost)),
        status @ (401 | 403) => Ok(Page::End(WaitEnd::Denied { status })),
        204 => Ok(Page::Events { events: Vec::new(), next_offset }),
        _ => Ok(Page::Events { events: answer.json()?, next_offset }),
    }
}

/// The settlement of `submission_id`, if the event is it. One whose outcome cannot be read still ends the Submission.
fn settlement_of(event: &Value, submission_id: &str) -> Option<Settlement> {
    let text = |key: &str| event.get(key).and_then(Value::as_str);
    if text("type") != Some("submission-settled") || text("submissionId") != Some(submission_id) {
        return None;
    }
    Some(serde_json::from_value(event.clone()).unwrap_or_else(|error| Settlement {
        submission_id: submission_id.to_owned(),
        outcome: Outcome::Failed,
        error: Some(SettlementError {
            kind: error_type::FAILED.to_owned(),
            message: format!("the Harness's settlement is not readable: {error}"),
        }),
        prompted: None,
        text: None,
    }))
}

/// Path and query of a stream URL. Its host is dropped: the endpoint is dialled, and a Unix socket's host means nothing.
fn stream_path(url: &str) -> Option<String> {
    let rest = match url.split_once("://") {
        Some((_, rest)) => &rest[rest.find('/')?..],
        None => url,
    };
    let rest = rest.split('#').next()?;
    rest.starts_with("/agents/").then(|| rest.to_owned())
}

fn poll_path(stream: &str, offset: &str) -> String {
    let joint = if stream.contains('?') { '&' } else { '?' };
    format!("{stream}{joint}offset={}&view=updates&live=long-poll", segment(offset))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn a_stream_url_keeps_path_and_query_and_loses_its_host() {
        let path = stream_path("http://localhost:1/agents/c/r%2Froot%2Fc?v=1#x").unwrap();
        assert_eq!(path, "/agents/c/r%2Froot%2Fc?v=1");
        assert_eq!(
            poll_path(&path, "3:0 a"),
            "/agents/c/r%2Froot%2Fc?v=1&offset=3%3A0%20a&view=updates&live=long-poll"
        );
        assert_eq!(poll_path("/agents/c/i", "0"), "/agents/c/i?offset=0&view=updates&live=long-poll");
        assert_eq!(stream_path("/agents/c/i"), Some("/agents/c/i".to_owned()));
        for other in ["", "http://h", "http://h/elsewhere", "not a url", "ftp://h/agents/../x"] {
            assert!(stream_path(other).is_none_or(|path| path.starts_with("/agents/")), "{other}");
        }
    }

    #[test]
    fn a_settlement_that_cannot_be_read_still_ends_the_wait() {
        let event = json!({"type": "submission-settled", "submissionId": "s-1-a", "outcome": "exploded"});
        let settlement = settlement_of(&event, "s-1-a").unwrap();
        assert_eq!(settlement.outcome, Outcome::Failed);
        assert!(settlement.error.unwrap().message.contains("exploded"));
        assert_eq!(settlement_of(&event, "s-2-b"), None);
    }

    proptest! {
        #[test]
        fn a_stream_url_never_panics(url in ".{0,80}", offset in ".{0,20}") {
            if let Some(path) = stream_path(&url) {
                prop_assert!(poll_path(&path, &offset).contains("view=updates"));
            }
        }
    }
}
