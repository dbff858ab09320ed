//! The `bash` calls that run now: a kill gives each of them its verdict (spec M-6).

use super::Kill;
use super::lookout::Lookout;
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsRawFd as _, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::sync::watch;

/// All running calls.
#[derive(Debug, Default)]
pub struct Calls {
    running: Mutex<Running>,
    lookout: Lookout,
    /// The way into the cgroup of the Agent's own, where there is one.
    door: OnceLock<File>,
}

#[derive(Debug, Default)]
struct Running {
    next: u64,
    calls: HashMap<u64, watch::Sender<Option<Kill>>>,
}

/// One running call; it is over when this is dropped.
#[derive(Debug)]
pub struct RunningCall {
    calls: Arc<Calls>,
    number: u64,
    verdict: watch::Receiver<Option<Kill>>,
}

impl Calls {
    /// Registers a call, before it starts anything.
    pub fn begin(self: &Arc<Self>) -> RunningCall {
        let (sender, verdict) = watch::channel(None);
        let mut running = self.lock();
        let number = running.next;
        running.next += 1;
        running.calls.insert(number, sender);
        drop(running);
        RunningCall { calls: Arc::clone(self), number, verdict }
    }

    /// Gives every running call the verdict; a call's first one stands.
    pub fn strike(&self, kill: &Kill) {
        for call in self.lock().calls.values() {
            call.send_if_modified(|verdict| {
                let first = verdict.is_none();
                if first {
                    *verdict = Some(kill.clone());
                }
                first
            });
        }
    }

    /// Where a call asks the guard to look.
    pub(super) fn lookout(&self) -> &Lookout {
        &self.lookout
    }

    /// Commands enter here before they start; the first door stands.
    pub(super) fn open_door(&self, door: File) {
        // Set once, at the Harness's start.
        let _ = self.door.set(door);
    }

    fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunningCall {
    /// Resolves when a kill takes this call.
    pub async fn killed(&mut self) -> Kill {
        loop {
            if let Some(kill) = self.verdict.borrow_and_update().clone() {
                return kill;
            }
            if self.verdict.changed().await.is_err() {
                // The sender lives as long as this registration; without one no kill can come.
                std::future::pending::<()>().await;
            }
        }
    }
}

impl RunningCall {
    /// Its command has ended: the guard looks once more, and a kill that took it a moment ago is answered.
    pub async fn last_look(&mut self) -> Option<Kill> {
        self.calls.lookout.look().await;
        self.verdict.borrow_and_update().clone()
    }

    /// The file that a command writes `0` to, to enter its cgroup; it stays open as long as the process.
    pub fn door(&self) -> Option<RawFd> {
        self.calls.door.get().map(|door| door.as_raw_fd())
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        self.calls.lock().calls.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn m_06_every_running_call_gets_the_first_verdict_and_a_later_call_none() {
        let calls = Arc::new(Calls::default());
        let (mut a, mut b) = (calls.begin(), calls.begin());
        let gone = calls.begin();
        drop(gone);
        let (first, second) = (Kill::new(3, 4), Kill::new(5, 6));
        calls.strike(&first);
        let mut late = calls.begin();
        calls.strike(&second);
        assert_eq!((a.killed().await, b.killed().await), (first.clone(), first), "MT-5");
        assert_eq!(late.killed().await, second, "only what came while it ran");
        drop((a, b, late));
        assert!(calls.lock().calls.is_empty());
    }
}
