//! Submissions that repeat themselves or go on for ever (spec 6.8).

use crate::suite::case::Need::Shared;
use crate::suite::case::{Outcome, contains, ensure, same, same_text};
use crate::suite::orchestrator::{Reply, taken};
use crate::suite::stage::{RequestExt, Stage, bash, call, text};
use crate::suite::texts::{RUNAWAY_LONG, RUNAWAY_SAME};
use serde_json::{Value, json};

crate::suite_cases! {
    "runaway.001" "H-28" Shared, "four identical calls settle failed, runaway, with the exact words" => four;
    "runaway.002" "H-30" Shared, "the tripping call is never executed" => not_executed;
    "runaway.003" "H-28" Shared, "three identical calls, another, and three again are no runaway" => three;
    "runaway.004" "H-28" Shared, "arguments count as JSON: blanks and the order of keys make no difference" => as_json;
    "runaway.005" "H-29" Shared, "more than 256 steps settle failed, runaway, with the exact words" => long;
    "runaway.006" "D-52" Shared, "the next Submission counts anew" => anew;
    "runaway.007" "H-28" Shared, "identical picks count as well" => picks;
    "runaway.008" "H-28" Shared, "the next Turn after a runaway has a well-formed history" => after;
}

fn tripped(settled: &Value, words: &str) -> Outcome {
    same("outcome", settled["outcome"].clone(), json!("failed"))?;
    same("error.type", settled["error"]["type"].clone(), json!("runaway"))?;
    same_text("its words", settled["error"]["message"].as_str().unwrap_or_default(), words)
}

async fn four(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    for n in 0..6 {
        seat.lane.say(bash(&format!("c{n}"), "echo again"));
    }
    tripped(&seat.turn("Hello.").await?, RUNAWAY_SAME)?;
    same("requests to the model", seat.lane.count(), 4)
}

async fn not_executed(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    for n in 0..4 {
        seat.lane.say(bash(&format!("c{n}"), "echo x >> count"));
    }
    seat.turn("Hello.").await?;
    seat.lane.say(bash("c9", "wc -l < count"));
    seat.lane.say(text("Done."));
    seat.turn("Count.").await?;
    contains("how often it ran", seat.asked(6).await?.last_of("tool").trim(), "3")
}

async fn three(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    for (n, command) in ["a", "a", "a", "b", "a", "a", "a"].iter().enumerate() {
        seat.lane.say(bash(&format!("c{n}"), &format!("echo {command}")));
    }
    seat.lane.say(text("Done."));
    same("outcome", seat.turn("Hello.").await?["outcome"].clone(), json!("completed"))
}

async fn as_json(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let written = [
        "{\"command\":\"echo hi\",\"timeout\":9}",
        "{ \"command\": \"echo hi\", \"timeout\": 9 }",
        "{\"timeout\":9,\"command\":\"echo hi\"}",
        "{\n\"timeout\" : 9,\n\"command\" : \"echo hi\"\n}",
    ];
    for (n, arguments) in written.into_iter().enumerate() {
        seat.lane.say(call(&format!("c{n}"), "bash", json!(arguments)));
    }
    seat.lane.say(text("Done."));
    tripped(&seat.turn("Hello.").await?, RUNAWAY_SAME)
}

async fn long(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.always(|n| call(&format!("c{n}"), "read", json!({"path": format!("no-such-file-{n}")})));
    tripped(&seat.turn("Hello.").await?, RUNAWAY_LONG)?;
    let asked = seat.lane.count();
    ensure((256..=257).contains(&asked), || format!("requests to the model: {asked}"))
}

async fn anew(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    for turn in 0..2 {
        for n in 0..3 {
            seat.lane.say(bash(&format!("c{turn}{n}"), "echo again"));
        }
        seat.lane.say(text("Done."));
        same("outcome", seat.turn("Hello.").await?["outcome"].clone(), json!("completed"))?;
    }
    Ok(())
}

async fn picks(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    for n in 0..5 {
        seat.desk.answer_picks([Reply::Json(200, taken("done", false, false, Some(&["done"])))]);
        seat.lane.say(call(&format!("c{n}"), "mcp__jr2__done", json!({"note": "x"})));
    }
    tripped(&seat.turn("Hello.").await?, RUNAWAY_SAME)?;
    same("picks posted", seat.desk.picks().len(), 3)
}

async fn after(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    for n in 0..4 {
        seat.lane.say(bash(&format!("c{n}"), "echo again"));
    }
    seat.turn("Hello.").await?;
    seat.lane.say(text("Done."));
    same("outcome", seat.turn("Go on.").await?["outcome"].clone(), json!("completed"))
}
