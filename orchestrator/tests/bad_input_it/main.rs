//! Bad input against a real `jr2 serve`: each gets its status or exit code and a sentence, and nothing is lost.

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod escape;
mod files;
mod full_disk;
mod readers;
mod requests;
#[path = "../kill_it/server.rs"]
mod server;
mod slow_peers;

/// Saves are many here and power cuts are none.
const SETTINGS: &str = "store: { durability: process }\n";

/// Parks at a Gate at once; what it holds must not be seen without the token.
const ASK: &str = r#"
workflow: ask
input:
  type: object
  additionalProperties: false
  properties: { text: { type: string, default: "hidden-input" }, n: { type: integer } }
events:
  approve: { from: external }
  change:
    from: external
    payload: { type: object, required: [notes], properties: { notes: { type: string, minLength: 1 } } }
context: { rounds: 0, held: "hidden-context" }
initial: review
states:
  review:
    gate: { shown: "hidden-meta" }
    on:
      approve: done
      change: { to: review, set: { rounds: context.rounds + 1 } }
  done: { final: true, output: { rounds: "{{ context.rounds }}", kept: "hidden-output" } }
"#;

/// Starts a run; its id.
async fn start(folder: &server::Folder, workflow: &str, input: &serde_json::Value) -> String {
    let (status, body) = folder.post(&format!("/workflows/{workflow}/runs"), input).await.unwrap();
    assert_eq!(status, 201, "{body}");
    body["runId"].as_str().unwrap().to_owned()
}
