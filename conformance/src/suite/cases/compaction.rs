//! Compaction (spec 6.9): a provider whose window is known, and a conversation that outgrows it.

use crate::model::{Answer, RecordedRequest, Usage};
use crate::suite::case::Need::{Process, Shared};
use crate::suite::case::{Halt, Outcome, contains, ensure, failed, same, same_text};
use crate::suite::harness::{SMALL_PROVIDER, SMALL_WINDOW};
use crate::suite::stage::{RequestExt, Seat, Stage, refusal, text};
use crate::suite::texts::COMPACTED;
use serde_json::json;

crate::suite_cases! {
    "compaction.001" "H-33" Shared, "over the window less its reserve the history is compacted before the model is asked" => compacts;
    "compaction.002" "H-36" Shared, "the summary enters as a user-side message with its fixed beginning, and not into the history view" => summary;
    "compaction.003" "H-35" Shared, "with an unknown window nothing is compacted" => unknown_window;
    "compaction.004" "H-34" Shared, "the newest 20,000 tokens stay as they were, the oldest go" => keeps_newest;
    "compaction.005" "H-37" Shared, "system prompt and tools have the same bytes after it" => frozen;
    "compaction.006" "H-34" Shared, "a summariser that fails settles the Submission failed" => summariser_fails;
    "compaction.007" "H-33" Shared, "below the limit nothing is compacted" => below;
    "compaction.008" "H-36" Process(&[]), "it logs `[<agent>] [compacted] context N → ~M tokens (window W)`" => logged;
    "compaction.009" "H-31" Shared, "compaction does not run after a runaway" => not_after_runaway;
}

/// Bytes of one long prompt: 12,000 to 16,000 tokens however they are counted, so that one fits into what stays and three
/// do not.
const LONG_BYTES: usize = 48_000;
/// What the summariser says.
const SUMMARY: &str = "They read the long texts. Nothing else happened.";

/// A long prompt with a name at its start.
fn long(name: &str) -> String {
    let words = "the quick brown fox jumps over the lazy dog and runs home ";
    format!("{name} {}", words.repeat(LONG_BYTES / words.len()))
}

/// An answer that reports this many prompt tokens.
fn using(answer: Answer, prompt: u64) -> Answer {
    Answer { usage: Some(Usage { prompt, completion: 10, cached: 0 }), ..answer }
}

async fn turn(seat: &Seat<'_>, provider: &str, prompt: &str) -> Result<serde_json::Value, Halt> {
    let mut body = seat.body(prompt)?;
    body["definition"]["model"] = json!(format!("{provider}/{}", seat.model));
    seat.turn_of(&body).await
}

/// Three long Turns; the usage of the third says that the window is nearly full.
async fn fill(seat: &Seat<'_>, provider: &str) -> Result<(), Halt> {
    for (n, tokens) in [10_000, 20_000, SMALL_WINDOW - 10_000].into_iter().enumerate() {
        seat.lane.say(using(text(&format!("Answer {n}.")), tokens));
        let settled = turn(seat, provider, &long(&format!("PROMPT-{n}"))).await?;
        same("outcome while it fills", settled["outcome"].clone(), json!("completed"))?;
    }
    Ok(())
}

fn has_summary(request: &RecordedRequest) -> bool {
    request.said_by("user").iter().any(|said| said.starts_with(COMPACTED))
}

/// A full conversation and the Turn after it; the last request, and how many there were in that Turn.
async fn compacted(seat: &Seat<'_>) -> Result<(RecordedRequest, usize), Halt> {
    fill(seat, SMALL_PROVIDER).await?;
    seat.lane.say(text(SUMMARY));
    seat.lane.say(text("The last answer."));
    let settled = turn(seat, SMALL_PROVIDER, "PROMPT-3 short").await?;
    same("outcome of the Turn with the compaction", settled["outcome"].clone(), json!("completed"))?;
    let requests = seat.lane.requests();
    match requests.last() {
        Some(last) => Ok((last.clone(), requests.len() - 3)),
        None => failed("the model was not asked"),
    }
}

async fn compacts(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let (last, requests) = compacted(&seat).await?;
    same("requests in the Turn: the summariser's and the model's", requests, 2)?;
    ensure(has_summary(&last), || format!("no summary in the request: {:?}", heads(&last)))
}

/// The beginnings of a request's messages.
fn heads(request: &RecordedRequest) -> Vec<String> {
    let head = |message: &serde_json::Value| message.to_string().chars().take(120).collect();
    request.messages().iter().map(head).collect()
}

async fn summary(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let (last, _) = compacted(&seat).await?;
    let said = last.said_by("user").into_iter().find(|said| said.starts_with(COMPACTED));
    contains("the summary's message", &said.unwrap_or_default(), SUMMARY)?;
    let history = seat.history().await?.to_string();
    ensure(!history.contains(COMPACTED) && !history.contains(SUMMARY), || {
        "the history view shows the summary".to_owned()
    })?;
    ensure(history.contains("PROMPT-0"), || "the history view lost what was compacted".to_owned())
}

async fn unknown_window(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    fill(&seat, crate::suite::harness::PROVIDER).await?;
    seat.lane.say(text("The last answer."));
    turn(&seat, crate::suite::harness::PROVIDER, "PROMPT-3").await?;
    same("requests", seat.lane.count(), 4)?;
    let last = seat.asked(4).await?;
    ensure(!has_summary(&last) && last.body_text.contains("PROMPT-0"), || format!("messages: {:?}", heads(&last)))
}

async fn keeps_newest(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let (last, _) = compacted(&seat).await?;
    let users = last.said_by("user");
    ensure(users.iter().any(|said| said.starts_with(&long("PROMPT-2"))), || format!("the newest: {:?}", heads(&last)))?;
    ensure(!last.body_text.contains("PROMPT-0 "), || "the oldest message is still there".to_owned())?;
    ensure(users.last().is_some_and(|said| said.starts_with("PROMPT-3 short\n")), || format!("{:?}", heads(&last)))
}

async fn frozen(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let (last, _) = compacted(&seat).await?;
    let first = seat.asked(1).await?;
    ensure(has_summary(&last), || "nothing was compacted".to_owned())?;
    same_text("the system prompt", &last.last_of("system"), &first.last_of("system"))?;
    same_text("the tools", last.tools_text().unwrap_or_default(), first.tools_text().unwrap_or_default())
}

async fn summariser_fails(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    fill(&seat, SMALL_PROVIDER).await?;
    for _ in 0..8 {
        seat.lane.say(refusal(400, "the summariser is out of order"));
    }
    let settled = turn(&seat, SMALL_PROVIDER, "PROMPT-3 short").await?;
    same("outcome", settled["outcome"].clone(), json!("failed"))?;
    let requests = seat.lane.requests();
    let in_turn = requests.iter().skip(3);
    let summarising = in_turn.into_iter().all(|request| !request.last_of("user").starts_with("PROMPT-3 short"));
    ensure(summarising, || "the model was asked with a history that does not fit".to_owned())
}

async fn below(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    for n in 0..3 {
        seat.lane.say(using(text("Done."), 5_000));
        turn(&seat, SMALL_PROVIDER, &format!("PROMPT-{n}")).await?;
    }
    same("requests", seat.lane.count(), 3)?;
    ensure(!has_summary(&seat.asked(3).await?), || "it was compacted".to_owned())
}

async fn logged(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    compacted(&seat).await?;
    let out = stage.house.stdout().await? + &stage.house.stderr().await?;
    let line = out.lines().find(|line| line.contains("[coder] [compacted] context ")).unwrap_or_default().to_owned();
    contains("the line", &line, " → ~")?;
    contains("the line", &line, &format!(" tokens (window {SMALL_WINDOW})"))
}

async fn not_after_runaway(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    for n in 0..4 {
        let call = crate::suite::stage::bash(&format!("c{n}"), "echo again");
        seat.lane.say(using(call, if n == 3 { SMALL_WINDOW } else { 100 }));
    }
    let settled = turn(&seat, SMALL_PROVIDER, "PROMPT-0").await?;
    same("error.type", settled["error"]["type"].clone(), json!("runaway"))?;
    same("requests", seat.lane.count(), 4)
}
