//! `jr2-conformance run` from outside: its exit codes and its reports, against a Harness that can do almost nothing.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test fails by panicking.

use axum::extract::Request;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

/// It answers `/healthz` and knows nobody: the claims of `auth` about strangers hold, little else does.
async fn answer(request: Request) -> Response {
    if request.method() == Method::GET && request.uri().path() == "/healthz" {
        return StatusCode::NO_CONTENT.into_response();
    }
    (StatusCode::UNAUTHORIZED, [("content-type", "application/json")], "{\"error\":\"unauthorized\"}").into_response()
}

/// The URL of a Harness that lives as long as the test's runtime.
async fn deaf_harness() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(answer)).await });
    url
}

async fn run(arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_jr2-conformance"));
    command.arg("run").args(arguments).env_remove("JR2_CONFORMANCE_BEARER");
    let Output { status, stdout, stderr } =
        tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

async fn judged(url: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let all: Vec<&str> = ["--harness", url, "--bearer", "b"].into_iter().chain(arguments.iter().copied()).collect();
    let (code, out, err) = run(&all).await;
    (code, out + &err)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_run_is_2_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("known");
    std::fs::write(&list, "wire.001\nwire.999\n").unwrap();
    let list = list.to_str().unwrap();
    let cases: [(&[&str], &str); 7] = [
        (&[], "--harness"),
        (&["--harness", "http://127.0.0.1:1"], "--bearer"),
        (&["--harness", "http://127.0.0.1:1", "--bearer", "b"], "is the Harness running there?"),
        (&["--command", "true", "--filter", "nothing.at.all"], "no claim fits"),
        (&["--command", "sh -c 'exit 3'", "--filter", "wire.001"], "ended at its start with exit status: 3"),
        (&["--command", "true", "--expected-failures", list], "line 2: `wire.999` is no claim"),
        (&["--command", "true", "--env", "NAME"], "NAME=VALUE"),
    ];
    for (arguments, words) in cases {
        let (code, out, err) = run(arguments).await;
        assert_eq!(code, Some(2), "{arguments:?}: {out}{err}");
        assert!(err.contains(words), "{arguments:?}: {err}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_names_every_claim_and_help_has_examples() {
    let (code, out, _) = run(&["--list"]).await;
    assert_eq!(code, Some(0));
    assert!(out.lines().count() >= 80, "{}", out.lines().count());
    assert!(out.lines().any(|line| line.starts_with("wire.001 ") && line.contains("H-2")), "{out}");
    let (code, out, _) = run(&["--list", "--filter", "notice"]).await;
    assert!(code == Some(0) && out.lines().all(|line| line.starts_with("notice.")), "{out}");
    let (_, help, _) = run(&["--help"]).await;
    assert!(help.contains("Examples:") && help.contains("docs/conformance.md"), "{help}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_nobody_expected_is_1_and_an_expected_failure_is_0() {
    let url = deaf_harness().await;
    let folder = tempfile::tempdir().unwrap();
    let known = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    assert_eq!(judged(&url, &["--filter", "wire.001", "--filter", "auth.001"]).await.0, Some(0), "both hold");
    let (code, out) = judged(&url, &["--filter", "wire.003"]).await;
    assert_eq!(code, Some(1));
    assert!(out.contains("got  401") && out.contains("want 404") && out.contains("GET / -> 401"), "what it saw: {out}");
    let fails = known("fails", "# It knows nobody.\nwire.003\n");
    assert_eq!(judged(&url, &["--filter", "wire.003", "--expected-failures", &fails]).await.0, Some(0));
    let holds = known("holds", "wire.001\n");
    let (code, out) = judged(&url, &["--filter", "wire.001", "--expected-failures", &holds]).await;
    assert!(code == Some(1) && out.contains("OK, BUT EXPECTED TO FAIL"), "{out}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_needs_a_process_is_not_run_and_the_reports_say_the_same() {
    let url = deaf_harness().await;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (junit, json) = (path("out.xml"), path("out.json"));
    let arguments = ["--filter", "drain", "--filter", "wire.00", "--junit", &junit, "--json", &json];
    let (code, out) = judged(&url, &arguments).await;
    assert_eq!(code, Some(1));
    assert!(out.contains("not run  drain.001") && out.contains("(needs --command)"), "{out}");
    let report: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    let cases = report["cases"].as_array().unwrap();
    let count = |result: &str| cases.iter().filter(|case| case["result"] == result).count();
    assert_eq!(report["failed"], count("failed"));
    assert!(count("failed") >= 5 && count("passed") >= 1 && count("notRun") >= 5, "{report}");
    let text = std::fs::read_to_string(Path::new(&junit)).unwrap();
    let document = roxmltree::Document::parse(&text).unwrap();
    let all = |name: &str| document.descendants().filter(|node| node.has_tag_name(name)).count();
    assert_eq!((all("testcase"), all("failure")), (cases.len(), count("failed")));
}
