//! The end of the process on a signal (spec H-3, H-17).

use crate::suite::case::Need::Process;
use crate::suite::case::{Halt, Outcome, ensure, failed, same};
use crate::suite::stage::{Stage, bash};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

crate::suite_cases! {
    "drain.001" "H-17" Process(&[]), "SIGTERM ends an idle Harness with exit code 0" => idle;
    "drain.002" "H-17" Process(&[]), "SIGTERM settles the running Submission and those that wait, then exits 0" => settles;
    "drain.003" "H-3" Process(&[]), "an admission that meets the drain is 503 with `connection: close`, and seats nothing" => refuses;
    "drain.004" "H-17" Process(&[]), "a parked long poll gets the settlement before it is cut" => flushes;
    "drain.005" "H-17" Process(&[]), "a running bash call is no reason to stay" => with_bash;
    "drain.006" "D-32" Process(&[]), "what the drain settled says whether a model may have been asked" => prompted;
}

async fn ends(stage: &Stage) -> Result<(), Halt> {
    let started = Instant::now();
    let code = stage.wait("the Harness to end after SIGTERM", stage.house.exit()).await?;
    same("its exit code", code, Some(0))?;
    ensure(started.elapsed() < Duration::from_secs(25), || format!("it took {:?}", started.elapsed()))
}

async fn idle(stage: &Stage) -> Outcome {
    stage.house.terminate().await?;
    ends(stage).await
}

/// A running Submission and one that waits, a drain, and a new start: the settlements.
async fn settled_by_drain(stage: &Stage) -> Result<(Vec<Value>, Vec<Value>), Halt> {
    let seat = stage.seat("a");
    let one = seat.prompt("First.").await?;
    let two = seat.prompt("Second.").await?;
    seat.asked(1).await?;
    stage.house.terminate().await?;
    ends(stage).await?;
    stage.house.boot().await?;
    let settlements = seat.history().await?["settlements"].as_array().cloned().unwrap_or_default();
    Ok((settlements, vec![one["submissionId"].clone(), two["submissionId"].clone()]))
}

async fn settles(stage: &Stage) -> Outcome {
    let (settlements, ids) = settled_by_drain(stage).await?;
    let settled: Vec<Value> = settlements.iter().map(|one| one["submissionId"].clone()).collect();
    same("settled, in order and once", settled, ids)?;
    for one in settlements {
        let so =
            one["outcome"] == "failed" && one["error"]["type"] == "harness_restarted" || one["outcome"] == "aborted";
        ensure(so, || format!("a settlement by the drain: {one}"))?;
    }
    Ok(())
}

async fn prompted(stage: &Stage) -> Outcome {
    let (settlements, _) = settled_by_drain(stage).await?;
    let said: Vec<Value> = settlements.iter().map(|one| one["prompted"].clone()).collect();
    same("prompted", said, vec![json!(true), json!(false)])
}

async fn with_bash(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(bash("c1", "echo begun > begun; trap '' TERM; sleep 600"));
    seat.prompt("Hello.").await?;
    let begun = seat.cwd()?.join("begun");
    let runs = async {
        while !begun.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    stage.wait("the bash call to start", runs).await;
    stage.house.terminate().await?;
    ends(stage).await
}

/// Sends a request whose body is incomplete, lets the drain begin, sends the rest.
async fn refuses(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let body = seat.body("Late.")?.to_string();
    let (first, rest) = body.split_at(body.len() / 2);
    let head = format!(
        "POST {} HTTP/1.1\r\nhost: h\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        seat.path(),
        stage.wire().bearer(),
        body.len()
    );
    let broken = |error: std::io::Error| Halt::Failed(format!("a connection to the Harness: {error}"));
    let address = ("127.0.0.1", stage.house.port()?);
    let mut late = TcpStream::connect(address).await.map_err(broken)?;
    late.write_all(head.as_bytes()).await.map_err(broken)?;
    late.write_all(first.as_bytes()).await.map_err(broken)?;
    // A whole round trip on another connection: the half request was read before the signal.
    same("it is up", stage.wire().is_up().await, true)?;
    stage.house.terminate().await?;
    let draining = async {
        // Poll: until a new caller is refused, by the listener or with 503.
        while matches!(stage.wire().call("GET", "/memory-kills", None).await, Ok(answer) if answer.status == 200) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    stage.wait("the drain to begin", draining).await;
    late.write_all(rest.as_bytes()).await.map_err(broken)?;
    let mut answer = Vec::new();
    let read = stage.wait("the answer to the late admission", late.read_to_end(&mut answer)).await;
    let answer = String::from_utf8_lossy(&answer).to_ascii_lowercase();
    if let Err(error) = read {
        return failed(format!("the late admission: {error} after {answer:?}"));
    }
    ensure(answer.starts_with("http/1.1 503"), || format!("the late admission was answered {answer:?}"))?;
    ensure(answer.contains("\r\nconnection: close\r\n"), || format!("no connection: close: {answer:?}"))?;
    ends(stage).await?;
    stage.house.boot().await?;
    same("the conversation is held after a restart", seat.is_held().await?, false)
}

async fn flushes(stage: &Stage) -> Outcome {
    // Whether a poll is parked yet cannot be seen from outside: one that meets the drain at the door is tried again.
    for attempt in 0..5 {
        let seat = stage.seat(&format!("a{attempt}"));
        let admitted = seat.prompt("Hello.").await?;
        seat.asked(1).await?;
        let offset = seat.updates(None).await?.header("stream-next-offset").to_owned();
        let term = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            stage.house.terminate().await
        };
        let (answer, signalled) = tokio::join!(seat.poll(&offset), term);
        signalled?;
        ends(stage).await?;
        stage.house.boot().await?;
        match answer {
            Ok(answer) if answer.status == 200 => {
                let events = answer.value.as_array().cloned().unwrap_or_default();
                let has = events.iter().any(|event| event["submissionId"] == admitted["submissionId"]);
                return ensure(has, || format!("the parked poll got {}", answer.text));
            }
            Ok(answer) if answer.status == 503 => {}
            Ok(answer) => return failed(format!("the parked poll got {} {}", answer.status, answer.text)),
            Err(Halt::Failed(words)) if attempt == 4 => return failed(words),
            Err(_) => {}
        }
    }
    failed("no poll was ever answered by a drain")
}
