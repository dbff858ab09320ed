//! The short questions: held, abort, live set, health, echo.

use super::connection::{CallError, Request};
use super::ladder::Ladder;
use super::{HarnessClient, conversation_path};
use bytes::Bytes;
use jr2_shared::harness::{AbortAnswer, AbortRequest, Freed, LiveSet};
use jr2_shared::ids::Iid;
use jr2_shared::isolation::Isolation;
use reqwest::Method;
use serde::Serialize;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// Longest short answer in bytes: a few fields or an error text.
const ANSWER_MAX_BYTES: usize = 64 << 10;

/// Most admissions an abort's answer names: one Turn has fewer.
const UNPROMPTED_MAX: usize = 64;

/// How an abort ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AbortEnd {
    /// Answered; nothing of that admission runs any more.
    Answered {
        /// Whether anything ended.
        aborted: bool,
        /// Admissions that it ended and no model was asked with (decision 32), at most 64.
        unprompted: Vec<String>,
    },
    /// Answered with an error that asking again does not change.
    Refused {
        /// HTTP status.
        status: u16,
        /// The Harness's words.
        error: String,
    },
}

impl HarnessClient {
    /// Does the Harness hold the conversation? Only a 404 means no. A Harness that does not listen or drains is asked
    /// again for 30 s; then the answer is yes (spec P-38 to P-40).
    pub async fn held(&self, agent: &str, iid: &Iid) -> bool {
        let path = format!("{}?view=history", conversation_path(agent, iid));
        let started = Instant::now();
        let timing = self.timing;
        let mut ladder = Ladder::within(timing.held_window, timing.backoff_first, timing.backoff_max);
        loop {
            let request = Request {
                method: Method::GET,
                path: &path,
                body: None,
                answer_max: ANSWER_MAX_BYTES,
                timeout: timing.attempt,
            };
            match self.call(request).await {
                Ok(answer) if answer.status == 404 => return false,
                Ok(answer) if answer.status != 503 => return true,
                // The history is longer than a short answer: it is held.
                Err(CallError::TooLarge(_)) => return true,
                Ok(_) | Err(_) => {}
            }
            match ladder.next(started.elapsed(), Self::random_bits()) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return true,
            }
        }
    }

    /// Ends the Submission of admission `up_to` and earlier ones; asked until it is answered (decision 33). The caller
    /// drops the future when the Sandbox is gone.
    pub async fn abort(&self, agent: &str, iid: &Iid, up_to: &str) -> AbortEnd {
        let path = format!("{}/abort", conversation_path(agent, iid));
        let body = body_of(&AbortRequest { up_to: Some(up_to.to_owned()) });
        let mut ladder = Ladder::endless(self.timing.backoff_first, self.timing.backoff_max);
        loop {
            let request = Request { body: Some(body.clone()), ..self.short(Method::POST, &path) };
            match self.call(request).await {
                Ok(answer) if answer.status < 500 => match answer.json::<AbortAnswer>() {
                    Ok(AbortAnswer { aborted, mut unprompted }) => {
                        unprompted.truncate(UNPROMPTED_MAX);
                        return AbortEnd::Answered { aborted, unprompted };
                    }
                    // An unknown conversation has nothing to abort.
                    Err(CallError::Status { status: 404, .. }) => {
                        return AbortEnd::Answered { aborted: false, unprompted: Vec::new() };
                    }
                    Err(CallError::Status { status, error }) => return AbortEnd::Refused { status, error },
                    Err(trouble) => tracing::debug!(%trouble, conversation = %iid, "an abort is asked again"),
                },
                Ok(answer) => {
                    tracing::debug!(status = answer.status, conversation = %iid, "an abort is asked again");
                }
                Err(trouble) => tracing::debug!(%trouble, conversation = %iid, "an abort is asked again"),
            }
            if let Some(pause) = ladder.next(Duration::ZERO, Self::random_bits()) {
                tokio::time::sleep(pause).await;
            }
        }
    }

    /// Tells the Instance Harness which conversations live (spec S-18). One attempt: it is sent again every 5 minutes.
    pub async fn put_live_set(&self, live: &LiveSet) -> Result<Freed, CallError> {
        let request = Request { body: Some(body_of(live)), ..self.short(Method::PUT, "/agents") };
        self.call(request).await?.json()
    }

    /// Is it up? One attempt, open without a bearer, answered while draining too (spec H-2).
    pub async fn healthz(&self) -> Result<(), CallError> {
        let answer = self.call(self.short(Method::GET, "/healthz")).await?;
        if (200..300).contains(&answer.status) {
            return Ok(());
        }
        Err(CallError::Status { status: answer.status, error: answer.error() })
    }

    /// What stands between the Agent's commands and the machine. One attempt.
    pub async fn isolation(&self) -> Result<Isolation, CallError> {
        self.call(self.short(Method::GET, "/isolation")).await?.json()
    }

    /// Prints the run's story in the Harness's log (spec 12.3). One attempt; answers how many were printed.
    pub async fn echo(&self, events: &[Value]) -> Result<u64, CallError> {
        let body = body_of(&json!({ "events": events }));
        let request = Request { body: Some(body), ..self.short(Method::POST, "/echo") };
        let answer: Value = self.call(request).await?.json()?;
        answer
            .get("printed")
            .and_then(Value::as_u64)
            .ok_or_else(|| CallError::Garbage("`printed` is no number".to_owned()))
    }

    fn short<'a>(&self, method: Method, path: &'a str) -> Request<'a> {
        Request { method, path, body: None, answer_max: ANSWER_MAX_BYTES, timeout: self.timing.attempt }
    }
}

fn body_of(value: &impl Serialize) -> Bytes {
    // Plain data with text keys always has a JSON form; an empty body would be answered with 400.
    serde_json::to_vec(value).unwrap_or_default().into()
}
