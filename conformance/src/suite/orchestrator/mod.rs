//! A fake Orchestrator behind its Custodian: the control routes of spec 7.2, one desk a conversation, faults as told.

mod desk;
mod reply;

pub use desk::{Desk, PickSeen, SurfaceSeen, taken};
pub use reply::Reply;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::JoinHandle;

/// Most requests to unknown routes that are remembered.
const STRAYS_MAX: usize = 64;

/// Where it listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// `host:port`; port 0 takes a free one.
    Tcp(String),
    /// A Unix socket.
    Unix(PathBuf),
}

/// A running fake Orchestrator; it ends when dropped.
#[derive(Debug)]
pub struct Orchestrator {
    state: Arc<Desks>,
    url: String,
    task: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Desks {
    desks: Mutex<HashMap<String, Arc<Desk>>>,
    strays: Mutex<Vec<String>>,
}

impl Orchestrator {
    /// Starts; it listens when this returns.
    pub async fn start(listen: &Listen) -> io::Result<Self> {
        let state = Arc::new(Desks::default());
        let router = Router::new()
            .route("/agents/{iid}/surface", get(surface))
            .route("/agents/{iid}/events", post(pick))
            .route("/agents/{iid}/events/{delivery}", get(delivery))
            .fallback(stray)
            .with_state(Arc::clone(&state));
        let (url, task) = match listen {
            Listen::Tcp(address) => {
                let listener = tokio::net::TcpListener::bind(address).await?;
                let url = format!("http://{}", listener.local_addr()?);
                (url, tokio::spawn(async move { drop(axum::serve(listener, router).await) }))
            }
            Listen::Unix(path) => {
                let listener = tokio::net::UnixListener::bind(path)?;
                let url = format!("unix:{}", path.display());
                (url, tokio::spawn(async move { drop(axum::serve(listener, router).await) }))
            }
        };
        Ok(Self { state, url, task })
    }

    /// What `JR2_CUSTODIAN_URL` must say.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The desk of a conversation; it has no live surface until it is given one.
    pub fn desk(&self, iid: &str) -> Arc<Desk> {
        Arc::clone(lock(&self.state.desks).entry(iid.to_owned()).or_default())
    }

    /// Requests that were for no control route or no conversation, as `METHOD path`.
    pub fn strays(&self) -> Vec<String> {
        lock(&self.state.strays).clone()
    }
}

impl Drop for Orchestrator {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Desks {
    fn find(&self, iid: &str) -> Option<Arc<Desk>> {
        let found = lock(&self.desks).get(iid).cloned();
        if found.is_none() {
            self.note(format!("a control route for \"{iid}\", which is no conversation of this run"));
        }
        found
    }

    fn note(&self, words: String) {
        let mut strays = lock(&self.strays);
        if strays.len() < STRAYS_MAX {
            strays.push(words);
        }
    }
}

async fn surface(State(desks): State<Arc<Desks>>, Path(iid): Path<String>, headers: HeaderMap) -> Response {
    match desks.find(&iid) {
        Some(desk) => desk.surface(&headers).await,
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn pick(State(desks): State<Arc<Desks>>, Path(iid): Path<String>, headers: HeaderMap, body: Bytes) -> Response {
    match desks.find(&iid) {
        Some(desk) => desk.pick(&headers, &body).await,
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn delivery(
    State(desks): State<Arc<Desks>>,
    Path((iid, delivery)): Path<(String, String)>,
    headers: HeaderMap,
) -> Response {
    match desks.find(&iid) {
        Some(desk) => desk.delivery(&delivery, &headers).await,
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn stray(State(desks): State<Arc<Desks>>, request: Request) -> Response {
    desks.note(format!("{} {}", request.method(), request.uri()));
    StatusCode::NOT_FOUND.into_response()
}
