//! The two views of a conversation.

use crate::suite::case::{Outcome, ensure, same};
use crate::suite::stage::{Stage, bash, text};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

pub async fn history(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(bash("c1", "echo ran"));
    seat.lane.say(text("Finished."));
    let admitted = seat.prompt("Hello.").await?;
    seat.settled(&admitted).await?;
    let history = seat.history().await?;
    same("v", history["v"].clone(), json!(1))?;
    same("conversationId", history["conversationId"].clone(), json!(seat.iid))?;
    ensure(!history["offset"].is_null(), || format!("no offset: {history}"))?;
    let messages = history["messages"].as_array().cloned().unwrap_or_default();
    let roles: Vec<&str> = messages.iter().filter_map(|message| message["role"].as_str()).collect();
    ensure(roles.first() == Some(&"user") && roles.last() == Some(&"assistant"), || format!("roles: {roles:?}"))?;
    ensure(roles.iter().all(|role| ["user", "assistant"].contains(role)), || format!("roles: {roles:?}"))?;
    ensure(messages[0]["text"].as_str().is_some_and(|text| text.starts_with("Hello.")), || messages[0].to_string())?;
    same("the last text", messages.last().map(|m| m["text"].clone()), Some(json!("Finished.")))?;
    let settlement = &history["settlements"][0];
    same("submissionId", settlement["submissionId"].clone(), admitted["submissionId"].clone())?;
    same("outcome", settlement["outcome"].clone(), json!("completed"))
}

pub async fn updates(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(text("Done."));
    seat.turn("Hello.").await?;
    let answer = seat.updates(None).await?.expect(200, "view=updates")?;
    ensure(answer.value.is_array(), || format!("view=updates is no list: {}", answer.text))?;
    ensure(!answer.header("stream-next-offset").is_empty(), || "no stream-next-offset".to_owned())?;
    same("stream-up-to-date", answer.header("stream-up-to-date"), "true")
}

pub async fn bad_offset(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(text("Done."));
    seat.turn("Hello.").await?;
    let whole = seat.updates(None).await?.expect(200, "view=updates")?;
    let odd = seat.updates(Some("not an offset")).await?.expect(200, "an offset that cannot be parsed")?;
    ensure(!odd.text.is_empty(), || "an empty body".to_owned())?;
    same("what it reads", odd.value, whole.value)
}

pub async fn events(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(bash("c1", "echo ran"));
    seat.lane.say(text("Finished."));
    seat.turn("Hello.").await?;
    let events = seat.events().await?;
    let mut last: Option<(u64, u64)> = None;
    for event in &events {
        same("conversationId", event["conversationId"].clone(), json!(seat.iid))?;
        let at = (event["position"]["batch"].as_u64(), event["position"]["index"].as_u64());
        let (Some(batch), Some(index)) = at else {
            return crate::suite::case::failed(format!("an event without position: {event}"));
        };
        ensure(last.is_none_or(|last| last < (batch, index)), || format!("positions do not grow at {event}"))?;
        last = Some((batch, index));
        if event["type"] == "message-appended" {
            let message = &event["message"];
            ensure(message["id"].is_string() && message["role"].is_string(), || format!("a message: {event}"))?;
            for part in message["parts"].as_array().into_iter().flatten() {
                let fits = part["type"] == "text" && part["text"].is_string() && part["state"] == "done";
                ensure(fits, || format!("a part: {part}"))?;
            }
        }
    }
    let ids: Vec<&Value> = events.iter().map(|event| &event["message"]["id"]).filter(|id| !id.is_null()).collect();
    let unique: std::collections::HashSet<String> = ids.iter().map(ToString::to_string).collect();
    same("distinct message ids", unique.len(), ids.len())?;
    same("settlements", events.iter().filter(|event| event["type"] == "submission-settled").count(), 1)
}

pub async fn parked(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let admitted = seat.prompt("Hello.").await?;
    seat.asked(1).await?;
    let so_far = seat.updates(None).await?;
    let offset = so_far.header("stream-next-offset").to_owned();
    let started = Instant::now();
    let speak = async {
        // Long enough that the poll is parked; being early costs only strictness.
        tokio::time::sleep(Duration::from_millis(100)).await;
        seat.lane.say(text("At last."));
    };
    let (answer, ()) = tokio::join!(seat.poll(&offset), speak);
    let answer = answer?.expect(200, "a parked long poll")?;
    ensure(started.elapsed() < Duration::from_secs(20), || format!("it took {:?}", started.elapsed()))?;
    ensure(answer.value.as_array().is_some_and(|list| !list.is_empty()), || {
        format!("it says nothing: {}", answer.text)
    })?;
    seat.settled(&admitted).await.map(drop)
}

pub async fn held(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(text("Done."));
    seat.turn("Hello.").await?;
    let offset = seat.updates(None).await?.header("stream-next-offset").to_owned();
    let started = Instant::now();
    let answer = stage.wait("the end of a long poll with nothing to say", seat.poll(&offset)).await?;
    same("its status", answer.status, 204)?;
    let took = started.elapsed();
    ensure((24..35).contains(&took.as_secs()), || format!("it was held for {took:?}"))?;
    same("stream-next-offset", answer.header("stream-next-offset"), offset.as_str())
}

pub async fn from_offset(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(text("One."));
    seat.lane.say(text("Two."));
    seat.turn("First.").await?;
    let first = seat.updates(None).await?;
    let offset = first.header("stream-next-offset").to_owned();
    let second = seat.prompt("Second.").await?;
    same("the offset of the next admission", second["offset"].as_str().map(str::to_owned), Some(offset.clone()))?;
    seat.settled(&second).await?;
    let (rest, whole) = (seat.updates(Some(&offset)).await?.value, seat.events().await?);
    let mut both = first.value.as_array().cloned().unwrap_or_default();
    both.extend(rest.as_array().cloned().unwrap_or_default());
    same("the two parts together", both, whole)
}
