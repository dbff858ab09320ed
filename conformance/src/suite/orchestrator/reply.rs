//! What the far side of a control route says, faults included.

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use jr2_shared::harness::HEADER_CUSTODIAN;
use serde_json::{Value, json};
use std::time::Duration;

/// An answer of a control route.
#[derive(Clone, Debug)]
pub enum Reply {
    /// A status and its JSON.
    Json(u16, Value),
    /// A status and a text that is no JSON.
    Text(u16, &'static str),
    /// A status alone.
    Empty(u16),
    /// The Custodian's own 502: it could not reach the Orchestrator (spec P-11).
    Unreachable(&'static str),
    /// The answer breaks off in its middle.
    Half,
    /// A while later.
    Slow(Duration, Box<Reply>),
}

impl Reply {
    /// A refusal `{"error": …}`.
    pub fn error(status: u16, words: &str) -> Self {
        Self::Json(status, json!({ "error": words }))
    }

    /// How a journal names it.
    pub fn name(&self) -> String {
        match self {
            Self::Json(status, value) => format!("{status} {value}"),
            Self::Text(status, text) => format!("{status} {text:?}"),
            Self::Empty(status) => status.to_string(),
            Self::Unreachable(words) => format!("502 by the Custodian: {words}"),
            Self::Half => "half an answer".to_owned(),
            Self::Slow(wait, reply) => format!("after {wait:?}: {}", reply.name()),
        }
    }

    /// Says it, with these headers beside its own.
    pub async fn say(self, headers: HeaderMap) -> Response {
        let mut reply = self;
        while let Self::Slow(wait, next) = reply {
            tokio::time::sleep(wait).await;
            reply = *next;
        }
        let mut response = match reply {
            Self::Json(status, value) => (code(status), axum::Json(value)).into_response(),
            Self::Text(status, text) => (code(status), text).into_response(),
            Self::Empty(status) => code(status).into_response(),
            Self::Unreachable(words) => {
                let mut response = (StatusCode::BAD_GATEWAY, axum::Json(json!({ "error": words }))).into_response();
                response.headers_mut().insert(HEADER_CUSTODIAN, HeaderValue::from_static("unreachable"));
                response
            }
            Self::Half | Self::Slow(..) => half(),
        };
        response.headers_mut().extend(headers);
        response
    }
}

fn code(status: u16) -> StatusCode {
    StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// A body that promises more than it has, and a connection that closes.
fn half() -> Response {
    let pieces = [Ok(Bytes::from_static(b"{\"deli")), Err(std::io::Error::other("half an answer, as told"))];
    let body = Body::from_stream(futures_util::stream::iter(pieces));
    ([("content-type", "application/json"), ("content-length", "4096")], body).into_response()
}
