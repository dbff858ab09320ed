//! The Harness wire, server side (spec section 6): auth before routing, routes, the listener, the drain.

pub mod admit;
mod gate;
#[cfg(feature = "test-hooks")]
mod hooks;
mod listen;
mod routes;

pub use listen::serve;

use crate::config::Settings;
use crate::conversation::Hall;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use jr2_shared::harness::ErrorBody;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tokio::sync::watch;

/// What the routes work with.
pub struct App {
    /// What the environment said.
    pub settings: Settings,
    /// The conversations.
    pub hall: Arc<Hall>,
    /// Prints echoed events.
    pub means: Arc<crate::turn::Means>,
    /// Highest owner epoch seen (decision 4).
    pub epoch: AtomicU64,
    /// Which meter the memory guard has.
    pub guard: &'static str,
    /// Makes memory kills for tests; none on the Instance Harness.
    #[cfg(feature = "test-hooks")]
    pub injector: Option<crate::guard::injected::Injector>,
    /// Turns true when parked polls must flush.
    pub closing: watch::Sender<bool>,
}

/// An error answer: `{"error": …}`.
fn refuse(status: StatusCode, error: impl Into<String>) -> Response {
    (status, axum::Json(ErrorBody { error: error.into(), kept: None })).into_response()
}
