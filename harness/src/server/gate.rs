//! What every request passes before it is routed: the drain, the bearer, the owner epoch (spec H-1 to H-3, decision 4).

use super::{App, refuse};
use crate::mutation::{self, Mutation};
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONNECTION};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use jr2_shared::harness::{HEADER_OWNER_EPOCH, token_digest};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Lets a request through, or answers it.
pub async fn pass(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    if request.uri().path() == "/healthz" && request.method() == Method::GET {
        return next.run(request).await;
    }
    let open = mutation::is(Mutation::OpenKillList) && request.uri().path() == "/memory-kills";
    if !is_known(&app, &request) && !open {
        if mutation::is(Mutation::UnknownWithoutBearer) {
            return refuse(StatusCode::NOT_FOUND, "no such route");
        }
        return refuse(StatusCode::UNAUTHORIZED, "unauthorized");
    }
    if app.hall.is_draining() {
        return draining();
    }
    match epoch(&app, &request) {
        Ok(()) => next.run(request).await,
        Err(answer) => answer,
    }
}

/// 503 with `connection: close` (spec H-3).
pub fn draining() -> Response {
    let status = if mutation::is(Mutation::DrainAnswersOk) { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut answer = refuse(status, "the Harness is draining");
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}

fn is_known(app: &App, request: &Request) -> bool {
    let bearer = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = bearer.and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
    });
    // Digests are compared, so the time it takes tells nothing about the bearer.
    token.is_some_and(|token| token_digest(token) == app.settings.token_digest)
}

fn epoch(app: &App, request: &Request) -> Result<(), Response> {
    let Some(value) = request.headers().get(HEADER_OWNER_EPOCH) else { return Ok(()) };
    let Some(epoch) = value.to_str().ok().and_then(|text| text.parse::<u64>().ok()) else {
        return Err(refuse(StatusCode::BAD_REQUEST, format!("{HEADER_OWNER_EPOCH} is not a number")));
    };
    let seen = app.epoch.fetch_max(epoch, Ordering::SeqCst);
    if epoch < seen {
        let words = format!("owner epoch {epoch} is over: this Harness has seen {seen}");
        return Err(refuse(StatusCode::CONFLICT, words));
    }
    Ok(())
}
