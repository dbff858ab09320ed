//! One task a run: it applies inputs one by one, saves, and only then lets answers, feed and effects leave.

use super::clock::random;
use super::core::{self, Delivery, Effect, Facts, Input, Reply};
use super::feed::FeedBatch;
use super::history::{HistoryBound, HistoryEntry};
use super::shared::Shared;
use super::view::{RunStatus, run_status, summary};
use super::{Row, Status};
use crate::store::{Save, StoreError};
use crate::telemetry;
use crate::workflow::Program;
use jr2_shared::crash::{self, Point};
use jr2_shared::surface::Surface;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

/// Delays of states with a live Turn wait this long for its re-attachment after a restart (decision 41).
const REATTACH_HOLD: Duration = Duration::from_secs(30);
/// Longest single sleep: wall clocks jump, so due times are looked at again.
const SLEEP_MAX: Duration = Duration::from_mins(1);

/// HTTP status of a request that a full disk refused: Insufficient Storage (RFC 4918).
pub(super) const FULL_STATUS: u16 = 507;
/// Pause before a save is tried again on a full disk.
const FULL_PAUSE: Duration = Duration::from_secs(1);

/// What a run's task is told.
pub(super) enum Message {
    /// Apply an input; the reply leaves after the save.
    Apply(Input, Option<oneshot::Sender<Reply>>),
    /// The whole status.
    Status(oneshot::Sender<RunStatus>),
    /// The surface of a conversation with the Sandbox it is scoped to.
    Surface(String, oneshot::Sender<Option<(Surface, Option<String>)>>),
    /// Where a delivery stands; one that is outstanding is answered when it is not any more (decision 13).
    Delivery(String, String, oneshot::Sender<Delivery>),
    /// Move to a new text; the reply lists what stands against it.
    Adopt(Arc<Program>, oneshot::Sender<Result<(), Vec<String>>>),
    /// Stop at once, keep everything.
    Stop,
}

/// One run at work.
pub(super) struct RunTask {
    shared: Arc<Shared>,
    program: Arc<Program>,
    row: Row,
    inbox: mpsc::UnboundedReceiver<Box<Message>>,
    /// What came in while a save waited for space.
    late: VecDeque<Box<Message>>,
    running: HashMap<u64, AbortHandle>,
    /// Aborts that are being sent; none once the row holds none.
    aborting: Vec<AbortHandle>,
    /// Who waits for the answer of an outstanding pick: conversation, delivery, reply.
    awaiting: Vec<(String, String, oneshot::Sender<Delivery>)>,
    bound: HistoryBound,
    /// Written with the first save of a new run.
    birth: Option<Box<Birth>>,
    held: bool,
}

/// What a new run's first save writes beside the row.
pub(super) struct Birth {
    pub texts: Vec<(String, Vec<u8>)>,
    pub start_keys: Vec<(String, jr2_shared::ids::RunId)>,
}

impl RunTask {
    pub fn new(
        shared: Arc<Shared>,
        program: Arc<Program>,
        row: Row,
        inbox: mpsc::UnboundedReceiver<Box<Message>>,
        birth: Option<Box<Birth>>,
    ) -> Self {
        Self {
            shared,
            program,
            row,
            inbox,
            late: VecDeque::new(),
            running: HashMap::new(),
            aborting: Vec::new(),
            awaiting: Vec::new(),
            bound: HistoryBound::default(),
            birth,
            held: false,
        }
    }

    /// Runs until the run ended and nothing is left to do, or the host stops.
    pub async fn run(mut self, restored: bool) {
        if restored {
            telemetry::metrics().restored(self.row.ledger.pending.len());
            Box::pin(self.reattach()).await;
        }
        loop {
            Box::pin(self.drain()).await;
            if self.row.status.is_ended() && self.row.deletes.is_empty() && self.row.aborts.is_empty() {
                break;
            }
            let Some(message) = self.next().await else { break };
            match message {
                Some(Message::Stop) => {
                    self.forget_all();
                    return;
                }
                // Boxed: what applying needs is not carried by the thousands of runs that only wait.
                Some(message) => Box::pin(self.take(message)).await,
                None => {
                    let hold = self.held;
                    Box::pin(self.apply(Input::Tick { hold })).await;
                }
            }
        }
        self.forget_all();
        self.shared.retire(&self.row.id, summary(&self.program, &self.row));
        self.inbox.close();
        while let Some(message) = self.left_over().await {
            if !matches!(message, Message::Stop) {
                Box::pin(self.take(message)).await;
            }
        }
    }

    async fn left_over(&mut self) -> Option<Message> {
        match self.late.pop_front() {
            Some(message) => Some(*message),
            None => self.inbox.recv().await.map(|message| *message),
        }
    }

    /// The next message, or `Some(None)` when something is due.
    async fn next(&mut self) -> Option<Option<Message>> {
        if let Some(message) = self.late.pop_front() {
            return Some(Some(*message));
        }
        let due = core::next_due(&self.row, self.held);
        let Some(due) = due else {
            if self.held {
                return self.recv_until(REATTACH_HOLD).await;
            }
            return self.inbox.recv().await.map(|m| Some(*m));
        };
        let now = self.shared.clock.now_ms().max(self.row.clock);
        if due <= now {
            return match self.inbox.try_recv() {
                Ok(message) => Some(Some(*message)),
                Err(mpsc::error::TryRecvError::Disconnected) => None,
                Err(mpsc::error::TryRecvError::Empty) => Some(None),
            };
        }
        self.recv_until(Duration::from_millis(due - now).min(SLEEP_MAX)).await
    }

    async fn recv_until(&mut self, wait: Duration) -> Option<Option<Message>> {
        match tokio::time::timeout(wait, self.inbox.recv()).await {
            Ok(message) => message.map(|m| Some(*m)),
            Err(_) => {
                if self.held && wait >= REATTACH_HOLD {
                    self.held = false;
                }
                Some(None)
            }
        }
    }

    async fn take(&mut self, message: Message) {
        match message {
            Message::Apply(input, reply) => {
                let answer = self.apply(input).await;
                if let Some(reply) = reply {
                    reply.send(answer).ok();
                }
            }
            Message::Adopt(program, reply) => {
                reply.send(self.adopt(program).await).ok();
            }
            Message::Delivery(iid, delivery, reply) => {
                self.awaiting.push((iid, delivery, reply));
                self.answer_awaiting();
            }
            look => self.show(look),
        }
    }

    /// Answers whoever waits for a pick that is not outstanding any more.
    fn answer_awaiting(&mut self) {
        for (iid, delivery, reply) in std::mem::take(&mut self.awaiting) {
            match core::delivery(&self.row, &iid, &delivery) {
                Delivery::Outstanding if reply.is_closed() => {}
                Delivery::Outstanding => self.awaiting.push((iid, delivery, reply)),
                answer => {
                    reply.send(answer).ok();
                }
            }
        }
    }

    /// Answers whoever only looks.
    fn show(&self, look: Message) {
        match look {
            Message::Status(reply) => {
                reply.send(run_status(&self.program, &self.row)).ok();
            }
            Message::Surface(iid, reply) => {
                reply.send(core::surface(&self.program, &self.row, &iid)).ok();
            }
            Message::Apply(..) | Message::Delivery(..) | Message::Adopt(..) | Message::Stop => {}
        }
    }

    async fn adopt(&mut self, program: Arc<Program>) -> Result<(), Vec<String>> {
        if self.row.status.is_ended() {
            return Err(vec!["the run has ended".to_owned()]);
        }
        let facts = Facts { now: self.shared.clock.now_ms(), seed: random() };
        let outcome = core::adopt(&self.program, &program, &self.row, facts)?;
        let text = (program.hash.clone(), program.canonical.as_bytes().to_vec());
        self.birth = Some(Box::new(Birth { texts: vec![text], start_keys: Vec::new() }));
        let input = Input::Adopt { program: program.hash.clone() };
        let old = std::mem::replace(&mut self.program, program);
        if let Reply::Refused { error, .. } = self.settle(outcome, input, facts).await {
            self.program = old;
            self.birth = None;
            return Err(vec![error]);
        }
        Ok(())
    }

    /// Takes what follows from the last save, one thing a save.
    async fn drain(&mut self) {
        while let Some(input) = self.row.queue.front().cloned() {
            let rev = self.row.rev;
            self.apply(input).await;
            if self.row.rev == rev {
                self.row.queue.pop_front(); // nothing came of it: it must not be met again
            }
        }
    }

    /// Applies one input.
    async fn apply(&mut self, input: Input) -> Reply {
        let facts = Facts { now: self.shared.clock.now_ms(), seed: random() };
        if matches!(&input, Input::Turn { .. }) {
            self.held = false;
        }
        let outcome = core::apply(&self.program, &self.row, &input, facts);
        self.settle(outcome, input, facts).await
    }

    /// Saves what was decided; only then do the feed, the effects and the answer leave.
    async fn settle(&mut self, outcome: core::Outcome, input: Input, facts: Facts) -> Reply {
        if !outcome.changed {
            self.perform(outcome.effects);
            return outcome.reply;
        }
        let entry = HistoryEntry {
            rev: outcome.row.rev,
            facts,
            input,
            transitions: outcome.taken,
            effects: outcome.effects.iter().map(Effect::name).collect(),
            feed: outcome.feed,
        };
        let began = Instant::now();
        if let Err(refused) = self.make_durable(&outcome.row, &entry).await {
            return refused;
        }
        crash::point(Point::RunSaved);
        telemetry::metrics().save.observe(began.elapsed().as_secs_f64());
        telemetry::note(&self.row, &outcome.row, &entry.input, &entry.feed);
        self.row = outcome.row;
        self.answer_awaiting();
        if self.row.aborts.is_empty() {
            self.aborting.drain(..).for_each(|sent| sent.abort()); // its Sandbox may be gone: nobody will answer
        }
        let batch =
            FeedBatch { run: self.row.id.clone(), rev: entry.rev, at: facts.now, passing: false, entries: entry.feed };
        let summary = (!batch.entries.is_empty()).then(|| summary(&self.program, &self.row));
        self.shared.publish(&self.row.id, summary, batch);
        self.perform(outcome.effects);
        outcome.reply
    }

    /// Saves, or says why nothing happened. A full disk refuses requests; what the mechanism reports waits for space,
    /// because it cannot be asked again. Any other failure ends the process (decision 43).
    async fn make_durable(&mut self, row: &Row, entry: &HistoryEntry) -> Result<(), Reply> {
        loop {
            match self.save(row, entry).await {
                Ok(()) => return Ok(()),
                Err(error @ (StoreError::Full { .. } | StoreError::Refused(_))) if entry.input.is_request() => {
                    return Err(no_room(&error));
                }
                Err(error @ StoreError::Full { .. }) => {
                    tracing::error!(run = %row.id, %error, "a save waits for space");
                    self.wait_for_space(&error).await;
                }
                Err(error) => {
                    self.shared.fatal(&error);
                    std::future::pending::<()>().await; // nothing of it may leave
                }
            }
        }
    }

    /// One pause of a save that waits for space: whoever looks is shown what is durable, requests are refused, and what
    /// the mechanism reports waits its turn.
    async fn wait_for_space(&mut self, error: &StoreError) {
        let pause = tokio::time::sleep(FULL_PAUSE);
        tokio::pin!(pause);
        loop {
            let message = tokio::select! {
                () = &mut pause => return,
                message = self.inbox.recv() => message,
            };
            match message.map(|message| *message) {
                None => return pause.await, // nobody can send any more
                Some(look @ (Message::Status(_) | Message::Surface(..))) => self.show(look),
                Some(Message::Apply(input, Some(reply))) if input.is_request() => {
                    reply.send(no_room(error)).ok();
                }
                Some(Message::Adopt(_, reply)) => {
                    reply.send(Err(vec![error.to_string()])).ok();
                }
                Some(other) => self.late.push_back(Box::new(other)),
            }
        }
    }

    async fn save(&mut self, row: &Row, entry: &HistoryEntry) -> Result<(), StoreError> {
        let unreadable = |error: serde_json::Error| StoreError::Unreadable(error.to_string());
        let bytes = serde_json::to_vec(row).map_err(unreadable)?;
        let history = serde_json::to_vec(entry).map_err(unreadable)?;
        let from = self.bound.add(entry.rev, history.len());
        let (texts, start_keys) = match &self.birth {
            Some(birth) => (birth.texts.clone(), birth.start_keys.clone()),
            None => (Vec::new(), Vec::new()),
        };
        let save = Save {
            run: Some(row.id.clone()),
            row: Some(bytes),
            history: Some((entry.rev, history)),
            history_from: from,
            texts,
            start_keys,
            ..Save::default()
        };
        self.shared.store.save(save).await?;
        self.birth = None;
        Ok(())
    }

    /// Everything that was under way when the process died is asked for again.
    async fn reattach(&mut self) {
        let again = core::reattach(&self.program, &self.row);
        self.held = !again.inputs.is_empty();
        self.perform(again.effects);
        for input in again.inputs {
            self.reapply(input).await;
        }
    }

    async fn reapply(&mut self, input: Input) {
        let held = self.held;
        self.apply(input).await;
        self.held = held;
    }

    fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            if let Effect::Forget { serial } = effect {
                if let Some(handle) = self.running.remove(&serial) {
                    handle.abort();
                }
                continue;
            }
            let aborts = matches!(effect, Effect::Abort(_));
            let serial = effect.serial();
            let handle = super::shell::perform(&self.shared, &self.row.id, effect);
            if aborts {
                self.aborting.push(handle);
            } else if let Some(serial) = serial
                && let Some(old) = self.running.insert(serial, handle)
            {
                old.abort(); // one thing at a time runs for an invocation
            }
        }
    }

    fn forget_all(&mut self) {
        for handle in self.running.drain().map(|(_, handle)| handle).chain(self.aborting.drain(..)) {
            handle.abort();
        }
    }
}

/// What a request hears that the store did not take.
fn no_room(error: &StoreError) -> Reply {
    let status = if matches!(error, StoreError::Full { .. }) { FULL_STATUS } else { 400 };
    Reply::Refused { status, error: error.to_string(), allowed: None }
}

/// A row that cannot go on here: kept, readable, never resumed.
pub(super) fn drifted(row: &mut Row, reason: String) {
    row.status = Status::Drifted;
    row.reason = Some(reason);
}
