//! The look at the prompt cache, with the real binaries: a Harness that keeps its prefix passes, one that does not fails.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test fails by panicking.

use jr2_conformance::model::{Script, ScriptedModel};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};

/// The Harness is started from beside the binary under test.
fn look_at_ours(arguments: &[&str]) -> Output {
    let harness = Path::new(env!("CARGO_BIN_EXE_jr2-conformance")).with_file_name("jr2-harness");
    assert!(harness.is_file(), "{} is missing: `cargo build -p jr2-harness` makes it", harness.display());
    look(arguments)
}

fn look(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_jr2-conformance")).arg("cache").args(arguments).output().unwrap()
}

/// goruck/home-generative-agent#617, letta-ai/letta-code#4551
#[test]
fn g01_twelve_turns_repeat_all_of_the_request_before_but_at_marked_compactions() {
    let out = look_at_ours(&["--json"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(report["leastSharedPercent"], 100.0);
    assert!(report["compactions"].as_u64().unwrap() >= 1 && report["continued"].as_u64().unwrap() > 30, "{report}");
    assert_eq!(report["lines"].as_array().unwrap().last().unwrap()["turn"], 12);
    let table = String::from_utf8(look_at_ours(&["--turns", "2"]).stdout).unwrap();
    assert!(table.contains("the least of them repeats 100.00 % of the one before"), "{table}");
}

#[test]
fn a_server_s_own_count_of_its_cache_is_reported() {
    let usage = json!({"promptTokens": 1_000, "completionTokens": 10, "cachedTokens": 980});
    let finish = json!({"toolCalls": [{"name": "mcp__jr2__finish"}], "usage": usage});
    let server = ScriptedModel::start(Script::from_json(json!({"rules": [{"answer": finish}]})).unwrap()).unwrap();
    let out =
        look_at_ours(&["--url", &server.url(), "--model", "any", "--quirk", "llama.cpp", "--turns", "4", "--json"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((&report["cachedPercent"], &report["cachedOfPossiblePercent"]), (&json!(98.0), &json!(98.0)));
    assert_eq!(server.complaints(), Vec::<String>::new());
}

#[test]
fn a_binary_that_is_no_harness_is_said_so_with_exit_code_1() {
    let out = look(&["--harness-bin", "/bin/false"]);
    assert_eq!(out.status.code(), Some(1));
    let words = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(words.contains("/bin/false ended at its start"), "{words}");
    let out = look(&["--url", "http://127.0.0.1:9/v1"]);
    assert_eq!(out.status.code(), Some(2), "--url needs --model");
}
