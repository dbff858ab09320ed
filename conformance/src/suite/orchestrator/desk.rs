//! One conversation's surface, as the Orchestrator has it, and everything that was asked about it.

use super::{Reply, lock};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use jr2_shared::harness::token_digest;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Mutex;
use tokio::sync::watch;

/// A read of the surface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SurfaceSeen {
    /// What it was answered with; 0 for an answer that broke off.
    pub status: u16,
    /// `authorization` as it came.
    pub authorization: String,
    /// `if-none-match`, when it came.
    pub etag: Option<String>,
}

/// A posted pick.
#[derive(Clone, Debug, PartialEq)]
pub struct PickSeen {
    /// Its body; null when it is no JSON.
    pub body: Value,
    /// Its body as it came.
    pub text: String,
    /// `authorization` as it came.
    pub authorization: String,
}

/// One conversation's place at the Orchestrator.
#[derive(Debug)]
pub struct Desk {
    state: Mutex<State>,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    surface: Option<Value>,
    surface_faults: VecDeque<Reply>,
    surface_reads: Vec<SurfaceSeen>,
    pick_replies: VecDeque<Reply>,
    picks: Vec<PickSeen>,
    delivery_replies: VecDeque<Reply>,
    deliveries: Vec<String>,
}

impl Default for Desk {
    fn default() -> Self {
        Self { state: Mutex::default(), changed: watch::Sender::new(0) }
    }
}

impl Desk {
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut lock(&self.state));
        self.changed.send_modify(|n| *n += 1);
        result
    }

    /// Gives it this surface, whole.
    pub fn set(&self, surface: Value) {
        self.change(|state| state.surface = Some(surface));
    }

    /// Takes its surface away: 404 from now on.
    pub fn leave(&self) {
        self.change(|state| state.surface = None);
    }

    /// Changes the surface it has.
    pub fn edit(&self, edit: impl FnOnce(&mut Value)) {
        self.change(|state| edit(state.surface.get_or_insert_with(|| json!({}))));
    }

    /// What a coming read is answered with in place of the surface, one each.
    pub fn fault_surface(&self, replies: impl IntoIterator<Item = Reply>) {
        self.change(|state| state.surface_faults.extend(replies));
    }

    /// What coming picks are answered with, one each. Without one, a pick ends the Turn.
    pub fn answer_picks(&self, replies: impl IntoIterator<Item = Reply>) {
        self.change(|state| state.pick_replies.extend(replies));
    }

    /// What coming reads of a delivery are answered with, one each. Without one they wait.
    pub fn answer_deliveries(&self, replies: impl IntoIterator<Item = Reply>) {
        self.change(|state| state.delivery_replies.extend(replies));
    }

    /// Reads of the surface so far.
    pub fn surface_reads(&self) -> Vec<SurfaceSeen> {
        lock(&self.state).surface_reads.clone()
    }

    /// Statuses of the reads so far.
    pub fn surface_statuses(&self) -> Vec<u16> {
        lock(&self.state).surface_reads.iter().map(|read| read.status).collect()
    }

    /// Picks so far.
    pub fn picks(&self) -> Vec<PickSeen> {
        lock(&self.state).picks.clone()
    }

    /// Deliveries asked for so far.
    pub fn deliveries(&self) -> Vec<String> {
        lock(&self.state).deliveries.clone()
    }

    /// Waits until this many picks were posted.
    pub async fn picked(&self, count: usize) {
        self.until(|state| state.picks.len() >= count).await;
    }

    /// Waits until the surface was read this often.
    pub async fn read(&self, count: usize) {
        self.until(|state| state.surface_reads.len() >= count).await;
    }

    /// Waits until a delivery was asked for this often.
    pub async fn polled(&self, count: usize) {
        self.until(|state| state.deliveries.len() >= count).await;
    }

    async fn until(&self, condition: impl Fn(&State) -> bool) {
        let mut changed = self.changed.subscribe();
        loop {
            changed.borrow_and_update();
            if condition(&lock(&self.state)) {
                return;
            }
            if changed.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Answers a read of the surface; an `ETag` covers all of it (decision 21).
    pub(super) async fn surface(&self, headers: &HeaderMap) -> Response {
        let (reply, more) = self.change(|state| {
            let asked = headers.get("if-none-match").and_then(|value| value.to_str().ok()).map(str::to_owned);
            let (reply, more) = match (state.surface_faults.pop_front(), &state.surface) {
                (Some(fault), _) => (fault, HeaderMap::new()),
                (None, None) => (Reply::error(404, "no live agent surface for this instance"), HeaderMap::new()),
                (None, Some(surface)) => {
                    let etag = format!("\"{}\"", token_digest(&surface.to_string()));
                    let same = asked.as_deref() == Some(&etag);
                    let reply = if same { Reply::Empty(304) } else { Reply::Json(200, surface.clone()) };
                    (reply, etag_header(&etag))
                }
            };
            let authorization = authorization(headers);
            state.surface_reads.push(SurfaceSeen { status: status_of(&reply), authorization, etag: asked });
            (reply, more)
        });
        reply.say(more).await
    }

    pub(super) async fn pick(&self, headers: &HeaderMap, body: &[u8]) -> Response {
        let reply = self.change(|state| {
            let text = String::from_utf8_lossy(body).into_owned();
            let body: Value = serde_json::from_str(&text).unwrap_or_default();
            let event = body["type"].as_str().unwrap_or_default().to_owned();
            state.picks.push(PickSeen { body, text, authorization: authorization(headers) });
            state.pick_replies.pop_front().unwrap_or_else(|| Reply::Json(200, taken(&event, true, true, Some(&[]))))
        });
        reply.say(HeaderMap::new()).await
    }

    pub(super) async fn delivery(&self, delivery: &str, _headers: &HeaderMap) -> Response {
        self.change(|state| state.deliveries.push(delivery.to_owned()));
        let mut changed = self.changed.subscribe();
        loop {
            changed.borrow_and_update();
            // Its own statement: the lock must not be held over the answer.
            let reply = lock(&self.state).delivery_replies.pop_front();
            if let Some(reply) = reply {
                return reply.say(HeaderMap::new()).await;
            }
            if changed.changed().await.is_err() {
                return StatusCode::NO_CONTENT.into_response();
            }
        }
    }
}

/// The answer to a pick that was delivered (spec P-4), under the delivery `d-1`.
pub fn taken(event: &str, moved: bool, over: bool, allowed: Option<&[&str]>) -> Value {
    let mut answer =
        json!({"delivered": true, "event": event, "moved": moved, "turnComplete": over, "deliveryId": "d-1"});
    if let Some(allowed) = allowed {
        answer["allowed"] = json!(allowed);
    }
    answer
}

fn authorization(headers: &HeaderMap) -> String {
    headers.get("authorization").map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).unwrap_or_default()
}

fn etag_header(etag: &str) -> HeaderMap {
    let value = HeaderValue::from_str(etag).ok();
    value.map(|value| HeaderMap::from_iter([(HeaderName::from_static("etag"), value)])).unwrap_or_default()
}

fn status_of(reply: &Reply) -> u16 {
    match reply {
        Reply::Json(status, _) | Reply::Text(status, _) | Reply::Empty(status) => *status,
        Reply::Unreachable(_) => 502,
        Reply::Half => 0,
        Reply::Slow(_, reply) => status_of(reply),
    }
}
