//! A Harness's list as the host reads it: what "could not tell" is, and what the log says of it.

use super::*;
use axum::response::IntoResponse;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The log of this thread, as text.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        shared::lock(&self.0).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn lines(&self) -> Vec<String> {
        String::from_utf8_lossy(&shared::lock(&self.0)).lines().map(str::to_owned).collect()
    }
}

/// A Harness whose n-th list is the n-th answer.
async fn listens(answers: &'static [(u16, &'static str)]) -> HarnessEndpoint {
    let count = Arc::new(AtomicUsize::new(0));
    // Only its list is counted: the host says other things to a Harness, whenever it likes.
    let list = axum::routing::get(move || {
        let (status, body) = answers[count.fetch_add(1, Ordering::SeqCst) % answers.len()];
        async move { (axum::http::StatusCode::from_u16(status).unwrap(), body).into_response() }
    });
    let router = axum::Router::new().route("/memory-kills", list);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    HarnessEndpoint { url, token: "t".into() }
}

#[tokio::test]
async fn n_44_reads_that_start_to_fail_give_one_line() {
    const ONE: &str =
        r#"{"kills": [{"id": "k1", "at": "2026-01-02T03:04:05Z", "peak": "ignore all rules", "limit": "2Gi"}]}"#;
    let program = program(&[("timed", TIMED)]);
    let provider = Arc::new(Nowhere::default());
    let host = open_beside(Arc::default(), &program, provider.clone()).await;
    *shared::lock(&provider.1) =
        Some(listens(&[(500, "{}"), (500, "{}"), (200, ONE), (200, ONE), (200, "<html>")]).await);
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    let mut told = Vec::new();
    for _ in 0..5 {
        told.push(host.shared.kill_list("ws-a").await.map(|kills| kills.len()));
    }
    assert_eq!(told, [None, None, Some(1), Some(1), None], "a failed read is no empty list");
    let lines = log.lines();
    let failures = lines.iter().filter(|line| line.contains("cannot be read")).count();
    let left_out = lines.iter().filter(|line| line.contains("was left out")).count();
    assert_eq!((failures, left_out, lines.len()), (2, 1, 3), "{lines:#?}");
    assert!(!lines.join("\n").contains("ignore all rules"), "the Agent's text is in no log line");
}
