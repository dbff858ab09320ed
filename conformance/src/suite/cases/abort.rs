//! Aborts (spec 6.2, H-21; decisions 32 and 33).

use crate::model::Answer;
use crate::suite::case::Need::Shared;
use crate::suite::case::{Outcome, contains, ensure, same};
use crate::suite::orchestrator::Reply;
use crate::suite::stage::{RequestExt, Stage, bash, text};
use serde_json::json;
use std::time::Duration;

crate::suite_cases! {
    "abort.001" "A0024" Shared, "an abort ends the running Submission: aborted, submission_aborted" => running;
    "abort.002" "A0024" Shared, "it ends everything queued behind it, in order" => sweeps;
    "abort.003" "6.2" Shared, "with nothing running it answers {\"aborted\":false}" => nothing;
    "abort.004" "D-26" Shared, "of a conversation that is not held it answers {\"aborted\":false}" => unknown;
    "abort.005" "H-21" Shared, "what the model had said when it was cut is kept, and replayed in the next Turn" => partial;
    "abort.006" "A0024" Shared, "the process of a running bash call is dead after the abort" => kills_bash;
    "abort.007" "wire.md" Shared, "it answers once what it ends has settled" => settled_first;
    "abort.008" "D-33" Shared, "upTo ends that Submission and earlier ones only" => up_to;
    "abort.009" "D-33" Shared, "an abort that overtakes its admission is remembered" => ahead;
    "abort.010" "P-14" Shared, "an abort during the surface read settles it without a model call" => before_model;
    "abort.011" "D-32" Shared, "it says which admissions no model was asked with, and a repeat says it again" => unprompted;
    "abort.012" "A0024" Shared, "the conversation goes on after an abort" => goes_on;
    "abort.013" "D-13" Shared, "an abort ends the wait for an outstanding pick" => outstanding;
}

async fn running(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let admitted = seat.prompt("Hello.").await?;
    seat.asked(1).await?;
    same("the answer", seat.abort(None).await?["aborted"].clone(), json!(true))?;
    let settled = seat.settled(&admitted).await?;
    same("outcome", settled["outcome"].clone(), json!("aborted"))?;
    same("error.type", settled["error"]["type"].clone(), json!("submission_aborted"))
}

async fn sweeps(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let mut ids = Vec::new();
    for n in 0..3 {
        ids.push(seat.prompt(&format!("Prompt {n}.")).await?["submissionId"].clone());
    }
    seat.asked(1).await?;
    same("the answer", seat.abort(None).await?["aborted"].clone(), json!(true))?;
    let settlements = seat.history().await?["settlements"].as_array().cloned().unwrap_or_default();
    let of = |key: &str| settlements.iter().map(|one| one[key].clone()).collect::<Vec<_>>();
    same("settled", of("submissionId"), ids)?;
    same("outcomes", of("outcome"), vec![json!("aborted"); 3])?;
    same("requests to the model", seat.lane.count(), 1)
}

async fn nothing(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(text("Done."));
    seat.turn("Hello.").await?;
    same("the answer", seat.abort(None).await?, json!({"aborted": false}))
}

async fn unknown(stage: &Stage) -> Outcome {
    let seat = stage.seat("never-admitted");
    same("the answer", seat.abort(None).await?, json!({"aborted": false}))?;
    same("it is held", seat.is_held().await?, false)
}

async fn partial(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    // The first words come at once, the rest never in time.
    let slow = Answer { delta_chars: Some(14), chunk_delay_ms: 250, ..text(&"All I had said and more. ".repeat(400)) };
    seat.lane.say(slow);
    let admitted = seat.prompt("Hello.").await?;
    seat.asked(1).await?;
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    seat.abort(None).await?;
    same("outcome", seat.settled(&admitted).await?["outcome"].clone(), json!("aborted"))?;
    seat.lane.say(text("Done."));
    seat.turn("Again.").await?;
    let said = seat.asked(2).await?.said_by("assistant");
    ensure(said.iter().any(|said| said.starts_with("All I had said")), || {
        format!("the next request does not hold what was said before the abort: {said:?}")
    })
}

async fn kills_bash(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(bash("c1", "sleep 600 & echo $! > sleeper; echo started > started; wait"));
    let admitted = seat.prompt("Hello.").await?;
    let started = seat.cwd()?.join("started");
    let begun = async {
        while !started.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    stage.wait("the bash call to start", begun).await;
    same("the answer", seat.abort(None).await?["aborted"].clone(), json!(true))?;
    seat.settled(&admitted).await?;
    seat.lane
        .say(bash("c2", "grep -q sleep /proc/$(cat sleeper)/comm 2>/dev/null && echo it lives || echo it is gone"));
    seat.lane.say(text("Done."));
    seat.turn("Look.").await?;
    contains("what is left of the sleeper", &seat.asked(3).await?.last_of("tool"), "it is gone")
}

async fn settled_first(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let admitted = seat.prompt("Hello.").await?;
    let queued = seat.prompt("And then.").await?;
    seat.asked(1).await?;
    seat.abort(None).await?;
    for one in [admitted, queued] {
        same("outcome right after the answer", seat.settlement(&one).await?["outcome"].clone(), json!("aborted"))?;
    }
    Ok(())
}

async fn up_to(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let mut all = Vec::new();
    for n in 1..=3 {
        all.push(seat.admit(&seat.body_with("Hello.", json!({"admissionId": seat.admission(n)}))?).await?);
    }
    seat.asked(1).await?;
    let answer = seat.abort(Some(json!({"upTo": seat.admission(2)}))).await?;
    same("aborted", answer["aborted"].clone(), json!(true))?;
    seat.lane.say(text("Third."));
    let outcomes = [seat.settled(&all[0]).await?, seat.settled(&all[1]).await?, seat.settled(&all[2]).await?]
        .map(|settled| settled["outcome"].clone());
    same("outcomes", outcomes, [json!("aborted"), json!("aborted"), json!("completed")])
}

async fn ahead(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let answer = seat.abort(Some(json!({"upTo": seat.admission(1)}))).await?;
    same("aborted", answer["aborted"].clone(), json!(false))?;
    let late = seat.turn_of(&seat.body_with("Late.", json!({"admissionId": seat.admission(1)}))?).await?;
    same("the admission that came late", late["outcome"].clone(), json!("aborted"))?;
    same("requests to the model", seat.lane.count(), 0)?;
    seat.lane.say(text("Done."));
    let next = seat.turn_of(&seat.body_with("Next.", json!({"admissionId": seat.admission(2)}))?).await?;
    same("the admission after it", next["outcome"].clone(), json!("completed"))
}

async fn before_model(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let surface = Reply::error(503, "stopping");
    seat.desk.fault_surface([Reply::Slow(Duration::from_secs(8), Box::new(surface))]);
    let admitted = seat.prompt("Hello.").await?;
    stage.wait("the surface read", seat.desk.read(1)).await;
    same("the answer", seat.abort(None).await?["aborted"].clone(), json!(true))?;
    same("outcome", seat.settled(&admitted).await?["outcome"].clone(), json!("aborted"))?;
    same("requests to the model", seat.lane.count(), 0)
}

async fn unprompted(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let admit = async |n: u64| seat.admit(&seat.body_with("Go.", json!({"admissionId": seat.admission(n)}))?).await;
    let first = admit(1).await?;
    seat.asked(1).await?;
    let second = admit(2).await?;
    let up_to = json!({"upTo": seat.admission(2)});
    for aborted in [true, false] {
        let want = json!({"aborted": aborted, "unprompted": [seat.admission(2)]});
        same("the answer", seat.abort(Some(up_to.clone())).await?, want)?;
    }
    same("prompted of the first", seat.settled(&first).await?["prompted"].clone(), json!(true))?;
    same("prompted of the second", seat.settled(&second).await?["prompted"].clone(), json!(false))
}

async fn goes_on(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(bash("c1", "echo begun > begun; sleep 600"));
    let admitted = seat.prompt("Hello.").await?;
    let begun = seat.cwd()?.join("begun");
    let running = async {
        while !begun.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    stage.wait("the bash call to start", running).await;
    seat.abort(None).await?;
    seat.settled(&admitted).await?;
    seat.lane.say(text("Done."));
    same("the next Turn", seat.turn("Again.").await?["outcome"].clone(), json!("completed"))?;
    let request = seat.asked(2).await?;
    same("results of the call that was cut", request.said_by("tool").len(), 1)
}

async fn outstanding(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let mut asked = crate::suite::orchestrator::taken("done", true, false, Some(&[]));
    asked["outstanding"] = json!(true);
    seat.desk.answer_picks([Reply::Json(200, asked)]);
    seat.lane.say(crate::suite::stage::call("c1", "mcp__jr2__done", json!({})));
    let admitted = seat.prompt("Hello.").await?;
    stage.wait("the read of the delivery", seat.desk.polled(1)).await;
    same("the answer", seat.abort(None).await?["aborted"].clone(), json!(true))?;
    same("outcome", seat.settled(&admitted).await?["outcome"].clone(), json!("aborted"))
}
