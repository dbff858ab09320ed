//! How a pick is posted.

use super::told;
use crate::suite::case::{Outcome, ensure, same};
use crate::suite::orchestrator::{Reply, taken};
use crate::suite::stage::{RequestExt, Stage, call, calls, text};
use serde_json::json;

pub async fn once(stage: &Stage) -> Outcome {
    let faults = [
        Reply::error(503, "stopping"),
        Reply::Half,
        Reply::Unreachable("connection reset"),
        Reply::error(500, "broke"),
    ];
    for (n, fault) in faults.into_iter().enumerate() {
        let seat = stage.seat(&format!("a{n}"));
        let said = fault.name();
        told(&seat, fault).await?;
        same(&format!("posts when the answer is {said}"), seat.desk.picks().len(), 1)?;
    }
    Ok(())
}

pub async fn body(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(call("c1", "mcp__jr2__done", json!({"type": "more", "note": "x", "nested": {"a": [1]}})));
    seat.turn("Hello.").await?;
    let picks = seat.desk.picks();
    same("picks", picks.len(), 1)?;
    same("the body", picks[0].body.clone(), json!({"note": "x", "nested": {"a": [1]}, "type": "done"}))?;
    let ends = picks[0].text.trim_end().replace(' ', "").ends_with("\"type\":\"done\"}");
    ensure(ends, || format!("`type` is not last: {}", picks[0].text))
}

pub async fn keyed(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.keyed();
    seat.desk.answer_picks([Reply::error(503, "stopping"), Reply::Half]);
    seat.lane.say(call("c1", "mcp__jr2__done", json!({"note": "x"})));
    same("outcome", seat.turn("Hello.").await?["outcome"].clone(), json!("completed"))?;
    let picks = seat.desk.picks();
    same("posts", picks.len(), 3)?;
    ensure(picks[0].body["pickId"].is_string(), || format!("no pickId: {}", picks[0].text))?;
    ensure(picks.iter().all(|pick| pick.text == picks[0].text), || format!("the posts differ: {picks:?}"))
}

pub async fn own_ids(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.keyed();
    let open = || Reply::Json(200, taken("done", true, false, Some(&["done"])));
    seat.desk.answer_picks([open(), open()]);
    for note in ["one", "two", "three"] {
        // A server that gives every call the same id is real.
        seat.lane.say(call("call_0", "mcp__jr2__done", json!({ "note": note })));
    }
    seat.turn("Hello.").await?;
    let ids: std::collections::HashSet<String> =
        seat.desk.picks().iter().map(|pick| pick.body["pickId"].to_string()).collect();
    same("distinct pickIds of three picks", ids.len(), 3)
}

pub async fn behind(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(calls([
        ("c1", "mcp__jr2__done", json!({})),
        ("c2", "bash", json!({"command": "echo x > ran"})),
        ("c3", "mcp__jr2__more", json!({})),
    ]));
    same("outcome", seat.turn("Hello.").await?["outcome"].clone(), json!("completed"))?;
    same("picks", seat.desk.picks().len(), 1)?;
    ensure(!seat.cwd()?.join("ran").exists(), || "the bash call behind it ran".to_owned())
}

pub async fn no_object(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(call("c1", "mcp__jr2__done", json!("[1]")));
    seat.lane.say(call("c2", "mcp__jr2__done", json!("{\"note\": ")));
    seat.lane.say(text("I give up."));
    seat.turn("Hello.").await?;
    same("picks", seat.desk.picks().len(), 0)?;
    ensure(!seat.asked(3).await?.last_of("tool").is_empty(), || "the model was told nothing".to_owned())
}
