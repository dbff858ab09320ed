//! The world outside: a server that does something once per `Idempotency-Key`, and writes down every request.

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// One key: what it was answered, and how often it was asked.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    /// The place of the effect among all; `None` = refused so far.
    pub entry: Option<u64>,
    pub requests: u64,
    pub attempts: Vec<u32>,
}

#[derive(Default)]
struct Books {
    keys: BTreeMap<String, Kept>,
    effects: u64,
    requests: u64,
    keyless: u64,
}

#[derive(Clone, Default)]
pub struct Ledger {
    books: Arc<Mutex<Books>>,
}

impl Ledger {
    /// Serves on a free port; its URL.
    pub async fn serve(&self) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/do", listener.local_addr().unwrap());
        let router = Router::new().route("/do", post(act)).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        url
    }

    /// Does the effect of a key once; its number among all requests, and the effect's place.
    fn take(&self, key: String, attempt: u32) -> (u64, Option<u64>) {
        let mut books = self.books.lock().unwrap();
        books.requests += 1;
        let (number, next) = (books.requests, books.effects + 1);
        let kept = books.keys.entry(key).or_default();
        kept.requests += 1;
        kept.attempts.push(attempt);
        // Every twentieth request of a new key is refused, so that `retry` is at work too.
        if kept.entry.is_none() && !(kept.requests == 1 && number.is_multiple_of(20)) {
            kept.entry = Some(next);
        }
        let entry = kept.entry;
        books.effects = books.effects.max(entry.unwrap_or(0));
        (number, entry)
    }

    pub fn keys(&self) -> BTreeMap<String, Kept> {
        self.books.lock().unwrap().keys.clone()
    }

    /// Requests, and those without a key.
    pub fn requests(&self) -> (u64, u64) {
        let books = self.books.lock().unwrap();
        (books.requests, books.keyless)
    }
}

/// The effect happens before the answer leaves: a cut between them is the case that keys are for.
async fn act(State(ledger): State<Ledger>, headers: HeaderMap) -> Response {
    let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
    let attempt = text("jr2-step-attempt").and_then(|a| a.parse().ok()).unwrap_or(u32::MAX);
    let Some(key) = text("idempotency-key") else {
        ledger.books.lock().unwrap().keyless += 1;
        return StatusCode::BAD_REQUEST.into_response();
    };
    let (number, entry) = ledger.take(key, attempt);
    let Some(entry) = entry else { return StatusCode::SERVICE_UNAVAILABLE.into_response() };
    let slow = match number % 8 {
        0 => 250,
        1 | 2 => 60,
        _ => 3,
    };
    // Pause: a slow answer is what is tested.
    tokio::time::sleep(Duration::from_millis(slow)).await;
    axum::Json(json!({ "entry": entry })).into_response()
}
