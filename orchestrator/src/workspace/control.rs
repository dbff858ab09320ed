//! The local Custodian: one Unix socket a Sandbox with the control routes and the providers (decision 15).
//!
//! Two locks: the connecting process must be the Sandbox's Harness itself, and a control route needs the Sandbox token.
//! So a process of the Agent that finds the socket has no voice.

use super::providers::Providers;
use crate::api::listen::{self, HEAD_LIMIT, Seat};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json, Router};
use jr2_shared::harness::{ErrorBody, token_digest};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;

/// How long a socket that somebody still listens on is waited for: an Orchestrator that is just letting go needs moments.
const BUSY_LIMIT: Duration = Duration::from_secs(2);
/// Pause between two tries.
const BUSY_POLL: Duration = Duration::from_millis(10);
/// Longest time a connection of the Harness may rest, or take for a request's head: longer than its own pool keeps one.
const HARNESS_HEAD_LIMIT: Duration = Duration::from_mins(2);
/// Where providers are.
const PROVIDERS_PREFIX: &str = "/providers/";

/// Who may speak on a Custodian's socket.
#[derive(Clone)]
pub struct Voice {
    token_digest: Arc<str>,
    /// The Harness's pid; 0 while none runs, and then nobody may speak.
    pub pid: Arc<AtomicI32>,
}

impl Voice {
    /// The bearer of this Sandbox token, from the process whose pid is stored later.
    pub fn new(sandbox_token: &str) -> Self {
        Self { token_digest: token_digest(sandbox_token).into(), pid: Arc::default() }
    }

    /// The process is the Sandbox's Harness.
    fn is(&self, peer: Peer) -> bool {
        let harness = self.pid.load(Ordering::Acquire);
        harness != 0 && peer.pid == Some(harness)
    }
}

/// A socket that is served; dropping it lets go of the socket and ends idle connections.
pub struct Custodian {
    _stop: watch::Sender<()>,
}

/// Binds a socket, replacing a file that nobody listens on.
pub async fn bind(path: &Path) -> std::io::Result<UnixListener> {
    let deadline = Instant::now() + BUSY_LIMIT;
    while UnixStream::connect(path).await.is_ok() {
        if Instant::now() > deadline {
            return Err(std::io::Error::new(std::io::ErrorKind::AddrInUse, "another process listens on it"));
        }
        tokio::time::sleep(BUSY_POLL).await;
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Serves a Sandbox's Custodian: the given control routes behind the token, and the providers.
pub fn serve(
    listener: UnixListener,
    voice: Voice,
    control: Router,
    providers: &Arc<Providers>,
    sandbox: &str,
) -> Custodian {
    let (stop, mut stopped) = watch::channel(());
    let app = control.merge(providers.router(sandbox));
    let app = app.layer(axum::middleware::from_fn_with_state(voice.clone(), admit));
    let seat = move |stream: &UnixStream| {
        let peer = Peer { pid: stream.peer_cred().ok().and_then(|c| c.pid()) };
        // The Harness's connections rest between two model calls; nobody else's have a reason to.
        let head_limit = if voice.is(peer) { HARNESS_HEAD_LIMIT } else { HEAD_LIMIT };
        Seat { router: app.clone().layer(Extension(peer)), head_limit }
    };
    let until = async move {
        // The sender never sends: this ends when it is dropped.
        while stopped.changed().await.is_ok() {}
    };
    tokio::spawn(listen::serve(listener, seat, until));
    Custodian { _stop: stop }
}

/// The process at the other end.
#[derive(Clone, Copy, Debug)]
struct Peer {
    pid: Option<i32>,
}

async fn admit(State(voice): State<Voice>, Extension(peer): Extension<Peer>, request: Request, next: Next) -> Response {
    if !voice.is(peer) {
        tracing::warn!(peer = peer.pid, "custodian.refused_process");
        return refuse(StatusCode::FORBIDDEN, "jr2 custodian: only this Sandbox's Harness may speak here");
    }
    if !request.uri().path().starts_with(PROVIDERS_PREFIX) {
        let bearer =
            request.headers().get(header::AUTHORIZATION).and_then(|v| v.to_str().ok()?.strip_prefix("Bearer "));
        // Digests are compared, so the time it takes says nothing about the token.
        if bearer.map(token_digest).as_deref() != Some(&*voice.token_digest) {
            return refuse(StatusCode::FORBIDDEN, "jr2 custodian: orchestrator needs the Sandbox token");
        }
    }
    next.run(request).await
}

fn refuse(status: StatusCode, error: &str) -> Response {
    (status, Json(ErrorBody { error: error.to_owned(), kept: None })).into_response()
}
