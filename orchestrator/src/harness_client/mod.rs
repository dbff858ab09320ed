//! The Harness wire, client side (spec 6.2, 7.4, 7.8).
//!
//! Decides nothing about a Turn: it carries a request out, asks again where a rule says so, and answers with what
//! happened. Where the Harness listens is asked before every attempt, because a Sandbox that restarted listens elsewhere.

mod admit;
mod ask;
mod connection;
mod ladder;
mod memory_kills;
mod wait;

#[cfg(test)]
mod tests;

pub use admit::AdmitOutcome;
pub use ask::AbortEnd;
pub use connection::{CallError, Connections};
pub use ladder::Ladder;
pub use memory_kills::stream_kill;
pub use wait::WaitEnd;

use crate::workspace::HarnessEndpoint;
use jr2_shared::ids::Iid;
use jr2_telemetry::context::TraceParent;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// The answer to "where does the Harness listen now?".
pub type DialFuture<'a> = Pin<Box<dyn Future<Output = Option<HarnessEndpoint>> + Send + 'a>>;

/// Says where the Harness listens now; `None` = nowhere yet. A plain closure is one too.
pub trait Dial: Send + Sync + 'static {
    /// Asked before every attempt.
    fn endpoint(&self) -> DialFuture<'_>;
}

impl<F> Dial for F
where
    F: Fn() -> Option<HarnessEndpoint> + Send + Sync + 'static,
{
    fn endpoint(&self) -> DialFuture<'_> {
        let endpoint = self();
        Box::pin(async move { endpoint })
    }
}

/// How long things are tried. [`Timing::default`] is the specification's; tests use shorter ones.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// First pause of the ladder (spec P-10).
    pub backoff_first: Duration,
    /// Longest pause of the ladder (spec P-10).
    pub backoff_max: Duration,
    /// How long an admission is tried (spec P-18).
    pub send_window: Duration,
    /// How long "held?" is asked (spec P-40).
    pub held_window: Duration,
    /// How long a read of the memory-kill list may take in all (spec N-42).
    pub kills_window: Duration,
    /// Longest single attempt of anything but a long poll (spec P-10).
    pub attempt: Duration,
    /// Longest single long poll: the Harness's 25 s and slack for a loaded machine (spec 6.2).
    pub long_poll: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            backoff_first: Duration::from_millis(250),
            backoff_max: Duration::from_secs(5),
            send_window: Duration::from_secs(90),
            held_window: Duration::from_secs(30),
            kills_window: Duration::from_secs(5),
            attempt: Duration::from_secs(10),
            long_poll: Duration::from_secs(jr2_shared::harness::LONG_POLL_SECS + 20),
        }
    }
}

/// A client of one Harness. Cheap to clone. Every call may be cancelled by dropping its future.
#[derive(Clone)]
pub struct HarnessClient {
    dial: Arc<dyn Dial>,
    connections: Connections,
    owner_epoch: u64,
    timing: Timing,
    /// What the Harness's spans are part of.
    trace: Option<TraceParent>,
}

impl HarnessClient {
    /// A client that asks `dial` where to go and says `owner_epoch` on every request (decision 4).
    pub fn new(dial: impl Dial, connections: Connections, owner_epoch: u64) -> Self {
        Self { dial: Arc::new(dial), connections, owner_epoch, timing: Timing::default(), trace: None }
    }

    /// The same client, whose requests say which Turn they are part of (W3C trace context).
    pub fn within(mut self, trace: TraceParent) -> Self {
        self.trace = Some(trace);
        self
    }

    /// The same client with other times.
    pub fn with_timing(mut self, timing: Timing) -> Self {
        self.timing = timing;
        self
    }
}

/// `/agents/<agent>/<iid>`, the iid percent-encoded as one segment (decision 26).
fn conversation_path(agent: &str, iid: &Iid) -> String {
    format!("/agents/{}/{}", segment(agent), segment(iid.as_str()))
}

/// Percent-encodes all but RFC 3986's unreserved characters.
fn segment(text: &str) -> String {
    use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
    const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    utf8_percent_encode(text, RESERVED).to_string()
}
