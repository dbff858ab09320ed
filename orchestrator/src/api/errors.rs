//! Refusals as JSON: `{"error": …}` and what helps.

use crate::run::HostError;
use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// A refusal with one sentence.
pub fn json(status: StatusCode, error: &str) -> Response {
    (status, Json(json!({ "error": error }))).into_response()
}

/// Unknown path.
pub async fn not_found() -> Response {
    json(StatusCode::NOT_FOUND, "no such route; GET /openapi.json lists them")
}

/// Known path, other method.
pub async fn method_not_allowed() -> Response {
    json(StatusCode::METHOD_NOT_ALLOWED, "this route does not take that method")
}

/// What a handler answers with.
pub struct Refused(pub HostError);

impl From<HostError> for Refused {
    fn from(error: HostError) -> Self {
        Self(error)
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let (status, body): (StatusCode, Value) = match &self.0 {
            HostError::NotFound(error) => (StatusCode::NOT_FOUND, json!({ "error": error })),
            HostError::Invalid { message, problems } => {
                (StatusCode::BAD_REQUEST, json!({ "error": message, "problems": problems }))
            }
            HostError::Ambiguous { hits, .. } => {
                (StatusCode::BAD_REQUEST, json!({ "error": self.0.to_string(), "runs": hits }))
            }
            HostError::KeyTaken(error) => (StatusCode::UNPROCESSABLE_ENTITY, json!({ "error": error })),
            HostError::Forbidden(error) => (StatusCode::FORBIDDEN, json!({ "error": error })),
            HostError::Full(error) => (StatusCode::INSUFFICIENT_STORAGE, json!({ "error": error })),
            HostError::Stopping => (StatusCode::SERVICE_UNAVAILABLE, json!({ "error": self.0.to_string() })),
            HostError::Store(error) => (StatusCode::INTERNAL_SERVER_ERROR, json!({ "error": error.to_string() })),
        };
        (status, Json(body)).into_response()
    }
}

/// Longest plain-text refusal of an extractor in bytes.
const REFUSAL_MAX_BYTES: usize = 16 << 10;

/// Extractors refuse odd paths and queries in plain text; here every refusal is JSON.
pub async fn as_json(response: Response) -> Response {
    let status = response.status();
    let plain = response.headers().get(header::CONTENT_TYPE).is_some_and(|t| t.as_bytes().starts_with(b"text/plain"));
    if !status.is_client_error() || !plain {
        return response;
    }
    let (parts, body) = response.into_parts();
    let text = axum::body::to_bytes(body, REFUSAL_MAX_BYTES).await.unwrap_or_default();
    let mut refused = json(status, &String::from_utf8_lossy(&text));
    for (name, value) in parts.headers.iter().filter(|(n, _)| *n == header::CONNECTION || *n == header::ALLOW) {
        refused.headers_mut().insert(name.clone(), value.clone());
    }
    refused
}

/// Body extractor whose refusal is JSON too.
pub struct Body(pub Value);

impl<S: Send + Sync> axum::extract::FromRequest<S> for Body {
    type Rejection = Response;

    async fn from_request(request: axum::extract::Request, state: &S) -> Result<Self, Response> {
        let bytes = axum::body::Bytes::from_request(request, state).await.map_err(|rejection| {
            let mut refused = json(rejection.status(), &rejection.body_text());
            // The rest of the body is not read, so the connection is of no more use: the client must hear that.
            refused.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            refused
        })?;
        if bytes.is_empty() {
            return Ok(Self(json!({})));
        }
        serde_json::from_slice(&bytes)
            .map(Self)
            .map_err(|e| json(StatusCode::BAD_REQUEST, &format!("the body is not JSON: {e}")))
    }
}
