//! What the tasks of all runs share: the store, the provider, who listens, and which program a hash names.

use super::clock::Clock;
use super::core::Input;
use super::feed::FeedBatch;
use super::task::Message;
use super::view::RunSummary;
use crate::harness_client::{Connections, HarnessClient};
use crate::store::{RunStore, StoreError};
use crate::workflow::Program;
use crate::workspace::{LastEnd, SandboxProvider};
use jr2_shared::ids::RunId;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::mpsc;

/// One run as the host knows it.
pub(super) struct Entry {
    pub summary: RunSummary,
    pub inbox: Option<mpsc::UnboundedSender<Box<Message>>>,
    pub watchers: Vec<mpsc::Sender<Arc<FeedBatch>>>,
}

/// What tasks share.
pub(super) struct Shared {
    pub store: Arc<dyn RunStore>,
    pub provider: Arc<dyn SandboxProvider>,
    pub clock: Arc<dyn Clock>,
    pub http: reqwest::Client,
    pub connections: Connections,
    pub fatal: Arc<dyn Fn(&StoreError) + Send + Sync>,
    pub runs: RwLock<BTreeMap<RunId, Entry>>,
    pub workflow_watchers: Mutex<Vec<(String, mpsc::Sender<Arc<FeedBatch>>)>>,
    pub sandboxes: Mutex<HashMap<String, RunId>>,
    pub last_ends: Mutex<HashMap<String, LastEnd>>,
    pub programs: RwLock<BTreeMap<String, Arc<Program>>>,
    pub pinned: Mutex<HashMap<String, Arc<Program>>>,
    pub starting: tokio::sync::Mutex<()>,
    /// Written by the sweep: no Sandbox begins between its look and its removals.
    pub placing: tokio::sync::RwLock<()>,
    pub stopping: std::sync::atomic::AtomicBool,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub fn fatal(&self, error: &StoreError) {
        (self.fatal)(error);
    }

    /// A client of the Harness of a Sandbox, or of the Instance Harness.
    pub fn client(&self, sandbox: Option<&str>) -> HarnessClient {
        let provider = self.provider.clone();
        let dial = Dialer { provider, sandbox: sandbox.map(str::to_owned) };
        HarnessClient::new(dial, self.connections.clone(), self.store.epoch())
    }

    pub async fn own_sandbox(&self, name: &str, run: &RunId) {
        let _no_sweep = self.placing.read().await;
        lock(&self.sandboxes).insert(name.to_owned(), run.clone());
    }

    /// How a Sandbox's Harness last ended, waited for up to `wait`.
    pub async fn last_end(&self, name: &str, wait: Duration) -> Option<LastEnd> {
        let deadline = tokio::time::Instant::now() + wait;
        loop {
            if let Some(end) = lock(&self.last_ends).remove(name) {
                return Some(end);
            }
            if tokio::time::Instant::now() >= deadline {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Hands an input to a run's task.
    pub fn tell(&self, run: &RunId, input: Input) {
        let runs = self.runs.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(inbox) = runs.get(run).and_then(|e| e.inbox.as_ref()) {
            inbox.send(Box::new(Message::Apply(input, None))).ok();
        }
    }

    /// A save is durable: watchers hear it.
    pub fn publish(&self, run: &RunId, summary: Option<RunSummary>, batch: FeedBatch) {
        let Some(summary) = summary else { return };
        let workflow = summary.workflow.clone();
        let mut runs = self.runs.write().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = runs.get_mut(run) else { return };
        entry.summary = summary;
        let mut workflows = lock(&self.workflow_watchers);
        if entry.watchers.is_empty() && workflows.is_empty() {
            return;
        }
        let batch = Arc::new(batch);
        entry.watchers.retain(|w| w.try_send(batch.clone()).is_ok());
        workflows.retain(|(name, w)| *name != workflow || w.try_send(batch.clone()).is_ok());
    }

    /// A run's task is over.
    pub fn retire(&self, run: &RunId, summary: RunSummary) {
        let mut runs = self.runs.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = runs.get_mut(run) {
            entry.summary = summary;
            entry.inbox = None;
        }
        lock(&self.sandboxes).retain(|_, owner| owner != run);
    }

    /// The program of a hash, from memory or the store.
    pub fn pinned(&self, hash: &str) -> Result<Arc<Program>, String> {
        if let Some(program) = lock(&self.pinned).get(hash) {
            return Ok(program.clone());
        }
        let text = self.store.text(hash).map_err(|e| e.to_string())?.ok_or("its text is not in the store")?;
        let text = String::from_utf8(text).map_err(|e| e.to_string())?;
        let program = Program::from_canonical(&text).map_err(|e| e.to_string())?;
        let program = Arc::new(program);
        lock(&self.pinned).insert(hash.to_owned(), program.clone());
        Ok(program)
    }
}

struct Dialer {
    provider: Arc<dyn SandboxProvider>,
    sandbox: Option<String>,
}

impl crate::harness_client::Dial for Dialer {
    fn endpoint(&self) -> crate::harness_client::DialFuture<'_> {
        Box::pin(async move {
            match &self.sandbox {
                Some(name) => self.provider.endpoint(name),
                None => self.provider.instance_harness().await.ok(),
            }
        })
    }
}
