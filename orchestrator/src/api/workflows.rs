//! Workflows: what may be started and its shape. Open: structure is public, run state is not (spec Q-1).

use super::{Api, errors};
use crate::workflow::graph;
use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};

/// `GET /healthz`.
pub async fn healthz(State(api): State<Api>) -> Json<Value> {
    Json(json!({ "ok": true, "version": env!("CARGO_PKG_VERSION"), "hash": &*api.hash }))
}

/// `GET /readyz`: restored and not stopping.
pub async fn readyz(State(api): State<Api>) -> Response {
    if api.host.is_stopping() {
        return errors::json(StatusCode::SERVICE_UNAVAILABLE, "stopping");
    }
    Json(json!({ "ok": true })).into_response()
}

/// `GET /metrics`: says no more than the open feeds do, and takes no token so that any scraper can read it.
pub async fn metrics() -> impl IntoResponse {
    ([(axum::http::header::CONTENT_TYPE, jr2_telemetry::metrics::CONTENT_TYPE)], crate::telemetry::text())
}

/// `GET /workflows`.
pub async fn list(State(api): State<Api>) -> Json<Value> {
    let programs = api.host.programs();
    let all: Vec<Value> = programs
        .iter()
        .map(|(name, program)| {
            let description = program.workflows.get(&program.root).and_then(|w| w.description.clone());
            json!({ "name": name, "machineId": short(&program.hash), "description": description })
        })
        .collect();
    Json(json!({ "workflows": all }))
}

/// `GET /workflows/:name`.
pub async fn one(State(api): State<Api>, Path(name): Path<String>) -> Response {
    let programs = api.host.programs();
    let Some(program) = programs.get(&name) else { return unknown(&name) };
    let input = program.workflows.get(&program.root).and_then(|w| w.input.clone());
    Json(json!({ "name": name, "machineId": short(&program.hash), "input": input })).into_response()
}

/// Which form of the machine is asked for.
#[derive(Deserialize)]
pub struct MachineQuery {
    format: Option<String>,
}

/// `GET /workflows/:name/machine?format=mermaid|dot`.
pub async fn machine(State(api): State<Api>, Path(name): Path<String>, Query(query): Query<MachineQuery>) -> Response {
    let Some(workflow) = api.host.workflow(&name) else { return unknown(&name) };
    match query.format.as_deref() {
        None | Some("mermaid") => graph::mermaid(&workflow).into_response(),
        Some("dot") => graph::dot(&workflow).into_response(),
        Some(other) => {
            let error = format!("no format \"{}\": ask for mermaid or dot", other.chars().take(64).collect::<String>());
            errors::json(StatusCode::BAD_REQUEST, &error)
        }
    }
}

/// 404 with what there is.
pub fn unknown(name: &str) -> Response {
    let name: String = name.chars().take(128).collect();
    errors::json(StatusCode::NOT_FOUND, &format!("no workflow \"{name}\"; GET /workflows lists them"))
}

/// The first 12 hex of a hash, as machine ids are shown.
fn short(hash: &str) -> String {
    hash.chars().take(12).collect()
}
