//! `kill -9` at the instants that matter, and records that are torn, broken or full (spec H-13 to H-15, decisions 31, 32).

use crate::world::{Answer, IID, World, last_of};
use serde_json::{Value, json};
use std::io::Write;

const CLOSED: &str =
    "The Harness restarted while this call ran. It may or may not have taken effect: check before you repeat it.";

fn with_id(world: &World, n: u64) -> Value {
    let mut body = world.body("Do it.");
    body["admissionId"] = json!(format!("{IID}#{n}"));
    body
}

#[tokio::test]
async fn killed_after_the_admission_it_settles_as_restarted_and_the_repeat_finds_it() {
    let mut world = World::start().await;
    // The surface never answers usefully, so the Submission is not prompted.
    world.fake.with(|script| script.surface_faults = vec![503; 1_000].into());
    let mut body = with_id(&world, 1);
    body["notices"] = json!([{"kind": "memory-limit", "id": "n1"}, {"kind": "memory-limit", "id": "n2"}]);
    let first = world.admit(body.clone()).await;
    assert_eq!(first.get("carried"), None, "seated just now");
    world.kill();
    world.boot().await;
    let settled = world.settled(first["submissionId"].as_str().unwrap()).await;
    assert_eq!((&settled["error"]["type"], &settled["prompted"]), (&json!("harness_restarted"), &json!(false)));
    body["notices"] = json!([{"kind": "memory-limit", "id": "n3"}]);
    let again = world.admit(body).await;
    assert_eq!(again["submissionId"], first["submissionId"]);
    assert_eq!(again["offset"], first["offset"]);
    assert_eq!(again["streamUrl"], first["streamUrl"]);
    assert_eq!(again["carried"], json!(["n1", "n2"]));
    assert_eq!(world.history().await["settlements"].as_array().unwrap().len(), 1, "a repeat seats nothing");
}

#[tokio::test]
async fn killed_while_the_model_is_asked_it_was_prompted() {
    let mut world = World::start().await;
    world.script(vec![Answer::Hang]);
    let first = world.admit(with_id(&world, 1)).await;
    let queued = world.admit(with_id(&world, 2)).await;
    world.fake.until("the model is asked", |script| !script.model_requests.is_empty()).await;
    world.kill();
    world.boot().await;
    assert_eq!(world.settled(first["submissionId"].as_str().unwrap()).await["prompted"], true);
    assert_eq!(world.settled(queued["submissionId"].as_str().unwrap()).await["prompted"], false);
    let next = world.turn(with_id(&world, 3)).await;
    assert_eq!(next["outcome"], "completed");
    world.fake.with(|script| {
        let texts = script.model_requests[1]["messages"].as_array().unwrap();
        assert_eq!(texts.iter().filter(|m| m["role"] == "user").count(), 2, "what was said before the cut is kept");
    });
}

#[tokio::test]
async fn killed_while_a_tool_runs_the_call_is_closed_with_the_sentence() {
    let mut world = World::start().await;
    let command = "echo started > started; sleep 600";
    world.script(vec![
        Answer::Calls(vec![
            ("c1", "bash", json!({"command": "echo one"}).to_string()),
            ("c2", "bash", json!({ "command": command }).to_string()),
            ("c3", "bash", json!({"command": "echo three"}).to_string()),
        ]),
        Answer::Text("Checked."),
    ]);
    let first = world.admit(with_id(&world, 1)).await;
    let file = world.work().join("started");
    let started = tokio::time::timeout(crate::world::DEADLINE, async {
        while !file.exists() {
            // Poll: until the condition holds.
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    });
    started.await.unwrap();
    world.kill();
    world.boot().await;
    let settled = world.settled(first["submissionId"].as_str().unwrap()).await;
    assert_eq!((&settled["outcome"], &settled["prompted"]), (&json!("failed"), &json!(true)));
    world.turn(with_id(&world, 2)).await;
    world.fake.with(|script| {
        let messages = script.model_requests[1]["messages"].as_array().unwrap();
        let results: Vec<(&str, &str)> = messages
            .iter()
            .filter(|m| m["role"] == "tool")
            .map(|m| (m["tool_call_id"].as_str().unwrap(), m["content"].as_str().unwrap()))
            .collect();
        assert_eq!(results.len(), 3);
        assert!(results[0].1.contains("one"), "a result that was there is kept: {results:?}");
        assert_eq!((results[1], results[2]), (("c2", CLOSED), ("c3", CLOSED)));
        assert!(last_of(&script.model_requests[1], "user").starts_with("Do it."));
    });
    // A second restart finds nothing left to close.
    let before = world.history().await;
    world.kill();
    world.boot().await;
    assert_eq!(world.history().await, before);
}

#[tokio::test]
async fn killed_at_any_instant_a_conversation_is_rebuilt_and_goes_on() {
    let mut world = World::start().await;
    for round in 0..12u64 {
        world.script(vec![
            Answer::Calls(vec![("c1", "bash", json!({"command": format!("echo {round}")}).to_string())]),
            Answer::Calls(vec![("c2", "mcp__jr2__more", "{}".into())]),
        ]);
        let sights = |script: &crate::world::Script| {
            script.surface_reads.len() + script.model_requests.len() + script.picks.len()
        };
        let before = world.fake.with(|script| sights(script));
        let admitted = world.admit(with_id(&world, round + 1)).await;
        // A different instant each round: at the n-th further sight of the Harness (surface, model, re-read, model, pick).
        let more = round as usize % 6;
        world.fake.until("it goes on", |script| sights(script) >= before + more.min(5)).await;
        world.kill();
        world.boot().await;
        let settled = world.settled(admitted["submissionId"].as_str().unwrap()).await;
        assert!(["completed", "failed"].contains(&settled["outcome"].as_str().unwrap()), "{settled}");
    }
    let settlements = world.history().await["settlements"].clone();
    assert_eq!(settlements.as_array().unwrap().len(), 12, "each once");
    // What the model was sent is always a legal conversation: every call has exactly one result, right behind it.
    world.fake.with(|script| {
        for request in &script.model_requests {
            let mut open: Vec<&Value> = Vec::new();
            for message in request["messages"].as_array().unwrap() {
                match message["role"].as_str().unwrap() {
                    "tool" => {
                        let id = &message["tool_call_id"];
                        assert!(open.contains(&id), "a result without a call: {request}");
                        open.retain(|other| other != &id);
                    }
                    _ => {
                        assert!(open.is_empty(), "a call without a result: {request}");
                        open = message["tool_calls"].as_array().into_iter().flatten().map(|call| &call["id"]).collect();
                    }
                }
            }
        }
    });
}

#[tokio::test]
async fn h_13_a_torn_line_is_cut_and_an_unreadable_record_is_skipped_and_set_aside() {
    let mut world = World::start().await;
    let first = world.turn(with_id(&world, 1)).await;
    world.kill();
    let log = world.log_file();
    let whole = std::fs::read(&log).unwrap();
    std::fs::OpenOptions::new()
        .append(true)
        .open(&log)
        .unwrap()
        .write_all(b"{\"b\":9,\"at\":1,\"e\":[{\"t\":")
        .unwrap();
    world.boot().await;
    assert_eq!(std::fs::read(&log).unwrap(), whole, "the torn line is gone");
    assert_eq!(world.settled(first["submissionId"].as_str().unwrap()).await["outcome"], "completed");
    world.kill();
    let broken = String::from_utf8(whole).unwrap().replacen("\"b\":1", "\"b\":7", 1);
    std::fs::write(&log, broken).unwrap();
    world.boot().await;
    let expected =
        format!("harness: conversation at {} is unreadable, not rebuilt: ", log.ancestors().nth(2).unwrap().display());
    assert_eq!(world.stderr().matches(&expected).count(), 1, "{}", world.stderr());
    let (status, _, _) = world.call("GET", &world.path(), None).await;
    assert_eq!(status, 404);
    assert_eq!(world.turn(with_id(&world, 1)).await["outcome"], "completed", "its place is free again");
}

#[tokio::test]
async fn h_15_a_record_that_cannot_be_written_ends_the_process() {
    let mut world = World::start().await;
    world.kill();
    // No file of this process may grow over 8 blocks: the write fails as on a full disk.
    let mut command = world.command("sh");
    let script = format!("trap '' XFSZ; ulimit -f 16; exec {}", env!("CARGO_BIN_EXE_jr2-harness"));
    let child = command.arg("-c").arg(script).spawn().unwrap();
    world.adopt(child).await;
    let prompt = "x".repeat(64 << 10);
    let mut body = world.body(&prompt);
    body["admissionId"] = json!(format!("{IID}#1"));
    world.admit(body).await;
    assert_eq!(world.exit().await, Some(1));
    assert_eq!(world.stderr().matches("could not be written, ending").count(), 1, "{}", world.stderr());
    assert_eq!(world.fake.with(|script| script.model_requests.len()), 0, "not asked without its record");
    world.boot().await;
    assert_eq!(world.history().await["settlements"][0]["prompted"], false, "what was acknowledged is still there");
}

#[tokio::test]
async fn without_a_folder_conversations_live_in_memory() {
    let mut world = World::start_with(&[("JR2_CONVERSATIONS_DIR", "")]).await;
    assert_eq!(world.turn(world.body("A")).await["outcome"], "completed");
    world.kill();
    world.boot().await;
    let mut body = world.body("B");
    body["kept"] = json!(true);
    let (status, refusal, _) = world.call("POST", &world.path(), Some(body)).await;
    assert_eq!((status, &refusal["kept"]), (404, &json!(false)));
    assert!(!world.conversations().exists());
}
