//! The run host: every run of this process, restored before anybody is answered.

use super::birth::new_row;
use super::clock::Clock;
use super::core::{Input, Reply};
use super::feed::{FeedEntry, FeedId, Heard, watcher};
use super::history::HistoryEntry;
use super::shared::{Entry, Shared, lock};
use super::sweep::SWEEP_EVERY;
use super::task::{Birth, Message, RunTask, drifted};
use super::view::{RunStatus, RunSummary, run_status, summary};
use super::{ROW_FORMAT, Row, SEMANTICS, Status, StoredAnswer};
use crate::harness_client::Connections;
use crate::store::{RunStore, StoreError};
use crate::workflow::{Program, Workflow};
use crate::workspace::{SandboxEvent, SandboxProvider};
use jr2_shared::crash::{self, Point};
use jr2_shared::ids::{RUN_PREFIX_MIN, RunId};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Most hits of a prefix (spec 12.2).
const RESOLVE_MAX: usize = 10;
/// Characters of an unknown prefix that are said back: more than a run id has.
const PREFIX_SHOWN_MAX_CHARS: usize = 64;

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
    /// The key was used for another request.
    #[error("{0}")]
    KeyTaken(String),
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
    /// The disk is full: nothing was written, nothing is lost.
    #[error("{0}")]
    Full(String),
    /// The store said no.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A subscription to a run's feed.
pub struct Feed {
    /// The status now: level-triggered.
    pub status: RunStatus,
    /// The asked id, when this run ever said it.
    pub from: Option<FeedId>,
    /// Entries after the asked id, oldest first.
    pub backlog: Vec<(FeedId, FeedEntry)>,
    /// Batches from here on; ones the backlog already covers must be skipped by id.
    pub live: Heard,
}

/// Every run of this process. Cheap to clone.
#[derive(Clone)]
pub struct Host {
    pub(super) shared: Arc<Shared>,
}

impl Host {
    /// Restores every run, then answers (spec S-13). The caller listens only after this.
    #[allow(clippy::unused_async)] // it spawns the tasks of all runs: only inside a runtime
    pub async fn open(options: HostOptions) -> Result<(Self, RestoreReport), HostError> {
        let connections =
            Connections::new().map_err(|e| HostError::Invalid { message: e.to_string(), problems: Vec::new() })?;
        crate::tls::install();
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
            kill_reads: Mutex::default(),
            programs: RwLock::new(options.programs),
            pinned: Mutex::default(),
            starting: tokio::sync::Mutex::default(),
            placing: tokio::sync::RwLock::default(),
            stopping: false.into(),
        });
        let host = Self { shared };
        let report = host.restore()?;
        host.spawn_events(options.events);
        host.spawn_sweep();
        host.spawn_live_set();
        Ok((host, report))
    }

    fn restore(&self) -> Result<RestoreReport, HostError> {
        let mut report = RestoreReport::default();
        self.shared.store.visit_rows(&mut |run, bytes| {
            let row = bytes
                .and_then(|b| serde_json::from_slice::<Row>(&b).map_err(|e| StoreError::Unreadable(e.to_string())));
            match row {
                Ok(row) => self.restore_row(run, row, &mut report),
                Err(error) => {
                    tracing::error!(%run, %error, "a row is unreadable; it stays as it is");
                    report.failed.push(run.as_str().to_owned());
                }
            }
        })?;
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
                if row.status.is_ended() {
                    report.ended += 1;
                } else {
                    row.status = Status::Lost;
                    report.lost.push(name);
                }
                self.enlist(run, bare_summary(&row), None, true);
                return;
            }
        };
        if row.status.is_ended() && !(leftovers && row.status != Status::Drifted) {
            match row.status {
                Status::Drifted => report.drifted.push(name),
                _ => report.ended += 1,
            }
            self.enlist(run, summary(&program, &row), None, true);
            return;
        }
        let (tx, rx) = mpsc::unbounded_channel();
        self.enlist(run, summary(&program, &row), Some(tx), true);
        report.reattached.push(name);
        tokio::spawn(RunTask::new(self.shared.clone(), program, row, rx, None).run(true));
    }

    /// `born`: its first save is durable.
    fn enlist(&self, run: RunId, summary: RunSummary, inbox: Option<mpsc::UnboundedSender<Box<Message>>>, born: bool) {
        let mut runs = self.shared.runs.write().unwrap_or_else(PoisonError::into_inner);
        runs.insert(run, Entry { summary, born, inbox, watchers: Vec::new() });
    }

    fn spawn_events(&self, mut events: mpsc::UnboundedReceiver<SandboxEvent>) {
        let shared = self.shared.clone();
        tokio::spawn(async move {
            while let Some(event) = events.recv().await {
                match event {
                    SandboxEvent::HarnessRestarted { name, last_end } => {
                        tracing::warn!(sandbox = %name, reason = %last_end.reason, "a Harness was restarted");
                    }
                    SandboxEvent::Model { name, provider, cause } => {
                        let run = lock(&shared.sandboxes).get(&name).cloned();
                        if let Some(run) = run {
                            shared.say(&run, model_activity(&provider, cause.as_deref()));
                        }
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
        let one_at_a_time = self.shared.starting.lock().await;
        if let Some(run) = key.map(|k| self.shared.store.start_key(k)).transpose()?.flatten() {
            return self.same_start(run, &root.name, &input);
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
        self.enlist(run.clone(), summary(&program, &row), Some(tx.clone()), false);
        tokio::spawn(RunTask::new(self.shared.clone(), program, row, rx, birth).run(false));
        let (reply, answered) = oneshot::channel();
        tx.send(Box::new(Message::Apply(Input::Start, Some(reply)))).map_err(|_| HostError::Stopping)?;
        if key.is_none() && known {
            drop(one_at_a_time); // nothing but this run depends on its first save
        }
        if let Reply::Refused { error, .. } = answered.await.map_err(|_| HostError::Stopping)? {
            tx.send(Box::new(Message::Stop)).ok();
            self.shared.runs.write().unwrap_or_else(PoisonError::into_inner).remove(&run);
            return Err(HostError::Full(error));
        }
        crash::point(Point::RunStarted);
        Ok(run)
    }

    /// A key that is known names one request: another workflow or input under it is no repeat (decision 35). The text may
    /// have been deployed anew in between.
    fn same_start(&self, run: RunId, workflow: &str, input: &Value) -> Result<RunId, HostError> {
        match self.row(&run) {
            Ok(row) if row.workflow != workflow || row.root.input != *input => {
                let what =
                    if row.workflow == workflow { "another input".to_owned() } else { format!("`{}`", row.workflow) };
                Err(HostError::KeyTaken(format!(
                    "this Idempotency-Key started run {run} with {what}: a key names one request, take a new one"
                )))
            }
            Ok(_) | Err(HostError::NotFound(_)) => Ok(run),
            Err(error) => Err(error),
        }
    }

    /// The run list, newest id order; of one workflow when named.
    pub fn list(&self, workflow: Option<&str>) -> Vec<RunSummary> {
        let runs = self.shared.runs.read().unwrap_or_else(PoisonError::into_inner);
        runs.values()
            .filter(|e| e.born)
            .map(|e| &e.summary)
            .filter(|s| workflow.is_none_or(|w| s.workflow == w))
            .cloned()
            .collect()
    }

    /// Runs whose id starts with `prefix`: at most ten, and whether there are more (spec 12.2).
    pub fn resolve_prefix(&self, prefix: &str) -> (Vec<String>, bool) {
        let runs = self.shared.runs.read().unwrap_or_else(PoisonError::into_inner);
        let from = RunId(prefix.to_owned());
        let mut hits: Vec<String> = runs
            .range(from..)
            .take_while(|(id, _)| id.as_str().starts_with(prefix))
            .filter(|(_, entry)| entry.born)
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
            0 => {
                let prefix: String = prefix.chars().take(PREFIX_SHOWN_MAX_CHARS).collect();
                Err(HostError::NotFound(format!("no run \"{prefix}\"")))
            }
            1 => Ok(RunId(hits.remove(0))),
            _ => Err(HostError::Ambiguous { prefix: prefix.to_owned(), hits }),
        }
    }

    /// The whole status of a run.
    pub async fn status(&self, run: &RunId) -> Result<RunStatus, HostError> {
        if let Some(inbox) = self.inbox(run)? {
            let (reply, answered) = oneshot::channel();
            if inbox.send(Box::new(Message::Status(reply))).is_ok()
                && let Ok(status) = answered.await
            {
                return Ok(status);
            }
        }
        let mut row = self.row(run)?;
        match self.shared.pinned(&row.program) {
            Ok(program) => Ok(run_status(&program, &row)),
            Err(error) => {
                if !row.status.is_ended() {
                    row.status = Status::Lost;
                    row.reason = Some(error);
                }
                Ok(run_status(&Program::empty(&row.workflow), &row))
            }
        }
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
        let reply = match self.apply(run, input.clone()).await? {
            Some(reply) => reply,
            None => {
                // No task any more: the ended row still knows its keyed answers, and refuses the rest.
                let row = self.row(run)?;
                let program = self.shared.pinned(&row.program).map_err(HostError::NotFound)?;
                super::core::apply(&program, &row, &input, super::core::Facts { now: 0, seed: 0 }).reply
            }
        };
        crash::point(Point::RequestSaved);
        Ok(match reply {
            Reply::Http(answer) => answer,
            Reply::Refused { status, error, .. } => StoredAnswer { status, body: json!({ "error": error }) },
            _ => StoredAnswer { status: 409, body: json!({ "error": "the run took nothing" }) },
        })
    }

    /// `None`: the run has no task any more.
    pub(super) async fn apply(&self, run: &RunId, input: Input) -> Result<Option<Reply>, HostError> {
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

    pub(super) fn inbox(&self, run: &RunId) -> Result<Option<mpsc::UnboundedSender<Box<Message>>>, HostError> {
        let runs = self.shared.runs.read().unwrap_or_else(PoisonError::into_inner);
        let entry = runs.get(run).ok_or_else(|| HostError::NotFound(format!("no run \"{run}\"")))?;
        Ok(entry.inbox.clone())
    }

    /// A run's feed after `from` (decision 43): the watcher joins first, so nothing falls between.
    pub async fn subscribe(&self, run: &RunId, from: Option<FeedId>) -> Result<Feed, HostError> {
        let (tx, live) = watcher();
        {
            let mut runs = self.shared.runs.write().unwrap_or_else(PoisonError::into_inner);
            let entry = runs.get_mut(run).ok_or_else(|| HostError::NotFound(format!("no run \"{run}\"")))?;
            entry.watchers.retain(|w| !w.is_closed());
            entry.watchers.push(tx);
        }
        let status = self.status(run).await?;
        // An id that was never said, or one from before the store was put back: the reader gets everything.
        let from = from.filter(|f| f.rev <= status.rev);
        let start = from.map_or(0, |f| f.rev);
        let mut backlog = Vec::new();
        for entry in self.history(run, start, usize::MAX)? {
            if entry.rev > status.rev {
                break; // a reader sees durable revisions only
            }
            backlog.extend(entry.feed_after(from).map(|(id, e)| (id, e.clone())));
        }
        Ok(Feed { status, from, backlog, live })
    }

    /// All feeds of one workflow's runs.
    pub fn subscribe_workflow(&self, workflow: &str) -> Heard {
        let (tx, live) = watcher();
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

/// The word on a model that does not answer, or answers again.
fn model_activity(provider: &str, cause: Option<&str>) -> Value {
    let text = match cause {
        Some(cause) => format!("the model provider `{provider}` does not answer ({cause}), trying again"),
        None => format!("the model provider `{provider}` answers again"),
    };
    json!({ "text": text, "provider": provider, "cause": cause })
}

/// `{type, …payload}` → event and payload.
pub(super) fn split_event(body: Value) -> Result<(String, Value), HostError> {
    let invalid = |message: &str| HostError::Invalid { message: message.to_owned(), problems: Vec::new() };
    let Value::Object(mut fields) = body else {
        return Err(invalid("the body must be an object with a `type`"));
    };
    match fields.remove("type") {
        Some(Value::String(event)) => Ok((event, Value::Object(fields))),
        _ => Err(invalid("the body must have a `type` that is a string")),
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
