//! What the Harness under the look talks to: an Orchestrator that answers every pick, and a proxy to a model that keeps
//! what went through it.

use super::prefix::{Exchange, counts, is_of_conversation};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use futures_util::stream;
use jr2_shared::surface::{MenuItem, PICKS_KEYED, PickAnswer, Surface, empty_object_schema};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Longest answer that is kept, in bytes; only its token counts matter.
const ANSWER_MAX_BYTES: usize = 16 << 20;

/// One request and its answer as they went by.
struct Seen {
    turn: usize,
    request: Value,
    answer: Vec<u8>,
}

/// Shared by the routes and the one who drives.
pub(super) struct World {
    upstream: String,
    key: Option<String>,
    http: reqwest::Client,
    turn: Mutex<usize>,
    seen: Mutex<Vec<Seen>>,
}

impl World {
    pub(super) fn new(upstream: &str, key: Option<String>) -> Result<Arc<Self>, reqwest::Error> {
        crate::tls::install();
        let http = reqwest::Client::builder().build()?;
        let upstream = upstream.trim_end_matches('/').to_owned();
        Ok(Arc::new(Self { upstream, key, http, turn: Mutex::default(), seen: Mutex::default() }))
    }

    pub(super) fn router(self: &Arc<Self>) -> Router {
        Router::new()
            .route("/agents/{iid}/surface", get(surface))
            .route("/agents/{iid}/events", post(pick))
            .route("/model/{*path}", any(forward))
            .with_state(Arc::clone(self))
    }

    pub(super) fn set_turn(&self, turn: usize) {
        *lock(&self.turn) = turn;
    }

    /// What was asked in the conversation, with the counts of the answers.
    pub(super) fn exchanges(&self) -> Vec<Exchange> {
        let read = |seen: &Seen| {
            let (prompt_tokens, cached_tokens) = counts(&String::from_utf8_lossy(&seen.answer));
            Exchange { turn: seen.turn, request: seen.request.clone(), prompt_tokens, cached_tokens }
        };
        lock(&self.seen).iter().filter(|seen| is_of_conversation(&seen.request)).map(read).collect()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Two picks; which of them is allowed changes from Turn to Turn, as in a workflow.
async fn surface(State(world): State<Arc<World>>, Path(iid): Path<String>) -> impl IntoResponse {
    let item = |name: &str, about: &str| MenuItem {
        name: name.into(),
        description: Some(about.into()),
        input: empty_object_schema(),
        semantics: "ack".into(),
        briefing: None,
    };
    let mut allowed = vec!["finish".to_owned()];
    if lock(&world.turn).is_multiple_of(2) {
        allowed.push("note".to_owned());
    }
    axum::Json(Surface {
        instance_id: iid,
        run_id: "cache".into(),
        sandbox: None,
        menu: Some(vec![item("finish", "The task is done."), item("note", "Something to know.")]),
        allowed: Some(allowed),
        accepts: None,
        picks: Some(PICKS_KEYED.into()),
    })
}

async fn pick(Path(_iid): Path<String>, axum::Json(body): axum::Json<Value>) -> impl IntoResponse {
    let event = body["type"].as_str().unwrap_or_default().to_owned();
    let over = event == "finish";
    axum::Json(PickAnswer {
        delivered: true,
        event,
        moved: true,
        turn_complete: over,
        delivery_id: "d-1".into(),
        allowed: (!over).then(|| vec!["finish".to_owned()]),
        outstanding: false,
        reply: None,
        nothing_ran: false,
        answered: false,
    })
}

async fn forward(State(world): State<Arc<World>>, Path(path): Path<String>, method: Method, body: Bytes) -> Response {
    let asks = path == "chat/completions";
    let kept = asks.then(|| {
        let seen = Seen {
            turn: *lock(&world.turn),
            request: serde_json::from_slice(&body).unwrap_or_default(),
            answer: Vec::new(),
        };
        let mut all = lock(&world.seen);
        all.push(seen);
        all.len() - 1
    });
    let mut call = world.http.request(method, format!("{}/{path}", world.upstream));
    call = call.header("content-type", "application/json").header("accept", "text/event-stream").body(body);
    if let Some(key) = &world.key {
        call = call.bearer_auth(key);
    }
    let answer = match call.send().await {
        Ok(answer) => answer,
        Err(error) => {
            let words = json!({"error": {"message": format!("the model server: {}", error.without_url())}});
            return (StatusCode::BAD_GATEWAY, axum::Json(words)).into_response();
        }
    };
    let status = answer.status();
    let headers: Vec<_> = ["content-type", "retry-after"]
        .into_iter()
        .filter_map(|name| answer.headers().get(name).map(|value| (name, value.clone())))
        .collect();
    let pieces = stream::unfold((answer, world, kept), |(mut answer, world, kept)| async move {
        let piece = answer.chunk().await.transpose()?;
        if let (Ok(bytes), Some(index)) = (&piece, kept)
            && let Some(seen) = lock(&world.seen).get_mut(index)
            && seen.answer.len() + bytes.len() <= ANSWER_MAX_BYTES
        {
            seen.answer.extend_from_slice(bytes);
        }
        Some((piece, (answer, world, kept)))
    });
    let mut response = Response::new(Body::from_stream(pieces));
    *response.status_mut() = status;
    for (name, value) in headers {
        response.headers_mut().insert(name, value);
    }
    response
}
