//! A model that does not answer is said once an outage, and once more when it answers again. The Harness tries again by
//! itself; without a word a person would look at a silent run for a minute.

use super::SandboxEvent;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;

/// A new outage that begins sooner after the last one is not said: a model that answers now and then is no news.
const QUIET: Duration = Duration::from_secs(10);

/// The outages of all Sandboxes of this process.
pub struct Outages {
    events: UnboundedSender<SandboxEvent>,
    known: Mutex<HashMap<(String, String), Outage>>,
}

/// One provider as one Sandbox meets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Outage {
    /// Said and not over.
    down: bool,
    /// When one was last said.
    said: Option<Instant>,
}

impl Outage {
    /// Notes one answer; tells whether it is news.
    fn note(&mut self, fails: bool, now: Instant) -> bool {
        match (self.down, fails) {
            (false, true) if self.said.is_none_or(|at| now.duration_since(at) >= QUIET) => {
                *self = Self { down: true, said: Some(now) };
                true
            }
            (true, false) => {
                self.down = false;
                true
            }
            _ => false,
        }
    }
}

impl Outages {
    /// None yet.
    pub fn new(events: UnboundedSender<SandboxEvent>) -> Self {
        Self { events, known: Mutex::default() }
    }

    /// What became of one request to a provider: `None` = it answered.
    pub fn heard(&self, sandbox: &str, provider: &str, cause: Option<String>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (sandbox.to_owned(), provider.to_owned());
        if cause.is_none() && !known.contains_key(&key) {
            return;
        }
        let now = Instant::now();
        if known.entry(key).or_default().note(cause.is_some(), now) {
            let event = SandboxEvent::Model { name: sandbox.to_owned(), provider: provider.to_owned(), cause };
            let _ = self.events.send(event);
        }
        known.retain(|_, outage| outage.down || outage.said.is_some_and(|at| now.duration_since(at) < QUIET));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_said_once_and_its_end_once() {
        let (mut outage, begun) = (Outage::default(), Instant::now());
        let at = |seconds| begun + Duration::from_secs(seconds);
        let rows = [
            (0, false, false),
            (1, true, true),
            (2, true, false),
            (60, true, false),
            (61, false, true),
            (62, false, false),
            (63, true, true),
            (64, false, true),
            // Flapping: another one so soon is not said, nor is its end.
            (65, true, false),
            (66, false, false),
            (74, true, true),
        ];
        for (second, fails, news) in rows {
            assert_eq!(outage.note(fails, at(second)), news, "second {second}");
        }
    }
}
