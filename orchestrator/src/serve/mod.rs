//! A running Orchestrator: store, provider, run host and API put together in the one order that loses nothing.
//!
//! The store's lock comes first, then the port, then the provider, then every run is restored, and only then is anybody
//! answered (spec S-13). `jr2 serve` runs one; `jr2 run`, `send` and `try` run one of their own when no server answers.

mod deploy;

pub use deploy::{Deployment, Sizes, deploy, deploy_files, redeploy, size_bindings};

use crate::api::listen::{self, HEAD_LIMIT, Seat};
use crate::api::{Api, InstanceToken, control_router, router};
use crate::config::{Settings, StateDir, StateError};
use crate::run::{Host, HostError, HostOptions, RestoreReport, SystemClock};
use crate::store::{RunStore, SledStore, StoreError};
use crate::workflow::Program;
use crate::workspace::local::LocalError;
use crate::workspace::{LocalOptions, LocalProvider};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::serve::ListenerExt;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::net::TcpSocket;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Connections that wait to be taken.
const BACKLOG: u32 = 1_024;
/// How long requests under way may take once the Orchestrator stops.
const DRAIN: Duration = Duration::from_secs(5);

/// What an Orchestrator is made of.
pub struct Options {
    /// Where, with which store and which providers.
    pub settings: Settings,
    /// Where the API listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Workflows that may be started.
    pub programs: BTreeMap<String, Arc<Program>>,
    /// `jr2-harness`.
    pub harness: PathBuf,
    /// Called when the store fails; must not return to work (decision 43).
    pub fatal: Arc<dyn Fn(&StoreError) + Send + Sync>,
}

/// Why an Orchestrator did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The state folder.
    #[error("the state folder cannot be used: {0}")]
    State(#[from] StateError),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The port.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// What the system said.
        error: std::io::Error,
    },
    /// The Sandbox provider.
    #[error(transparent)]
    Provider(#[from] LocalError),
    /// The run host.
    #[error(transparent)]
    Host(#[from] HostError),
}

/// A running Orchestrator.
pub struct Orchestrator {
    /// Its runs.
    pub host: Host,
    /// Its Sandboxes.
    pub provider: Arc<LocalProvider>,
    /// What it found in the store.
    pub report: RestoreReport,
    /// Its URL.
    pub url: String,
    /// The Instance token.
    pub token: String,
    state: StateDir,
    stop: Option<oneshot::Sender<()>>,
    server: JoinHandle<()>,
}

impl Orchestrator {
    /// Starts one; when this answers, every run is restored and the API listens.
    pub async fn start(options: Options) -> Result<Self, StartError> {
        let Options { settings, listen, programs, harness, fatal } = options;
        let state = StateDir::make(&settings.state)?;
        let store = open_store(&settings).await?;
        watch_store(&store, fatal.clone());
        let (socket, address) = bind_again(listen, &state)?;
        let token = state.make_token()?;

        let (events, heard) = tokio::sync::mpsc::unbounded_channel();
        let seat: Arc<OnceLock<Host>> = Arc::default();
        let mut local = LocalOptions::new(settings.state.clone(), harness, control(seat.clone()), events);
        local.providers.clone_from(&settings.providers);
        local.api_port = Some(address.port());
        local.owner_epoch = store.epoch();
        let provider = Arc::new(LocalProvider::new(local)?);

        let hash = digest(&programs);
        let (host, report) = Host::open(HostOptions {
            store,
            provider: provider.clone(),
            events: heard,
            clock: Arc::new(SystemClock),
            programs,
            fatal,
        })
        .await?;
        // Set once, here: adoptions that asked before were told to ask again.
        let _ = seat.set(host.clone());

        let listener = socket.listen(BACKLOG).map_err(|error| StartError::Listen { address, error })?;
        let api = Api { host: host.clone(), token: Arc::new(InstanceToken::new(&token)), hash: hash.into() };
        let (stop, stopped) = oneshot::channel::<()>();
        let server = tokio::spawn(async move {
            let listener = listener.tap_io(|stream| {
                // Feeds are small frames; a socket that cannot do it still works.
                let _ = stream.set_nodelay(true);
            });
            let until = async move {
                let _ = stopped.await; // a dropped sender means the same
            };
            let router = router(api);
            let seat = |_: &tokio::net::TcpStream| Seat { router: router.clone(), head_limit: HEAD_LIMIT };
            listen::serve(listener, seat, until).await;
        });
        let url = format!("http://{address}");
        state.announce(&url)?;
        Ok(Self { host, provider, report, url, token, state, stop: Some(stop), server })
    }

    /// Stops: every run stays as it is saved, Harnesses go on, requests under way get a moment.
    pub async fn stop(mut self) {
        self.state.retract();
        self.host.stop().await;
        self.stop.take();
        if tokio::time::timeout(DRAIN, &mut self.server).await.is_err() {
            tracing::warn!("api.drain_cut");
            self.server.abort();
        }
    }
}

async fn open_store(settings: &Settings) -> Result<Arc<SledStore>, StoreError> {
    let options = settings.store_options();
    let path = options.dir.display().to_string();
    let opened = tokio::task::spawn_blocking(move || SledStore::open(options)).await;
    opened.unwrap_or_else(|error| Err(StoreError::Failed { path, message: error.to_string() })).map(Arc::new)
}

/// A store that fails while nobody saves ends the process too.
fn watch_store(store: &SledStore, fatal: Arc<dyn Fn(&StoreError) + Send + Sync>) {
    let mut failed = store.fatal();
    tokio::spawn(async move {
        let found = failed.wait_for(Option::is_some).await.ok().and_then(|error| error.clone());
        if let Some(error) = found {
            fatal(&error);
        }
    });
}

/// Any free port is the one taken before, when that is free: Harnesses that are still there need no new fence.
fn bind_again(listen: SocketAddr, state: &StateDir) -> Result<(TcpSocket, SocketAddr), StartError> {
    let again = state.last_port().filter(|_| listen.port() == 0).map(|port| SocketAddr::new(listen.ip(), port));
    let bound = match again.map(bind) {
        Some(Ok(bound)) => bound,
        _ => bind(listen)?,
    };
    state.remember_port(bound.1.port())?;
    Ok(bound)
}

/// Takes the port without listening: whoever dials before the restore is done is refused.
fn bind(address: SocketAddr) -> Result<(TcpSocket, SocketAddr), StartError> {
    let fail = |error| StartError::Listen { address, error };
    if address.port() != 0 {
        // A bound socket that does not listen would not notice another one that does.
        drop(std::net::TcpListener::bind(address).map_err(fail)?);
    }
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }.map_err(fail)?;
    socket.set_reuseaddr(true).map_err(fail)?;
    socket.bind(address).map_err(fail)?;
    let bound = socket.local_addr().map_err(fail)?;
    Ok((socket, bound))
}

/// The control routes need the host, which needs the provider, which needs the control routes.
fn control(seat: Arc<OnceLock<Host>>) -> crate::workspace::local::ControlRoutes {
    Arc::new(move |sandbox| match seat.get() {
        Some(host) => control_router(host.clone(), sandbox),
        None => late_router(seat.clone(), sandbox),
    })
}

/// For a Sandbox that is taken over while runs are still being restored.
fn late_router(seat: Arc<OnceLock<Host>>, sandbox: &str) -> axum::Router {
    use tower_service::Service;
    let sandbox = sandbox.to_owned();
    axum::Router::new().fallback(move |request: axum::extract::Request| {
        let (seat, sandbox) = (seat.clone(), sandbox.clone());
        async move {
            match seat.get() {
                Some(host) => match control_router(host.clone(), &sandbox).call(request).await {
                    Ok(response) => response,
                    Err(never) => match never {},
                },
                None => (StatusCode::SERVICE_UNAVAILABLE, "runs are being restored").into_response(),
            }
        }
    })
}

/// Changes with what is deployed.
fn digest(programs: &BTreeMap<String, Arc<Program>>) -> String {
    let mut hasher = Sha256::new();
    for program in programs.values() {
        hasher.update(program.hash.as_bytes());
    }
    format!("{:.12}", format!("{:x}", hasher.finalize()))
}
