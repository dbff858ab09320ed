//! The scripted model: an OpenAI-compatible server that follows a script, and remembers what it was asked.
//!
//! It decides on the request alone wherever a script allows: a restarted scripted model, or a second one, answers the same
//! bytes. Requests are checked as a strict real server checks them, so a harness that sends a dangling tool call fails here
//! and not in front of a user.

mod answer;
mod lanes;
mod matching;
mod record;
mod request;
mod script;
mod server;

pub use lanes::Lane;
pub use record::{KEPT_REQUESTS, RecordedRequest};
pub use script::{Answer, ErrorAnswer, Raw, Script, ScriptError, ScriptedCall, Usage};

use server::Shared;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// Why a scripted model did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address is taken or not ours.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address asked.
        address: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The record file cannot be opened.
    #[error("cannot write {path}: {source}")]
    Record {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// No thread or no event loop.
    #[error("cannot start: {0}")]
    Io(#[from] std::io::Error),
}

/// Where it listens and what it writes.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address; port 0 takes a free one.
    pub listen: SocketAddr,
    /// One JSON line per request, appended and synced before the answer leaves.
    pub record: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self { listen: SocketAddr::from(([127, 0, 0, 1], 0)), record: None }
    }
}

/// A running scripted model. It has a thread and an event loop of its own, so tests with and without one can use it.
/// It stops when dropped.
#[derive(Debug)]
pub struct ScriptedModel {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ScriptedModel {
    /// Starts on a free local port without a record file.
    pub fn start(script: Script) -> Result<Self, StartError> {
        Self::start_with(script, &Options::default())
    }

    /// Starts as told; it listens when this returns.
    pub fn start_with(script: Script, options: &Options) -> Result<Self, StartError> {
        let recorder = match &options.record {
            Some(path) => {
                record::Recorder::to_file(path).map_err(|source| StartError::Record { path: path.clone(), source })?
            }
            None => record::Recorder::default(),
        };
        let listen = |source| StartError::Listen { address: options.listen, source };
        let listener = std::net::TcpListener::bind(options.listen).map_err(listen)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::new(script, recorder));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = {
            let _entered = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        let (stop, stopped) = oneshot::channel();
        let served = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("scripted-model".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = server::serve(listener, served) => {}
                    _ = stopped => {}
                }
            });
        })?;
        Ok(Self { address, shared, stop: Some(stop), thread: Some(thread) })
    }

    /// The base URL a client is given: `http://127.0.0.1:PORT/v1`. Any other path before `/chat/completions` works too.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The lane of requests for `model`: whatever the rules say, its answers are given by whoever holds it.
    pub fn lane(&self, model: &str) -> Arc<Lane> {
        Arc::clone(self.shared.lock().lanes.entry(model.to_owned()).or_default())
    }

    /// Everything asked so far, oldest first (the last [`KEPT_REQUESTS`] of it).
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.shared.lock().recorder.requests()
    }

    /// How many requests there were.
    pub fn request_count(&self) -> u64 {
        self.shared.lock().recorder.total()
    }

    /// What was wrong with the requests: malformed ones, and those no rule fits. Empty when all is well.
    pub fn complaints(&self) -> Vec<String> {
        let complain = |r: RecordedRequest| {
            // A strict refusal already names the problems.
            let what = r.refusal.map_or(r.problems, |refusal| vec![refusal]);
            what.into_iter().map(move |what| format!("request {}: {what}", r.seq))
        };
        self.requests().into_iter().flat_map(complain).collect()
    }

    /// Stops: closes the listener and every connection, then returns.
    pub fn stop(mut self) {
        self.end();
    }

    /// Waits until the server ends, which it does by itself only on a fault.
    pub fn wait(mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }

    fn end(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        self.end();
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}
