//! The routes of spec 6.2.

use super::{App, admit, gate, refuse};
use crate::conversation::{Conversation, Hall, HallError, Page, Seating};
use crate::mutation::{self, Mutation};
use crate::telemetry;
use crate::turn::printer::cut;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Query, State};
use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router, middleware};
use futures_util::StreamExt as _;
use jr2_shared::crash::{self, Point};
use jr2_shared::harness::{
    ADMIT_BODY_MAX_BYTES, AbortAnswer, AbortRequest, AdmitAnswer, ErrorBody, Freed, HEADER_NEXT_OFFSET,
    HEADER_UP_TO_DATE, LONG_POLL_SECS, LiveSet,
};
use jr2_shared::isolation::Isolation;
use jr2_telemetry::context::{self, TraceParent};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::{Value, json};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// One path segment of a stream URL.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// Longest printed event of an echo in characters: a line of a log, not a document.
const ECHO_MAX_CHARS: usize = 500;

/// All routes behind the gate.
pub fn router(app: Arc<App>) -> Router {
    let router = Router::new()
        .route("/healthz", get(healthz))
        .route("/agents/{name}/{id}", get(stream).post(admission))
        .route("/agents/{name}/{id}/abort", post(abort))
        .route("/agents", put(retain))
        .route("/echo", post(echo))
        .route("/metrics", get(metrics))
        .route("/memory-kills", get(memory_kills))
        .route("/isolation", get(isolation));
    #[cfg(feature = "test-hooks")]
    let router = super::hooks::add(router);
    router
        .fallback(|| async { refuse(StatusCode::NOT_FOUND, "no such route") })
        .method_not_allowed_fallback(|| async { refuse(StatusCode::METHOD_NOT_ALLOWED, "no such method here") })
        .layer(middleware::from_fn_with_state(Arc::clone(&app), gate::pass))
        .with_state(app)
}

/// Which meter the memory guard has, or `off`: an answer's header.
const HEADER_MEMORY_GUARD: HeaderName = HeaderName::from_static("jr2-memory-guard");

async fn healthz(State(app): State<Arc<App>>) -> Response {
    (StatusCode::NO_CONTENT, [(HEADER_MEMORY_GUARD, app.guard)]).into_response()
}

async fn isolation(State(app): State<Arc<App>>) -> Json<Isolation> {
    Json(Isolation { memory_guard: Some(app.guard.to_owned()), ..crate::tools::isolate::support() })
}

/// A body over its bound is read on to this many bytes and dropped: a sender that is cut off in mid-body never sees the
/// answer that says why.
const DRAINED_MAX_BYTES: usize = 16 << 20;

/// A body of bounded size; `Err` is the 413 or 400 to answer.
async fn read_body(body: Body) -> Result<Bytes, Response> {
    let mut chunks = body.into_data_stream();
    let (mut kept, mut read) = (Vec::new(), 0);
    while let Some(chunk) = chunks.next().await {
        let Ok(chunk) = chunk else { return Err(refuse(StatusCode::BAD_REQUEST, "the body could not be read")) };
        read += chunk.len();
        if read <= ADMIT_BODY_MAX_BYTES {
            kept.extend_from_slice(&chunk);
        } else if read > DRAINED_MAX_BYTES {
            break;
        }
    }
    if read > ADMIT_BODY_MAX_BYTES {
        let words = format!("the body is over {ADMIT_BODY_MAX_BYTES} bytes");
        return Err(refuse(StatusCode::PAYLOAD_TOO_LARGE, words));
    }
    Ok(Bytes::from(kept))
}

async fn read_json(body: Body, subject: &str) -> Result<Value, Response> {
    let bytes = read_body(body).await?;
    serde_json::from_slice(&bytes)
        .map_err(|error| refuse(StatusCode::BAD_REQUEST, format!("{subject}: the body is no JSON: {error}")))
}

/// Runs work that must not stop halfway when its caller hangs up.
async fn unbroken<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> Result<T, Response> {
    tokio::spawn(work).await.map_err(|error| {
        tracing::error!("a request broke: {error}");
        refuse(StatusCode::INTERNAL_SERVER_ERROR, "the Harness broke while it worked on this request")
    })
}

async fn metrics() -> impl IntoResponse {
    ([(CONTENT_TYPE, jr2_telemetry::metrics::CONTENT_TYPE)], telemetry::text())
}

async fn admission(
    State(app): State<Arc<App>>,
    Path((name, id)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Response> {
    let body = read_json(body, &name).await?;
    let mut seating: Seating =
        admit::read(&app, &name, &id, &body).map_err(|refused| refuse(refused.status, refused.words))?;
    let parent = headers.get(context::HEADER).and_then(|value| value.to_str().ok());
    seating.job.trace = parent.and_then(TraceParent::parse);
    let hall: Arc<Hall> = Arc::clone(&app.hall);
    let admitted = unbroken(async move { hall.admit(seating).await }).await?.map_err(hall_error)?;
    crash::point(Point::AdmissionSeated);
    let host = headers.get(HOST).and_then(|value| value.to_str().ok()).filter(|host| !host.is_empty());
    let answer = AdmitAnswer {
        stream_url: format!(
            "http://{}/agents/{}/{}",
            host.unwrap_or("localhost"),
            utf8_percent_encode(&name, SEGMENT),
            utf8_percent_encode(&id, SEGMENT)
        ),
        offset: admitted.offset.to_string(),
        submission_id: admitted.submission,
        carried: admitted.carried,
    };
    Ok(Json(answer).into_response())
}

fn hall_error(error: HallError) -> Response {
    match error {
        HallError::NotHeld => {
            let body = ErrorBody { error: error.to_string(), kept: Some(false) };
            (StatusCode::NOT_FOUND, Json(body)).into_response()
        }
        HallError::Full => refuse(StatusCode::TOO_MANY_REQUESTS, error.to_string()),
        HallError::Draining => gate::draining(),
        HallError::AbortUnderWay => refuse(StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
    }
}

/// Query of the two views. Unknown keys are ignored.
#[derive(Debug, Default, Deserialize)]
struct StreamQuery {
    offset: Option<String>,
    view: Option<String>,
    live: Option<String>,
}

async fn stream(
    State(app): State<Arc<App>>,
    Path((name, id)): Path<(String, String)>,
    Query(query): Query<StreamQuery>,
) -> Response {
    let Some(conversation) = app.hall.find(&name, &id) else {
        return refuse(StatusCode::NOT_FOUND, "no such conversation");
    };
    match query.view.as_deref() {
        Some("history") => Json(conversation.history()).into_response(),
        None | Some("updates") => {
            // An offset nobody gave out reads from the start (spec H-9).
            let offset = query.offset.and_then(|text| text.parse().ok()).unwrap_or(0);
            let page = if query.live.as_deref() == Some("long-poll") {
                poll(&app, &conversation, offset).await
            } else {
                conversation.page(offset)
            };
            answer_page(page, query.live.is_some())
        }
        Some(_) => refuse(StatusCode::BAD_REQUEST, "view is `updates` or `history`"),
    }
}

/// Waits for something to say, at most the poll's hold, and not past the drain.
async fn poll(app: &App, conversation: &Conversation, offset: u64) -> Page {
    let (mut durable, mut closing) = (conversation.watch(), app.closing.subscribe());
    let deadline = tokio::time::sleep(Duration::from_secs(LONG_POLL_SECS));
    tokio::pin!(deadline);
    loop {
        durable.borrow_and_update();
        let page = conversation.page(offset);
        if !page.events.is_empty() || mutation::is(Mutation::PollNeverWaits) {
            return page;
        }
        tokio::select! {
            changed = durable.changed() => if changed.is_err() { return page },
            () = &mut deadline => return page,
            Ok(_) = closing.wait_for(|closing| *closing) => return conversation.page(offset),
        }
    }
}

fn answer_page(page: Page, live: bool) -> Response {
    let mut headers = HeaderMap::new();
    headers.insert(HeaderName::from_static(HEADER_NEXT_OFFSET), HeaderValue::from(page.next));
    let up_to_date = HeaderValue::from_static(if page.up_to_date { "true" } else { "false" });
    headers.insert(HeaderName::from_static(HEADER_UP_TO_DATE), up_to_date);
    if live && page.events.is_empty() {
        return (StatusCode::NO_CONTENT, headers).into_response();
    }
    (headers, Json(page.events)).into_response()
}

async fn abort(
    State(app): State<Arc<App>>,
    Path((name, id)): Path<(String, String)>,
    body: Body,
) -> Result<Response, Response> {
    let bytes = read_body(body).await?;
    let request = if bytes.trim_ascii().is_empty() {
        AbortRequest::default()
    } else {
        serde_json::from_slice(&bytes)
            .map_err(|error| refuse(StatusCode::BAD_REQUEST, format!("{name}: bad abort: {error}")))?
    };
    let hall = Arc::clone(&app.hall);
    let aborted = unbroken(async move { hall.abort(&name, &id, request.up_to).await }).await?.map_err(hall_error)?;
    crash::point(Point::AbortSettled);
    Ok(Json(AbortAnswer {
        aborted: aborted.ended && !mutation::is(Mutation::AbortFalse),
        unprompted: aborted.unprompted,
    })
    .into_response())
}

async fn retain(State(app): State<Arc<App>>, body: Body) -> Result<Response, Response> {
    // The whole body is parsed before anything is freed (spec 6.2).
    let live: LiveSet = serde_json::from_value(read_json(body, "live set").await?)
        .map_err(|error| refuse(StatusCode::BAD_REQUEST, format!("bad live set: {error}")))?;
    let live = live.live.into_iter().map(|one| (one.agent, one.instance_id)).collect();
    let hall = Arc::clone(&app.hall);
    let freed = unbroken(async move { hall.retain(&live).await }).await?;
    Ok(Json(Freed { freed }).into_response())
}

async fn memory_kills(State(app): State<Arc<App>>) -> Response {
    Json(app.means.keeper.list().await).into_response()
}

async fn echo(State(app): State<Arc<App>>, body: Body) -> Result<Response, Response> {
    let body = read_json(body, "echo").await?;
    let Some(events) = body.get("events").and_then(Value::as_array) else {
        return Err(refuse(StatusCode::BAD_REQUEST, "echo: `events` must be a list"));
    };
    for event in events {
        let text = event.as_str().map_or_else(|| event.to_string(), str::to_owned);
        app.means.printer.print(&format!("[run] {}", cut(&text, ECHO_MAX_CHARS)));
    }
    Ok(Json(json!({ "printed": events.len() })).into_response())
}
