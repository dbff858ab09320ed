//! An Agent's surface and picks (spec 7.2), for the Instance token and on each Sandbox's own socket.

use super::auth::Caller;
use super::errors::{self, Body, Refused};
use super::{Api, BODY_MAX_BYTES};
use crate::run::{Host, HostError};
use axum::Extension;
use axum::Json;
use axum::Router;
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use jr2_shared::surface::{PickAnswer, Surface};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// Header that carries a pick's id (decision 34).
const PICK_ID_HEADER: &str = "x-jr2-pick-id";

/// The routes for tokens: the Instance's, or a Sandbox's for its own conversations.
pub fn routes() -> Router<Api> {
    Router::new()
        .route("/agents/{iid}/surface", get(surface_by_token))
        .route("/agents/{iid}/events", post(pick_by_token))
        .route("/agents/{iid}/events/{delivery}", get(delivery_by_token))
}

/// The routes of one Sandbox's socket.
pub fn control(host: Host, sandbox: &str) -> Router {
    let seat = Seat { host, sandbox: sandbox.into() };
    Router::new()
        .route("/agents/{iid}/surface", get(surface_by_seat))
        .route("/agents/{iid}/events", post(pick_by_seat))
        .route("/agents/{iid}/events/{delivery}", get(delivery_by_seat))
        .fallback(errors::not_found)
        .method_not_allowed_fallback(errors::method_not_allowed)
        .layer(DefaultBodyLimit::max(BODY_MAX_BYTES))
        .with_state(seat)
}

#[derive(Clone)]
struct Seat {
    host: Host,
    sandbox: Arc<str>,
}

async fn surface_by_token(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(iid): Path<String>,
    headers: HeaderMap,
) -> Response {
    surface(&api.host, &iid, caller.0.as_deref(), &headers).await
}

async fn surface_by_seat(State(seat): State<Seat>, Path(iid): Path<String>, headers: HeaderMap) -> Response {
    surface(&seat.host, &iid, Some(&seat.sandbox), &headers).await
}

async fn surface(host: &Host, iid: &str, caller: Option<&str>, headers: &HeaderMap) -> Response {
    // A Submission's first read is the one that asks for no change (decision 21); a person who looks is none.
    let first = caller.is_some() && !headers.contains_key(header::IF_NONE_MATCH);
    let surface = match host.surface(iid, caller, first).await {
        Ok(surface) => surface,
        Err(error) => return Refused(error).into_response(),
    };
    let etag = etag(&surface);
    let same = headers.get(header::IF_NONE_MATCH).and_then(|v| v.to_str().ok()) == Some(etag.as_str());
    if same {
        return (StatusCode::NOT_MODIFIED, [(header::ETAG, etag)]).into_response();
    }
    ([(header::ETAG, etag)], Json(surface)).into_response()
}

/// Over Menu and Allowed picks (decision 21).
fn etag(surface: &Surface) -> String {
    let text = serde_json::to_vec(&(&surface.menu, &surface.allowed)).unwrap_or_default();
    format!("\"{}\"", jr2_shared::ids::hex(&Sha256::digest(&text)[..12]))
}

async fn pick_by_token(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(iid): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    pick(&api.host, &iid, caller.0.as_deref(), &headers, body.0).await
}

async fn pick_by_seat(State(seat): State<Seat>, Path(iid): Path<String>, headers: HeaderMap, body: Body) -> Response {
    pick(&seat.host, &iid, Some(&seat.sandbox), &headers, body.0).await
}

async fn pick(host: &Host, iid: &str, caller: Option<&str>, headers: &HeaderMap, mut body: Value) -> Response {
    let named = headers.get(PICK_ID_HEADER).and_then(|v| v.to_str().ok()).map(str::to_owned);
    let in_body = body.as_object_mut().and_then(|o| o.remove("pickId"));
    let pick = named.or_else(|| in_body.and_then(|v| v.as_str().map(str::to_owned)));
    match host.pick(iid, caller, body, pick).await {
        Ok(Ok(answer)) => Json(answer).into_response(),
        Ok(Err(refusal)) => {
            let status = StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::BAD_REQUEST);
            let mut body = json!({ "error": refusal.error });
            if let Some(allowed) = refusal.allowed {
                body["allowed"] = json!(allowed);
            }
            (status, Json(body)).into_response()
        }
        Err(error) => Refused(error).into_response(),
    }
}

async fn delivery_by_token(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path((iid, delivery)): Path<(String, String)>,
) -> Response {
    read_delivery(&api.host, &iid, caller.0.as_deref(), &delivery).await
}

async fn delivery_by_seat(State(seat): State<Seat>, Path((iid, delivery)): Path<(String, String)>) -> Response {
    read_delivery(&seat.host, &iid, Some(&seat.sandbox), &delivery).await
}

/// A long poll; re-reading a delivery is idempotent (decision 13).
async fn read_delivery(host: &Host, iid: &str, caller: Option<&str>, delivery: &str) -> Response {
    answered(host.delivery(iid, caller, delivery).await)
}

fn answered(answer: Result<Option<PickAnswer>, HostError>) -> Response {
    match answer {
        Ok(Some(answer)) => Json(answer).into_response(),
        Ok(None) => StatusCode::NO_CONTENT.into_response(),
        Err(error) => Refused(error).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_31_what_is_outstanding_is_204() {
        assert_eq!(answered(Ok(None)).status(), StatusCode::NO_CONTENT);
        assert_eq!(answered(Err(HostError::Stopping)).status(), StatusCode::SERVICE_UNAVAILABLE);
    }
}
