//! What the tasks of all runs share: the store, the provider, who listens, and which program a hash names.

use super::clock::Clock;
use super::core::Input;
use super::feed::{FeedBatch, FeedEntry, FeedKind, Watcher};
use super::kill_reads::{KillReadLine, KillReads};
use super::task::Message;
use super::view::RunSummary;
use crate::harness_client::{Connections, HarnessClient};
use crate::store::{RunStore, StoreError};
use crate::workflow::Program;
use crate::workspace::{LastEnd, SandboxProvider};
use jr2_shared::ids::RunId;
use jr2_shared::memory_kills::MemoryKill;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::mpsc;

/// One run as the host knows it.
pub(super) struct Entry {
    pub summary: RunSummary,
    /// Its first save is durable: only then is it shown.
    pub born: bool,
    pub inbox: Option<mpsc::UnboundedSender<Box<Message>>>,
    pub watchers: Vec<Watcher>,
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
    pub workflow_watchers: Mutex<Vec<(String, Watcher)>>,
    pub sandboxes: Mutex<HashMap<String, RunId>>,
    pub kill_reads: Mutex<HashMap<String, KillReads>>,
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

    /// How a Sandbox's Harness ended at the instant `since` (ms) or later, waited for up to `wait`. An end that is already
    /// recorded is not waited for.
    pub async fn last_end(&self, name: &str, since: u64, wait: Duration) -> Option<LastEnd> {
        let deadline = tokio::time::Instant::now() + wait;
        loop {
            if let Some(end) = self.provider.last_end(name).filter(|end| end.at >= since) {
                return Some(end);
            }
            if tokio::time::Instant::now() >= deadline {
                return None;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The memory kills a Sandbox's Harness keeps; `None` = could not tell (spec N-43).
    pub async fn kill_list(&self, sandbox: &str) -> Option<Vec<MemoryKill>> {
        let read = self.client(Some(sandbox)).memory_kills().await;
        let mut all = lock(&self.kill_reads);
        let reads = all.entry(sandbox.to_owned()).or_default();
        match read {
            Ok(reading) => {
                for line in reads.worked(reading.faults) {
                    if let KillReadLine::LeftOut(fault) = line {
                        tracing::warn!(sandbox, %fault, "something in a memory-kill list was left out");
                    }
                }
                Some(reading.kills)
            }
            Err(error) => {
                if reads.failed().is_some() {
                    tracing::warn!(sandbox, %error, "the memory-kill list cannot be read");
                }
                None
            }
        }
    }

    /// Hands an input to a run's task.
    pub fn tell(&self, run: &RunId, input: Input) {
        let runs = self.runs.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(inbox) = runs.get(run).and_then(|e| e.inbox.as_ref()) {
            inbox.send(Box::new(Message::Apply(input, None))).ok();
        }
    }

    /// Hands an input to a run's task and waits until what came of it is saved; `false` when that is not known.
    pub async fn tell_saved(&self, run: &RunId, input: Input) -> bool {
        let inbox = {
            let runs = self.runs.read().unwrap_or_else(PoisonError::into_inner);
            runs.get(run).and_then(|e| e.inbox.clone())
        };
        let Some(inbox) = inbox else { return false };
        let (reply, answered) = tokio::sync::oneshot::channel();
        inbox.send(Box::new(Message::Apply(input, Some(reply)))).is_ok() && answered.await.is_ok()
    }

    /// A save is durable: watchers hear it.
    pub fn publish(&self, run: &RunId, summary: Option<RunSummary>, batch: FeedBatch) {
        let Some(summary) = summary else { return };
        let workflow = summary.workflow.clone();
        let mut runs = self.runs.write().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = runs.get_mut(run) else { return };
        entry.summary = summary;
        entry.born = true;
        let mut workflows = lock(&self.workflow_watchers);
        if entry.watchers.is_empty() && workflows.is_empty() {
            return;
        }
        let batch = Arc::new(batch);
        entry.watchers.retain(|w| w.offer(&batch));
        workflows.retain(|(name, w)| *name != workflow || w.offer(&batch));
    }

    /// A word beside a run's saves, for whoever listens now. One who lags is not cut for it.
    pub fn say(&self, run: &RunId, data: serde_json::Value) {
        let entries = vec![FeedEntry { kind: FeedKind::Activity, data }];
        let batch = FeedBatch { run: run.clone(), rev: 0, at: self.clock.now_ms(), passing: true, entries };
        let batch = Arc::new(batch);
        let runs = self.runs.read().unwrap_or_else(PoisonError::into_inner);
        for watcher in runs.get(run).into_iter().flat_map(|entry| &entry.watchers) {
            watcher.offer(&batch);
        }
    }

    /// A run's task is over.
    pub fn retire(&self, run: &RunId, summary: RunSummary) {
        let mut runs = self.runs.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(entry) = runs.get_mut(run) {
            entry.summary = summary;
            entry.inbox = None;
        }
        let mut sandboxes = lock(&self.sandboxes);
        sandboxes.retain(|_, owner| owner != run);
        lock(&self.kill_reads).retain(|sandbox, _| sandboxes.contains_key(sandbox));
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
