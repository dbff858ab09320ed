//! Peers that are slow, silent or loud on the wire: they hold themselves up and nobody else.

use crate::server::{Folder, LOOK, PATIENCE};
use crate::{ASK, SETTINGS, start};
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Peers of each kind.
const PEERS: usize = 50;
/// What a request may take beside them. Far above what it takes alone, far below what a peer that blocks would cost.
const BRISK: Duration = Duration::from_secs(2);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_sends_a_byte_a_second_blocks_nobody() {
    let folder = Folder::new(SETTINGS, &[("ask", ASK)]);
    let _server = folder.start().await;
    let request = format!(
        "POST /workflows/ask/runs HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-length: 2\r\n\r\n",
        folder.token()
    );
    let mut dripping = tokio::task::JoinSet::new();
    for number in 0..PEERS {
        let mut peer = TcpStream::connect(folder.address()).await.unwrap();
        // Some never get through their headers, some stop before their body ends.
        let at_once = if number % 2 == 0 { request.clone() } else { request[..20].to_owned() };
        let rest = if number % 2 == 0 { "{".to_owned() } else { request[20..].to_owned() };
        dripping.spawn(async move {
            peer.write_all(at_once.as_bytes()).await.unwrap();
            for byte in rest.bytes() {
                if peer.write_all(&[byte]).await.is_err() {
                    return;
                }
                // Pause: a slow peer is what is tested.
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            std::future::pending::<()>().await;
        });
    }
    for _ in 0..20 {
        let begun = Instant::now();
        let run = start(&folder, "ask", &json!({})).await;
        let gate = format!("/runs/{run}/gates/review/events");
        assert_eq!(folder.post(&gate, &json!({ "type": "approve" })).await.unwrap().0, 200);
        assert!(begun.elapsed() < BRISK, "{:?} beside slow peers", begun.elapsed());
    }
    dripping.abort_all();
    let (_, list) = folder.get("/runs").await.unwrap();
    assert_eq!(list["runs"].as_array().unwrap().len(), 20, "a request that never ended started nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn half_a_head_holds_no_connection_for_ever() {
    let folder = Folder::new(SETTINGS, &[("ask", ASK)]);
    let _server = folder.start().await;
    let mut peer = TcpStream::connect(folder.address()).await.unwrap();
    peer.write_all(b"GET /healthz HTTP/1.1\r\nhost:").await.unwrap();
    let begun = Instant::now();
    let mut answer = Vec::new();
    let read = tokio::time::timeout(PATIENCE, peer.read_to_end(&mut answer)).await;
    assert!(read.is_ok(), "half a head holds its connection");
    assert!(begun.elapsed() > Duration::from_secs(5), "a slow head gets its time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oversized_and_broken_requests_end_their_own_connection() {
    let folder = Folder::new(SETTINGS, &[("ask", ASK)]);
    let _server = folder.start().await;
    let many = "x-many: 1\r\n".repeat(500);
    let broken = [
        (format!("GET /runs HTTP/1.1\r\nhost: x\r\nidempotency-key: {}\r\n\r\n", "k".repeat(2 << 20)), "431"),
        (format!("GET /runs HTTP/1.1\r\nhost: x\r\n{many}\r\n"), "431"),
        (format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "a".repeat(2 << 20)), "4"),
        ("nonsense\r\n\r\n".to_owned(), "400"),
        ("POST /runs HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n".to_owned(), "400"),
        ("POST /runs HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n".to_owned(), "4"),
        ("\u{0}\u{0}\u{0}\r\n\r\n".to_owned(), "400"),
    ];
    for (text, status) in &broken {
        let mut peer = TcpStream::connect(folder.address()).await.unwrap();
        // The server may answer and close before it has read all of it.
        let _ = peer.write_all(text.as_bytes()).await;
        let mut answer = Vec::new();
        let read = tokio::time::timeout(PATIENCE, peer.read_to_end(&mut answer)).await;
        let answer = String::from_utf8_lossy(&answer);
        let head: String = text.chars().take(60).collect();
        assert!(read.is_ok(), "the connection of {head:?} stays open");
        // A reset takes the answer along when bytes were left unread.
        assert!(answer.is_empty() || answer.starts_with(&format!("HTTP/1.1 {status}")), "{head:?}: {answer}");
    }
    let run = start(&folder, "ask", &json!({})).await;
    folder.until(&run, "parked", |s| s["gates"][0]["gate"] == "review").await;
    // Pause: a slow peer is what is tested.
    tokio::time::sleep(LOOK).await;
}
