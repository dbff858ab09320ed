//! `kept: true`: an admission to a conversation that must be held (spec H-8, 7.8, 9.10).

use crate::suite::case::Need::{Alone, Process, Shared};
use crate::suite::case::{Halt, Outcome, ensure, same};
use crate::suite::stage::{RequestExt, Seat, Stage, text};
use serde_json::json;

crate::suite_cases! {
    "kept.001" "H-8" Shared, "of a conversation that is not held it is 404 with kept: false" => not_held;
    "kept.002" "H-8" Shared, "and nothing is created: no conversation, no surface read, no model call" => nothing_made;
    "kept.003" "N-71" Shared, "of a conversation that is held it is an admission like any other" => held;
    "kept.004" "P-46" Process(&[]), "after a restart a conversation that was kept is held" => after_restart;
    "kept.005" "H-8" Alone, "of a conversation that was freed it is refused" => freed;
    "kept.006" "H-8" Shared, "the same admission without kept makes a new conversation" => without;
}

async fn refused(seat: &Seat<'_>) -> Result<(), Halt> {
    let body = seat.body_with("Continue.", json!({"kept": true}))?;
    let answer = seat.post(&body).await?.expect(404, "kept: true where nothing is held")?;
    same("kept", answer.value["kept"].clone(), json!(false))?;
    ensure(answer.value["error"].is_string(), || format!("no error: {}", answer.text))
}

async fn not_held(stage: &Stage) -> Outcome {
    refused(&stage.seat("a")).await
}

async fn nothing_made(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    refused(&seat).await?;
    same("it is held", seat.is_held().await?, false)?;
    same("reads of its surface", seat.desk.surface_reads().len(), 0)?;
    same("requests to the model", seat.lane.count(), 0)?;
    same("an abort", seat.abort(None).await?, json!({"aborted": false}))?;
    refused(&seat).await
}

async fn held(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(text("One."));
    seat.lane.say(text("Two."));
    seat.turn("First.").await?;
    let settled = seat.turn_of(&seat.body_with("Second.", json!({"kept": true}))?).await?;
    same("outcome", settled["outcome"].clone(), json!("completed"))?;
    same("messages of the user", seat.asked(2).await?.said_by("user").len(), 2)
}

async fn after_restart(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(text("One."));
    seat.turn("First.").await?;
    stage.house.restart().await?;
    seat.lane.say(text("Two."));
    let settled = seat.turn_of(&seat.body_with("Second.", json!({"kept": true}))?).await?;
    same("outcome", settled["outcome"].clone(), json!("completed"))?;
    same("messages of the user", seat.asked(2).await?.said_by("user").len(), 2)?;
    refused(&stage.seat("never-admitted")).await
}

async fn freed(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(text("One."));
    seat.turn("First.").await?;
    stage.wire().call("PUT", "/agents", Some(&json!({"live": []}))).await?.expect(200, "PUT /agents")?;
    refused(&seat).await
}

async fn without(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    refused(&seat).await?;
    seat.lane.say(text("One."));
    same("outcome", seat.turn("First.").await?["outcome"].clone(), json!("completed"))
}
