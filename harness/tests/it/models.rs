//! What a bad model server may do to a Submission (group F), from outside.

use crate::world::{Answer, World, last_of};
use serde_json::{Value, json};

fn bash(id: &'static str) -> Answer {
    Answer::Calls(vec![(id, "bash", json!({"command": "echo ran"}).to_string())])
}

/// Answers that deliver nothing: reasoning alone (a call inside it included), white space, nothing at all.
fn nothing() -> [Answer; 4] {
    [
        Answer::Delta(json!({"reasoning_content": "<tool_call>{\"name\": \"mcp__jr2__done\"}</tool_call>"}), "stop"),
        Answer::Delta(json!({"reasoning": "I am done, I think."}), "stop"),
        Answer::Text(" \n\t "),
        Answer::Delta(json!({"content": null}), "stop"),
    ]
}

/// vllm-project/vllm#39056, vllm-project/vllm#55633, cline/cline#13165: nothing is no pick. The model is asked once more; then
/// the Submission ends without a pick, and the nudge of the Orchestrator decides.
#[tokio::test]
async fn f16_f18_f29_an_answer_that_delivers_nothing_is_no_pick() {
    for answer in nothing() {
        let world = World::start().await;
        world.script(vec![answer.clone(), answer.clone()]);
        let settled = world.turn(world.body("Go.")).await;
        assert_eq!((settled["outcome"].as_str(), settled.get("text")), (Some("completed"), None), "{answer:?}");
        world.fake.with(|script| {
            assert!(script.picks.is_empty(), "{answer:?}");
            assert_eq!(script.model_requests.len(), 2, "{answer:?}");
            assert!(last_of(&script.model_requests[1], "user").starts_with("Your last answer was empty."));
            let roles = script.model_requests[1]["messages"].as_array().unwrap();
            assert!(roles.iter().all(|message| message["role"] != "assistant"), "it is not sent back: {answer:?}");
        });
    }
}

/// nugget/thane-ai-agent#167, brightwave-inc/tidebreak#1208, NousResearch/hermes-agent#6488: an empty answer after tools is
/// as empty; an Agent that nobody could nudge fails.
#[tokio::test]
async fn f30_an_empty_answer_after_tools_is_no_end() {
    let world = World::start().await;
    world.script(vec![bash("a"), Answer::Text(""), Answer::Text("Now done.")]);
    let settled = world.turn(world.body("Go.")).await;
    assert_eq!((settled["outcome"].as_str(), settled["text"].as_str()), (Some("completed"), Some("Now done.")));
    world
        .fake
        .with(|script| script.surface = Some(json!({"instanceId": "i", "runId": "r", "menu": [], "allowed": []})));
    world.script(vec![bash("b"), Answer::Text(""), Answer::Text("")]);
    let settled = world.turn(world.body("Go on.")).await;
    assert_eq!(settled["error"]["message"], "the model gave 2 empty answers in a row");
}

/// odysseus-dev/odysseus#5202
#[tokio::test]
async fn f28_an_unknown_tool_without_text_is_answered_with_the_tools_there_are() {
    let world = World::start().await;
    world.script(vec![Answer::Calls(vec![("c", "finish", "{}".into())]), Answer::Text("Done.")]);
    assert_eq!(world.turn(world.body("Go.")).await["outcome"], "completed");
    let requests = world.fake.with(|script| script.model_requests.clone());
    assert!(last_of(&requests[1], "tool").starts_with("There is no tool \"finish\"; you have: read, "));
}

/// jaseci-labs/jac#6766, NousResearch/hermes-agent#25399, am17an/llama.cpp#43, aaif-goose/goose#9486
#[tokio::test]
async fn f20_f23_f26_calls_that_cannot_be_read_never_run_and_never_come_back_as_they_were() {
    let world = World::start().await;
    let cut = "{\"command\": \"touch cut; echo ";
    world.script(vec![
        Answer::Cut(vec![("a", "bash", cut.into())]),
        Answer::Calls(vec![("b", "bash", "{command: touch bad}".into())]),
        Answer::Text("Done."),
    ]);
    assert_eq!(world.turn(world.body("Go.")).await["outcome"], "completed");
    assert_eq!(std::fs::read_dir(world.work()).unwrap().count(), 0, "nothing ran");
    let requests = world.fake.with(|script| script.model_requests.clone());
    assert!(last_of(&requests[1], "tool").contains("cut at the output limit"));
    assert!(last_of(&requests[1], "tool").ends_with("Send less at once."), "it is told what to do differently");
    assert!(last_of(&requests[2], "tool").contains("not valid JSON"));
    for message in requests[2]["messages"].as_array().unwrap() {
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
            assert!(arguments["unparsable_arguments"].is_string());
        }
    }
}

/// BerriAI/litellm#26395, anomalyco/opencode#25058, continuedev/continue#9720, langchain-ai/langchain#34166
#[tokio::test]
async fn f31_reasoning_is_recorded_and_goes_back_only_where_the_provider_wants_it() {
    for (quirk, sent) in [("generic", false), ("generic+reasoning", true)] {
        let config = json!({"providers": [{"id": "p", "baseUrl": "/providers/p", "quirk": quirk}]}).to_string();
        let world = World::start_with(&[("JR2_HARNESS_JSON", &config)]).await;
        let function = json!({"name": "bash", "arguments": "{\"command\": \"true\"}"});
        let delta =
            json!({"reasoning_content": "Hm, so.", "tool_calls": [{"index": 0, "id": "a", "function": function}]});
        world.script(vec![Answer::Delta(delta, "tool_calls"), Answer::Text("Done.")]);
        world.turn(world.body("Go.")).await;
        let request = world.fake.with(|script| script.model_requests[1].to_string());
        assert_eq!(request.contains("\"reasoning_content\":\"Hm, so.\""), sent, "{quirk}");
        assert!(std::fs::read_to_string(world.log_file()).unwrap().contains("Hm, so."), "{quirk}");
    }
}

/// lobehub/lobehub#13817: the budget is the Submission's, not the question's.
#[tokio::test]
async fn f24_decision_52_one_retry_budget_for_all_questions_of_a_submission() {
    let world = World::start().await;
    let ids = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    let mut script = Vec::new();
    for id in ids {
        let command = json!({"command": format!("echo {id}")}).to_string();
        script.extend([Answer::Status(503, "overloaded"), Answer::Calls(vec![(id, "bash", command)])]);
    }
    world.script(script);
    let settled = world.turn(world.body("Go.")).await;
    assert_eq!(settled["outcome"], "failed");
    assert_eq!(settled["error"]["message"], "provider error 503: overloaded (asked 1 times)", "its cause is named");
    assert_eq!(world.fake.with(|script| script.model_requests.len()), 17, "eight were asked again, the ninth was not");
}
