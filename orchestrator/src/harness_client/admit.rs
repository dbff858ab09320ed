//! Sending an admission (spec 7.4, decision 31).

use super::connection::{Answer, CallError, Request};
use super::ladder::Ladder;
use super::{HarnessClient, conversation_path};
use crate::turn::TurnInput;
use bytes::Bytes;
use jr2_shared::harness::{ADMIT_BODY_MAX_BYTES, AdmitAnswer, AdmitRequest};
use jr2_shared::ids::Iid;
use reqwest::Method;
use std::time::Duration;
use tokio::time::Instant;

/// Longest answer to an admission in bytes: three short texts and at most 32 notice ids.
const ANSWER_MAX_BYTES: usize = 64 << 10;

/// What became of an admission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdmitOutcome {
    /// Taken, now or at an earlier attempt.
    Admitted(AdmitAnswer),
    /// Answered with an error.
    Refused {
        /// HTTP status.
        status: u16,
        /// The Harness's words.
        error: String,
        /// `Some(false)` = the conversation is not held (spec P-42).
        kept: Option<bool>,
    },
    /// No answer within the window; it may have arrived.
    Unreachable {
        /// What the last attempt met.
        detail: String,
    },
}

impl AdmitOutcome {
    /// The Turn's input.
    pub fn into_input(self, admission_id: &str) -> TurnInput {
        let admission_id = admission_id.to_owned();
        match self {
            Self::Admitted(answer) => TurnInput::Admitted { admission_id, answer },
            Self::Refused { status, error, kept } => TurnInput::AdmitRefused { admission_id, status, error, kept },
            Self::Unreachable { detail } => TurnInput::AdmitUnreachable { admission_id, detail },
        }
    }
}

impl HarnessClient {
    /// Posts an admission; the last attempt starts within 90 s (spec P-18). A broken connection, a draining 503 and an unreadable answer are
    /// sent again with the same admission id; everything else is an answer.
    pub async fn admit(&self, agent: &str, iid: &Iid, request: &AdmitRequest) -> AdmitOutcome {
        let body = match serde_json::to_vec(request) {
            Ok(body) if body.len() <= ADMIT_BODY_MAX_BYTES => Bytes::from(body),
            Ok(body) => {
                let error = format!("the admission has {} bytes, at most {ADMIT_BODY_MAX_BYTES} are sent", body.len());
                return AdmitOutcome::Refused { status: 413, error, kept: None };
            }
            Err(error) => return AdmitOutcome::Refused { status: 400, error: error.to_string(), kept: None },
        };
        let path = conversation_path(agent, iid);
        let started = Instant::now();
        let timing = self.timing;
        let mut ladder = Ladder::within(timing.send_window, timing.backoff_first, timing.backoff_max);
        let mut attempts = 1_u32;
        let mut last: Option<String> = None;
        loop {
            let request = Request {
                method: Method::POST,
                path: &path,
                body: Some(body.clone()),
                answer_max: ANSWER_MAX_BYTES,
                timeout: timing.attempt,
            };
            let trouble = match self.call(request).await.and_then(read) {
                Ok(outcome) => {
                    if let Some(last) = last {
                        log_routability(attempts, started.elapsed(), &last, &path);
                    }
                    return outcome;
                }
                Err(trouble) => trouble,
            };
            last = Some(trouble.code());
            let Some(pause) = ladder.next(started.elapsed(), Self::random_bits()) else {
                log_routability(attempts, started.elapsed(), &trouble.code(), &path);
                return given_up(trouble);
            };
            tokio::time::sleep(pause).await;
            attempts += 1;
        }
    }
}

/// An answer, or the trouble that makes the admission be sent again.
fn read(answer: Answer) -> Result<AdmitOutcome, CallError> {
    match answer.status {
        200..300 => answer.json().map(AdmitOutcome::Admitted),
        503 => Err(CallError::Status { status: 503, error: answer.error() }),
        status => Ok(AdmitOutcome::Refused { status, error: answer.error(), kept: answer.kept() }),
    }
}

fn given_up(trouble: CallError) -> AdmitOutcome {
    match trouble {
        CallError::Status { status, error } => AdmitOutcome::Refused { status, error, kept: None },
        other => AdmitOutcome::Unreachable { detail: other.to_string() },
    }
}

/// The line people grep for when an admission had to be sent again (spec P-19).
fn log_routability(attempts: u32, took: Duration, last: &str, path: &str) {
    let line = routability_line(attempts, took, last, path);
    tracing::info!("{line}");
}

fn routability_line(attempts: u32, took: Duration, last: &str, path: &str) -> String {
    format!("jr2.routability seat=admission attempts={attempts} ms={} last={last} url={path}", took.as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_19_the_routability_line() {
        insta::assert_snapshot!(
            routability_line(3, Duration::from_millis(1250), "connect", "/agents/coder/r%2Froot%2Fcoder"),
            @"jr2.routability seat=admission attempts=3 ms=1250 last=connect url=/agents/coder/r%2Froot%2Fcoder"
        );
    }
}
