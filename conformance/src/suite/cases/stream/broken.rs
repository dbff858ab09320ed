//! Answers that break, and refusals that pass.

use super::odd::chunk;
use crate::model::{Answer, ErrorAnswer};
use crate::suite::case::{Outcome, ensure, same};
use crate::suite::stage::{Stage, raw, refusal, text};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The beginning of an answer with a whole call in it.
fn begun() -> String {
    let arguments = json!({"command": "echo x >> ran"}).to_string();
    let call = json!({"index": 0, "id": "a", "type": "function", "function": {"name": "bash", "arguments": arguments}});
    [chunk(json!({"content": "Half an ans"}), Value::Null), chunk(json!({"tool_calls": [call]}), Value::Null)]
        .map(|value| format!("data: {value}\n\n"))
        .concat()
}

/// This answer first, a good one then: nothing of the first is left.
async fn asked_again(stage: &Stage, first: Answer) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(first);
    seat.lane.say(text("A whole answer."));
    let settled = seat.turn("Hello.").await?;
    same("outcome", settled["outcome"].clone(), json!("completed"))?;
    same("text", settled["text"].clone(), json!("A whole answer."))?;
    same("requests", seat.lane.count(), 2)?;
    let (one, two) = (seat.asked(1).await?, seat.asked(2).await?);
    ensure(one.messages() == two.messages(), || format!("the second request differs: {:?}", two.messages()))?;
    ensure(!seat.cwd()?.join("ran").exists(), || "a call of the broken answer ran".to_owned())
}

pub async fn cut(stage: &Stage) -> Outcome {
    let whole = begun();
    asked_again(stage, Answer { cut_after_bytes: Some(whole.len()), ..raw(whole.clone() + "data: {\"id\"") }).await
}

pub async fn error_inside(stage: &Stage) -> Outcome {
    let error = json!({"error": {"message": "the engine died", "type": "InternalServerError", "code": 500}});
    asked_again(stage, raw(format!("{}data: {error}\n\n", begun()))).await
}

pub async fn clean_close(stage: &Stage) -> Outcome {
    let thought = chunk(json!({"reasoning_content": "Let me think about"}), Value::Null);
    asked_again(stage, raw(format!("data: {thought}\n\n"))).await
}

pub async fn retry_after(stage: &Stage) -> Outcome {
    let mut busy = refusal(429, "slow down");
    busy.error = busy.error.map(|error| ErrorAnswer { retry_after: Some("2".to_owned()), ..error });
    let started = Instant::now();
    asked_again(stage, busy).await?;
    let took = started.elapsed();
    ensure(took >= Duration::from_millis(1_900), || format!("it was asked again after {took:?}"))
}

pub async fn server_error(stage: &Stage) -> Outcome {
    asked_again(stage, refusal(500, "broke")).await
}

pub async fn overflow(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let words = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9001 tokens.";
    for _ in 0..12 {
        let mut answer = refusal(400, words);
        answer.error = answer.error.map(|error| ErrorAnswer { code: Some(json!("context_length_exceeded")), ..error });
        seat.lane.say(answer);
    }
    let settled = seat.turn("Hello.").await?;
    same("outcome", settled["outcome"].clone(), json!("failed"))?;
    ensure(seat.lane.count() <= 3, || format!("the model was asked {} times", seat.lane.count()))
}
