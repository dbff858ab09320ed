//! What survives `kill -9` (spec H-12 to H-16; decisions 31 to 33).

use crate::suite::case::Need::Process;
use crate::suite::case::{Halt, Outcome, ensure, failed, same, same_text};
use crate::suite::stage::{RequestExt, Stage, bash, text};
use crate::suite::texts::OPEN_AT_RESTART;
use serde_json::{Value, json};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

crate::suite_cases! {
    "restart.001" "H-14" Process(&[]), "a Submission in flight is settled failed, harness_restarted" => in_flight;
    "restart.002" "H-12" Process(&[]), "the conversation goes on: the next request holds the same messages" => goes_on;
    "restart.003" "H-12" Process(&[]), "history and stream are the same, and an offset given before still holds" => same_views;
    "restart.004" "H-13" Process(&[]), "a torn last line is cut" => torn;
    "restart.005" "H-13" Process(&[]), "an unreadable record is said in one line and skipped; others are rebuilt" => unreadable;
    "restart.006" "D-32" Process(&[]), "a call that was open is closed with the exact words, and the history is well formed" => open_call;
    "restart.007" "D-32" Process(&[]), "harness_restarted says whether a model may have been asked" => prompted;
    "restart.008" "D-31" Process(&[]), "an admissionId is still known" => known_admission;
    "restart.009" "D-33" Process(&[]), "an abort that came before its admission is still remembered" => remembered_abort;
    "restart.010" "H-9" Process(&[]), "the numbers of a conversation's Submissions go on" => numbers;
    "restart.011" "H-12" Process(&[]), "conversations of every name are rebuilt: slashes, dots, letters beyond ASCII" => names;
    "restart.012" "H-14" Process(&[]), "a second kill -9 changes nothing more" => twice;
    "restart.013" "H-15" Process(&[]), "a record that cannot be written ends the process with 1, and nothing is answered with 200" => no_record;
}

async fn in_flight(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let one = seat.prompt("First.").await?;
    let two = seat.prompt("Second.").await?;
    seat.asked(1).await?;
    stage.house.restart().await?;
    for admitted in [one, two] {
        let settled = seat.settlement(&admitted).await?;
        same("outcome", settled["outcome"].clone(), json!("failed"))?;
        same("error.type", settled["error"]["type"].clone(), json!("harness_restarted"))?;
        same("on the stream", seat.settled(&admitted).await?["outcome"].clone(), json!("failed"))?;
    }
    same("requests to the model", seat.lane.count(), 1)
}

async fn goes_on(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(bash("c1", "echo ran"));
    seat.lane.say(text("Finished."));
    seat.turn("First.").await?;
    stage.house.restart().await?;
    seat.lane.say(text("Again."));
    seat.turn("Second.").await?;
    let (before, after) = (seat.asked(2).await?, seat.asked(3).await?);
    let (before, after) = (before.messages(), after.messages());
    ensure(after.starts_with(before), || format!("the history changed\n  was {before:?}\n  is  {after:?}"))?;
    same("messages in the next request", after.len(), before.len() + 2)?;
    same_text(
        "the tools",
        seat.asked(3).await?.tools_text().unwrap_or_default(),
        seat.asked(2).await?.tools_text().unwrap_or_default(),
    )
}

async fn same_views(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(text("One."));
    seat.turn("First.").await?;
    let offset = seat.updates(None).await?.header("stream-next-offset").to_owned();
    seat.lane.say(text("Two."));
    seat.turn("Second.").await?;
    let (history, events) = (seat.history().await?, seat.events().await?);
    let later = seat.updates(Some(&offset)).await?.value;
    stage.house.restart().await?;
    same("the history", seat.history().await?, history)?;
    same("the stream", seat.events().await?, events)?;
    same("the stream from the offset", seat.updates(Some(&offset)).await?.value, later)
}

/// Every file of a folder and below.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { all.extend(files(&path)) } else { all.push(path) }
    }
    all
}

fn broken(path: &Path) -> impl Fn(std::io::Error) -> Halt + '_ {
    move |error| Halt::Failed(format!("{}: {error}", path.display()))
}

async fn torn(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(text("One."));
    seat.turn("First.").await?;
    let events = seat.events().await?;
    stage.house.kill9().await?;
    let all = files(&stage.house.conversations()?);
    let logs: Vec<&PathBuf> = all.iter().filter(|path| path.extension().is_some_and(|e| e == "jsonl")).collect();
    ensure(!logs.is_empty(), || format!("no .jsonl below the conversations: {all:?}"))?;
    for path in logs {
        let mut file = std::fs::OpenOptions::new().append(true).open(path).map_err(broken(path))?;
        file.write_all(b"{\"torn\":\"in the mid").map_err(broken(path))?;
    }
    stage.house.boot().await?;
    same("the stream", seat.events().await?, events)?;
    seat.lane.say(text("Two."));
    same("the next Turn", seat.turn("Second.").await?["outcome"].clone(), json!("completed"))?;
    stage.house.restart().await?;
    same("settlements after one more restart", seat.history().await?["settlements"].as_array().map(Vec::len), Some(2))
}

async fn unreadable(stage: &Stage) -> Outcome {
    let (good, bad) = (stage.seat("good"), stage.seat("bad"));
    for seat in [&good, &bad] {
        seat.lane.say(text("One."));
        seat.turn("First.").await?;
    }
    stage.house.kill9().await?;
    let own = |path: &&PathBuf| path.to_string_lossy().contains("-bad");
    let all = files(&stage.house.conversations()?);
    let mine: Vec<&PathBuf> = all.iter().filter(own).collect();
    ensure(!mine.is_empty(), || format!("no file of the conversation by its name: {all:?}"))?;
    for path in mine {
        std::fs::write(path, "this is no record\nnot at all\n").map_err(broken(path))?;
    }
    stage.house.boot().await?;
    same("the good one is held", good.is_held().await?, true)?;
    same("the bad one is held", bad.is_held().await?, false)?;
    let log = stage.house.stderr().await?;
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("is unreadable, not rebuilt: ")).collect();
    same("log lines about it", lines.len(), 1)?;
    ensure(lines[0].contains("harness: conversation at "), || lines[0].to_owned())?;
    bad.lane.say(text("Anew."));
    same("a new conversation in its place", bad.turn("Begin.").await?["outcome"].clone(), json!("completed"))
}

async fn open_call(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(bash("c1", "echo begun > begun; sleep 600"));
    seat.prompt("Hello.").await?;
    let begun = seat.cwd()?.join("begun");
    let runs = async {
        while !begun.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    stage.wait("the bash call to start", runs).await;
    stage.house.restart().await?;
    seat.lane.say(text("Done."));
    same("the next Turn", seat.turn("Go on.").await?["outcome"].clone(), json!("completed"))?;
    let results = seat.asked(2).await?.said_by("tool");
    match results.as_slice() {
        [only] => same_text("the result of the call", only, OPEN_AT_RESTART),
        other => failed(format!("results of one call: {other:?}")),
    }
}

async fn prompted(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let one = seat.prompt("First.").await?;
    seat.asked(1).await?;
    let two = seat.prompt("Second.").await?;
    stage.house.restart().await?;
    let said = [seat.settlement(&one).await?, seat.settlement(&two).await?].map(|settled| settled["prompted"].clone());
    same("prompted", said, [json!(true), json!(false)])
}

async fn known_admission(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let body = seat.body_with(
        "Hello.",
        json!({"admissionId": seat.admission(1), "notices": [{"kind": "conversation-new", "reason": "x", "id": "n-1"}]}),
    )?;
    let first = seat.admit(&body).await?;
    seat.asked(1).await?;
    stage.house.restart().await?;
    let again = seat.admit(&body).await?;
    same("submissionId of the repeat", again["submissionId"].clone(), first["submissionId"].clone())?;
    same("carried", again["carried"].clone(), json!(["n-1"]))?;
    same("requests to the model", seat.lane.count(), 1)
}

async fn remembered_abort(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(text("One."));
    seat.turn_of(&seat.body_with("First.", json!({"admissionId": seat.admission(1)}))?).await?;
    seat.abort(Some(json!({"upTo": seat.admission(2)}))).await?;
    stage.house.restart().await?;
    let late = seat.turn_of(&seat.body_with("Late.", json!({"admissionId": seat.admission(2)}))?).await?;
    same("the admission that came late", late["outcome"].clone(), json!("aborted"))?;
    same("requests to the model", seat.lane.count(), 1)
}

async fn numbers(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(text("One."));
    let first = seat.prompt("First.").await?;
    seat.settled(&first).await?;
    stage.house.restart().await?;
    seat.lane.say(text("Two."));
    let second = seat.prompt("Second.").await?;
    let number = |admitted: &Value| {
        let id = admitted["submissionId"].as_str().unwrap_or_default().to_owned();
        id.split('-').nth(1).and_then(|n| n.parse::<u64>().ok())
    };
    ensure(number(&second) > number(&first), || format!("{first} then {second}"))
}

async fn names(stage: &Stage) -> Outcome {
    let tag = &stage.world.tag;
    let iids = [format!("{tag}/root/.hidden/../x"), format!("{tag}/ü b%2F c"), format!("{tag}/a.b.c")];
    let seats: Vec<_> = iids.iter().map(|iid| stage.seat_at("coder.1", iid)).collect();
    for seat in &seats {
        seat.lane.say(text("One."));
        seat.turn("First.").await?;
    }
    stage.house.restart().await?;
    for seat in &seats {
        same(
            &format!("conversationId of {}", seat.iid),
            seat.history().await?["conversationId"].clone(),
            json!(seat.iid),
        )?;
    }
    Ok(())
}

async fn twice(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.prompt("First.").await?;
    seat.asked(1).await?;
    stage.house.restart().await?;
    let events = seat.events().await?;
    stage.house.restart().await?;
    same("the stream", seat.events().await?, events)
}

async fn no_record(stage: &Stage) -> Outcome {
    let held = stage.seat("held");
    held.lane.say(text("One."));
    held.turn("First.").await?;
    let folder = stage.house.conversations()?;
    std::fs::remove_dir_all(&folder).map_err(broken(&folder))?;
    std::fs::write(&folder, "no folder any more").map_err(broken(&folder))?;
    let seat = stage.seat("new");
    // Whether the connection breaks or a refusal comes is its own affair.
    if let Ok(answer) = seat.post(&seat.body("Hello.")?).await {
        ensure(answer.status >= 500, || format!("an admission that cannot be recorded: HTTP {}", answer.status))?;
    }
    same("its exit code", stage.wait("the Harness to end", stage.house.exit()).await?, Some(1))
}
