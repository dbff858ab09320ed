//! The scripted model over its sockets: exact bytes, cuts, refusals, and a record that survives `kill -9`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test fails by panicking.

use jr2_conformance::model::{Script, ScriptedModel};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn start(script: Value) -> ScriptedModel {
    ScriptedModel::start(Script::from_json(script).unwrap()).unwrap()
}

/// One request on a fresh connection; everything the server sent until it closed.
fn ask(address: std::net::SocketAddr, body: &str) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nx-test: 1\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

fn chat(text: &str) -> String {
    json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": text}]}).to_string()
}

/// Status line, headers, and the body with its chunking taken off.
fn parts(answer: &[u8]) -> (String, Vec<u8>) {
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(answer[..end].to_vec()).unwrap();
    let body = &answer[end + 4..];
    if head.contains("transfer-encoding: chunked") { (head, unchunk(body)) } else { (head, body.to_vec()) }
}

fn unchunk(mut body: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(line) = body.windows(2).position(|w| w == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&body[..line]).unwrap(), 16).unwrap();
        let start = line + 2;
        whole.extend_from_slice(&body[start..(start + size).min(body.len())]);
        if size == 0 || start + size + 2 > body.len() {
            break;
        }
        body = &body[start + size + 2..];
    }
    whole
}

#[test]
fn recorded_streams_of_real_servers_are_given_byte_for_byte() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/llm-sse");
    let mut seen = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "txt") {
            continue;
        }
        seen += 1;
        let bytes = std::fs::read(&path).unwrap();
        let split = bytes.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
        let status = String::from_utf8_lossy(&bytes[9..12]).into_owned();
        for chunk in [1_usize, 7, 100_000] {
            let model =
                start(json!({"rules": [{"answer": {"raw": {"file": path, "recorded": true}, "chunkBytes": chunk}}]}));
            let (head, body) = parts(&ask(model.address(), &chat("x")));
            assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{head}");
            assert!(head.contains("server: llama.cpp"), "{head}");
            assert!(body == bytes[split..], "{} in writes of {chunk}", path.display());
        }
    }
    assert_eq!(seen, 14);
}

#[test]
fn a_cut_gives_exactly_the_bytes_before_it_and_no_end() {
    let model = start(json!({"rules": [
        {"when": {"lastUser": "nothing"}, "answer": {"close": true}},
        {"when": {"lastUser": "head"}, "answer": {"text": "hello", "cutAfterBytes": 0}},
        {"answer": {"text": "hello", "cutAfterBytes": 40, "chunkBytes": 16}}]}));
    assert_eq!(ask(model.address(), &chat("nothing")), b"");
    assert_eq!(parts(&ask(model.address(), &chat("head"))).1, b"");
    let cut = ask(model.address(), &chat("cut"));
    assert_eq!(parts(&cut).1.len(), 40);
    assert!(!cut.ends_with(b"0\r\n\r\n"));
    assert_eq!(model.request_count(), 3);
}

#[test]
fn delays_hold_the_first_byte_and_each_write() {
    let model = start(
        json!({"rules": [{"answer": {"raw": {"body": "abc"}, "chunkBytes": 1, "delayMs": 60, "chunkDelayMs": 30}}]}),
    );
    let begun = Instant::now();
    assert_eq!(parts(&ask(model.address(), &chat("x"))).1, b"abc");
    assert!(begun.elapsed() >= Duration::from_millis(120));
}

#[test]
fn an_unknown_request_is_refused_with_what_was_seen() {
    let model = start(
        json!({"rules": [{"name": "only", "when": {"lastUser": "please"}, "times": 1, "answer": {"text": "ok"}}]}),
    );
    let (head, body) = parts(&ask(model.address(), &chat("now!")));
    let message = serde_json::from_slice::<Value>(&body).unwrap()["error"]["message"].as_str().unwrap().to_owned();
    assert!(head.starts_with("HTTP/1.1 400"));
    assert!(message.contains("\"now!\"") && message.contains("`only`: lastUser is Some(\"now!\")"), "{message}");
    assert!(ask(model.address(), &chat("please")).starts_with(b"HTTP/1.1 200"));
    let (_, body) = parts(&ask(model.address(), &chat("please")));
    assert!(String::from_utf8_lossy(&body).contains("answered 1 times already"));
    assert_eq!(model.requests()[0].refusal.as_deref(), Some(message.as_str()));
    assert_eq!(model.complaints().len(), 2);
}

#[test]
fn a_malformed_conversation_is_refused_unless_the_script_is_lenient() {
    let body = json!({"model": "m", "messages": [{"role": "tool", "tool_call_id": "x", "content": ""}]}).to_string();
    for (strict, status) in [(true, "HTTP/1.1 400"), (false, "HTTP/1.1 200")] {
        let model = start(json!({"strict": strict, "rules": [{"answer": {"text": "ok"}}]}));
        assert!(ask(model.address(), &body).starts_with(status.as_bytes()));
        assert_eq!(model.requests()[0].problems, ["messages[0]: no open tool call `x`"]);
        assert_eq!(model.requests()[0].header("x-test"), Some("1"));
    }
}

#[test]
fn equal_requests_get_equal_bytes_from_another_process_of_the_script() {
    let script =
        json!({"rules": [{"when": {"assistantMessages": 0}, "answer": {"text": "hi {{lastUser}}", "deltaChars": 1}}]});
    let answers: Vec<_> = (0..2).map(|_| parts(&ask(start(script.clone()).address(), &chat("you"))).1).collect();
    assert_eq!(answers[0], answers[1]);
}

/// The binary, ended with the test.
struct Binary(Child);

impl Drop for Binary {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_binary_says_where_it_listens_and_its_record_survives_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let (script, record) = (folder.path().join("script.json"), folder.path().join("record.jsonl"));
    std::fs::write(&script, json!({"models": ["a"], "rules": [{"name": "r", "answer": {"text": "ok"}}]}).to_string())
        .unwrap();
    for round in 1..=2 {
        let mut child = Command::new(env!("CARGO_BIN_EXE_jr2-conformance"));
        child.args(["model", "--listen", "127.0.0.1:0", "--script"]).arg(&script).arg("--record").arg(&record);
        let mut binary = Binary(child.stdout(Stdio::piped()).spawn().unwrap());
        let mut line = String::new();
        BufReader::new(binary.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let line: Value = serde_json::from_str(&line).unwrap();
        let address = line["address"].as_str().unwrap().parse().unwrap();
        assert_eq!(line["url"], format!("http://{address}/v1"));
        assert!(ask(address, &chat("x")).starts_with(b"HTTP/1.1 200"));
        drop(binary);
        let text = std::fs::read_to_string(&record).unwrap();
        let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        assert_eq!(text.lines().count(), round);
        assert_eq!((&last["rule"], &last["status"], &last["body"]["model"]), (&json!("r"), &json!(200), &json!("m")));
    }
}

#[test]
fn the_binary_refuses_a_bad_script_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script.json");
    std::fs::write(&script, "{\"rules\": [{\"answer\": {}}]}").unwrap();
    let output =
        Command::new(env!("CARGO_BIN_EXE_jr2-conformance")).args(["model", "--script"]).arg(&script).output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("an answer is one of"));
}
