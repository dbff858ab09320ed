//! Bands (spec 12.1): open, authenticated, instance token only.

use super::{Api, errors};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use jr2_shared::harness::token_digest;

/// The Instance token, kept as a digest: it is compared, never shown.
#[derive(Clone, Debug)]
pub struct InstanceToken {
    digest: String,
}

impl InstanceToken {
    /// Of this token.
    pub fn new(token: &str) -> Self {
        Self { digest: token_digest(token) }
    }

    /// Equal digests: the comparison's timing says nothing about the token.
    pub fn admits(&self, headers: &HeaderMap) -> bool {
        let bearer = headers.get(header::AUTHORIZATION).and_then(|v| v.to_str().ok());
        bearer.and_then(|v| v.strip_prefix("Bearer ")).is_some_and(|token| token_digest(token) == self.digest)
    }
}

/// Who asks: a Sandbox by its token, or (`None`) whoever holds the Instance token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller(pub Option<String>);

/// Lets the Instance token and Sandbox tokens through and says which it was.
pub async fn authenticated(State(api): State<Api>, mut request: Request, next: Next) -> Response {
    let caller = if api.token.admits(request.headers()) {
        Caller(None)
    } else {
        let bearer = request.headers().get(header::AUTHORIZATION).and_then(|v| v.to_str().ok());
        let token = bearer.and_then(|v| v.strip_prefix("Bearer "));
        match token.and_then(|token| api.host.sandbox_of(token)) {
            Some(sandbox) => Caller(Some(sandbox)),
            None => return errors::json(StatusCode::UNAUTHORIZED, "this route needs a token as bearer"),
        }
    };
    request.extensions_mut().insert(caller);
    next.run(request).await
}

/// Lets only the Instance token through.
pub async fn instance_only(State(api): State<Api>, request: Request, next: Next) -> Response {
    if !api.token.admits(request.headers()) {
        return errors::json(StatusCode::UNAUTHORIZED, "this route needs the Instance token as bearer");
    }
    next.run(request).await
}
