//! All conversations of this Harness: lookup, admission, abort, the drivers that run Submissions, rebuild and drain.

use super::entries::{close_calls, closing, seating as seating_entries};
use super::log::Entry;
use super::queue::{Admission, Seated};
use super::{Conversation, Handle, Writer, files, record};
use crate::guard::Kill;
use crate::mutation::{self, Mutation};
use crate::turn::step::Stop;
use crate::turn::{self, Job, Means};
use jr2_shared::harness::{Outcome, Settlement, SettlementError, error_type};
use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Most aborts remembered for conversations that are not held yet; the oldest go first.
const AHEAD_MAX: usize = 256;
/// Longest an abort waits for the processes of a call to die before it answers that it is not done.
const ABORT_WAIT: Duration = Duration::from_secs(30);
/// Longest a drain waits for Submissions to settle; what is left settles at the next start.
const DRAIN_WAIT: Duration = Duration::from_secs(20);
/// Random characters of a submission id (spec H-9).
const SUBMISSION_RANDOM_CHARS: usize = 6;

/// An admission that passed every check.
#[derive(Debug)]
pub struct Seating {
    /// The Agent's name.
    pub agent: String,
    /// The iid.
    pub iid: String,
    /// The Orchestrator's id of it.
    pub admission: Option<String>,
    /// Ids of the notices it carries.
    pub carried: Vec<String>,
    /// More came than one admission may carry; the answer says which were taken (decisions 12, 31).
    pub left_out: bool,
    /// The Orchestrator believes the conversation is held (spec H-8).
    pub kept: bool,
    /// What to run.
    pub job: Job,
}

/// An admission's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// The Submission.
    pub submission: String,
    /// Where to wait from.
    pub offset: u64,
    /// Set when it was held already (decision 31), or when not all it brought was taken.
    pub carried: Option<Vec<String>>,
}

/// An abort's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Aborted {
    /// Whether anything ended.
    pub ended: bool,
    /// Admissions it ended, now or before they arrived, that no model was asked with (decision 32).
    pub unprompted: Vec<String>,
}

/// Why nothing was seated, or an abort is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HallError {
    /// `kept: true` and the conversation is not held (decision 27).
    #[error("the conversation is not held here")]
    NotHeld,
    /// Too many Submissions wait.
    #[error("too many Submissions wait in this conversation")]
    Full,
    /// The Harness drains.
    #[error("the Harness is draining")]
    Draining,
    /// A call's processes would not die in time.
    #[error("the abort is under way: the call that ran has not ended yet")]
    AbortUnderWay,
}

/// The hall.
pub struct Hall {
    means: Arc<Means>,
    root: Option<PathBuf>,
    held: Mutex<HashMap<(String, String), Handle>>,
    /// Aborts of conversations not held, as `(iid, admission id)`.
    ahead: Mutex<VecDeque<(String, String)>>,
    drivers: Mutex<JoinSet<()>>,
    /// Held for reading while an admission is seated: a drain waits for those that came in before it.
    seating: tokio::sync::RwLock<()>,
    draining: AtomicBool,
}

impl Hall {
    /// An empty hall; `root` is where conversations persist.
    pub fn new(means: Arc<Means>, root: Option<PathBuf>) -> Self {
        Self {
            means,
            root,
            held: Mutex::default(),
            ahead: Mutex::default(),
            drivers: Mutex::default(),
            seating: tokio::sync::RwLock::default(),
            draining: AtomicBool::new(false),
        }
    }

    /// Reads every record under the root, closes what the last process left open, and settles what was in flight
    /// (spec H-13, H-14, decision 32).
    pub async fn rebuild(&self) -> std::io::Result<()> {
        let Some(root) = &self.root else { return Ok(()) };
        std::fs::create_dir_all(root)?;
        let (rebuilt, unreadable) = record::rebuild_all(root)?;
        for (dir, error) in unreadable {
            tracing::error!("harness: conversation at {} is unreadable, not rebuilt: {error}", dir.display());
        }
        for found in rebuilt {
            let writer = Writer { root: Some(root.clone()), record: Some(found.record), freed: false };
            let entries = closing(&found.log);
            let conversation = Arc::new(Conversation::with(&found.agent, &found.iid, found.log, writer));
            if !entries.is_empty() {
                conversation.append(entries, true).await;
            }
            lock(&self.held).insert((found.agent, found.iid), conversation);
        }
        Ok(())
    }

    /// A conversation that is held.
    pub fn find(&self, agent: &str, iid: &str) -> Option<Handle> {
        let found = lock(&self.held).get(&(agent.to_owned(), iid.to_owned())).cloned();
        found.filter(|conversation| conversation.is_held())
    }

    /// Whether the Harness is told to end.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// Seats an admission; it stands in the record when this returns.
    pub async fn admit(self: &Arc<Self>, seating: Seating) -> Result<Admitted, HallError> {
        let _open = self.seating.read().await;
        loop {
            if self.is_draining() {
                return Err(HallError::Draining);
            }
            let key = (seating.agent.clone(), seating.iid.clone());
            let conversation =
                {
                    let mut held = lock(&self.held);
                    if seating.kept && !held.contains_key(&key) {
                        return Err(HallError::NotHeld);
                    }
                    Arc::clone(held.entry(key).or_insert_with(|| {
                        Arc::new(Conversation::new(&seating.agent, &seating.iid, self.root.clone()))
                    }))
                };
            let mut writer = conversation.writer.lock().await;
            if writer.freed {
                continue;
            }
            if seating.kept && !conversation.is_held() {
                return Err(HallError::NotHeld);
            }
            return self.seat(&conversation, &mut writer, seating).await;
        }
    }

    async fn seat(
        self: &Arc<Self>,
        conversation: &Handle,
        writer: &mut Writer,
        seating: Seating,
    ) -> Result<Admitted, HallError> {
        let ahead: Vec<String> =
            lock(&self.ahead).iter().filter(|(iid, _)| *iid == seating.iid).map(|(_, id)| id.clone()).collect();
        let (admission, offset) = {
            let log = conversation.log();
            (log.queue.admit(seating.admission.as_deref(), &ahead), log.batches)
        };
        let (ordinal, aborted) = match admission {
            Admission::Held(Seated { submission, batch, carried }) => {
                return Ok(Admitted { submission, offset: batch, carried: Some(carried) });
            }
            Admission::Full => return Err(HallError::Full),
            Admission::Seat(ordinal) => (ordinal, false),
            Admission::SeatAborted(ordinal) => (ordinal, true),
        };
        let submission = format!("s-{ordinal}-{}", random_text());
        let taken = seating.left_out.then(|| seating.carried.clone());
        let entries = seating_entries(&submission, seating.admission, seating.carried, aborted);
        if !aborted {
            let mut job = seating.job;
            job.frame.submission.clone_from(&submission);
            conversation.desk().jobs.insert(submission.clone(), job);
        }
        conversation.append_locked(writer, entries, true).await;
        if !aborted {
            self.drive(conversation);
        }
        Ok(Admitted { submission, offset, carried: taken })
    }

    /// Starts the conversation's driver unless it runs.
    fn drive(self: &Arc<Self>, conversation: &Handle) {
        {
            let mut desk = conversation.desk();
            if desk.driving {
                return;
            }
            desk.driving = true;
        }
        let (hall, conversation) = (Arc::clone(self), Arc::clone(conversation));
        let mut drivers = lock(&self.drivers);
        while drivers.try_join_next().is_some() {}
        drivers.spawn(async move { while hall.run_first(&conversation).await {} });
    }

    /// Runs the Submission whose turn it is; false when none waits.
    async fn run_first(self: &Arc<Self>, conversation: &Handle) -> bool {
        let (submission, job, stop) = {
            let log = conversation.log();
            let mut desk = conversation.desk();
            let Some(first) = log.queue.first() else {
                desk.driving = false;
                return false;
            };
            let stop = watch::Sender::new(first.stopped || self.is_draining());
            let receiver = stop.subscribe();
            desk.running = Some(stop);
            (first.submission.clone(), desk.jobs.remove(&first.submission), receiver)
        };
        let why = {
            let (conversation, submission) = (Arc::clone(conversation), submission.clone());
            move || {
                let log = conversation.log();
                let aborted = log.queue.waiting().any(|w| w.submission == submission && w.stopped);
                if aborted { Stop::Abort } else { Stop::Drain }
            }
        };
        let ended = match job {
            // A task of its own, so that a bug in one Submission settles it and no other.
            Some(job) => {
                tokio::spawn(turn::run(Arc::clone(&self.means), Arc::clone(conversation), job, stop, why)).await
            }
            None => Ok(()),
        };
        conversation.desk().running = None;
        let unsettled = conversation.log().queue.first().is_some_and(|first| first.submission == submission);
        if unsettled {
            let words =
                ended.err().map_or_else(|| "it ended without a settlement".to_owned(), |error| error.to_string());
            tracing::error!(iid = %conversation.iid, %submission, "a Submission broke: {words}");
            conversation.append(broken(conversation, &submission), true).await;
        }
        true
    }

    /// Ends Submissions (decision 33); answers when they have settled. A repeat answers the same but for `ended`.
    pub async fn abort(&self, agent: &str, iid: &str, up_to: Option<String>) -> Result<Aborted, HallError> {
        let Some(conversation) = self.find(agent, iid) else {
            return Ok(Aborted { ended: false, unprompted: self.abort_ahead(iid, up_to) });
        };
        let mut durable = conversation.watch();
        let (ends, mut ended) = {
            let mut writer = conversation.writer.lock().await;
            let abort = conversation.log().queue.abort(up_to.as_deref());
            if let (true, Some(up_to)) = (abort.remember, up_to.clone()) {
                conversation.append_locked(&mut writer, vec![Entry::AbortedAhead { up_to }], true).await;
            }
            let log = conversation.log();
            let ended = log.queue.waiting().filter(|w| abort.ends.contains(&w.submission));
            let ended: Vec<String> = ended.filter_map(|w| w.admission.clone()).collect();
            drop(log);
            let first = conversation.log().queue.first().is_some_and(|first| first.stopped);
            if let (true, Some(running)) = (first, &conversation.desk().running) {
                running.send_replace(true);
            }
            (abort.ends, ended)
        };
        let settled = || {
            let log = conversation.log();
            !log.queue.waiting().any(|waiting| ends.contains(&waiting.submission))
        };
        let waited = tokio::time::timeout(ABORT_WAIT, async { while !settled() && durable.changed().await.is_ok() {} });
        waited.await.map_err(|_| HallError::AbortUnderWay)?;
        ended.extend(up_to.filter(|id| !ended.contains(id)));
        let log = conversation.log();
        ended.retain(|id| !log.queue.was_prompted(id));
        Ok(Aborted { ended: !ends.is_empty(), unprompted: ended })
    }

    /// Remembers an abort of a conversation that is not held; answers what it will have ended.
    fn abort_ahead(&self, iid: &str, up_to: Option<String>) -> Vec<String> {
        let Some(id) = up_to else { return Vec::new() };
        let mut ahead = lock(&self.ahead);
        let one = (iid.to_owned(), id.clone());
        if !ahead.contains(&one) {
            if ahead.len() >= AHEAD_MAX {
                ahead.pop_front();
            }
            ahead.push_back(one);
        }
        vec![id]
    }

    /// Puts a memory kill on the stream of every conversation with an active Submission and on no other (spec N-24, N-25).
    pub async fn announce(&self, kill: &Kill) {
        let all: Vec<Handle> = lock(&self.held).values().cloned().collect();
        for conversation in all {
            // Under the writer's lock: no settlement slips in between the look and the event.
            let mut writer = conversation.writer.lock().await;
            let idle = conversation.log().queue.first().is_none() && !mutation::is(Mutation::KillOnIdleStreams);
            if writer.freed || idle {
                continue;
            }
            let Kill { id, at, peak, limit } = kill.clone();
            conversation.append_locked(&mut writer, vec![Entry::MemoryLimit { id, at, peak, limit }], true).await;
        }
    }

    /// Drops conversations that are not live and not busy, with their folders; answers how many (spec 6.2).
    pub async fn retain(&self, live: &std::collections::HashSet<(String, String)>) -> usize {
        let candidates: Vec<Handle> =
            lock(&self.held).iter().filter(|(key, _)| !live.contains(key)).map(|(_, held)| Arc::clone(held)).collect();
        let mut freed = 0;
        for conversation in candidates {
            let mut writer = conversation.writer.lock().await;
            let busy = conversation.log().queue.first().is_some() || conversation.desk().driving;
            if busy || writer.freed || !conversation.is_held() {
                continue;
            }
            writer.freed = true;
            // Out of the way before its place is free: a new conversation of that name must not meet the removal.
            let away = writer.root.as_ref().map(|root| record::folder(root, &conversation.agent, &conversation.iid));
            let away = away.map(|dir| (files::set_freed(&dir), dir));
            lock(&self.held).remove(&(conversation.agent.clone(), conversation.iid.clone()));
            freed += 1;
            let removed = match &away {
                Some((Ok(Some(away)), _)) => remove(away).await,
                Some((Err(_), dir)) => remove(dir).await,
                Some((Ok(None), _)) | None => Ok(()),
            };
            if let (Err(error), Some((_, dir))) = (removed, away) {
                tracing::warn!("harness: {} could not be removed: {error}", dir.display());
            }
        }
        freed
    }

    /// Stops every Submission, the queued ones too, and waits until they have settled (spec H-17).
    pub async fn drain(&self) {
        self.draining.store(true, Ordering::SeqCst);
        let deadline = tokio::time::Instant::now() + DRAIN_WAIT;
        let _ = tokio::time::timeout_at(deadline, self.seating.write()).await;
        let all: Vec<Handle> = lock(&self.held).values().cloned().collect();
        for conversation in all {
            if let Some(running) = &conversation.desk().running {
                running.send_replace(true);
            }
        }
        let all = async {
            loop {
                let mut drivers = std::mem::take(&mut *lock(&self.drivers));
                if drivers.is_empty() {
                    break;
                }
                while drivers.join_next().await.is_some() {}
            }
        };
        if tokio::time::timeout_at(deadline, all).await.is_err() {
            tracing::warn!(
                "harness: a Submission did not settle in {} s; the next start settles it",
                DRAIN_WAIT.as_secs()
            );
        }
    }
}

async fn remove(dir: &Path) -> std::io::Result<()> {
    match tokio::fs::remove_dir_all(dir).await {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// What settles a Submission whose task broke.
fn broken(conversation: &Conversation, submission: &str) -> Vec<Entry> {
    let mut entries = close_calls(&conversation.log(), submission);
    let error = Some(SettlementError {
        kind: error_type::FAILED.to_owned(),
        message: "the Harness broke while it ran this Submission; its log says where".to_owned(),
    });
    let submission_id = submission.to_owned();
    let prompted = conversation.log().queue.first().map(|first| first.prompted);
    let settlement = Settlement { submission_id, outcome: Outcome::Failed, error, prompted, text: None };
    entries.push(Entry::Settled { settlement });
    entries
}

fn random_text() -> String {
    let mut bytes = [0u8; SUBMISSION_RANDOM_CHARS];
    // Ids are unique by their number; the random part only keeps a re-made conversation apart from a lost one.
    let _ = getrandom::fill(&mut bytes);
    bytes.iter().map(|byte| char::from(b"abcdefghijklmnopqrstuvwxyz234567"[usize::from(byte & 31)])).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
