//! The step loop from outside: the thread from admission to settlement, and what a model may get wrong.

use crate::world::{Answer, World, last_of, surface};
use serde_json::{Value, json};

#[tokio::test]
async fn a_submission_reads_the_surface_asks_runs_picks_and_settles() {
    let world = World::start().await;
    world.script(vec![
        Answer::Calls(vec![("c1", "bash", json!({"command": "echo hi > made; echo ran"}).to_string())]),
        Answer::Calls(vec![("c2", "mcp__jr2__done", json!({"note": "ok", "type": "other"}).to_string())]),
    ]);
    let settled = world.turn(world.body("Make the file.")).await;
    assert_eq!(settled["outcome"], "completed", "{settled} {}", world.stderr());
    assert_eq!(std::fs::read_to_string(world.work().join("made")).unwrap(), "hi\n");
    world.fake.with(|script| {
        assert_eq!(script.model_requests.len(), 2, "a pick that ends the Turn asks nothing more");
        let first = &script.model_requests[0];
        assert_eq!(
            last_of(first, "user"),
            format!(
                "Make the file.\n\n<jr2-turn>\nWorking directory: {}\nAllowed now: `mcp__jr2__done`.\n</jr2-turn>",
                world.work().display()
            )
        );
        assert!(last_of(first, "system").starts_with("You are a coder.\n\n<jr2-briefing>\n"));
        assert!(last_of(first, "system").contains("- This Sandbox has 2 CPUs and 2Gi of memory."));
        assert!(last_of(&script.model_requests[1], "tool").contains("ran"));
        let pick = &script.picks[0];
        let submission = settled["submissionId"].as_str().unwrap();
        assert_eq!(*pick, json!({"note": "ok", "pickId": format!("{submission}/c2"), "type": "done"}));
        assert_eq!(script.surface_reads, [200, 304], "one read, one re-read at the step boundary");
    });
    let history = world.history().await;
    assert_eq!(history["v"], 1);
    assert_eq!(history["messages"][0]["role"], "user");
    assert_eq!(history["settlements"][0]["outcome"], "completed");
}

#[tokio::test]
async fn bt_1_tools_and_system_prompt_are_the_same_bytes_over_the_turns_of_a_conversation() {
    let world = World::start().await;
    world.turn(world.body("One.")).await;
    world.fake.with(|script| script.surface = Some(surface(&["done", "more"], &["more"])));
    let mut second = world.body("Two.");
    second["notices"] = json!([{"kind": "memory-limit", "limit": "2Gi"}]);
    world.turn(second).await;
    world.fake.with(|script| {
        let [one, two] = script.model_requests.as_slice() else { panic!("{}", script.model_requests.len()) };
        assert_eq!(one["tools"].to_string(), two["tools"].to_string());
        assert_eq!(one["messages"][0].to_string(), two["messages"][0].to_string());
        assert_eq!(one["messages"][1].to_string(), two["messages"][1].to_string(), "an old Turn part never changes");
        let names: Vec<&str> =
            one["tools"].as_array().unwrap().iter().map(|t| t["function"]["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["read", "write", "edit", "bash", "grep", "glob", "mcp__jr2__done", "mcp__jr2__more"]);
        assert!(
            last_of(two, "user").contains("Notice: the Sandbox's processes were killed at its memory limit of 2Gi.")
        );
        assert!(last_of(two, "user").ends_with("Allowed now: `mcp__jr2__more`.\n</jr2-turn>"));
    });
}

#[tokio::test]
async fn p_14_a_turn_that_is_over_settles_aborted_without_a_model_call() {
    let world = World::start().await;
    world.fake.with(|script| script.surface = None);
    let settled = world.turn(world.body("Hello.")).await;
    assert_eq!(settled["outcome"], "aborted");
    assert!(settled["error"]["message"].as_str().unwrap().starts_with("the Turn was over before it started"));
    assert_eq!(world.fake.with(|script| script.model_requests.len()), 0);
    assert_eq!(world.history().await["messages"], json!([]), "nothing was written to the conversation");
}

#[tokio::test]
async fn p_11_a_stopping_orchestrator_is_asked_again_and_the_log_says_so() {
    let world = World::start().await;
    world.fake.with(|script| script.surface_faults = [503, 503].into());
    let settled = world.turn(world.body("Hello.")).await;
    assert_eq!(settled["outcome"], "completed");
    assert!(world.stderr().contains("jr2.routability seat=surface attempts=3 "), "{}", world.stderr());
}

#[tokio::test]
async fn p_12_a_forbidden_surface_fails_the_submission() {
    let world = World::start().await;
    world.fake.with(|script| script.surface_faults = [403].into());
    let settled = world.turn(world.body("Hello.")).await;
    assert_eq!(settled["outcome"], "failed");
    assert_eq!(settled["error"]["type"], "submission_failed");
    assert!(settled["error"]["message"].as_str().unwrap().contains("403"));
}

#[tokio::test]
async fn h_28_four_identical_calls_are_a_runaway_and_the_last_never_runs() {
    let world = World::start().await;
    let call = || Answer::Calls(vec![("c", "bash", json!({"command": "echo x >> count"}).to_string())]);
    world.script(vec![call(), call(), call(), call(), call()]);
    let settled = world.turn(world.body("Loop.")).await;
    assert_eq!(settled["error"], json!({"type": "runaway", "message": "repeated an identical tool call 4 times"}));
    assert_eq!(std::fs::read_to_string(world.work().join("count")).unwrap(), "x\nx\nx\n");
    let ids: Vec<Value> = world.fake.with(|script| {
        let request = script.model_requests.last().unwrap();
        let messages = request["messages"].as_array().unwrap();
        messages.iter().filter(|m| m["role"] == "tool").map(|m| m["tool_call_id"].clone()).collect()
    });
    assert_eq!(ids.len(), 3);
    assert_ne!(ids[0], ids[1], "a server that repeats its ids cannot make two picks one");
}

#[tokio::test]
async fn what_a_model_gets_wrong_comes_back_to_it_as_a_result() {
    let world = World::start().await;
    world.script(vec![
        Answer::Calls(vec![("c1", "bush", "{}".into())]),
        Answer::Calls(vec![("c2", "bash", "{\"command\": ".into())]),
        Answer::Cut(vec![("c3", "write", "{\"path\": \"a\", \"content\": \"xxxx".into())]),
        Answer::Calls(vec![("c4", "mcp__jr2__done", "[1]".into())]),
        Answer::Text(""),
        Answer::Text("Done."),
    ]);
    let settled = world.turn(world.body("Go.")).await;
    assert_eq!(settled["outcome"], "completed");
    assert_eq!(settled["text"], "Done.");
    world.fake.with(|script| {
        let said = |n: usize| last_of(&script.model_requests[n], "tool").to_owned();
        assert_eq!(
            said(1),
            "There is no tool \"bush\"; you have: read, write, edit, bash, grep, glob, mcp__jr2__done, mcp__jr2__more."
        );
        assert!(said(2).contains("not valid JSON"), "{}", said(2));
        assert!(said(3).contains("cut at the output limit"));
        assert!(said(4).contains("not a JSON object"));
        assert!(script.picks.is_empty(), "arguments that are no object are never a pick");
        for request in &script.model_requests {
            for message in request["messages"].as_array().unwrap() {
                for call in message["tool_calls"].as_array().into_iter().flatten() {
                    let arguments = call["function"]["arguments"].as_str().unwrap();
                    assert!(serde_json::from_str::<Value>(arguments).unwrap().is_object(), "{arguments}");
                }
            }
        }
        assert!(last_of(&script.model_requests[5], "user").starts_with("Your last answer was empty."));
    });
}

#[tokio::test]
async fn h_22_a_provider_limit_is_named_first() {
    let world = World::start().await;
    world.script(vec![Answer::Status(401, "bad key")]);
    let settled = world.turn(world.body("Go.")).await;
    assert_eq!(
        (settled["outcome"].as_str(), settled["error"]["type"].as_str()),
        (Some("failed"), Some("submission_failed"))
    );
    assert!(settled["error"]["message"].as_str().unwrap().contains("401"), "{settled}");
}

#[tokio::test]
async fn submissions_of_one_conversation_run_one_after_the_other() {
    let world = World::start().await;
    world.script(vec![
        Answer::Calls(vec![("c1", "bash", json!({"command": "echo one >> order"}).to_string())]),
        Answer::Text("First."),
        Answer::Text("Second."),
    ]);
    let (one, two) = (world.admit(world.body("A")).await, world.admit(world.body("B")).await);
    let two = world.settled(two["submissionId"].as_str().unwrap()).await;
    let one = world.settled(one["submissionId"].as_str().unwrap()).await;
    assert_eq!((one["text"].as_str(), two["text"].as_str()), (Some("First."), Some("Second.")));
    assert!(one["position"]["batch"].as_u64() < two["position"]["batch"].as_u64());
}

#[tokio::test]
async fn h_23_the_printer_writes_a_line_an_item_on_stdout() {
    let mut world = World::start().await;
    world.script(vec![Answer::Calls(vec![("c1", "bash", json!({"command": "echo secret-result"}).to_string())])]);
    world.turn(world.body("Go.")).await;
    let (status, printed, _) = world.call("POST", "/echo", Some(json!({"events": ["hello", {"a": 1}]}))).await;
    assert_eq!((status, printed), (200, json!({"printed": 2})));
    world.signal(rustix::process::Signal::TERM);
    assert_eq!(world.exit().await, Some(0));
    let out = world.stdout();
    assert!(out.contains("[coder] [prompt] Go.  <jr2-turn>"), "{out}");
    assert!(out.contains("[coder] [bash] echo secret-result\n"), "{out}");
    assert!(out.contains("[coder] [text] All done.\n"), "{out}");
    assert!(out.contains("[run] hello\n[run] {\"a\":1}\n"), "{out}");
    assert!(!out.contains("\nsecret-result"), "{out}");
}
