//! The memory guard's kills: who hears of one, what is kept of it, and where the guard itself plugs in (spec 10, 9.4).
//!
//! A guard reports each kill twice to [`Reports`]. First `fire`, before it kills: every `bash` call that runs now gets the
//! verdict, so that no call takes the guard's SIGKILL for its command's own end. Then `done`: the kill is kept in the file,
//! and only after that put on the streams (spec M-19).

mod calls;
mod child_group;
mod choice;
mod file;
#[cfg(feature = "test-hooks")]
pub mod injected;
mod keeper;
pub mod kills;
mod lookout;
pub mod meter;
mod pace;
mod place;
mod processes;
pub mod shm;
mod step;
mod watch;

pub use calls::{Calls, RunningCall};
pub use choice::{CgroupUse, Chosen, Circumstances, choose};
pub use file::FILE_NAME;
pub use jr2_shared::isolation::NO_GUARD;
pub use keeper::Keeper;
pub use watch::Watch;

use crate::briefing;
use crate::conversation::Hall;
use jr2_shared::crash::{self, Point};
use jr2_shared::ids::hex;
use jr2_shared::memory_kills::MemoryKill;
use jr2_shared::size::format_memory;
use sha2::{Digest as _, Sha256};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;
use tokio::sync::{mpsc, oneshot};

/// Kills that may wait for the keeper: a guard fires every few milliseconds at most, a write takes a few.
const WAITING_MAX: usize = 64;
/// Bytes of an id: 80 random bits.
const ID_BYTES: usize = 10;

/// One kill of the guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kill {
    /// Its name on every path that reports it (spec N-24).
    pub id: String,
    /// When, RFC 3339.
    pub at: String,
    /// The most that was used, as a Size is written (spec B-14).
    pub peak: String,
    /// The limit, as a Size is written.
    pub limit: String,
}

impl Kill {
    /// A kill now, of `peak` bytes against a limit of `limit`.
    fn new(peak: u64, limit: u64) -> Self {
        let now = SystemTime::now();
        Self {
            id: new_id(now),
            at: humantime::format_rfc3339_millis(now).to_string(),
            peak: format_memory(peak),
            limit: format_memory(limit),
        }
    }

    /// What a running call's result ends with (spec M-5).
    pub fn verdict(&self) -> String {
        briefing::memory_verdict(&self.peak, &self.limit)
    }

    /// As the list keeps it, nobody told yet.
    pub fn kept(&self) -> MemoryKill {
        MemoryKill {
            id: self.id.clone(),
            at: self.at.clone(),
            peak: Some(self.peak.clone()),
            limit: Some(self.limit.clone()),
            told: Vec::new(),
        }
    }
}

/// A random id that is unique even if the random source fails: the time and a count are in it too.
fn new_id(now: SystemTime) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut random = [0u8; 16];
    // What it misses, the rest makes up for.
    let _ = getrandom::fill(&mut random);
    let since = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let mut hash = Sha256::new();
    hash.update(random);
    hash.update(since.to_le_bytes());
    hash.update(COUNT.fetch_add(1, Ordering::Relaxed).to_le_bytes());
    format!("k-{}", hex(&hash.finalize()[..ID_BYTES]))
}

/// Something that kills the Agent's processes at the memory limit.
pub trait MemoryGuard: Send + 'static {
    /// Watches and kills until it is over, reporting every kill. Runs on a thread of its own, so that a runtime that is
    /// short of memory does not hold it up.
    fn watch(self, reports: Reports);
}

/// Starts a guard.
pub fn start(guard: impl MemoryGuard, reports: Reports) -> std::io::Result<()> {
    std::thread::Builder::new().name("memory-guard".into()).spawn(move || guard.watch(reports))?;
    Ok(())
}

/// A kill that is over, and whom to tell when it is kept and said.
type Done = (Kill, oneshot::Sender<()>);

/// Where a guard reports.
#[derive(Clone)]
pub struct Reports {
    calls: Arc<Calls>,
    queue: mpsc::Sender<Done>,
}

impl Reports {
    /// Says that a kill is about to happen: every running `bash` call has the verdict when this returns.
    pub fn fire(&self, peak: u64, limit: u64) -> Kill {
        let kill = Kill::new(peak, limit);
        self.calls.strike(&kill);
        kill
    }

    /// Before more is killed in the same spike: calls that began meanwhile get the same verdict.
    pub fn again(&self, kill: &Kill) {
        self.calls.strike(kill);
    }

    /// Says that the processes are dead. Blocks only while very many kills wait. What it answers resolves when the kill is
    /// kept and on every stream; nobody has to wait for it.
    pub fn done(&self, kill: Kill) -> oneshot::Receiver<()> {
        let (said, resolved) = oneshot::channel();
        // The other end goes with the process only.
        let _ = self.queue.blocking_send((kill, said));
        resolved
    }
}

/// Both ends of the reports: what a guard gets, and the worker that keeps each kill, then says it.
pub fn reports(
    calls: Arc<Calls>,
    keeper: Arc<Keeper>,
    hall: Arc<Hall>,
    shm_private: bool,
) -> (Reports, impl Future<Output = ()>) {
    let (queue, mut waiting) = mpsc::channel::<Done>(WAITING_MAX);
    let worker = async move {
        while let Some((kill, said)) = waiting.recv().await {
            tracing::warn!("{}", log_line(&kill, shm_private));
            crate::telemetry::metrics().kills.inc();
            keeper.keep(&kill).await;
            crash::point(Point::KillKept);
            hall.announce(&kill).await;
            crash::point(Point::KillAnnounced);
            let _ = said.send(());
        }
    };
    (Reports { calls, queue }, worker)
}

/// The log line of a kill (spec M-7); `/dev/shm` is named only where it is cleared (decision 45).
fn log_line(kill: &Kill, shm_private: bool) -> String {
    let cleared = if shm_private { " and cleared /dev/shm" } else { "" };
    format!("jr2 harness: {} — killed the Agent's processes{cleared} (ADR-0061)", kill.verdict())
}

#[cfg(test)]
mod tests {
    use super::*;
    use jr2_shared::memory_kills::{Measure, is_guard_size, read_each};
    use std::collections::HashSet;

    #[test]
    fn m_14_ids_are_unique_and_a_kill_is_within_the_bounds() {
        let kills: Vec<Kill> = (0..1_000).map(|_| Kill::new(u64::MAX, 2 << 30)).collect();
        assert_eq!(kills.iter().map(|kill| &kill.id).collect::<HashSet<_>>().len(), 1_000);
        assert!(is_guard_size(&kills[0].peak) && is_guard_size(&kills[0].limit));
        let value = serde_json::to_value(kills[0].kept()).unwrap();
        let reading = read_each(&[value], Measure::Bytes);
        assert_eq!((reading.kills, reading.faults), (vec![kills[0].kept()], vec![]));
    }

    #[test]
    fn m_05_and_m_07_the_verdict_and_the_log_line_to_the_byte() {
        let kill = Kill::new(2_040_109_466, 2 << 30);
        assert_eq!(kill.verdict(), "killed: memory limit (peak 1.9Gi of 2Gi); use fewer workers or a larger Size");
        assert_eq!(
            log_line(&kill, true),
            "jr2 harness: killed: memory limit (peak 1.9Gi of 2Gi); use fewer workers or a larger Size — killed the Agent's \
             processes and cleared /dev/shm (ADR-0061)"
        );
        assert_eq!(
            log_line(&kill, false),
            "jr2 harness: killed: memory limit (peak 1.9Gi of 2Gi); use fewer workers or a larger Size — killed the Agent's \
             processes (ADR-0061)"
        );
    }
}
