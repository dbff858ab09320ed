//! HTTP routes, auth bands, feeds (spec 12). The routes decide nothing: they ask the run host.

mod agents;
mod auth;
mod errors;
mod feeds;
pub mod listen;
mod openapi;
mod runs;
mod workflows;

pub use auth::InstanceToken;
pub use openapi::document;

use crate::run::Host;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use std::sync::Arc;

/// Largest request body in bytes: an input or a payload, never a repository.
pub const BODY_MAX_BYTES: usize = 1 << 20;
/// Largest body of `POST /runs` in bytes: the largest program text the store takes, and an input beside it.
pub const PROGRAM_BODY_MAX_BYTES: usize = crate::store::TEXT_MAX_BYTES + BODY_MAX_BYTES;

/// What the routes share.
#[derive(Clone)]
pub struct Api {
    /// The run host.
    pub host: Host,
    /// Who may do everything.
    pub token: Arc<InstanceToken>,
    /// Says itself on `/healthz`: a digest of what is deployed.
    pub hash: Arc<str>,
}

/// Every route of the Orchestrator (spec 12.2).
pub fn router(api: Api) -> Router {
    let open = Router::new()
        .route("/healthz", get(workflows::healthz))
        .route("/readyz", get(workflows::readyz))
        .route("/metrics", get(workflows::metrics))
        .route("/openapi.json", get(openapi::serve))
        .route("/workflows", get(workflows::list))
        .route("/workflows/{name}", get(workflows::one))
        .route("/workflows/{name}/machine", get(workflows::machine))
        .route("/workflows/{name}/runs", get(runs::list_of_workflow))
        .route("/workflows/{name}/events", get(feeds::workflow_feed))
        .route("/workflows/{name}/runs/{run}/events", get(feeds::open_run_feed));
    let guarded = Router::new()
        .route("/workflows/{name}/runs", post(runs::start))
        .route("/runs", get(runs::list).post(runs::start_program).layer(DefaultBodyLimit::max(PROGRAM_BODY_MAX_BYTES)))
        .route("/runs/resolve", get(runs::resolve))
        .route("/runs/{run}", get(runs::status))
        .route("/runs/{run}/events", get(feeds::run_feed).post(runs::send))
        .route("/runs/{run}/history", get(runs::history))
        .route("/runs/{run}/isolation", get(runs::isolation))
        .route("/runs/{run}/replay", get(runs::replay))
        .route("/runs/{run}/adopt", post(runs::adopt))
        .route("/repos", get(runs::repos))
        .route_layer(axum::middleware::from_fn_with_state(api.clone(), auth::instance_only));
    let authenticated = Router::new()
        .route("/runs/{run}/gates/{gate}/events", post(runs::answer_gate))
        .route("/sandboxes/{name}/fetch", post(runs::fetch))
        .merge(agents::routes())
        .route_layer(axum::middleware::from_fn_with_state(api.clone(), auth::authenticated));
    open.merge(guarded)
        .merge(authenticated)
        .fallback(errors::not_found)
        .method_not_allowed_fallback(errors::method_not_allowed)
        .layer(DefaultBodyLimit::max(BODY_MAX_BYTES))
        .layer(axum::middleware::map_response(errors::as_json))
        .with_state(api)
}

/// The control routes of one Sandbox's socket: its surface and its picks, nothing else (decisions 13 and 15).
pub fn control_router(host: Host, sandbox: &str) -> Router {
    agents::control(host, sandbox)
}
