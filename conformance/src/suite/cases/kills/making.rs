//! How a check makes a memory kill: the Harness's own test route where it has one, else a real process that takes too much.

use crate::suite::case::{Halt, failed};
use crate::suite::stage::{Seat, Stage, bash, text};
use jr2_shared::memory_kills::{Measure, MemoryKill, read};
use serde_json::json;
use std::time::Duration;

/// The sizes that the test route is told.
pub const SIZES: (&str, &str) = ("1.9Gi", "2Gi");
/// How often a list is looked at while a real kill is waited for.
const LOOK: Duration = Duration::from_millis(20);

/// The list as the Orchestrator reads it; whatever is left out of it is a failure.
pub async fn list(stage: &Stage) -> Result<Vec<MemoryKill>, Halt> {
    let answer = stage.wire().call("GET", "/memory-kills", None).await?.expect(200, "GET /memory-kills")?;
    let reading = read(&answer.value, Measure::Chars);
    if !reading.faults.is_empty() {
        return failed(format!("the list is not believed whole: {:?}\n{}", reading.faults, answer.text));
    }
    Ok(reading.kills)
}

/// Makes a kill; answers it as the list has it.
pub async fn kill(stage: &Stage) -> Result<MemoryKill, Halt> {
    let before = list(stage).await?;
    let order = json!({"peak": SIZES.0, "limit": SIZES.1});
    let answer = stage.wire().call("POST", "/test/memory-kill", Some(&order)).await?;
    match (answer.status, stage.world.memory_hog) {
        (200, _) => {}
        (404 | 405, Some(megabytes)) => hog(stage, megabytes).await?,
        (404 | 405, None) => {
            let why = "no memory kill can be made: no POST /test/memory-kill here; --memory-hog makes a real one";
            return Err(Halt::NotRun(why.to_owned()));
        }
        (status, _) => return failed(format!("POST /test/memory-kill: HTTP {status} {}", answer.text)),
    }
    let came = async {
        loop {
            let now = list(stage).await?;
            match now.last() {
                Some(newest) if !before.iter().any(|kill| kill.id == newest.id) => return Ok(newest.clone()),
                _ => tokio::time::sleep(LOOK).await,
            }
        }
    };
    stage.wait("a new kill in the list", came).await
}

/// A conversation of its own whose bash call takes too much.
async fn hog(stage: &Stage, megabytes: u64) -> Result<(), Halt> {
    let seat = stage.seat("hog");
    seat.lane.say(bash("hog", &format!("head -c {megabytes}M /dev/zero | tail -c {megabytes}M | wc -c")));
    seat.lane.say(text("Done."));
    seat.turn("Take memory.").await.map(drop)
}

/// Admits a Turn whose bash call runs until it is killed; its processes run when this returns.
pub async fn busy(stage: &Stage, seat: &Seat<'_>) -> Result<serde_json::Value, Halt> {
    let mark = format!("runs-{}", seat.model);
    seat.lane.say(bash("c1", &format!("sleep 600 & echo $! > '{mark}.pid'; mv '{mark}.pid' '{mark}'; wait")));
    let admitted = seat.prompt("Run something.").await?;
    let mark = seat.cwd()?.join(mark);
    let runs = async {
        while !mark.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    stage.wait("a bash call to run", runs).await;
    Ok(admitted)
}

/// The kills on a conversation's stream.
pub async fn on_stream(seat: &Seat<'_>) -> Result<Vec<serde_json::Value>, Halt> {
    Ok(seat.events().await?.into_iter().filter(|event| event["type"] == "memory-limit").collect())
}
