//! Compaction from outside (spec 6.9): what is sent before and after a cut, what is shown of it, and how it ends when it
//! does not help.

use crate::world::{Answer, World, last_of};
use serde_json::{Value, json};

/// How the summary message starts, spelt out here so that the test does not agree with itself (spec H-36).
const OPEN: &str = "The conversation history before this point was compacted";
/// Above 13,334 tokens (spec H-33: the reserve of a small window is a third) a context is compacted; 6,667 stay.
const WINDOW: u64 = 20_000;

fn config(window: Option<u64>) -> String {
    let mut provider = json!({"id": "p", "baseUrl": "/providers/p"});
    if let Some(window) = window {
        provider["contextWindow"] = json!(window);
    }
    json!({"providers": [provider]}).to_string()
}

async fn world(window: Option<u64>) -> World {
    World::start_with(&[("JR2_HARNESS_JSON", &config(window))]).await
}

/// A call whose result has about 8,000 bytes, and the tokens the server counted for the question before it.
fn work(n: usize, counted: u64) -> Answer {
    let command = json!({"command": format!("echo step-{n}; head -c 8000 /dev/zero | tr '\\0' 'x'")}).to_string();
    Answer::Counted(counted, Box::new(Answer::Calls(vec![("c", "bash", command)])))
}

fn says(counted: u64, text: &'static str) -> Answer {
    Answer::Counted(counted, Box::new(Answer::Text(text)))
}

fn messages(request: &Value) -> &[Value] {
    request["messages"].as_array().unwrap()
}

/// The summariser's questions have no tools.
fn is_summary(request: &Value) -> bool {
    request.get("tools").is_none()
}

fn opens(request: &Value) -> bool {
    messages(request)[1]["content"].as_str().unwrap().starts_with(OPEN)
}

fn requests(world: &World) -> Vec<Value> {
    world.fake.with(|script| script.model_requests.clone())
}

/// Every call of a request is answered in it, and every result answers a call before it.
fn assert_whole(request: &Value) {
    let mut open: Vec<&str> = Vec::new();
    for message in messages(request) {
        if message["role"] == "tool" {
            let id = message["tool_call_id"].as_str().unwrap();
            assert!(open.contains(&id), "a result without its call: {id}");
            open.retain(|other| *other != id);
            continue;
        }
        assert!(open.is_empty(), "a call without its result: {open:?}");
        let calls = message["tool_calls"].as_array().into_iter().flatten();
        open = calls.map(|call| call["id"].as_str().unwrap()).collect();
    }
    assert!(open.is_empty(), "a call without its result: {open:?}");
}

#[tokio::test]
async fn h_33_h_36_a_turn_is_compacted_between_two_of_its_steps() {
    let world = world(Some(WINDOW)).await;
    let mut script: Vec<Answer> = (0..6).map(|n| work(n, 1_000 + 2_200 * n as u64)).collect();
    script.push(Answer::Text("## Task\nFix it."));
    script.push(says(7_000, "Done."));
    world.script(script);
    let settled = world.turn(world.body("Fix it.")).await;
    assert_eq!((settled["outcome"].as_str(), settled["text"].as_str()), (Some("completed"), Some("Done.")));
    let all = requests(&world);
    assert_eq!(all.len(), 8, "six steps, the summary, the last step");
    let (before, summary, after) = (&all[5], &all[6], &all[7]);
    assert!(is_summary(summary) && !is_summary(before) && !is_summary(after));
    assert!(last_of(summary, "user").contains("[User]: Fix it.") && last_of(summary, "user").contains("step-0"));
    assert_eq!((&after["tools"], &after["messages"][0]), (&before["tools"], &before["messages"][0]), "both are frozen");
    assert!(opens(after) && after["messages"][1]["role"] == "user");
    assert!(messages(after)[1]["content"].as_str().unwrap().contains("## Task\nFix it."));
    for message in &messages(after)[2..] {
        assert!(messages(before).contains(message) || message.to_string().contains("step-5"), "verbatim: {message}");
    }
    all.iter().for_each(assert_whole);
    // What is shown of it: one line in the log, nothing in the history and nothing in the stream.
    let line = world.stdout().lines().find(|line| line.contains("[compacted]")).map(str::to_owned).unwrap();
    assert!(line.starts_with("[coder] [compacted] context 1") && line.ends_with(" tokens (window 20000)"), "{line}");
    assert!(line.contains(" → ~"), "{line}");
    assert!(!world.history().await.to_string().contains("compacted"));
    let (_, events, _) = world.call("GET", &format!("{}?offset=0&view=updates", world.path()), None).await;
    assert!(!events.to_string().contains("compacted"));
    assert!(std::fs::read_to_string(world.log_file()).unwrap().contains("\"t\":\"compacted\""));
}

#[tokio::test]
async fn h_34_a_second_cut_keeps_what_the_first_kept_and_a_restart_keeps_the_cut() {
    let mut world = world(Some(WINDOW)).await;
    let mut script: Vec<Answer> = (0..6).map(|n| work(n, 1_000 + 2_200 * n as u64)).collect();
    script.push(Answer::Text("First summary."));
    script.extend((6..9).map(|n| work(n, 7_000 + 2_200 * (n as u64 - 6))));
    script.push(Answer::Text("Second summary."));
    script.push(says(7_000, "Done."));
    world.script(script);
    assert_eq!(world.turn(world.body("Fix it.")).await["outcome"], "completed");
    let all = requests(&world);
    let summaries: Vec<&Value> = all.iter().filter(|request| is_summary(request)).collect();
    assert_eq!(summaries.len(), 2);
    let second = last_of(summaries[1], "user");
    assert!(second.contains("First summary."));
    let last = all.last().unwrap();
    for n in 0..9 {
        let step = format!("step-{n};");
        let held = [last_of(summaries[0], "user"), second].iter().any(|text| text.contains(&step));
        assert!(held || last.to_string().contains(&step), "{step} was lost between two cuts");
    }
    let first_tail: Vec<String> = (0..6).map(|n| format!("step-{n};")).collect();
    let first_tail: Vec<&String> =
        first_tail.iter().filter(|step| !last_of(summaries[0], "user").contains(step.as_str())).collect();
    assert!(first_tail.len() > 1, "the first cut kept something: {first_tail:?}");
    all.iter().for_each(assert_whole);

    world.kill();
    world.boot().await;
    world.script(vec![says(7_500, "Again.")]);
    world.turn(world.body("More.")).await;
    let all = requests(&world);
    let (before, after) = (&all[all.len() - 2], &all[all.len() - 1]);
    assert!(opens(after) && last_of(after, "user").starts_with("More."));
    assert_eq!(
        messages(after)[..messages(before).len()],
        *messages(before),
        "a restart sends the bytes that were sent"
    );
}

#[tokio::test]
async fn h_35_an_unknown_window_is_looked_up_at_the_server() {
    let world = world(None).await;
    world.fake.with(|script| script.models = Some(json!({"data": [{"id": "tiny", "max_model_len": WINDOW}]})));
    let mut script: Vec<Answer> = (0..6).map(|n| work(n, 1_000 + 2_200 * n as u64)).collect();
    script.extend([Answer::Text("Summary."), says(7_000, "Done.")]);
    world.script(script);
    assert_eq!(world.turn(world.body("Fix it.")).await["outcome"], "completed");
    assert!(world.stdout().contains("(window 20000)"), "{}", world.stdout());
}

#[tokio::test]
async fn h_35_a_window_nobody_knows_turns_compaction_off_and_the_log_says_so() {
    let world = world(None).await;
    let mut script: Vec<Answer> = (0..3).map(|n| work(n, 900_000)).collect();
    script.push(says(950_000, "Done."));
    world.script(script);
    assert_eq!(world.turn(world.body("Fix it.")).await["outcome"], "completed");
    assert!(!requests(&world).iter().any(is_summary));
    let said = "the context window of p/tiny is unknown";
    assert_eq!(world.stderr().matches(said).count(), 1, "{}", world.stderr());
}

/// earendil-works/pi#5930, earendil-works/pi#6751: the refusal tells the window, and the question is not asked again as it was.
#[tokio::test]
async fn f36_f39_an_overflow_teaches_the_window_and_compacts() {
    let world = world(None).await;
    let mut script: Vec<Answer> = (0..4).map(|n| work(n, 1_000 + 2_200 * n as u64)).collect();
    let refusal = "This model's maximum context length is 9000 tokens. However, you requested 9800 tokens.";
    script.extend([Answer::Status(400, refusal), Answer::Text("Summary."), says(3_000, "Done.")]);
    world.script(script);
    assert_eq!(world.turn(world.body("Fix it.")).await["outcome"], "completed", "{}", world.stderr());
    let all = requests(&world);
    assert_eq!(all.len(), 7);
    assert!(is_summary(&all[5]) && opens(&all[6]));
    assert!(world.stdout().contains("(window 9000)"));
    assert!(world.stderr().contains("at most 9000 tokens"));
}

/// vllm-project/vllm#7299: without counts the server's refusal is all there is, and the log says so.
#[tokio::test]
async fn f34_a_server_that_counts_nothing_is_compacted_when_it_refuses() {
    let world = world(Some(WINDOW)).await;
    let uncounted = |n| if let Answer::Counted(_, answer) = work(n, 0) { *answer } else { Answer::Hang };
    let mut script: Vec<Answer> = (0..8).map(uncounted).collect();
    script.extend([Answer::Status(400, "prompt is too long"), Answer::Text("Summary."), Answer::Text("Done.")]);
    world.script(script);
    assert_eq!(world.turn(world.body("Fix it.")).await["outcome"], "completed", "{}", world.stderr());
    let all = requests(&world);
    assert_eq!(all.iter().filter(|request| is_summary(request)).count(), 1);
    assert_eq!(world.stderr().matches("does not say how many tokens it used").count(), 1);
}

/// Kilo-Org/kilocode#13983, respawn-llc/kent#230
#[tokio::test]
async fn f38_compaction_ends_after_three_in_a_row_with_a_clear_fault() {
    let world = world(Some(WINDOW)).await;
    let mut script: Vec<Answer> = (0..6).map(|n| work(n, 1_000 + 2_200 * n as u64)).collect();
    for n in 6..20 {
        script.extend([Answer::Text("Summary."), work(n, 19_000)]);
    }
    world.script(script);
    let settled = world.turn(world.body("Fix it.")).await;
    assert_eq!(
        (settled["outcome"].as_str(), settled["error"]["type"].as_str()),
        (Some("failed"), Some("submission_failed"))
    );
    let words = settled["error"]["message"].as_str().unwrap();
    assert!(words.starts_with("context overflow: compacted 3 times in a row, and about "), "{words}");
    assert!(words.ends_with(" are still too many for the window of 20000"), "{words}");
    assert_eq!(requests(&world).iter().filter(|request| is_summary(request)).count(), 3);
}

#[tokio::test]
async fn f38_a_server_that_refuses_every_question_is_asked_four_times() {
    let world = world(Some(WINDOW)).await;
    let mut script: Vec<Answer> = (0..8).map(|n| work(n, 1_000)).collect();
    for _ in 0..10 {
        script.extend([Answer::Status(400, "prompt is too long"), Answer::Text("Summary.")]);
    }
    world.script(script);
    let settled = world.turn(world.body("Fix it.")).await;
    let words = settled["error"]["message"].as_str().unwrap();
    assert!(words.starts_with("context overflow: "), "{words}");
    let (asked, summaries) = (requests(&world).len() - 8, requests(&world).iter().filter(|r| is_summary(r)).count());
    assert!(summaries <= 3 && asked - summaries <= 4, "{asked} asked, {summaries} summaries");
}

#[tokio::test]
async fn h_34_a_summary_that_fails_settles_the_submission_failed() {
    for (answer, starts) in [
        (Answer::Status(402, "pay first"), "provider limit: pay first"),
        (Answer::Text(" \n"), "provider error: the conversation could not be compacted: its summary came back empty"),
    ] {
        let world = world(Some(WINDOW)).await;
        let mut script: Vec<Answer> = (0..6).map(|n| work(n, 1_000 + 2_200 * n as u64)).collect();
        script.extend(std::iter::repeat_n(answer, 3));
        world.script(script);
        let settled = world.turn(world.body("Fix it.")).await;
        assert_eq!(settled["outcome"], "failed");
        let words = settled["error"]["message"].as_str().unwrap();
        assert!(words.starts_with(starts), "{words}");
        assert!(!std::fs::read_to_string(world.log_file()).unwrap().contains("\"t\":\"compacted\""));
    }
}

#[tokio::test]
async fn h_34_an_abort_ends_a_summary_and_leaves_no_cut() {
    let world = world(Some(WINDOW)).await;
    let mut script: Vec<Answer> = (0..6).map(|n| work(n, 1_000 + 2_200 * n as u64)).collect();
    script.push(Answer::Hang);
    world.script(script);
    let admitted = world.admit(world.body("Fix it.")).await;
    world.fake.until("the summary is asked for", |script| script.model_requests.last().is_some_and(is_summary)).await;
    let (status, answer, _) = world.call("POST", &format!("{}/abort", world.path()), None).await;
    assert_eq!((status, answer["aborted"].as_bool()), (200, Some(true)));
    let settled = world.settled(admitted["submissionId"].as_str().unwrap()).await;
    assert_eq!(settled["outcome"], "aborted");
    assert!(!std::fs::read_to_string(world.log_file()).unwrap().contains("\"t\":\"compacted\""));
}
