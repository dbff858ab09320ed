//! The run host: every run of this process, restored before anybody is answered.

use super::clock::{Clock, random};
use super::core::{Input, Reply, surface_refusal};
use super::feed::{FeedBatch, FeedEntry, FeedId};
use super::history::HistoryEntry;
use super::task::{Birth, Message, RunTask, drifted};
use super::view::{RunStatus, RunSummary, run_status, summary};
use super::{Actor, ROW_FORMAT, Row, SEMANTICS, Status, StoredAnswer};
use crate::harness_client::{Connections, HarnessClient};
use crate::store::{RunStore, Save, StoreError};
use crate::workflow::{Program, Workflow};
use crate::workspace::{LastEnd, SandboxEvent, SandboxProvider};
use jr2_shared::ids::{RUN_PREFIX_MIN, RunId};
use jr2_shared::surface::{PickAnswer, Surface};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Ended runs are kept this long (spec S-12).
pub const KEEP_ENDED_MS: u64 = 7 * 24 * 3_600 * 1_000;
/// How often ended runs and orphaned Sandboxes are swept (spec S-12, decision 42).
const SWEEP_EVERY: Duration = Duration::from_secs(3_600);
/// A faulted run's Sandbox stays this long for a person to look (spec K-9: the idle timeout).
const FAULTED_SANDBOX_KEEP_MS: u64 = 30 * 60 * 1_000;
/// Most hits of a prefix (spec 12.2).
const RESOLVE_MAX: usize = 10;
/// Feed batches a watcher may lag behind before it is cut; it re-joins with its last id.
const WATCHER_LAG_MAX: usize = 1_024;

/// What the host needs.
pub struct HostOptions {
    /// Where runs live.
    pub store: Arc<dyn RunStore>,
    /// Where Agents run.
    pub provider: Arc<dyn SandboxProvider>,
    /// What the provider tells unasked.
    pub events: mpsc::UnboundedReceiver<SandboxEvent>,
    /// Wall time.
    pub clock: Arc<dyn Clock>,
    /// Workflows that may be started, by name.
    pub programs: BTreeMap<String, Arc<Program>>,
    /// Called when the store fails: the process must end (decision 43).
    pub fatal: Arc<dyn Fn(&StoreError) + Send + Sync>,
}

/// What a restore found (spec S-15).
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct RestoreReport {
    /// Live runs that go on.
    pub reattached: Vec<String>,
    /// Runs whose program is gone.
    pub lost: Vec<String>,
    /// Runs of an engine or form this one does not know.
    pub drifted: Vec<String>,
    /// Rows that could not be read.
    pub failed: Vec<String>,
    /// Runs that had ended.
    pub ended: usize,
}

/// A request that was refused.
#[derive(Clone, Debug, thiserror::Error)]
pub enum HostError {
    /// No such run, workflow, or Agent.
    #[error("{0}")]
    NotFound(String),
    /// The input or payload does not fit.
    #[error("{message}")]
    Invalid {
        /// In one line.
        message: String,
        /// Each problem.
        problems: Vec<String>,
    },
    /// The prefix names several runs.
    #[error("{prefix} names several runs: {}", .hits.join(", "))]
    Ambiguous {
        /// What was asked.
        prefix: String,
        /// Some of them.
        hits: Vec<String>,
    },
    /// The caller may not speak here.
    #[error("{0}")]
    Forbidden(String),
    /// The host stops.
    #[error("the Orchestrator is stopping")]
    Stopping,
    /// The store said no.
    #[error(transparent)]
    Store(#[from] StoreError),
}

struct Entry {
    summary: RunSummary,
    inbox: Option<mpsc::UnboundedSender<Box<Message>>>,
    watchers: Vec<mpsc::Sender<Arc<FeedBatch>>>,
}

/// What tasks share.
pub(super) struct Shared {
    pub store: Arc<dyn RunStore>,
    pub provider: Arc<dyn SandboxProvider>,
    pub clock: Arc<dyn Clock>,
    pub http: reqwest::Client,
    connections: Connections,
    fatal: Arc<dyn Fn(&StoreError) + Send + Sync>,
    runs: RwLock<BTreeMap<RunId, Entry>>,
    workflow_watchers: Mutex<Vec<(String, mpsc::Sender<Arc<FeedBatch>>)>>,
    sandboxes: Mutex<HashMap<String, RunId>>,
    last_ends: Mutex<HashMap<String, LastEnd>>,
    programs: RwLock<BTreeMap<String, Arc<Program>>>,
    pinned: Mutex<HashMap<String, Arc<Program>>>,
    starting: tokio::sync::Mutex<()>,
    stopping: std::sync::atomic::AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub fn fatal(&self, error: &StoreError) {
        (self.fatal)(error);
    }

    /// A client of the Harness of a Sandbox, or of the Instance Harness.
    pub fn client(self: &Shared, sandbox: &Option<String>) -> HarnessClient {
        let provider = self.provider.clone();
        let dial = Dialer { provider, sandbox: sandbox.clone() };
        HarnessClient::new(dial, self.connections.clone(), self.store.epoch())
    }

    pub fn own_sandbox(&self, name: &str, run: &RunId) {
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
    }

    fn pinned(&self, hash: &str) -> Result<Arc<Program>, String> {
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

/// A subscription to a run's feed.
pub struct Feed {
    /// The status now: level-triggered.
    pub status: RunStatus,
    /// Entries after the asked id, oldest first.
    pub backlog: Vec<(FeedId, FeedEntry)>,
    /// Batches from here on; ones the backlog already covers must be skipped by id.
    pub live: mpsc::Receiver<Arc<FeedBatch>>,
}

/// Every run of this process. Cheap to clone.
#[derive(Clone)]
pub struct Host {
    shared: Arc<Shared>,
}

impl Host {
    /// Restores every run, then answers (spec S-13). The caller listens only after this.
    pub async fn open(options: HostOptions) -> Result<(Self, RestoreReport), HostError> {
        let connections =
            Connections::new().map_err(|e| HostError::Invalid { message: e.to_string(), problems: Vec::new() })?;
        let http = reqwest::Client::builder()
            .connect_timeout(Duration::from_secs(10))
            .build()
            .map_err(|e| HostError::Invalid { message: e.to_string(), problems: Vec::new() })?;
        let shared = Arc::new(Shared {
            store: options.store,
            provider: options.provider,
            clock: options.clock,
            http,
            connections,
            fatal: options.fatal,
            runs: RwLock::default(),
            workflow_watchers: Mutex::default(),
            sandboxes: Mutex::default(),
            last_ends: Mutex::default(),
            programs: RwLock::new(options.programs),
            pinned: Mutex::default(),
            starting: tokio::sync::Mutex::default(),
            stopping: false.into(),
        });
        let host = Self { shared };
        let report = host.restore()?;
        host.spawn_events(options.events);
        host.spawn_sweep();
        Ok((host, report))
    }

    fn restore(&self) -> Result<RestoreReport, HostError> {
        let mut report = RestoreReport::default();
        for (run, bytes) in self.shared.store.rows()? {
            let name = run.as_str().to_owned();
            let row: Row = match serde_json::from_slice(&bytes) {
                Ok(row) => row,
                Err(error) => {
                    tracing::error!(run = %run, %error, "a row is unreadable; it stays as it is");
                    report.failed.push(name);
                    continue;
                }
            };
            self.restore_row(run, row, &mut report);
        }
        Ok(report)
    }

    fn restore_row(&self, run: RunId, mut row: Row, report: &mut RestoreReport) {
        let name = run.as_str().to_owned();
        let leftovers = !row.deletes.is_empty() || !row.aborts.is_empty();
        if row.v > ROW_FORMAT || row.semantics > SEMANTICS {
            let reason = format!("form {} semantics {} is newer than this engine's", row.v, row.semantics);
            drifted(&mut row, reason);
        }
        let program = match self.shared.pinned(&row.program) {
            Ok(program) => program,
            Err(error) => {
                tracing::error!(run = %run, %error, "a run's program cannot be had");
                row.status = if row.status.is_ended() { row.status } else { Status::Lost };
                self.enlist(run, bare_summary(&row), None);
                report.lost.push(name);
                return;
            }
        };
        if row.status.is_ended() && !(leftovers && row.status != Status::Drifted) {
            match row.status {
                Status::Drifted => report.drifted.push(name),
                _ => report.ended += 1,
            }
            self.enlist(run, summary(&program, &row), None);
            return;
        }
        let (tx, rx) = mpsc::unbounded_channel();
        self.enlist(run, summary(&program, &row), Some(tx));
        report.reattached.push(name);
        tokio::spawn(RunTask::new(self.shared.clone(), program, row, rx, None).run(true));
    }

    fn enlist(&self, run: RunId, summary: RunSummary, inbox: Option<mpsc::UnboundedSender<Box<Message>>>) {
        let mut runs = self.shared.runs.write().unwrap_or_else(PoisonError::into_inner);
        runs.insert(run, Entry { summary, inbox, watchers: Vec::new() });
    }

    fn spawn_events(&self, mut events: mpsc::UnboundedReceiver<SandboxEvent>) {
        let shared = self.shared.clone();
        tokio::spawn(async move {
            while let Some(event) = events.recv().await {
                match event {
                    SandboxEvent::HarnessRestarted { name, last_end } => {
                        tracing::warn!(sandbox = %name, reason = %last_end.reason, "a Harness was restarted");
                        lock(&shared.last_ends).insert(name, last_end);
                    }
                    SandboxEvent::Lost { name, reason, message } => {
                        let run = lock(&shared.sandboxes).get(&name).cloned();
                        if let Some(run) = run {
                            shared.tell(&run, Input::SandboxLost { sandbox: name, reason, message });
                        }
                    }
                }
            }
        });
    }

    fn spawn_sweep(&self) {
        let host = self.clone();
        tokio::spawn(async move {
            loop {
                host.sweep().await;
                tokio::time::sleep(SWEEP_EVERY).await;
            }
        });
    }

    /// Removes runs that ended a week ago and Sandboxes of no live run.
    pub async fn sweep(&self) {
        let now = self.shared.clock.now_ms();
        let mut live = Vec::new();
        for (run, bytes) in self.shared.store.rows().unwrap_or_default() {
            let Ok(row) = serde_json::from_slice::<Row>(&bytes) else { continue };
            let ended = row.ended.unwrap_or(now);
            if row.status.is_ended() && row.deletes.is_empty() && now.saturating_sub(ended) > KEEP_ENDED_MS {
                let save = Save { run: Some(run.clone()), delete: true, ..Save::default() };
                if self.shared.store.save(save).await.is_ok() {
                    self.shared.runs.write().unwrap_or_else(PoisonError::into_inner).remove(&run);
                }
                continue;
            }
            let faulted = row.status == Status::Error && now.saturating_sub(ended) < FAULTED_SANDBOX_KEEP_MS;
            if !row.status.is_ended() || faulted {
                sandboxes_of(&row.root, &mut live);
            }
            live.extend(row.deletes.iter().map(|d| d.spec.name.clone()));
        }
        let gone = self.shared.provider.sweep(&live).await;
        if gone > 0 {
            tracing::info!(gone, "Sandboxes of no live run were removed");
        }
    }

    /// Workflows that may be started, by name.
    pub fn programs(&self) -> BTreeMap<String, Arc<Program>> {
        self.shared.programs.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The root workflow of a program that may be started.
    pub fn workflow(&self, name: &str) -> Option<Arc<Workflow>> {
        self.programs().get(name).and_then(|p| p.workflows.get(&p.root).cloned())
    }

    /// Replaces what may be started; runs under way keep their text (decision 40).
    pub fn deploy(&self, programs: BTreeMap<String, Arc<Program>>) {
        *self.shared.programs.write().unwrap_or_else(PoisonError::into_inner) = programs;
    }

    /// Starts a run; answers after its first save. The same key gets the same run (decision 35).
    pub async fn start(&self, workflow: &str, input: Value, key: Option<&str>) -> Result<RunId, HostError> {
        let program = self.programs().get(workflow).cloned();
        let program = program.ok_or_else(|| HostError::NotFound(format!("no workflow \"{workflow}\"")))?;
        self.start_program(program, input, key).await
    }

    /// Starts a run of a program that need not be deployed.
    pub async fn start_program(
        &self,
        program: Arc<Program>,
        input: Value,
        key: Option<&str>,
    ) -> Result<RunId, HostError> {
        if self.is_stopping() {
            return Err(HostError::Stopping);
        }
        let root = program.workflows.get(&program.root).cloned();
        let root = root.ok_or_else(|| HostError::NotFound(format!("no workflow \"{}\"", program.root)))?;
        let input = root.check_input(input).map_err(|problems| HostError::Invalid {
            message: format!("the input of `{}` does not fit: {}", root.name, problems.join("; ")),
            problems,
        })?;
        let _one_key_at_a_time = match key {
            Some(_) => Some(self.shared.starting.lock().await),
            None => None,
        };
        if let Some(run) = key.map(|k| self.shared.store.start_key(k)).transpose()?.flatten() {
            return Ok(run);
        }
        let row = new_row(&program, &root.name, input, self.shared.clock.now_ms());
        let run = row.id.clone();
        let known = lock(&self.shared.pinned).insert(program.hash.clone(), program.clone()).is_some();
        let texts = if known && self.shared.store.text(&program.hash)?.is_some() {
            Vec::new()
        } else {
            vec![(program.hash.clone(), program.canonical.as_bytes().to_vec())]
        };
        let start_keys = key.map(|k| (k.to_owned(), run.clone())).into_iter().collect();
        let birth = Some(Box::new(Birth { texts, start_keys }));
        let (tx, rx) = mpsc::unbounded_channel();
        self.enlist(run.clone(), summary(&program, &row), Some(tx.clone()));
        tokio::spawn(RunTask::new(self.shared.clone(), program, row, rx, birth).run(false));
        let (reply, answered) = oneshot::channel();
        tx.send(Box::new(Message::Apply(Input::Start, Some(reply)))).map_err(|_| HostError::Stopping)?;
        answered.await.map_err(|_| HostError::Stopping)?;
        Ok(run)
    }

    /// The run list, newest id order; of one workflow when named.
    pub fn list(&self, workflow: Option<&str>) -> Vec<RunSummary> {
        let runs = self.shared.runs.read().unwrap_or_else(PoisonError::into_inner);
        runs.values().map(|e| &e.summary).filter(|s| workflow.is_none_or(|w| s.workflow == w)).cloned().collect()
    }

    /// Runs whose id starts with `prefix`: at most ten, and whether there are more (spec 12.2).
    pub fn resolve_prefix(&self, prefix: &str) -> (Vec<String>, bool) {
        let runs = self.shared.runs.read().unwrap_or_else(PoisonError::into_inner);
        let from = RunId(prefix.to_owned());
        let mut hits: Vec<String> = runs
            .range(from..)
            .take_while(|(id, _)| id.as_str().starts_with(prefix))
            .take(RESOLVE_MAX + 1)
            .map(|(id, _)| id.as_str().to_owned())
            .collect();
        let truncated = hits.len() > RESOLVE_MAX;
        hits.truncate(RESOLVE_MAX);
        (hits, truncated)
    }

    /// The one run a prefix names (decision 19).
    pub fn resolve(&self, prefix: &str) -> Result<RunId, HostError> {
        if prefix.len() < RUN_PREFIX_MIN {
            let message = format!("\"{prefix}\" is too short: a run is named by {RUN_PREFIX_MIN} characters or more");
            return Err(HostError::Invalid { message, problems: Vec::new() });
        }
        let (mut hits, _) = self.resolve_prefix(prefix);
        match hits.len() {
            0 => Err(HostError::NotFound(format!("no run \"{prefix}\""))),
            1 => Ok(RunId(hits.remove(0))),
            _ => Err(HostError::Ambiguous { prefix: prefix.to_owned(), hits }),
        }
    }

    /// The whole status of a run.
    pub async fn status(&self, run: &RunId) -> Result<RunStatus, HostError> {
        if let Some(inbox) = self.inbox(run)? {
            let (reply, answered) = oneshot::channel();
            if inbox.send(Box::new(Message::Status(reply))).is_ok() {
                if let Ok(status) = answered.await {
                    return Ok(status);
                }
            }
        }
        let row = self.row(run)?;
        let program = self.shared.pinned(&row.program).map_err(HostError::NotFound)?;
        Ok(run_status(&program, &row))
    }

    /// The durable row of a run and its program.
    pub fn row(&self, run: &RunId) -> Result<Row, HostError> {
        let bytes = self.shared.store.row(run)?.ok_or_else(|| HostError::NotFound(format!("no run \"{run}\"")))?;
        serde_json::from_slice(&bytes).map_err(|e| HostError::Store(StoreError::Unreadable(e.to_string())))
    }

    /// Answers a Gate (spec 12.2). The reply's status is the HTTP status.
    pub async fn send_gate(
        &self,
        run: &RunId,
        gate: &str,
        body: Value,
        activation: Option<String>,
        key: Option<String>,
    ) -> Result<StoredAnswer, HostError> {
        let (event, payload) = split_event(body)?;
        let input = Input::Gate { gate: gate.to_owned(), event, payload, activation, key };
        self.request(run, input).await
    }

    /// An outside event, or `CANCEL` (spec 12.2).
    pub async fn send_event(&self, run: &RunId, body: Value, key: Option<String>) -> Result<StoredAnswer, HostError> {
        let keep = body.get("keep").and_then(Value::as_bool).unwrap_or(false);
        let (event, payload) = split_event(body)?;
        let input = if event == "CANCEL" { Input::Cancel { keep } } else { Input::External { event, payload, key } };
        self.request(run, input).await
    }

    async fn request(&self, run: &RunId, input: Input) -> Result<StoredAnswer, HostError> {
        match self.apply(run, input).await? {
            Some(Reply::Http(answer)) => Ok(answer),
            Some(_) => Ok(StoredAnswer { status: 409, body: json!({ "error": "the run took nothing" }) }),
            None => {
                let row = self.row(run)?;
                let word = super::view::status_word(row.status);
                Ok(StoredAnswer { status: 409, body: json!({ "error": format!("run {run} is {word}") }) })
            }
        }
    }

    /// `None`: the run has no task any more.
    async fn apply(&self, run: &RunId, input: Input) -> Result<Option<Reply>, HostError> {
        if self.is_stopping() {
            return Err(HostError::Stopping);
        }
        let Some(inbox) = self.inbox(run)? else { return Ok(None) };
        let (reply, answered) = oneshot::channel();
        if inbox.send(Box::new(Message::Apply(input, Some(reply)))).is_err() {
            return Ok(None);
        }
        answered.await.map(Some).map_err(|_| HostError::Stopping)
    }

    fn inbox(&self, run: &RunId) -> Result<Option<mpsc::UnboundedSender<Box<Message>>>, HostError> {
        let runs = self.shared.runs.read().unwrap_or_else(PoisonError::into_inner);
        let entry = runs.get(run).ok_or_else(|| HostError::NotFound(format!("no run \"{run}\"")))?;
        Ok(entry.inbox.clone())
    }

    /// The surface of a conversation (spec P-2, P-3). `caller`: the Sandbox that asks; `None` = the instance token.
    pub async fn surface(&self, iid: &str, caller: Option<&str>) -> Result<Surface, HostError> {
        if self.is_stopping() {
            return Err(HostError::Stopping);
        }
        let (surface, sandbox) = self.registration(iid).await?;
        check_scope(iid, caller, sandbox.as_deref())?;
        Ok(surface)
    }

    async fn registration(&self, iid: &str) -> Result<(Surface, Option<String>), HostError> {
        let gone = || HostError::NotFound(surface_refusal(iid));
        let inbox = self.inbox(&run_of(iid)).map_err(|_| gone())?.ok_or_else(gone)?;
        let (reply, answered) = oneshot::channel();
        inbox.send(Box::new(Message::Surface(iid.to_owned(), reply))).map_err(|_| gone())?;
        answered.await.ok().flatten().ok_or_else(gone)
    }

    /// A pick (spec P-4, decision 34).
    pub async fn pick(
        &self,
        iid: &str,
        caller: Option<&str>,
        body: Value,
        pick: Option<String>,
    ) -> Result<Result<PickAnswer, PickRefusal>, HostError> {
        if self.is_stopping() {
            return Err(HostError::Stopping);
        }
        let (_, sandbox) = self.registration(iid).await?;
        check_scope(iid, caller, sandbox.as_deref())?;
        let (event, payload) = split_event(body)?;
        let input = Input::Pick { iid: iid.to_owned(), pick, event, payload };
        match self.apply(&run_of(iid), input).await? {
            Some(Reply::Pick(answer)) => Ok(Ok(answer)),
            Some(Reply::Refused { status, error, allowed }) => Ok(Err(PickRefusal { status, error, allowed })),
            _ => Err(HostError::NotFound(surface_refusal(iid))),
        }
    }

    /// The answer to an earlier delivery of a live Turn, for a Harness that asks again (decision 13).
    pub async fn delivery(
        &self,
        iid: &str,
        caller: Option<&str>,
        delivery: &str,
    ) -> Result<Option<PickAnswer>, HostError> {
        let (_, sandbox) = self.registration(iid).await?;
        check_scope(iid, caller, sandbox.as_deref())?;
        let row = self.row(&run_of(iid))?;
        Ok(super::core::kept_delivery(&row, iid, delivery))
    }

    /// A run's feed after `from` (decision 43): the watcher joins first, so nothing falls between.
    pub async fn subscribe(&self, run: &RunId, from: Option<FeedId>) -> Result<Feed, HostError> {
        let (tx, live) = mpsc::channel(WATCHER_LAG_MAX);
        {
            let mut runs = self.shared.runs.write().unwrap_or_else(PoisonError::into_inner);
            let entry = runs.get_mut(run).ok_or_else(|| HostError::NotFound(format!("no run \"{run}\"")))?;
            entry.watchers.retain(|w| !w.is_closed());
            entry.watchers.push(tx);
        }
        let status = self.status(run).await?;
        let start = from.map_or(0, |f| f.rev);
        let mut backlog = Vec::new();
        for entry in self.history(run, start, usize::MAX)? {
            if entry.rev > status.rev {
                break; // a reader sees durable revisions only
            }
            backlog.extend(entry.feed_after(from).map(|(id, e)| (id, e.clone())));
        }
        Ok(Feed { status, backlog, live })
    }

    /// All feeds of one workflow's runs.
    pub fn subscribe_workflow(&self, workflow: &str) -> mpsc::Receiver<Arc<FeedBatch>> {
        let (tx, live) = mpsc::channel(WATCHER_LAG_MAX);
        let mut watchers = lock(&self.shared.workflow_watchers);
        watchers.retain(|(_, w)| !w.is_closed());
        watchers.push((workflow.to_owned(), tx));
        live
    }

    /// History entries from revision `from` on.
    pub fn history(&self, run: &RunId, from: u64, limit: usize) -> Result<Vec<HistoryEntry>, HostError> {
        let raw = self.shared.store.history(run, from, limit)?;
        raw.into_iter()
            .map(|(_, bytes)| {
                serde_json::from_slice(&bytes).map_err(|e| HostError::Store(StoreError::Unreadable(e.to_string())))
            })
            .collect()
    }

    /// Moves a live run to what is deployed now under its workflow's name (decision 40).
    pub async fn adopt(&self, run: &RunId) -> Result<(), HostError> {
        let row = self.row(run)?;
        let program = self.programs().get(&row.workflow).cloned();
        let program = program.ok_or_else(|| HostError::NotFound(format!("no workflow \"{}\"", row.workflow)))?;
        let refused = |problems: Vec<String>| HostError::Invalid {
            message: format!("run {run} cannot move to the new text: {}", problems.join("; ")),
            problems,
        };
        let Some(inbox) = self.inbox(run)? else { return Err(refused(vec!["the run has ended".to_owned()])) };
        let (reply, answered) = oneshot::channel();
        inbox.send(Box::new(Message::Adopt(program.clone(), reply))).map_err(|_| HostError::Stopping)?;
        answered.await.map_err(|_| HostError::Stopping)?.map_err(refused)?;
        lock(&self.shared.pinned).insert(program.hash.clone(), program);
        Ok(())
    }

    /// Re-steps a run from its history and compares (decision 44).
    pub fn replay(&self, run: &RunId) -> Result<super::core::Replay, HostError> {
        let row = self.row(run)?;
        let entries = self.history(run, 0, usize::MAX)?;
        super::stored::replay_row(&row, &entries, &|hash| self.program(hash))
    }

    /// The pinned program of a hash.
    pub fn program(&self, hash: &str) -> Result<Arc<Program>, HostError> {
        self.shared.pinned(hash).map_err(HostError::NotFound)
    }

    /// The host stops or has stopped.
    pub fn is_stopping(&self) -> bool {
        self.shared.stopping.load(std::sync::atomic::Ordering::Acquire)
    }

    /// Stops without ending anything: Turns go on in their Harnesses (spec 4.5).
    pub async fn stop(&self) {
        self.shared.stopping.store(true, std::sync::atomic::Ordering::Release);
        {
            let mut runs = self.shared.runs.write().unwrap_or_else(PoisonError::into_inner);
            for entry in runs.values_mut() {
                if let Some(inbox) = entry.inbox.take() {
                    inbox.send(Box::new(Message::Stop)).ok();
                }
                entry.watchers.clear();
            }
        }
        lock(&self.shared.workflow_watchers).clear();
        self.shared.provider.release().await;
    }
}

/// A refused pick (spec P-5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PickRefusal {
    /// HTTP status.
    pub status: u16,
    /// Why.
    pub error: String,
    /// Allowed now.
    pub allowed: Option<Vec<String>>,
}

fn run_of(iid: &str) -> RunId {
    RunId(iid.split('/').next().unwrap_or_default().to_owned())
}

/// Spec P-3: a Sandbox speaks only for registrations that name it.
fn check_scope(iid: &str, caller: Option<&str>, sandbox: Option<&str>) -> Result<(), HostError> {
    let Some(caller) = caller else { return Ok(()) };
    let named = sandbox.unwrap_or(crate::workspace::INSTANCE_HARNESS);
    if caller == named {
        return Ok(());
    }
    Err(HostError::Forbidden(format!("this token cannot speak for instance \"{iid}\"")))
}

/// `{type, …payload}` → event and payload.
fn split_event(body: Value) -> Result<(String, Value), HostError> {
    let invalid = |message: &str| HostError::Invalid { message: message.to_owned(), problems: Vec::new() };
    let Value::Object(mut fields) = body else {
        return Err(invalid("the body must be an object with a `type`"));
    };
    match fields.remove("type") {
        Some(Value::String(event)) => Ok((event, Value::Object(fields))),
        _ => Err(invalid("the body must have a `type` that is a string")),
    }
}

pub(super) fn new_row(program: &Program, workflow: &str, input: Value, now: u64) -> Row {
    let mut random_id = [0u8; 16];
    random_id[..8].copy_from_slice(&random().to_le_bytes());
    random_id[8..].copy_from_slice(&random().to_le_bytes());
    Row {
        v: ROW_FORMAT,
        semantics: SEMANTICS,
        id: RunId::from_random(random_id),
        workflow: workflow.to_owned(),
        program: program.hash.clone(),
        first_program: None,
        started: now,
        clock: now,
        ended: None,
        status: Status::Live,
        reason: None,
        rev: 0,
        next_serial: 1,
        root: Actor {
            workflow: workflow.to_owned(),
            path: String::new(),
            input,
            workspace: None,
            chart: None,
            invoked: BTreeMap::new(),
            timers: Vec::new(),
            buffered: Vec::new(),
        },
        output: None,
        epochs: BTreeMap::new(),
        conversations: BTreeMap::new(),
        aborts: Vec::new(),
        deletes: Vec::new(),
        branches: Vec::new(),
        queue: Default::default(),
        answers: Default::default(),
    }
}

pub(super) fn bare_summary(row: &Row) -> RunSummary {
    RunSummary {
        run_id: row.id.as_str().to_owned(),
        workflow: row.workflow.clone(),
        status: row.status,
        value: Value::Object(Map::new()),
        started: super::view::instant(row.started),
        ended: row.ended.map(super::view::instant),
    }
}

fn sandboxes_of(actor: &Actor, names: &mut Vec<String>) {
    names.extend(actor.workspace.iter().map(|w| w.spec.name.clone()));
    for invoked in actor.invoked.values() {
        if let super::InvokedKind::Run(child) = &invoked.kind {
            sandboxes_of(child, names);
        }
    }
}
