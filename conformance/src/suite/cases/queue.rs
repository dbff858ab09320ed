//! Submissions of one conversation, and conversations beside each other (spec H-11).

use crate::suite::case::Need::Shared;
use crate::suite::case::{Outcome, ensure, failed, same};
use crate::suite::stage::{RequestExt, Stage, text};
use serde_json::{Value, json};

crate::suite_cases! {
    "queue.001" "H-11" Shared, "Submissions of one conversation never overlap" => no_overlap;
    "queue.002" "H-11" Shared, "they run and settle in the order of their admissions" => in_order;
    "queue.003" "P-9" Shared, "a waiting Submission's surface is read when its turn comes, not before" => surface_later;
    "queue.004" "H-11" Shared, "conversations run beside each other" => beside;
    "queue.005" "wire.md" Shared, "the 17th Submission that waits is 429 and seats nothing" => full;
    "queue.006" "H-9" Shared, "the numbers of a conversation's Submissions grow" => numbers;
    "queue.007" "6.6" Shared, "each message says its own Submission's prompt, after what came before" => messages;
}

async fn no_overlap(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let first = seat.prompt("First.").await?;
    let second = seat.prompt("Second.").await?;
    let third = seat.prompt("Third.").await?;
    for (n, admitted) in [first, second, third].iter().enumerate() {
        seat.asked(n + 1).await?;
        same("requests to the model while one runs", seat.lane.count(), n + 1)?;
        let settled = seat.history().await?["settlements"].as_array().map(Vec::len);
        same("settlements while one runs", settled, Some(n))?;
        seat.lane.say(text("Done."));
        seat.settled(admitted).await?;
    }
    Ok(())
}

async fn in_order(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let mut ids: Vec<Value> = Vec::new();
    let mut last = Value::Null;
    for n in 0..4 {
        last = seat.prompt(&format!("Prompt {n}.")).await?;
        ids.push(last["submissionId"].clone());
        seat.lane.say(text(&format!("Answer {n}.")));
    }
    seat.settled(&last).await?;
    let history = seat.history().await?;
    let settled: Vec<Value> =
        history["settlements"].as_array().into_iter().flatten().map(|one| one["submissionId"].clone()).collect();
    same("the order of settlements", settled, ids)
}

async fn surface_later(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let first = seat.prompt("First.").await?;
    seat.asked(1).await?;
    let second = seat.prompt("Second.").await?;
    same("reads while the first runs", seat.desk.surface_reads().len(), 1)?;
    seat.surface(&["done", "more"], &["more"]);
    seat.lane.say(text("Done."));
    seat.settled(&first).await?;
    seat.lane.say(text("Done."));
    let said = seat.asked(2).await?.last_of("user");
    ensure(said.ends_with("Allowed now: `mcp__jr2__more`.\n</jr2-turn>"), || format!("its message: {said}"))?;
    seat.settled(&second).await.map(drop)
}

async fn beside(stage: &Stage) -> Outcome {
    let seats = [stage.seat("a"), stage.seat("b"), stage.seat("c")];
    let mut admitted = Vec::new();
    for seat in &seats {
        admitted.push(seat.prompt("Hello.").await?);
    }
    for seat in &seats {
        seat.asked(1).await?;
    }
    for (seat, admitted) in seats.iter().zip(&admitted).rev() {
        seat.lane.say(text("Done."));
        same("it settles", seat.settled(admitted).await?["outcome"].clone(), json!("completed"))?;
    }
    Ok(())
}

async fn full(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    for n in 0..16 {
        seat.prompt(&format!("Prompt {n}.")).await?;
    }
    let answer = seat.post(&seat.body("One too many.")?).await?;
    same("the 17th", answer.status, 429)?;
    seat.lane.say(text("Done."));
    seat.asked(2).await?;
    same("one more when one has settled", seat.post(&seat.body("Fits.")?).await?.status, 200)
}

async fn numbers(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let mut last = 0;
    for _ in 0..3 {
        seat.lane.say(text("Done."));
        let admitted = seat.prompt("Hello.").await?;
        let id = admitted["submissionId"].as_str().unwrap_or_default();
        let Some(number) = id.split('-').nth(1).and_then(|n| n.parse::<u64>().ok()) else {
            return failed(format!("submissionId {id:?}"));
        };
        ensure(number > last, || format!("{id} after number {last}"))?;
        last = number;
        seat.settled(&admitted).await?;
    }
    Ok(())
}

async fn messages(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(text("Answer one."));
    seat.lane.say(text("Answer two."));
    seat.turn("Prompt one.").await?;
    seat.turn("Prompt two.").await?;
    let request = seat.asked(2).await?;
    let (users, answers) = (request.said_by("user"), request.said_by("assistant"));
    same("messages of the user", users.len(), 2)?;
    ensure(users[0].starts_with("Prompt one.\n") && users[1].starts_with("Prompt two.\n"), || format!("{users:?}"))?;
    same("messages of the assistant", answers, vec!["Answer one.".to_owned()])
}
