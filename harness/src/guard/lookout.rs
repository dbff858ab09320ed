//! A call that has ended asks the guard for a last look: the kernel may have killed for memory a moment before.
//!
//! Without it a kill by the kernel would reach the model as `SIGKILL` and nothing else (public faults A09, A12).

use rustix::pipe::{PipeFlags, pipe_with};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// The longest wait for a look: a guard takes well under a millisecond for one, and one that is stuck holds nothing up.
const PATIENCE: Duration = Duration::from_millis(500);

/// The asking side and the guard's side of it.
#[derive(Debug)]
pub struct Lookout {
    /// Wakes the guard; without a guard nobody is asked.
    bell: OnceLock<OwnedFd>,
    asked: AtomicU64,
    answered: watch::Sender<u64>,
}

impl Default for Lookout {
    fn default() -> Self {
        Self { bell: OnceLock::new(), asked: AtomicU64::new(0), answered: watch::Sender::new(0) }
    }
}

impl Lookout {
    /// The guard's end of the bell: readable when somebody asks. Once.
    pub fn man(&self) -> io::Result<OwnedFd> {
        let (heard, bell) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        self.bell.set(bell).map_err(|_| io::Error::other("a guard looks already"))?;
        Ok(heard)
    }

    /// The number of the newest question; the guard takes it before it looks.
    pub fn question(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }

    /// The guard has looked since that question.
    pub fn answer(&self, question: u64) {
        self.answered.send_if_modified(|answered| {
            let newer = question > *answered;
            *answered = question.max(*answered);
            newer
        });
    }

    /// Waits until the guard has looked once more.
    pub async fn look(&self) {
        let Some(bell) = self.bell.get() else { return };
        let mut answered = self.answered.subscribe();
        let question = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        // A full pipe rings already.
        let _ = rustix::io::write(bell, b"?");
        let _ = tokio::time::timeout(PATIENCE, answered.wait_for(|number| *number >= question)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[tokio::test]
    async fn a_call_waits_for_the_look_it_asked_for_and_for_nobody_without_a_guard() {
        let lookout = Arc::new(Lookout::default());
        lookout.look().await;
        let heard = lookout.man().unwrap();
        assert!(lookout.man().is_err());
        let asking = tokio::spawn({
            let lookout = Arc::clone(&lookout);
            async move { lookout.look().await }
        });
        tokio::task::yield_now().await;
        assert_eq!(rustix::io::read(&heard, &mut [0; 8]).unwrap(), 1);
        lookout.answer(0);
        assert!(!asking.is_finished());
        lookout.answer(lookout.question());
        asking.await.unwrap();
        // One that is stuck holds nobody up for ever.
        tokio::time::timeout(PATIENCE * 20, lookout.look()).await.unwrap();
    }
}
