//! Receipts of picks that were delivered.

use super::told;
use crate::suite::case::{Outcome, ensure, failed, same_text};
use crate::suite::orchestrator::{Reply, taken};
use crate::suite::stage::{RequestExt, Stage, call, text};
use crate::suite::texts::{R4, allowed, r1, r2, r3, turn_part};
use serde_json::json;

pub async fn still_open(stage: &Stage) -> Outcome {
    let said = told(&stage.seat("a"), Reply::Json(200, taken("done", true, false, Some(&["more"])))).await?;
    same_text("the receipt", &said, &format!("{}{R4} {}", r1("done"), allowed(&["more"])))
}

pub async fn not_moved(stage: &Stage) -> Outcome {
    let reply = taken("done", false, false, Some(&["done", "more"]));
    let said = told(&stage.seat("a"), Reply::Json(200, reply)).await?;
    same_text("the receipt", &said, &format!("{} {}", r2("done"), allowed(&["done", "more"])))
}

pub async fn over(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(call("c1", "mcp__jr2__done", json!({})));
    seat.turn("Hello.").await?;
    match seat.streamed("tool").await?.as_slice() {
        [only] => same_text("the receipt on the stream", only, &r3("done"))?,
        other => return failed(format!("results on the stream: {other:?}")),
    }
    seat.lane.say(text("Done."));
    seat.turn("Again.").await?;
    same_text("the receipt in the next request", &seat.asked(2).await?.last_of("tool"), &r3("done"))
}

pub async fn nothing_allowed(stage: &Stage) -> Outcome {
    let said = told(&stage.seat("a"), Reply::Json(200, taken("done", true, false, Some(&[])))).await?;
    same_text("the receipt", &said, &format!("{}{R4} {}", r1("done"), allowed(&[])))
}

pub async fn allowed_unsaid(stage: &Stage) -> Outcome {
    let said = told(&stage.seat("a"), Reply::Json(200, taken("done", true, false, None))).await?;
    same_text("the receipt", &said, &format!("{}{R4}", r1("done")))
}

pub async fn carried(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(text("Done."));
    let mut receipt = taken("done", true, false, Some(&["done"]));
    receipt["answered"] = json!(true);
    receipt["reply"] = json!({"party": "Gate review", "event": "approve", "payload": {"note": "ok"}});
    seat.turn_of(&seat.body_with("Continue.", json!({ "receipt": receipt }))?).await?;
    let said = seat.asked(1).await?.last_of("user");
    let words = format!("{} Its answer: approve from Gate review, with {{\"note\":\"ok\"}}.{R4}", r1("done"));
    let cwd = format!("Working directory: {}", seat.cwd()?.display());
    let part = turn_part(&[&cwd, &allowed(&["done"])]);
    ensure(said.contains(&words), || format!("the receipt's words are missing: {said}"))?;
    same_text("the message", &said, &format!("Continue.\n\n{words}\n\n{part}"))
}
