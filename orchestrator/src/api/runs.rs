//! Runs: start, list, status, answers, history. Instance token only, but for the open list of a workflow.

use super::auth::Caller;
use super::errors::{Body, Refused};
use super::{Api, errors, workflows};
use crate::run::StoredAnswer;
use crate::workflow::Program;
use axum::Extension;
use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// Longest idempotency key in characters.
const KEY_MAX_CHARS: usize = 256;
/// Most history entries of one answer.
const HISTORY_PAGE_MAX: usize = 1_000;

/// The `Idempotency-Key` of a request.
fn key(headers: &HeaderMap) -> Result<Option<String>, Refused> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    match value.to_str() {
        Ok(text) if !text.is_empty() && text.len() <= KEY_MAX_CHARS => Ok(Some(text.to_owned())),
        _ => Err(Refused(crate::run::HostError::Invalid {
            message: format!("an Idempotency-Key is 1 to {KEY_MAX_CHARS} visible ASCII characters"),
            problems: Vec::new(),
        })),
    }
}

/// `POST /workflows/:name/runs`: the body is the input.
pub async fn start(
    State(api): State<Api>,
    Path(name): Path<String>,
    headers: HeaderMap,
    Body(input): Body,
) -> Result<Response, Refused> {
    let key = key(&headers)?;
    let run = api.host.start(&name, input, key.as_deref()).await?;
    let body = json!({ "runId": run.as_str(), "instanceId": run.as_str() });
    Ok((StatusCode::CREATED, Json(body)).into_response())
}

/// A program that need not be deployed, and its input.
#[derive(Deserialize)]
pub struct StartProgram {
    /// The canonical text with everything bound (decision 40).
    program: String,
    #[serde(default)]
    input: Value,
}

/// `POST /runs`: starts a program whose text comes along, which is what `jr2 run FILE` does.
pub async fn start_program(State(api): State<Api>, headers: HeaderMap, Body(body): Body) -> Result<Response, Refused> {
    let invalid = |message: String, problems| Refused(crate::run::HostError::Invalid { message, problems });
    let start: StartProgram = serde_json::from_value(body)
        .map_err(|e| invalid(format!("the body must be {{program, input}}: {e}"), Vec::new()))?;
    let program = Program::from_canonical(&start.program).map_err(|found| {
        let problems = found.items.iter().map(ToString::to_string).collect();
        invalid("the program does not check".to_owned(), problems)
    })?;
    let key = key(&headers)?;
    let run = api.host.start_program(Arc::new(program), start.input, key.as_deref()).await?;
    let body = json!({ "runId": run.as_str(), "instanceId": run.as_str() });
    Ok((StatusCode::CREATED, Json(body)).into_response())
}

/// `GET /runs`.
pub async fn list(State(api): State<Api>) -> Json<Value> {
    Json(json!({ "runs": api.host.list(None) }))
}

/// `GET /workflows/:name/runs`.
pub async fn list_of_workflow(State(api): State<Api>, Path(name): Path<String>) -> Response {
    if api.host.workflow(&name).is_none() {
        return workflows::unknown(&name);
    }
    Json(json!({ "runs": api.host.list(Some(&name)) })).into_response()
}

/// The asked prefix.
#[derive(Deserialize)]
pub struct ResolveQuery {
    prefix: String,
}

/// `GET /runs/resolve?prefix=`.
pub async fn resolve(State(api): State<Api>, Query(query): Query<ResolveQuery>) -> Result<Json<Value>, Refused> {
    if query.prefix.len() < jr2_shared::ids::RUN_PREFIX_MIN {
        api.host.resolve(&query.prefix)?; // says what is wrong with it
    }
    let (runs, truncated) = api.host.resolve_prefix(&query.prefix);
    Ok(Json(json!({ "runs": runs, "truncated": truncated })))
}

/// `GET /runs/:id`.
pub async fn status(State(api): State<Api>, Path(run): Path<String>) -> Result<Response, Refused> {
    let run = api.host.resolve(&run)?;
    Ok(Json(api.host.status(&run).await?).into_response())
}

/// `GET /runs/:id/isolation`: what stands between its Agents' commands and the machine.
pub async fn isolation(State(api): State<Api>, Path(run): Path<String>) -> Result<Response, Refused> {
    let run = api.host.resolve(&run)?;
    Ok(Json(json!({ "sandboxes": api.host.isolation(&run).await })).into_response())
}

/// `POST /runs/:id/events`: `CANCEL` or an outside event.
pub async fn send(
    State(api): State<Api>,
    Path(run): Path<String>,
    headers: HeaderMap,
    Body(body): Body,
) -> Result<Response, Refused> {
    let run = api.host.resolve(&run)?;
    Ok(answer(api.host.send_event(&run, body, key(&headers)?).await?))
}

/// The activation an answer is meant for.
#[derive(Deserialize)]
pub struct GateQuery {
    activation: Option<String>,
}

/// `POST /runs/:id/gates/:gate/events[?activation=]`: never for a Sandbox (spec 12.2).
pub async fn answer_gate(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path((run, gate)): Path<(String, String)>,
    Query(query): Query<GateQuery>,
    headers: HeaderMap,
    Body(body): Body,
) -> Result<Response, Refused> {
    if caller.0.is_some() {
        return Ok(errors::json(StatusCode::FORBIDDEN, "a Sandbox answers no Gate"));
    }
    let run = api.host.resolve(&run)?;
    Ok(answer(api.host.send_gate(&run, &gate, body, query.activation, key(&headers)?).await?))
}

fn answer(stored: StoredAnswer) -> Response {
    let status = StatusCode::from_u16(stored.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, Json(stored.body)).into_response()
}

/// Which saves are asked for.
#[derive(Deserialize)]
pub struct HistoryQuery {
    from: Option<u64>,
}

/// `GET /runs/:id/history?from=`.
pub async fn history(
    State(api): State<Api>,
    Path(run): Path<String>,
    Query(query): Query<HistoryQuery>,
) -> Result<Response, Refused> {
    let run = api.host.resolve(&run)?;
    let durable = api.host.status(&run).await?.rev;
    let mut entries = api.host.history(&run, query.from.unwrap_or(0), HISTORY_PAGE_MAX)?;
    entries.retain(|e| e.rev <= durable);
    Ok(Json(json!({ "runId": run.as_str(), "entries": entries })).into_response())
}

/// `GET /runs/:id/replay`.
pub async fn replay(State(api): State<Api>, Path(run): Path<String>) -> Result<Response, Refused> {
    let run = api.host.resolve(&run)?;
    api.host.status(&run).await?;
    Ok(Json(api.host.replay(&run)?).into_response())
}

/// `POST /runs/:id/adopt`.
pub async fn adopt(State(api): State<Api>, Path(run): Path<String>) -> Result<Response, Refused> {
    let run = api.host.resolve(&run)?;
    api.host.adopt(&run).await?;
    Ok(Json(json!({ "ok": true })).into_response())
}

/// `GET /repos`: repositories of live runs.
pub async fn repos(State(api): State<Api>) -> Result<Response, Refused> {
    Ok(Json(json!({ "repos": api.host.repos()? })).into_response())
}

/// `POST /sandboxes/:name/fetch` with `{identity}`: a Sandbox token only for its own Sandbox.
pub async fn fetch(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    Body(body): Body,
) -> Result<Response, Refused> {
    if caller.0.as_ref().is_some_and(|own| *own != name) {
        return Ok(errors::json(StatusCode::FORBIDDEN, "this token cannot speak for that Sandbox"));
    }
    let Some(identity) = body.get("identity").and_then(Value::as_str) else {
        return Ok(errors::json(StatusCode::BAD_REQUEST, "the body must have an `identity` that is a string"));
    };
    api.host.fetch(&name, identity).await?;
    Ok(Json(json!({ "ok": true })).into_response())
}
