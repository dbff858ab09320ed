//! Picks that ask, with a real `jr2 serve`, its Harness and a scripted model: the shipped example, over kills.

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

#[path = "../kill_it/server.rs"]
mod server;

use jr2_conformance::model::{Script, ScriptedModel};
use serde_json::{Value, json};
use server::{Folder, Server};

const EXAMPLE: &str = include_str!("../../../examples/ask-a-reviewer/workflow.yaml");
const CHANGES: &str = r#"Its answer: request_changes from Gate review, with {"notes":"shorter"}."#;
const APPROVED: &str = r#"Its answer: approve from Gate review, with {"notes":"good"}."#;

/// Asks, changes what is asked for, asks again, finishes. It decides on the last answer alone.
fn model() -> ScriptedModel {
    let call = |name: &str, arguments: Value| json!({ "toolCalls": [{ "name": name, "arguments": arguments }] });
    let script = json!({
        "models": ["writer"],
        "rules": [
            { "when": { "lastUser": APPROVED, "ends": "user" }, "answer": call("mcp__jr2__finish", json!({ "text": "short" })) },
            { "when": { "lastTool": APPROVED }, "answer": call("mcp__jr2__finish", json!({ "text": "short" })) },
            { "when": { "lastTool": CHANGES }, "answer": call("mcp__jr2__ask_review", json!({ "draft": "short" })) },
            { "when": { "ends": "user" }, "answer": call("mcp__jr2__ask_review", json!({ "draft": "long" })) },
            { "when": {}, "answer": { "text": "I stop." } },
        ],
    });
    ScriptedModel::start(Script::from_json(script).unwrap()).unwrap()
}

fn folder(model: &ScriptedModel) -> Folder {
    let settings = format!("providers: {{ scripted: {{ baseUrl: '{}' }} }}\n", model.url());
    Folder::new(&settings, &[("ask-a-reviewer", &EXAMPLE.replace("openai/gpt-5-mini", "scripted/writer"))])
}

/// Starts a run and waits until its Agent has asked.
async fn asked(folder: &Folder) -> String {
    let body = json!({ "topic": "a release" });
    let (status, started) = folder.post("/workflows/ask-a-reviewer/runs", &body).await.unwrap();
    assert_eq!(status, 201, "{started}");
    let run = started["runId"].as_str().unwrap().to_owned();
    reviewed(folder, &run, "long").await;
    run
}

async fn reviewed(folder: &Folder, run: &str, draft: &str) {
    folder.until(run, "at the reviewer's", |s| s["gates"][0]["meta"]["draft"] == draft).await;
}

async fn answer(folder: &Folder, run: &str, event: &str, notes: &str) {
    let path = format!("/runs/{run}/gates/writing.review/events");
    let taken = folder.post(&path, &json!({ "type": event, "notes": notes })).await.unwrap();
    assert_eq!(taken.0, 200, "{taken:?}");
}

async fn finished(folder: &Folder, run: &str) {
    let done = folder.until(run, "done", |s| s["status"] != "live").await;
    assert_eq!((&done["status"], &done["output"]["text"]), (&json!("done"), &json!("short")), "{done:#}");
}

/// The results of its calls that the model read, in its last request.
fn heard(model: &ScriptedModel) -> Vec<String> {
    let requests = model.requests();
    let messages = requests.last().unwrap().messages().iter().filter(|m| m["role"] == "tool");
    messages.map(|m| m["content"].as_str().unwrap_or_default().to_owned()).collect()
}

async fn replays(folder: &Folder, run: &str) {
    let (status, replay) = folder.get(&format!("/runs/{run}/replay")).await.unwrap();
    assert_eq!((status, &replay["difference"]), (200, &Value::Null), "{replay}");
}

#[tokio::test]
async fn p_33_an_agent_reads_the_reviewers_answer_in_its_call() {
    let model = model();
    let folder = folder(&model);
    let _server: Server = folder.start().await;
    let run = asked(&folder).await;
    answer(&folder, &run, "request_changes", "shorter").await;
    reviewed(&folder, &run, "short").await;
    answer(&folder, &run, "approve", "good").await;
    finished(&folder, &run).await;
    let heard = heard(&model);
    assert!(heard[0].contains(CHANGES) && heard[1].contains(APPROVED), "{heard:#?}");
    assert!(heard[1].contains("The workflow is still in the state that asked for this turn"), "{heard:#?}");
    assert_eq!(model.requests().len(), 3, "one request to ask, one to ask again, one to finish: nobody was nudged");
    replays(&folder, &run).await;
}

#[tokio::test]
async fn p_33_a_killed_orchestrator_keeps_the_question() {
    let model = model();
    let folder = folder(&model);
    let mut server = folder.start().await;
    let run = asked(&folder).await;
    server.kill();
    let mut server = folder.start().await;
    answer(&folder, &run, "request_changes", "shorter").await;
    reviewed(&folder, &run, "short").await;
    server.kill();
    let _server = folder.start().await;
    answer(&folder, &run, "approve", "good").await;
    finished(&folder, &run).await;
    replays(&folder, &run).await;
}

#[tokio::test]
async fn d_34_a_harness_killed_while_the_reviewer_thinks_reads_the_receipt_after_the_cut() {
    let model = model();
    let folder = folder(&model);
    let _server = folder.start().await;
    let run = asked(&folder).await;
    // The Harness of a Menu-only Agent serves the Instance; its successor finds the call open.
    server::kill(folder.harnesses()[0]);
    answer(&folder, &run, "approve", "good").await;
    finished(&folder, &run).await;
    let requests = model.requests();
    let newest = requests.iter().rev().find_map(|request| {
        let user = request.messages().iter().rev().find(|m| m["role"] == "user")?;
        user["content"].as_str().filter(|text| text.starts_with("Your Turn was cut")).map(str::to_owned)
    });
    let newest = newest.unwrap_or_else(|| panic!("no re-admission: {:#?}", heard(&model)));
    assert!(newest.contains("Delivered \"ask_review\"") && newest.contains(APPROVED), "{newest}");
    replays(&folder, &run).await;
}
