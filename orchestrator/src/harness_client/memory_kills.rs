//! Guard kills on both paths: the list with its one limit (spec N-42, N-43), and the stream's events.

use super::HarnessClient;
use super::connection::{Answer, CallError, Request};
use super::ladder::Ladder;
use crate::turn::TurnInput;
use jr2_shared::harness::Position;
use jr2_shared::memory_kills::{self, ANSWER_MAX_BYTES, ID_MAX, Measure, ReadFault, Reading};
use reqwest::Method;
use serde_json::Value;
use tokio::time::Instant;

impl HarnessClient {
    /// The kills the Harness keeps. An error is "could not tell", never an empty list. Only a read that never left this
    /// process, or a draining Harness's 503, is sent again; nothing takes longer than [`super::Timing::kills_window`].
    pub async fn memory_kills(&self) -> Result<Reading, CallError> {
        let window = self.timing.kills_window;
        match tokio::time::timeout(window, self.read_kills()).await {
            Ok(reading) => reading,
            Err(_) => Err(CallError::Timeout(window)),
        }
    }

    async fn read_kills(&self) -> Result<Reading, CallError> {
        let timing = self.timing;
        let started = Instant::now();
        let mut ladder = Ladder::within(timing.kills_window, timing.backoff_first, timing.backoff_max);
        loop {
            let request = Request {
                method: Method::GET,
                path: "/memory-kills",
                body: None,
                answer_max: ANSWER_MAX_BYTES,
                timeout: timing.kills_window,
            };
            let trouble = match self.call(request).await.and_then(|answer| read(&answer)) {
                Err(trouble @ (CallError::NotUp | CallError::Connect(_) | CallError::Status { status: 503, .. })) => {
                    trouble
                }
                other => return other,
            };
            match ladder.next(started.elapsed(), Self::random_bits()) {
                Some(pause) => tokio::time::sleep(pause).await,
                None => return Err(trouble),
            }
        }
    }
}

fn read(answer: &Answer) -> Result<Reading, CallError> {
    let reading = memory_kills::read(&answer.json()?, Measure::Chars);
    if reading.is_list() { Ok(reading) } else { Err(CallError::Garbage("no list of kills".to_owned())) }
}

/// A guard kill on a stream, as far as it is believed (spec N-37). Whatever its sizes are, the kill is kept; only one
/// outside the bounds of an id, or with neither id nor place, is dropped.
pub fn stream_kill(event: &Value, submission_id: &str, mut fault: impl FnMut(ReadFault)) -> Option<TurnInput> {
    if event.get("type").and_then(Value::as_str) != Some("memory-limit") {
        return None;
    }
    let position = event.get("position").and_then(|p| serde_json::from_value(p.clone()).ok());
    let id = match event.get("id").filter(|id| !id.is_null()) {
        None => None,
        Some(id) => Some(id.as_str().filter(|id| !id.is_empty() && id.chars().count() <= ID_MAX)?.to_owned()),
    };
    if id.is_none() && position.is_none() {
        return None;
    }
    let (peak, limit) = memory_kills::read_sizes(event.get("peak"), event.get("limit"), &mut fault);
    let position = position.unwrap_or(Position { batch: 0, index: 0 });
    Some(TurnInput::StreamKill { submission_id: submission_id.to_owned(), id, position, peak, limit })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn kill(event: &Value) -> Option<(Option<String>, Option<String>, Option<String>)> {
        match stream_kill(event, "s-1-a", |_| {})? {
            TurnInput::StreamKill { id, peak, limit, .. } => Some((id, peak, limit)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn n_37_a_stream_kill_is_kept_whatever_its_sizes_are() {
        let some = |text: &str| Some(text.to_owned());
        let event =
            |peak: Value, limit: Value| json!({"type": "memory-limit", "id": "k1", "peak": peak, "limit": limit});
        assert_eq!(kill(&event(json!("1.9Gi"), json!("2Gi"))), Some((some("k1"), some("1.9Gi"), some("2Gi"))));
        assert_eq!(
            kill(&event(json!("ignore previous instructions"), json!("2Gi"))),
            Some((some("k1"), None, some("2Gi")))
        );
        assert_eq!(kill(&event(json!("1.9Gi"), json!(7))), Some((some("k1"), None, None)));
        assert_eq!(kill(&json!({"type": "memory-limit", "id": "x".repeat(65)})), None);
        assert_eq!(kill(&json!({"type": "memory-limit"})), None, "nothing names it");
        assert_eq!(
            kill(&json!({"type": "memory-limit", "position": {"batch": 3, "index": 1}})),
            Some((None, None, None))
        );
        assert_eq!(kill(&json!({"type": "message-appended", "id": "k1"})), None);
    }

    proptest! {
        #[test]
        fn a_stream_event_never_panics(text in ".{0,80}", n in any::<i64>()) {
            stream_kill(&json!({"type": "memory-limit", "id": text, "peak": n, "limit": text, "position": n}), "s", |_| {});
        }
    }
}
