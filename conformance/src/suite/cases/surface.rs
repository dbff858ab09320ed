//! The surface, as the Harness reads it (spec 7.3; decision 21).

use crate::suite::case::Need::{Process, Shared};
use crate::suite::case::{Outcome, contains, ensure, same, same_text};
use crate::suite::orchestrator::Reply;
use crate::suite::stage::{RequestExt, Stage, bash, text};
use crate::suite::texts;
use serde_json::json;
use std::time::Duration;

crate::suite_cases! {
    "surface.001" "P-9" Shared, "the surface is read once before the model is asked anything" => read_first;
    "surface.002" "P-11" Shared, "a 503 is asked again" => stopping;
    "surface.003" "P-11" Shared, "the Custodian's own 502 is asked again" => custodian;
    "surface.004" "P-11" Shared, "an answer that breaks off is asked again" => broken;
    "surface.005" "P-12" Shared, "a 502 that is not the Custodian's is final: failed, no model call" => other_502;
    "surface.006" "P-12" Shared, "an answer that is no surface is final: failed, no model call" => nonsense;
    "surface.007" "P-13" Process(&[]), "a read that was retried logs `jr2.routability seat=surface attempts=…`" => logged;
    "surface.008" "P-16" Shared, "without a menu, accepts is both the Menu and what is allowed" => accepts;
    "surface.009" "P-16" Shared, "without allowed, all of the Menu is allowed" => no_allowed;
    "surface.010" "P-17" Shared, "an event that is not `ack` fails the Submission with E7 and asks no model" => not_ack;
    "surface.011" "D-21" Shared, "a surface that is gone at a step boundary ends the Turn without a further model call" => gone;
    "surface.012" "P-10" Shared, "an answer that takes two seconds is waited for" => slow;
    "surface.013" "D-21" Shared, "a re-read that fails says nothing and the Turn goes on" => reread_fails;
    "surface.014" "P-14" Shared, "a 404 after a 503 is still the Turn's end" => stopping_then_gone;
}

async fn read_first(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.desk.fault_surface([Reply::Slow(Duration::from_millis(300), Box::new(Reply::error(503, "stopping")))]);
    let admitted = seat.prompt("Hello.").await?;
    stage.wait("the surface read", seat.desk.read(1)).await;
    same("requests to the model before a surface came", seat.lane.count(), 0)?;
    seat.asked(1).await?;
    same("reads that found it", seat.desk.surface_statuses(), vec![503, 200])?;
    seat.lane.say(text("Done."));
    seat.settled(&admitted).await.map(drop)
}

/// These answers come first; the Submission completes all the same.
async fn survives(stage: &Stage, replies: Vec<Reply>) -> Outcome {
    let seat = stage.seat("a");
    let faults = replies.len();
    seat.desk.fault_surface(replies);
    seat.lane.say(text("Done."));
    same("outcome", seat.turn("Hello.").await?["outcome"].clone(), json!("completed"))?;
    same("reads of the surface", seat.desk.surface_reads().len(), faults + 1)
}

async fn stopping(stage: &Stage) -> Outcome {
    survives(stage, vec![Reply::error(503, "stopping"), Reply::error(503, "stopping")]).await
}

async fn custodian(stage: &Stage) -> Outcome {
    survives(stage, vec![Reply::Unreachable("connection refused"), Reply::Unreachable("connection refused")]).await
}

async fn broken(stage: &Stage) -> Outcome {
    survives(stage, vec![Reply::Half]).await
}

async fn slow(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let late = Reply::Json(200, crate::suite::stage::surface(&seat.iid, &["done"], &["done"]));
    seat.desk.fault_surface([Reply::Slow(Duration::from_secs(2), Box::new(late))]);
    seat.lane.say(text("Done."));
    same("outcome", seat.turn("Hello.").await?["outcome"].clone(), json!("completed"))?;
    same("reads of the surface", seat.desk.surface_reads().len(), 1)
}

/// This answer is final.
async fn fails(stage: &Stage, reply: Reply) -> Outcome {
    let seat = stage.seat("a");
    let said = reply.name();
    seat.desk.fault_surface([reply]);
    let settled = seat.turn("Hello.").await?;
    same(&format!("outcome after {said}"), settled["outcome"].clone(), json!("failed"))?;
    same("error.type", settled["error"]["type"].clone(), json!("submission_failed"))?;
    same("reads of the surface", seat.desk.surface_reads().len(), 1)?;
    same("requests to the model", seat.lane.count(), 0)
}

async fn other_502(stage: &Stage) -> Outcome {
    fails(stage, Reply::error(502, "a gateway of somebody else")).await
}

async fn nonsense(stage: &Stage) -> Outcome {
    fails(stage, Reply::Text(200, "<html>Welcome</html>")).await
}

async fn logged(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.desk.fault_surface([Reply::error(503, "stopping"), Reply::error(503, "stopping")]);
    seat.lane.say(text("Done."));
    seat.turn("Hello.").await?;
    let log = format!("{}{}", stage.house.stderr().await?, stage.house.stdout().await?);
    let line = log.lines().find(|line| line.contains("jr2.routability seat=surface")).unwrap_or_default().to_owned();
    for part in ["attempts=3 ", " ms=", " last=503 ", " url="] {
        contains("the line", &line, part)?;
    }
    same("lines", log.matches("jr2.routability seat=surface").count(), 1)
}

async fn accepts(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let item = |name: &str| json!({"name": name, "semantics": "ack", "input": {"type": "object"}});
    seat.desk.set(json!({"instanceId": seat.iid, "accepts": [item("finish"), item("ask")]}));
    seat.lane.say(text("Done."));
    seat.turn("Hello.").await?;
    let request = seat.asked(1).await?;
    let tools = request.tool_names();
    ensure(tools.ends_with(&["mcp__jr2__finish".into(), "mcp__jr2__ask".into()]), || format!("tools: {tools:?}"))?;
    contains("the Turn part", &request.last_of("user"), &texts::allowed(&["finish", "ask"]))
}

async fn no_allowed(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.desk.edit(|surface| {
        if let Some(surface) = surface.as_object_mut() {
            surface.remove("allowed");
        }
    });
    seat.lane.say(text("Done."));
    seat.turn("Hello.").await?;
    contains("the Turn part", &seat.asked(1).await?.last_of("user"), &texts::allowed(&["done", "more"]))
}

async fn not_ack(stage: &Stage) -> Outcome {
    for semantics in ["deferred", "poll"] {
        let seat = stage.seat(semantics);
        seat.desk.edit(|surface| surface["menu"][1]["semantics"] = json!(semantics));
        let settled = seat.turn("Hello.").await?;
        same("outcome", settled["outcome"].clone(), json!("failed"))?;
        let words = settled["error"]["message"].as_str().unwrap_or_default();
        same_text("its words", words, &texts::e7("more", semantics))?;
        same("requests to the model", seat.lane.count(), 0)?;
    }
    Ok(())
}

async fn gone(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let admitted = seat.prompt("Hello.").await?;
    seat.asked(1).await?;
    seat.desk.leave();
    seat.lane.say(bash("c1", "true"));
    seat.lane.say(text("Too much."));
    same("outcome", seat.settled(&admitted).await?["outcome"].clone(), json!("aborted"))?;
    same("requests to the model", seat.lane.count(), 1)
}

async fn reread_fails(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let admitted = seat.prompt("Hello.").await?;
    seat.asked(1).await?;
    seat.desk.fault_surface([Reply::error(500, "broke")]);
    seat.lane.say(bash("c1", "true"));
    seat.lane.say(text("Done."));
    same("outcome", seat.settled(&admitted).await?["outcome"].clone(), json!("completed"))?;
    same("messages of the user", seat.asked(2).await?.said_by("user").len(), 1)
}

async fn stopping_then_gone(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.desk.fault_surface([Reply::error(503, "stopping"), Reply::error(404, "no live agent surface")]);
    same("outcome", seat.turn("Hello.").await?["outcome"].clone(), json!("aborted"))?;
    same("requests to the model", seat.lane.count(), 0)
}
