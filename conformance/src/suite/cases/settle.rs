//! How Submissions end (spec 6.3, 6.6, 7.5).

use crate::suite::case::Need::Shared;
use crate::suite::case::{Outcome, ensure, failed, same, same_text};
use crate::suite::orchestrator::Reply;
use crate::suite::stage::{Stage, call, refusal, text};
use crate::suite::texts;
use serde_json::json;

crate::suite_cases! {
    "settle.001" "6.3" Shared, "a model that stops settles the Submission completed, without an error" => completed;
    "settle.002" "6.3" Shared, "the settlement is on the stream and in the history, once each" => both_views;
    "settle.003" "P-14" Shared, "a Turn that is over settles aborted, with the exact words, and asks no model" => over_before_start;
    "settle.004" "P-15" Shared, "a surface that is refused settles failed, submission_failed" => forbidden;
    "settle.005" "H-22" Shared, "a provider's limit settles failed with words that start `provider limit`" => limit;
    "settle.006" "6.3" Shared, "a provider that refuses settles failed, submission_failed, with the status" => refused;
    "settle.007" "D-38" Shared, "a completed settlement has the last text" => last_text;
    "settle.008" "6.6" Shared, "a pick that ends the Turn settles the Submission and asks the model nothing more" => pick_ends;
    "settle.009" "6.3" Shared, "after a failed Submission the conversation goes on" => goes_on;
    "settle.010" "D-32" Shared, "a settlement that did not complete says whether a model may have been asked" => prompted;
}

async fn completed(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(text("Done."));
    let settled = seat.turn("Hello.").await?;
    same("outcome", settled["outcome"].clone(), json!("completed"))?;
    ensure(settled.get("error").is_none_or(|error| error.is_null()), || format!("it has an error: {settled}"))
}

async fn both_views(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(text("Done."));
    let admitted = seat.prompt("Hello.").await?;
    seat.settled(&admitted).await?;
    let on_stream = seat.events().await?.into_iter().filter(|event| event["type"] == "submission-settled").count();
    let in_history = seat.history().await?["settlements"].as_array().map(Vec::len);
    same("settlements on the stream and in the history", (on_stream, in_history), (1, Some(1)))
}

async fn over_before_start(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.desk.leave();
    let settled = seat.turn("Hello.").await?;
    same("outcome", settled["outcome"].clone(), json!("aborted"))?;
    same_text("its words", settled["error"]["message"].as_str().unwrap_or_default(), texts::OVER_BEFORE_START)?;
    same("requests to the model", seat.lane.count(), 0)?;
    same("messages in the conversation", seat.history().await?["messages"].clone(), json!([]))
}

async fn forbidden(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.desk.fault_surface([Reply::error(403, "this token cannot speak for instance")]);
    let settled = seat.turn("Hello.").await?;
    same("outcome", settled["outcome"].clone(), json!("failed"))?;
    same("error.type", settled["error"]["type"].clone(), json!("submission_failed"))?;
    same("requests to the model", seat.lane.count(), 0)
}

async fn limit(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    for _ in 0..12 {
        let mut answer = refusal(429, "You exceeded your current quota, please check your plan and billing details.");
        if let Some(error) = &mut answer.error {
            error.code = Some(json!("insufficient_quota"));
            error.kind = Some("insufficient_quota".to_owned());
        }
        seat.lane.say(answer);
    }
    let settled = seat.turn("Hello.").await?;
    same("outcome", settled["outcome"].clone(), json!("failed"))?;
    let words = settled["error"]["message"].as_str().unwrap_or_default();
    ensure(words.starts_with("provider limit"), || format!("its words: {words}"))
}

async fn refused(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(refusal(401, "no such key"));
    let settled = seat.turn("Hello.").await?;
    same("outcome", settled["outcome"].clone(), json!("failed"))?;
    same("error.type", settled["error"]["type"].clone(), json!("submission_failed"))?;
    let words = settled["error"]["message"].as_str().unwrap_or_default();
    ensure(words.contains("401") && words.contains("no such key"), || format!("its words: {words}"))?;
    same("requests to the model", seat.lane.count(), 1)
}

async fn last_text(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(text("All tests pass."));
    same("text", seat.turn("Hello.").await?["text"].clone(), json!("All tests pass."))
}

async fn pick_ends(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(call("c1", "mcp__jr2__done", json!({"note": "ready"})));
    seat.lane.say(text("Too much."));
    let settled = seat.turn("Hello.").await?;
    same("outcome", settled["outcome"].clone(), json!("completed"))?;
    same("picks", seat.desk.picks().len(), 1)?;
    same("requests to the model", seat.lane.count(), 1)
}

async fn goes_on(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(refusal(400, "that was nothing"));
    same("the first Turn", seat.turn("One.").await?["outcome"].clone(), json!("failed"))?;
    seat.lane.say(text("Done."));
    same("the second Turn", seat.turn("Two.").await?["outcome"].clone(), json!("completed"))
}

async fn prompted(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.desk.fault_surface([Reply::error(403, "no")]);
    same("without a surface", seat.turn("One.").await?["prompted"].clone(), json!(false))?;
    seat.lane.say(refusal(400, "no"));
    let settled = seat.turn("Two.").await?;
    match settled["prompted"].as_bool() {
        Some(true) => Ok(()),
        other => failed(format!("prompted after a model was asked: {other:?}")),
    }
}
