//! Routes that only the tests have: feature `test-hooks`, which no release build turns on.

use super::{App, refuse};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use jr2_shared::size::parse_memory;
use serde::Deserialize;
use std::sync::Arc;

/// `POST /test/memory-kill`: sizes as a Size is written.
#[derive(Debug, Deserialize)]
struct Order {
    peak: String,
    limit: String,
}

/// Adds the routes.
pub fn add(router: Router<Arc<App>>) -> Router<Arc<App>> {
    router.route("/test/memory-kill", post(memory_kill))
}

/// Makes a kill as the real guard would, and answers it when it is kept and on the streams.
async fn memory_kill(State(app): State<Arc<App>>, Json(order): Json<Order>) -> Response {
    let (Ok(peak), Ok(limit)) = (parse_memory(&order.peak), parse_memory(&order.limit)) else {
        return refuse(StatusCode::BAD_REQUEST, "peak and limit are sizes");
    };
    let Some(injector) = &app.injector else { return refuse(StatusCode::CONFLICT, "no memory guard runs here") };
    match injector.kill(peak, limit).await {
        Some(kill) => Json(kill.kept()).into_response(),
        None => refuse(StatusCode::INTERNAL_SERVER_ERROR, "the memory guard is gone"),
    }
}
