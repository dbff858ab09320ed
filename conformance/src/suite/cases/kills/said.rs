//! What is said of a kill, and to whom.

use super::making::{busy, kill, list, on_stream};
use crate::suite::case::{Outcome, contains, ensure, failed, one_of_texts, same, same_text};
use crate::suite::orchestrator::Reply;
use crate::suite::stage::{RequestExt, Stage, bash, text};
use crate::suite::texts;
use jr2_shared::memory_kills::{MemoryKill, is_guard_size};
use serde_json::json;
use std::time::Duration;

fn verdict_of(kill: &MemoryKill) -> String {
    texts::verdict(kill.peak.as_deref().unwrap_or_default(), kill.limit.as_deref().unwrap_or_default())
}

pub async fn both_paths(stage: &Stage) -> Outcome {
    let (one, other) = (stage.seat("a"), stage.seat("b"));
    busy(stage, &one).await?;
    other.prompt("Think.").await?;
    other.asked(1).await?;
    let made = kill(stage).await?;
    for seat in [&one, &other] {
        let events = on_stream(seat).await?;
        let ids: Vec<_> = events.iter().map(|event| event["id"].clone()).collect();
        same(&format!("kills on the stream of {}", seat.iid), ids, vec![json!(made.id)])?;
    }
    same("it is the newest of the list", list(stage).await?.last().map(|kill| kill.id.clone()), Some(made.id))
}

pub async fn idle(stage: &Stage) -> Outcome {
    let (idle, busy_one) = (stage.seat("idle"), stage.seat("busy"));
    idle.lane.say(text("Done."));
    idle.turn("Hello.").await?;
    busy_one.prompt("Think.").await?;
    busy_one.asked(1).await?;
    kill(stage).await?;
    same("kills on the idle stream", on_stream(&idle).await?.len(), 0)?;
    same("kills on the busy stream", on_stream(&busy_one).await?.len(), 1)
}

pub async fn verdict(stage: &Stage) -> Outcome {
    let seats = [stage.seat("a"), stage.seat("b")];
    for seat in &seats {
        busy(stage, seat).await?;
    }
    let made = kill(stage).await?;
    for seat in &seats {
        let said = seat.asked(2).await?.last_of("tool");
        let last = said.lines().last().unwrap_or_default().to_owned();
        same_text(&format!("the end of the result in {}", seat.iid), &last, &verdict_of(&made))?;
    }
    Ok(())
}

pub async fn told(stage: &Stage) -> Outcome {
    let (one, other) = (stage.seat("a"), stage.seat_of("reviewer", "b"));
    busy(stage, &one).await?;
    busy(stage, &other).await?;
    kill(stage).await?;
    // The verdict is in both records once both models are asked again.
    one.asked(2).await?;
    other.asked(2).await?;
    let kept = list(stage).await?.pop();
    let mut told: Vec<(String, String)> =
        kept.into_iter().flat_map(|kill| kill.told).map(|told| (told.agent, told.instance_id)).collect();
    told.retain(|(_, iid)| !iid.ends_with("-hog"));
    told.sort();
    let want = [("coder", &one.iid), ("reviewer", &other.iid)].map(|(agent, iid)| (agent.to_owned(), iid.clone()));
    same("told", told, want.to_vec())
}

pub async fn not_told(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let admitted = seat.prompt("Think.").await?;
    seat.asked(1).await?;
    kill(stage).await?;
    seat.lane.say(text("Nothing happened to me."));
    seat.settled(&admitted).await?;
    let told = list(stage).await?.pop().map(|kill| kill.told).unwrap_or_default();
    ensure(!told.iter().any(|told| told.instance_id == seat.iid), || format!("told: {told:?}"))
}

pub async fn goes_on(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let admitted = busy(stage, &seat).await?;
    kill(stage).await?;
    seat.asked(2).await?;
    let look = format!(
        "grep -q sleep /proc/$(cat 'runs-{}')/comm 2>/dev/null && echo it lives || echo it is gone",
        seat.model
    );
    seat.lane.say(bash("c2", &look));
    contains("what is left of the process", &seat.asked(3).await?.last_of("tool"), "it is gone")?;
    seat.lane.say(text("Done."));
    same("outcome", seat.settled(&admitted).await?["outcome"].clone(), json!("completed"))
}

pub async fn logged(stage: &Stage) -> Outcome {
    let made = kill(stage).await?;
    let log = format!("{}{}", stage.house.stderr().await?, stage.house.stdout().await?);
    let Some(at) = log.find("jr2 harness: killed: memory limit") else { return failed("no log line of the kill") };
    let line = log[at..].lines().next().unwrap_or_default();
    let verdict = verdict_of(&made);
    let want = [" and cleared /dev/shm", ""]
        .map(|shm| format!("jr2 harness: {verdict} — killed the Agent's processes{shm} (ADR-0061)"));
    one_of_texts("the line", line, &want)
}

pub async fn event(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.prompt("Think.").await?;
    seat.asked(1).await?;
    let made = kill(stage).await?;
    let events = on_stream(&seat).await?;
    let [event] = events.as_slice() else { return failed(format!("kills on the stream: {events:?}")) };
    same("id", event["id"].clone(), json!(made.id))?;
    same("at", event["at"].clone(), json!(made.at))?;
    same("peak", event["peak"].clone(), json!(made.peak))?;
    same("limit", event["limit"].clone(), json!(made.limit))?;
    let sizes = [made.peak, made.limit];
    ensure(sizes.iter().flatten().all(|size| is_guard_size(size)), || format!("sizes: {sizes:?}"))
}

pub async fn later_call(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let admitted = busy(stage, &seat).await?;
    kill(stage).await?;
    seat.asked(2).await?;
    seat.lane.say(bash("c2", "echo alive and well"));
    let said = seat.asked(3).await?.last_of("tool");
    ensure(said.contains("alive and well") && !said.contains("memory limit"), || format!("the result: {said}"))?;
    seat.lane.say(text("Done."));
    seat.settled(&admitted).await.map(drop)
}

pub async fn before_prompt(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.desk.fault_surface([Reply::Slow(Duration::from_secs(6), Box::new(Reply::error(503, "stopping")))]);
    seat.prompt("Hello.").await?;
    stage.wait("the surface read", seat.desk.read(1)).await;
    kill(stage).await?;
    same("kills on its stream", on_stream(&seat).await?.len(), 1)?;
    same("requests to its model", seat.lane.count(), 0)
}

pub async fn list_first(stage: &Stage) -> Outcome {
    for n in 0..5 {
        let seat = stage.seat(&format!("a{n}"));
        seat.prompt("Think.").await?;
        seat.asked(1).await?;
        let offset = seat.updates(None).await?.header("stream-next-offset").to_owned();
        let heard = async {
            let event = seat.event(&offset, |event| event["type"] == "memory-limit").await?;
            let kept = list(stage).await?;
            let has = kept.iter().any(|kill| json!(kill.id) == event["id"]);
            ensure(has, || format!("{} was on a stream and not in the list {kept:?}", event["id"]))
        };
        // The event never comes when no kill can be made.
        tokio::try_join!(heard, kill(stage))?;
    }
    Ok(())
}
