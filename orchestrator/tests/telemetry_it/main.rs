//! Metrics and traces of a run, with a real `jr2 serve`, its Harness, a scripted model and a collector.

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod collector;
#[path = "../kill_it/server.rs"]
mod server;

use collector::Collector;
use jr2_conformance::model::{Script, ScriptedModel};
use serde_json::{Value, json};
use server::{Folder, Server};

const WORKFLOW: &str = "
workflow: seen
agents:
  triage: { model: scripted/triage, instructions: Sort it., workspace: none }
events:
  next: { from: agent }
  go: { from: external }
initial: first
states:
  first: { agent: triage, prompt: FIRST, on: { next: pause } }
  pause: { gate: {}, on: { go: second } }
  second: { agent: triage, prompt: SECOND, on: { next: done } }
  done: { final: true }
";

/// Stops once without a pick, then picks.
fn model() -> ScriptedModel {
    let script = json!({
        "models": ["triage"],
        "rules": [
            { "when": { "ends": "user", "lastUser": "FIRST" },
              "answer": { "text": "Let me think.", "usage": { "promptTokens": 100, "completionTokens": 5, "cachedTokens": 64 } } },
            { "when": { "ends": "user" }, "answer": { "toolCalls": [{ "name": "mcp__jr2__next", "arguments": {} }] } },
            { "when": {}, "answer": { "text": "I stop." } },
        ],
    });
    ScriptedModel::start(Script::from_json(script).unwrap()).unwrap()
}

async fn start(folder: &Folder, collector: &Collector) -> Server {
    let mut command = folder.serve_command();
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url).env("OTEL_BSP_SCHEDULE_DELAY", "50");
    folder.start_with(command).await
}

async fn metrics(folder: &Folder) -> String {
    match folder.stranger("GET", "/metrics").await {
        (200, Value::String(text)) => text,
        other => panic!("{other:?}"),
    }
}

/// The value of one line of the metrics; 0 when it is not there.
fn value(text: &str, line: &str) -> f64 {
    let found = text.lines().find_map(|l| l.strip_prefix(line)?.strip_prefix(' ')?.trim().parse().ok());
    found.unwrap_or(0.0)
}

#[tokio::test]
async fn a_run_is_counted_and_is_one_trace_over_a_kill_of_the_orchestrator() {
    let model = model();
    let collector = Collector::start().await;
    let settings = format!("providers: {{ scripted: {{ baseUrl: '{}' }} }}\n", model.url());
    let folder = Folder::new(&settings, &[("seen", WORKFLOW)]);
    let mut server = start(&folder, &collector).await;
    let (status, started) = folder.post("/workflows/seen/runs", &json!({})).await.unwrap();
    assert_eq!(status, 201, "{started}");
    let run = started["runId"].as_str().unwrap().to_owned();
    folder.until(&run, "at the Gate", |s| s["gates"][0]["gate"] == "pause").await;
    let text = metrics(&folder).await;
    assert!(text.ends_with("# EOF\n"), "OpenMetrics");
    let is = |line: &str, expected: f64| assert!((value(&text, line) - expected).abs() < 1e-9, "{line}: {text}");
    is("jr2_runs_started_total{workflow=\"seen\"}", 1.0);
    is("jr2_turns_started_total", 1.0);
    is("jr2_admissions_again_total{kind=\"nudge\"}", 1.0);
    is("jr2_settlements_total{outcome=\"completed\",error=\"none\"}", 1.0);
    is("jr2_picks_total{kind=\"moved\"}", 1.0);
    is("jr2_turn_duration_seconds_count", 1.0);
    is("jr2_admission_seconds_count", 2.0);
    is("jr2_notices_pending", 0.0);
    assert!(value(&text, "jr2_store_flush_seconds_count") > 3.0 && value(&text, "jr2_save_seconds_count") > 3.0);
    let first = collector.until("invoke_agent triage", 1).await.remove(0);
    server.kill();
    let server = start(&folder, &collector).await;
    let taken = folder.post(&format!("/runs/{run}/gates/pause/events"), &json!({ "type": "go" })).await.unwrap();
    assert_eq!(taken.0, 200, "{taken:?}");
    folder.until(&run, "done", |s| s["status"] == "done").await;
    let text = metrics(&folder).await;
    assert!((value(&text, "jr2_runs_ended_total{workflow=\"seen\",status=\"done\"}") - 1.0).abs() < 1e-9, "{text}");
    let whole = collector.until("invoke_workflow seen", 1).await.remove(0);
    let turns = collector.until("invoke_agent triage", 2).await;
    assert_eq!(whole.parent, "", "the run is the root");
    assert_eq!((whole.attributes["jr2.run.id"].as_str(), whole.failed), (run.as_str(), false));
    assert!(turns.iter().all(|turn| turn.trace == whole.trace && turn.parent == whole.span), "{turns:#?}");
    assert_eq!(first.attributes["gen_ai.operation.name"], "invoke_agent");
    assert_eq!(first.attributes["jr2.outcome"], "left");
    // The Harness's spans are part of the Turn's, in the same trace.
    let chats = collector.until("chat triage", 3).await;
    assert!(chats.iter().all(|chat| chat.service == "jr2-harness" && chat.trace == whole.trace), "{chats:#?}");
    assert!(chats.iter().all(|chat| turns.iter().any(|turn| turn.span == chat.parent)), "{chats:#?}");
    let counted =
        chats.iter().find(|chat| chat.attributes["gen_ai.usage.input_tokens"] == "100").expect("the first one");
    let said = |name: &str| counted.attributes[name].as_str();
    assert_eq!((said("gen_ai.usage.output_tokens"), said("gen_ai.usage.cache_read.input_tokens")), ("5", "64"));
    assert_eq!((said("gen_ai.operation.name"), said("gen_ai.request.model")), ("chat", "triage"));
    assert!(counted.attributes["gen_ai.response.finish_reasons"].contains("stop"), "{counted:#?}");
    let picks = collector.until("execute_tool next", 2).await;
    assert!(picks.iter().all(|pick| pick.trace == whole.trace && !pick.failed), "{picks:#?}");
    let told = format!("{:?}", collector.spans());
    assert!(!told.contains("FIRST") && !told.contains("Let me think"), "prompts and answers are in no span");
    drop(server);
}
