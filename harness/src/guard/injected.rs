//! A guard whose kills come from a test, for black-box tests of everything behind a kill. Only with feature `test-hooks`,
//! which no release build has.

use super::{Kill, MemoryGuard, Reports};
use tokio::sync::{mpsc, oneshot};

/// One kill to make: peak and limit in bytes, and where to say that it is kept and on the streams.
type Order = (u64, u64, oneshot::Sender<Kill>);

/// The guard's end.
pub struct Injected(mpsc::Receiver<Order>);

/// The test route's end.
#[derive(Clone)]
pub struct Injector(mpsc::Sender<Order>);

/// Both ends.
pub fn injected() -> (Injector, Injected) {
    let (sender, receiver) = mpsc::channel(1);
    (Injector(sender), Injected(receiver))
}

impl Injector {
    /// Makes a kill; answers it when it is kept and on the streams, `None` when no guard listens.
    pub async fn kill(&self, peak: u64, limit: u64) -> Option<Kill> {
        let (made, answer) = oneshot::channel();
        self.0.send((peak, limit, made)).await.ok()?;
        answer.await.ok()
    }
}

impl MemoryGuard for Injected {
    fn watch(mut self, reports: Reports) {
        while let Some((peak, limit, made)) = self.0.blocking_recv() {
            let kill = reports.fire(peak, limit);
            // Between the two a real guard kills; here each running call kills its own processes.
            let _ = reports.done(kill.clone()).blocking_recv();
            let _ = made.send(kill);
        }
    }
}
