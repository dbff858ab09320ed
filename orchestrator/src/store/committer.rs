//! Group commit (decision 2): saves that are ready together become one write and one flush, then every waiter is woken.
//!
//! While a flush runs the next group gathers. A write or flush that fails, panics or stalls ends everything (decision
//! 43): its waiters and all later saves get the error, and the `fatal` channel tells the host, which then exits.

use super::reader::Keyspace;
use super::write_set::{self, WriteSet, Writes};
use super::{Save, StoreError};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{oneshot, watch};

/// Bytes of saves that share one flush; more waits for the next. sled reuses a segment of its log (512 KiB) once what
/// replaced it lies two segments back; a group this small is flushed to the drive before its own writes get that far, so
/// a power cut cannot keep the reuse and lose the replacement.
const GROUP_MAX_BYTES: usize = 256 << 10;
/// A commit that takes longer is taken for dead: sled can wait for ever on a write that failed behind its back.
pub(super) const STALL_LIMIT: Duration = Duration::from_mins(1);
/// How often the stall watch looks.
const STALL_TICK: Duration = Duration::from_secs(5);

/// What the committer writes to.
pub(super) trait Medium: Send + Sync + 'static {
    /// What lies there now.
    fn space(&self) -> &dyn Keyspace;
    /// Whether `bytes` more fit; [`StoreError::Full`] when not.
    fn room_for(&self, bytes: usize) -> Result<(), StoreError>;
    /// Writes all of it, atomically over any crash, without waiting for the disk.
    fn apply(&self, writes: Writes) -> Result<(), StoreError>;
    /// Waits until everything applied is durable.
    fn flush(&self) -> Result<(), StoreError>;
    /// The error for a failure that only the committer sees.
    fn failed(&self, message: String) -> StoreError;
}

type Done = oneshot::Sender<Result<(), StoreError>>;

#[derive(Default)]
struct State {
    waiting: VecDeque<(Save, Done)>,
    in_flight: Vec<Done>,
    busy_since: Option<Instant>,
    closed: bool,
    failed: Option<StoreError>,
}

struct Shared {
    state: Mutex<State>,
    arrived: Condvar,
    stop_watch: Condvar,
    fatal: watch::Sender<Option<StoreError>>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends everything with `error`.
    fn fail(&self, error: StoreError) {
        let mut state = self.lock();
        if state.failed.is_some() {
            return;
        }
        state.failed = Some(error.clone());
        state.busy_since = None;
        let mut lost = std::mem::take(&mut state.in_flight);
        lost.extend(std::mem::take(&mut state.waiting).into_iter().map(|(_, done)| done));
        drop(state);
        tracing::error!(%error, "the store failed; nothing is retried");
        for done in lost {
            // A saver that stopped waiting needs no answer.
            let _ = done.send(Err(error.clone()));
        }
        self.fatal.send_replace(Some(error));
        self.stop_watch.notify_all();
    }
}

/// The handle: saves go in, and dropping it writes out what still waits.
pub(super) struct Committer {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Committer {
    /// Starts the committer thread and its stall watch.
    pub(super) fn start<M: Medium>(medium: Arc<M>, stall_limit: Duration) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            arrived: Condvar::new(),
            stop_watch: Condvar::new(),
            fatal: watch::Sender::new(None),
        });
        let mut committer = Self { shared: Arc::clone(&shared), threads: Vec::new() };
        let (run, watched) = (Arc::clone(&shared), Arc::clone(&medium));
        let work =
            std::thread::Builder::new().name("store-commit".into()).spawn(move || commit_loop(&run, &*medium))?;
        committer.threads.push(work);
        let watch = std::thread::Builder::new()
            .name("store-watch".into())
            .spawn(move || stall_loop(&shared, &*watched, stall_limit))?;
        committer.threads.push(watch);
        Ok(committer)
    }

    /// Queues a save in the order of the calls; the receiver hears once it is durable, or why not.
    pub(super) fn queue(&self, save: Save) -> Result<oneshot::Receiver<Result<(), StoreError>>, StoreError> {
        write_set::check(&save)?;
        let mut state = self.shared.lock();
        if let Some(error) = &state.failed {
            return Err(error.clone());
        }
        let (done, answer) = oneshot::channel();
        state.waiting.push_back((save, done));
        drop(state);
        self.shared.arrived.notify_one();
        Ok(answer)
    }

    /// Holds an error once the store has failed for good.
    pub(super) fn fatal(&self) -> watch::Receiver<Option<StoreError>> {
        self.shared.fatal.subscribe()
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.closed = true;
        let failed = state.failed.is_some();
        drop(state);
        self.shared.arrived.notify_all();
        self.shared.stop_watch.notify_all();
        if failed {
            // The committer may hang in a dead disk; the process exits without it.
            return;
        }
        for thread in self.threads.drain(..) {
            // A panic of either thread was already told through `fatal`.
            let _ = thread.join();
        }
    }
}

fn commit_loop<M: Medium>(shared: &Shared, medium: &M) {
    while let Some((saves, bytes, only_frees)) = next_group(shared) {
        match commit(medium, &saves, bytes, only_frees) {
            Ok(answer) => {
                let mut state = shared.lock();
                let waiters = std::mem::take(&mut state.in_flight);
                state.busy_since = None;
                drop(state);
                for done in waiters {
                    let _ = done.send(answer.clone());
                }
            }
            Err(error) => return shared.fail(error),
        }
    }
    shared.lock().closed = true;
    shared.stop_watch.notify_all();
}

/// Waits for saves and takes what is ready, in order; `None` when the store is closed or has failed. A save that only
/// frees room is never put beside one that needs room.
fn next_group(shared: &Shared) -> Option<(Vec<Save>, usize, bool)> {
    let mut state = shared.lock();
    while state.waiting.is_empty() {
        if state.closed || state.failed.is_some() {
            return None;
        }
        state = shared.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
    let (mut saves, mut bytes, mut only_frees) = (Vec::new(), 0, None);
    while let Some((save, _)) = state.waiting.front() {
        let frees = write_set::frees(save);
        let weight = write_set::weight(save);
        if *only_frees.get_or_insert(frees) != frees || (bytes > 0 && bytes + weight > GROUP_MAX_BYTES) {
            break;
        }
        bytes += weight;
        if let Some((save, done)) = state.waiting.pop_front() {
            saves.push(save);
            state.in_flight.push(done);
        }
    }
    state.busy_since = Some(Instant::now());
    Some((saves, bytes, only_frees.unwrap_or(false)))
}

/// Commits one group. The inner error refuses the group and leaves the store healthy; the outer one is the end.
fn commit<M: Medium>(
    medium: &M,
    saves: &[Save],
    bytes: usize,
    only_frees: bool,
) -> Result<Result<(), StoreError>, StoreError> {
    if !only_frees && let Err(full) = medium.room_for(bytes) {
        return Ok(Err(full));
    }
    let write = || {
        let mut set = WriteSet::new(medium.space());
        for save in saves {
            set.stage(save)?;
        }
        medium.apply(set.into_writes())?;
        let began = Instant::now();
        let flushed = medium.flush();
        crate::telemetry::metrics().flush.observe(began.elapsed().as_secs_f64());
        flushed
    };
    // sled asserts in places where others return errors.
    let outcome = catch_unwind(AssertUnwindSafe(write));
    outcome.unwrap_or_else(|_| Err(medium.failed("it panicked while it wrote".into()))).map(Ok)
}

fn stall_loop<M: Medium>(shared: &Shared, medium: &M, limit: Duration) {
    let mut state = shared.lock();
    while !state.closed || state.busy_since.is_some() {
        if state.failed.is_some() {
            return;
        }
        if state.busy_since.is_some_and(|since| since.elapsed() >= limit) {
            drop(state);
            let seconds = limit.as_secs();
            return shared.fail(medium.failed(format!("the disk did not take a write within {seconds} s")));
        }
        let tick = STALL_TICK.min(limit);
        state = shared.stop_watch.wait_timeout(state, tick).unwrap_or_else(PoisonError::into_inner).0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jr2_shared::ids::RunId;
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;

    /// A medium whose flushes wait for, and answer, what the test sends.
    struct Scripted {
        space: Empty,
        groups: Mutex<Vec<usize>>,
        flushes: Mutex<mpsc::Receiver<Result<(), StoreError>>>,
        begun: mpsc::Sender<()>,
        room: AtomicUsize,
    }
    struct Empty;
    impl Keyspace for Empty {
        fn get(&self, _: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
            Ok(None)
        }
        fn scan(&self, _: &[u8], _: &[u8], _: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), StoreError> {
            Ok(())
        }
    }
    fn broken(message: &str) -> StoreError {
        StoreError::Failed { path: "here".into(), message: message.into() }
    }
    impl Medium for Scripted {
        fn space(&self) -> &dyn Keyspace {
            &self.space
        }
        fn room_for(&self, bytes: usize) -> Result<(), StoreError> {
            if bytes <= self.room.load(Ordering::SeqCst) {
                return Ok(());
            }
            Err(StoreError::Full { path: "here".into(), message: "bound".into() })
        }
        fn apply(&self, writes: BTreeMap<Vec<u8>, Option<Vec<u8>>>) -> Result<(), StoreError> {
            self.groups.lock().unwrap().push(writes.len());
            Ok(())
        }
        fn flush(&self) -> Result<(), StoreError> {
            self.begun.send(()).unwrap();
            self.flushes.lock().unwrap().recv().unwrap()
        }
        fn failed(&self, message: String) -> StoreError {
            broken(&message)
        }
    }

    struct Rig {
        committer: Committer,
        medium: Arc<Scripted>,
        answer: mpsc::Sender<Result<(), StoreError>>,
        begun: mpsc::Receiver<()>,
    }

    const PATIENCE: Duration = Duration::from_secs(20);

    fn rig(stall: Duration) -> Rig {
        let (answer, flushes) = mpsc::channel();
        let (begun_tx, begun) = mpsc::channel();
        let medium = Arc::new(Scripted {
            space: Empty,
            groups: Mutex::default(),
            flushes: Mutex::new(flushes),
            begun: begun_tx,
            room: AtomicUsize::new(usize::MAX),
        });
        Rig { committer: Committer::start(Arc::clone(&medium), stall).unwrap(), medium, answer, begun }
    }

    fn save(run: &str) -> Save {
        Save { run: Some(RunId(run.into())), row: Some(b"{}".to_vec()), ..Save::default() }
    }

    #[test]
    fn what_arrives_during_a_flush_shares_the_next_one() {
        let rig = rig(PATIENCE);
        let first = rig.committer.queue(save("a")).unwrap();
        rig.begun.recv_timeout(PATIENCE).unwrap();
        let rest: Vec<_> = ["b", "c", "d"].map(|run| rig.committer.queue(save(run)).unwrap()).into();
        rig.answer.send(Ok(())).unwrap();
        rig.answer.send(Ok(())).unwrap();
        first.blocking_recv().unwrap().unwrap();
        for answer in rest {
            answer.blocking_recv().unwrap().unwrap();
        }
        assert_eq!(*rig.medium.groups.lock().unwrap(), [1, 3]);
    }

    #[test]
    fn nothing_is_acknowledged_before_its_flush() {
        let rig = rig(PATIENCE);
        let mut first = rig.committer.queue(save("a")).unwrap();
        rig.begun.recv_timeout(PATIENCE).unwrap();
        assert!(first.try_recv().is_err());
        rig.answer.send(Ok(())).unwrap();
        first.blocking_recv().unwrap().unwrap();
    }

    #[test]
    fn a_failed_flush_ends_everything() {
        let rig = rig(PATIENCE);
        let fatal = rig.committer.fatal();
        let first = rig.committer.queue(save("a")).unwrap();
        rig.begun.recv_timeout(PATIENCE).unwrap();
        let second = rig.committer.queue(save("b")).unwrap();
        rig.answer.send(Err(broken("Input/output error"))).unwrap();
        assert!(first.blocking_recv().unwrap().is_err());
        assert!(second.blocking_recv().unwrap().is_err());
        assert!(rig.committer.queue(save("c")).unwrap_err().to_string().contains("Input/output error"));
        // Nothing was written after the failure.
        assert_eq!(*rig.medium.groups.lock().unwrap(), [1]);
        let mut fatal = fatal;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let told = runtime.block_on(async { tokio::time::timeout(PATIENCE, fatal.wait_for(Option::is_some)).await });
        assert!(told.unwrap().unwrap().is_some());
    }

    #[test]
    fn a_flush_that_never_ends_is_taken_for_dead() {
        let rig = rig(Duration::from_millis(20));
        let first = rig.committer.queue(save("a")).unwrap();
        assert!(first.blocking_recv().unwrap().unwrap_err().to_string().contains("did not take a write"));
        assert!(rig.committer.queue(save("b")).is_err());
        rig.answer.send(Ok(())).unwrap();
    }

    #[test]
    fn a_full_store_refuses_and_still_takes_deletes() {
        let rig = rig(PATIENCE);
        rig.medium.room.store(0, Ordering::SeqCst);
        for _ in 0..3 {
            rig.answer.send(Ok(())).unwrap();
        }
        let refused = rig.committer.queue(save("a")).unwrap().blocking_recv().unwrap();
        assert!(matches!(refused, Err(StoreError::Full { .. })));
        let delete = Save { run: Some(RunId("a".into())), delete: true, ..Save::default() };
        rig.committer.queue(delete).unwrap().blocking_recv().unwrap().unwrap();
        rig.medium.room.store(usize::MAX, Ordering::SeqCst);
        rig.committer.queue(save("a")).unwrap().blocking_recv().unwrap().unwrap();
    }

    #[test]
    fn dropping_the_handle_writes_out_what_waits() {
        let rig = rig(PATIENCE);
        let answers: Vec<_> = ["a", "b"].map(|run| rig.committer.queue(save(run)).unwrap()).into();
        rig.answer.send(Ok(())).unwrap();
        rig.answer.send(Ok(())).unwrap();
        drop(rig.committer);
        for answer in answers {
            answer.blocking_recv().unwrap().unwrap();
        }
    }
}
