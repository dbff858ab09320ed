//! The run benchmark against a stand-in for the Orchestrator: it counts only runs that the feed said are done.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test fails by panicking.

use axum::Json;
use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, Sse};
use axum::routing::{get, post};
use futures_util::stream::{self, Stream, StreamExt};
use jr2_conformance::bench::runs::{self, GATE, Options, WORKFLOW_NAME};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::broadcast;

/// Runs as the stand-in knows them, and who listens.
struct StandIn {
    runs: Mutex<BTreeMap<String, Value>>,
    /// Two starts at once are two runs.
    next: AtomicUsize,
    feed: broadcast::Sender<Value>,
    /// Every this-many-th run ends in fault; 0 = none.
    faulty: usize,
}

impl StandIn {
    fn put(&self, run: &str, status: &str, value: &str) {
        let view = json!({"runId": run, "workflow": WORKFLOW_NAME, "status": status, "value": value});
        self.runs.lock().unwrap().insert(run.to_owned(), view.clone());
        let _ = self.feed.send(view);
    }
}

type Shared = State<Arc<StandIn>>;

async fn start(State(it): Shared, headers: HeaderMap) -> (StatusCode, Json<Value>) {
    if headers.get("authorization").is_none_or(|token| token != "Bearer t") {
        return (StatusCode::UNAUTHORIZED, Json(json!({"error": "who?"})));
    }
    let run = format!("run{}", it.next.fetch_add(1, Ordering::Relaxed));
    it.put(&run, "live", "one");
    it.put(&run, "live", GATE);
    (StatusCode::CREATED, Json(json!({"runId": run, "instanceId": run})))
}

async fn answer(State(it): Shared, Path((run, gate)): Path<(String, String)>, Json(event): Json<Value>) -> Json<Value> {
    assert_eq!((gate.as_str(), &event), (GATE, &json!({"type": "go"})));
    let number: usize = run.trim_start_matches("run").parse().unwrap();
    let fault = it.faulty > 0 && number % it.faulty == it.faulty - 1;
    it.put(&run, if fault { "error" } else { "done" }, "done");
    Json(json!({"ok": true}))
}

async fn status(State(it): Shared, Path(run): Path<String>) -> Json<Value> {
    let mut view = it.runs.lock().unwrap()[&run].clone();
    view["rev"] = json!(6);
    Json(view)
}

async fn events(State(it): Shared) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let live = it.feed.subscribe();
    let all: Vec<Value> = it.runs.lock().unwrap().values().cloned().collect();
    let first = stream::once(async move { Ok(Event::default().event("runs").json_data(all).unwrap()) });
    let rest = stream::unfold(live, |mut live| async move {
        let view = live.recv().await.ok()?;
        Some((Ok(Event::default().event("status").json_data(view).unwrap()), live))
    });
    Sse::new(first.chain(rest))
}

/// Serves the stand-in on a free port of this test's runtime.
async fn serve(faulty: usize) -> String {
    let it = Arc::new(StandIn {
        runs: Mutex::default(),
        next: AtomicUsize::new(0),
        feed: broadcast::Sender::new(10_000),
        faulty,
    });
    let routes = Router::new()
        .route("/workflows/{name}/runs", post(start))
        .route("/workflows/{name}/events", get(events))
        .route("/runs/{run}", get(status))
        .route("/runs/{run}/gates/{gate}/events", post(answer))
        .with_state(it);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, routes).await });
    format!("http://{address}")
}

fn options(server: String, concurrency: usize, runs: usize) -> Options {
    Options { server, token: "t".into(), workflow: WORKFLOW_NAME.into(), concurrency, runs }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_run_is_driven_to_its_end() {
    let report = runs::run(&options(serve(0).await, 8, 50)).await.unwrap();
    assert_eq!((report.runs, report.run.count, report.saves_per_run), (50, 50, 6));
    assert!(report.runs_per_second > 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_does_not_end_well_is_no_figure() {
    let error = runs::run(&options(serve(7).await, 2, 50)).await.unwrap_err().to_string();
    assert!(error.contains("ended as"), "{error}");
    let refused = runs::run(&Options { token: "x".into(), ..options(serve(0).await, 1, 1) }).await.unwrap_err();
    assert!(refused.to_string().contains("401"), "{refused}");
}
