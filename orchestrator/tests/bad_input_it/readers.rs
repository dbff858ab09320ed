//! Readers of feeds: many, silent, and such that come back.

use crate::server::{Folder, PATIENCE};
use crate::{ASK, SETTINGS, start};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// What the server may grow by for its readers, in KiB.
const GROWTH_MAX_KIB: u64 = 64 << 10;

/// Says a lot: about thirteen megabytes.
const CHATTY: &str = r#"
workflow: chatty
context: { n: 0, text: "TEXT" }
initial: talk
states:
  talk:
    do: {}
    on:
      done.do:
        - { if: context.n < 400, to: talk, set: { n: context.n + 1 }, emit: { type: said, n: context.n, text: context.text } }
        - { to: done }
  done: { final: true, output: { n: "{{ context.n }}" } }
"#;

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    id: Option<String>,
    event: String,
    data: Value,
}

fn entries(text: &str) -> Vec<Entry> {
    let field = |block: &str, name: &str| {
        block.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim_start().to_owned())
    };
    text.split("\n\n")
        .filter_map(|block| {
            let data = field(block, "data:")?;
            let event = field(block, "event:")?;
            Some(Entry { id: field(block, "id:"), event, data: serde_json::from_str(&data).unwrap() })
        })
        .collect()
}

/// Reads a feed from an id on until it ends by itself, or until `many` entries came.
async fn read(folder: &Folder, path: &str, from: Option<&str>, many: usize) -> Vec<Entry> {
    let mut request = folder.client().get(format!("{}{path}", folder.url())).bearer_auth(folder.token());
    if let Some(from) = from {
        request = request.header("last-event-id", from);
    }
    let mut response = request.send().await.unwrap();
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.unwrap() {
        bytes.extend_from_slice(&chunk);
        let whole = bytes.windows(2).rposition(|w| w == b"\n\n").map_or(0, |at| at + 2);
        let found = entries(&String::from_utf8_lossy(&bytes[..whole]));
        if found.len() >= many {
            return found;
        }
    }
    entries(&String::from_utf8_lossy(&bytes))
}

fn place(id: &str) -> (u64, u64) {
    let (rev, index) = id.split_once('.').unwrap();
    (rev.parse().unwrap(), index.parse().unwrap())
}

async fn connect(folder: &Folder, path: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let mut stream = socket.connect(folder.address()).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\n\r\n", folder.token());
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

fn resident_kib(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_comes_back_gets_exactly_what_it_missed() {
    let folder = Folder::new(SETTINGS, &[("ask", ASK)]);
    let mut server = folder.start().await;
    let run = start(&folder, "ask", &json!({})).await;
    let path = format!("/runs/{run}/events");
    let gate = format!("/runs/{run}/gates/review/events");
    for _ in 0..5 {
        let change = json!({ "type": "change", "notes": "more" });
        assert_eq!(folder.post(&gate, &change).await.unwrap().0, 200);
    }
    // While it lives: the reader that was there from the start, cut and joined again.
    let first = read(&folder, &path, None, 4).await;
    let last = first.iter().filter_map(|e| e.id.clone()).next_back().unwrap();
    let joined = tokio::spawn({
        let request = folder.client().get(format!("{}{path}", folder.url())).bearer_auth(folder.token());
        let request = request.header("last-event-id", &last);
        async move { entries(&request.send().await.unwrap().text().await.unwrap()) }
    });
    assert_eq!(folder.post(&gate, &json!({ "type": "approve" })).await.unwrap().0, 200);
    let rest = tokio::time::timeout(PATIENCE, joined).await.unwrap().unwrap();

    server.kill();
    let _server = folder.start().await;
    let whole = read(&folder, &path, None, usize::MAX).await;
    let numbered = |list: &[Entry]| -> Vec<Entry> { list.iter().filter(|e| e.id.is_some()).cloned().collect() };
    let all = numbered(&whole);
    let places: Vec<(u64, u64)> = all.iter().map(|e| place(e.id.as_ref().unwrap())).collect();
    assert!(places.len() >= 7 && places.is_sorted_by(|a, b| a < b), "{places:?}");
    assert_eq!(whole.last().unwrap().event, "closed");
    let lived: Vec<Entry> = numbered(&first).into_iter().chain(numbered(&rest)).collect();
    assert_eq!(lived, all, "before and after the cut, live and from the store");
    for (at, entry) in all.iter().enumerate() {
        let again = numbered(&read(&folder, &path, entry.id.as_deref(), usize::MAX).await);
        let missed = &all[at + 1..];
        if missed.iter().any(|e| e.event == "status") {
            assert_eq!(again, missed, "after {:?}", entry.id);
        } else {
            // Nobody is left without a word on where the run stands: it comes under the last id.
            assert_eq!(&again[..missed.len()], missed);
            assert!(
                again[missed.len()..].iter().all(|e| e.event == "status" && e.data["status"] == "done"),
                "{again:?}"
            );
        }
    }
    for wrong in ["nonsense", "1", "1.x", "-1.0", "99999999999999999999999.0"] {
        assert_eq!(numbered(&read(&folder, &path, Some(wrong), usize::MAX).await), all, "an id that is none: {wrong}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_from_the_future_hides_nothing() {
    let folder = Folder::new(SETTINGS, &[("ask", ASK)]);
    let _server = folder.start().await;
    let run = start(&folder, "ask", &json!({})).await;
    let path = format!("/runs/{run}/events");
    let request = folder.client().get(format!("{}{path}", folder.url())).bearer_auth(folder.token());
    let mut response = request.header("last-event-id", "1000000.0").send().await.unwrap();
    let mut text = String::from_utf8_lossy(&response.chunk().await.unwrap().unwrap()).into_owned();
    let gate = format!("/runs/{run}/gates/review/events");
    assert_eq!(folder.post(&gate, &json!({ "type": "approve" })).await.unwrap().0, 200);
    while let Some(chunk) = response.chunk().await.unwrap() {
        text.push_str(&String::from_utf8_lossy(&chunk));
    }
    assert!(text.contains("\"status\":\"done\""), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_idle_readers_cost_little_and_hear_the_end() {
    let folder = Folder::new(SETTINGS, &[("ask", ASK)]);
    let server = folder.start().await;
    let run = start(&folder, "ask", &json!({})).await;
    let before = resident_kib(server.child.id());
    let mut readers = Vec::new();
    for number in 0..200 {
        let path = match number % 3 {
            0 => format!("/runs/{run}/events"),
            1 => format!("/workflows/ask/runs/{run}/events"),
            _ => "/workflows/ask/events".to_owned(),
        };
        let mut reader = connect(&folder, &path).await;
        let mut head = [0; 15];
        reader.read_exact(&mut head).await.unwrap();
        assert_eq!(&head, b"HTTP/1.1 200 OK");
        readers.push(reader);
    }
    let grown = resident_kib(server.child.id()).saturating_sub(before);
    assert!(grown < GROWTH_MAX_KIB, "{grown} KiB for 200 readers");
    let begun = Instant::now();
    let gate = format!("/runs/{run}/gates/review/events");
    assert_eq!(folder.post(&gate, &json!({ "type": "approve" })).await.unwrap().0, 200);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    for (number, reader) in readers.iter_mut().enumerate() {
        let mut text = String::new();
        while !text.contains("\"status\":\"done\"") {
            let mut bytes = [0; 4_096];
            let read = tokio::time::timeout(PATIENCE, reader.read(&mut bytes)).await.unwrap().unwrap();
            assert!(read > 0, "reader {number} was closed: {text}");
            text.push_str(&String::from_utf8_lossy(&bytes[..read]));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_never_reads_holds_nobody_up() {
    let chatty = CHATTY.replace("TEXT", &"x".repeat(32 << 10));
    let folder = Folder::new(SETTINGS, &[("ask", ASK), ("chatty", &chatty)]);
    let server = folder.start().await;
    let before = resident_kib(server.child.id());
    let mut silent = Vec::new();
    for _ in 0..5 {
        silent.push(connect(&folder, "/workflows/chatty/events").await);
    }
    let run = start(&folder, "chatty", &json!({})).await;
    for _ in 0..5 {
        silent.push(connect(&folder, &format!("/runs/{run}/events")).await);
    }
    let path = format!("/runs/{run}/events");
    let awake = tokio::time::timeout(PATIENCE, read(&folder, &path, None, usize::MAX)).await.unwrap();
    assert_eq!(awake.last().unwrap().event, "closed", "the one that reads hears the end");
    let status = folder.until(&run, "done", |s| s["status"] == "done").await;
    assert_eq!(status["output"]["n"], 400);
    let grown = resident_kib(server.child.id()).saturating_sub(before);
    println!("{grown} KiB for ten readers that never read");
    assert!(grown < 2 * GROWTH_MAX_KIB, "{grown} KiB for ten readers that never read");
    drop(silent);
    let other = start(&folder, "ask", &json!({})).await;
    folder.until(&other, "parked", |s| s["gates"][0]["gate"] == "review").await;
}
