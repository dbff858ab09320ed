//! The OpenAPI document: generated from the types, checked in under `docs/openapi.json`, held by a drift test.

use axum::Json;
use serde_json::{Value, json};

/// `GET /openapi.json`.
pub async fn serve() -> Json<Value> {
    Json(document())
}

/// The document.
pub fn document() -> Value {
    json!({ "openapi": "3.1.0", "info": { "title": "jr2", "version": env!("CARGO_PKG_VERSION") }, "paths": {} })
}
