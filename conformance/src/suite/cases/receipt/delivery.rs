//! Picks whose answer comes later.

use crate::suite::case::{Halt, Outcome, ensure, failed, same, same_text};
use crate::suite::orchestrator::{Reply, taken};
use crate::suite::stage::{RequestExt, Seat, Stage, call, text};
use crate::suite::texts::{R4, R7, allowed, e2, r1};
use serde_json::{Value, json};

/// Picks `done`, which asks; the delivery is read with these answers. What the model is told.
async fn told(seat: &Seat<'_>, deliveries: Vec<Reply>) -> Result<String, Halt> {
    let mut asked = taken("done", true, false, Some(&[]));
    asked["outstanding"] = json!(true);
    seat.desk.answer_picks([Reply::Json(200, asked)]);
    seat.desk.answer_deliveries(deliveries);
    seat.lane.say(call("c1", "mcp__jr2__done", json!({"note": "x"})));
    seat.lane.say(text("I see."));
    let settled = seat.turn("Hello.").await?;
    if settled["outcome"] != "completed" {
        return failed(format!("the Submission did not complete: {settled}"));
    }
    Ok(seat.asked(2).await?.last_of("tool"))
}

fn answered(reply: Option<Value>) -> Value {
    let mut answer = taken("done", true, false, Some(&["more"]));
    answer["answered"] = json!(true);
    if let Some(reply) = reply {
        answer["reply"] = reply;
    }
    answer
}

pub async fn party(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let reply = json!({"party": "Gate review", "event": "approve", "payload": {"note": "ok"}});
    let said = told(&seat, vec![Reply::Json(200, answered(Some(reply)))]).await?;
    let words = "Its answer: approve from Gate review, with {\"note\":\"ok\"}.";
    same_text("the receipt", &said, &format!("{} {words}{R4} {}", r1("done"), allowed(&["more"])))?;
    same("the delivery asked for", seat.desk.deliveries(), vec!["d-1".to_owned()])
}

pub async fn no_reply(stage: &Stage) -> Outcome {
    let said = told(&stage.seat("a"), vec![Reply::Json(200, answered(None))]).await?;
    same_text("the receipt", &said, &format!("{} {R7}{R4} {}", r1("done"), allowed(&["more"])))
}

pub async fn nothing_ran(stage: &Stage) -> Outcome {
    let mut answer = taken("done", true, false, Some(&["more"]));
    answer["nothingRan"] = json!(true);
    let said = super::told(&stage.seat("a"), Reply::Json(200, answer)).await?;
    ensure(said.contains("it moved the workflow, and nothing ran"), || format!("the receipt: {said}"))
}

pub async fn asked_again(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let faults = vec![
        Reply::Empty(204),
        Reply::error(503, "stopping"),
        Reply::Unreachable("connection refused"),
        Reply::Half,
        Reply::error(500, "broke"),
        Reply::Json(200, answered(None)),
    ];
    let (said, asked) = (told(&seat, faults).await?, seat.desk.deliveries().len());
    ensure(said.contains(R7), || format!("the receipt: {said}"))?;
    same("reads of the delivery", asked, 6)?;
    same("posts of the pick", seat.desk.picks().len(), 1)
}

pub async fn gone(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let said = told(&seat, vec![Reply::Empty(204), Reply::error(404, "no such delivery")]).await?;
    same_text("the result", &said, &e2(&seat.iid))
}
