//! The client side of an Orchestrator: starts runs, follows the feed, answers Gates (spec 12.2).

use super::BenchError;
use futures_util::StreamExt;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Most bytes of one feed event: a longer one is no feed of ours.
const EVENT_MAX_BYTES: usize = 64 << 20;
/// Pause before a lost feed is joined again.
const REJOIN: Duration = Duration::from_millis(50);

/// Where a run stands, as the open feed says it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Standing {
    /// `live`, `done`, `error`, …; empty before anything was said.
    pub(super) status: String,
    /// Active states.
    pub(super) value: Value,
}

impl Standing {
    pub(super) fn parked_at(&self, state: &str) -> bool {
        self.status == "live" && self.value == state
    }

    pub(super) fn ended(&self) -> bool {
        !self.status.is_empty() && self.status != "live"
    }
}

/// An Orchestrator, and one workflow of it.
#[derive(Clone)]
pub(super) struct Orchestrator {
    client: reqwest::Client,
    url: String,
    token: String,
    workflow: String,
}

impl Orchestrator {
    pub(super) fn new(url: &str, token: &str, workflow: &str) -> Result<Self, BenchError> {
        crate::tls::install();
        let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(usize::MAX).build()?;
        let url = url.trim_end_matches('/').to_owned();
        Ok(Self { client, url, token: token.to_owned(), workflow: workflow.to_owned() })
    }

    async fn call(&self, request: reqwest::RequestBuilder, what: &str) -> Result<Value, BenchError> {
        let answer = request.bearer_auth(&self.token).send().await?;
        let status = answer.status();
        let text = answer.text().await?;
        if !status.is_success() {
            return Err(BenchError::Unexpected(format!("{what}: HTTP {status}: {text}")));
        }
        serde_json::from_str(&text).map_err(|e| BenchError::Unexpected(format!("{what}: {e}: {text}")))
    }

    /// Starts a run; its id.
    pub(super) async fn start(&self) -> Result<String, BenchError> {
        let url = format!("{}/workflows/{}/runs", self.url, self.workflow);
        let answer = self.call(self.client.post(url).json(&json!({})), "start").await?;
        answer["runId"]
            .as_str()
            .map(str::to_owned)
            .ok_or_else(|| BenchError::Unexpected(format!("no runId in {answer}")))
    }

    /// Sends an event to a Gate.
    pub(super) async fn answer(&self, run: &str, gate: &str, event: &str) -> Result<(), BenchError> {
        let url = format!("{}/runs/{run}/gates/{gate}/events", self.url);
        self.call(self.client.post(url).json(&json!({"type": event})), "gate").await.map(drop)
    }

    /// The whole status of a run.
    pub(super) async fn status(&self, run: &str) -> Result<Value, BenchError> {
        self.call(self.client.get(format!("{}/runs/{run}", self.url)), "status").await
    }

    /// Every run of the workflow.
    pub(super) async fn list(&self) -> Result<Vec<Value>, BenchError> {
        let url = format!("{}/workflows/{}/runs", self.url, self.workflow);
        let answer = self.call(self.client.get(url), "list").await?;
        Ok(run_list(answer))
    }

    /// Joins the workflow's feed and keeps joined until the board is dropped.
    pub(super) fn follow(&self) -> Board {
        let standings = Arc::new(Standings::default());
        let (this, shared) = (self.clone(), Arc::clone(&standings));
        let (joined_send, joined) = watch::channel(false);
        let task = tokio::spawn(async move {
            loop {
                // Level triggered: whatever was missed is said again at the next join.
                if let Err(error) = this.read_feed(&shared, &joined_send).await {
                    tracing::debug!(%error, "feed lost");
                }
                tokio::time::sleep(REJOIN).await;
            }
        });
        Board { standings, joined, task }
    }

    async fn read_feed(&self, standings: &Standings, joined: &watch::Sender<bool>) -> Result<(), BenchError> {
        let url = format!("{}/workflows/{}/events", self.url, self.workflow);
        let request = self.client.get(url).bearer_auth(&self.token).header("accept", "text/event-stream");
        let mut body = request.send().await?.error_for_status()?.bytes_stream();
        let mut reader = EventReader::default();
        while let Some(bytes) = body.next().await {
            for (event, data) in reader.feed(&bytes?)? {
                standings.take(&event, data);
                joined.send_replace(true);
            }
        }
        Ok(())
    }
}

/// A list of runs, bare or under `runs`.
fn run_list(mut value: Value) -> Vec<Value> {
    let list = if value.is_object() { value["runs"].take() } else { value };
    match list {
        Value::Array(list) => list,
        _ => Vec::new(),
    }
}

/// Who waits for which run.
#[derive(Default)]
struct Standings(Mutex<HashMap<String, watch::Sender<Standing>>>);

impl Standings {
    fn take(&self, event: &str, data: Value) {
        match event {
            "runs" => run_list(data).iter().for_each(|run| self.put(run)),
            "status" => self.put(&data),
            _ => {}
        }
    }

    fn put(&self, run: &Value) {
        let Some(id) = run["runId"].as_str() else { return };
        let standing =
            Standing { status: run["status"].as_str().unwrap_or_default().to_owned(), value: run["value"].clone() };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(id.to_owned()).or_insert_with(|| watch::Sender::new(Standing::default())).send_replace(standing);
    }

    fn watch(&self, id: &str) -> watch::Receiver<Standing> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(id.to_owned()).or_insert_with(|| watch::Sender::new(Standing::default())).subscribe()
    }

    fn forget(&self, id: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }
}

/// What the feed said so far. Ends the feed when dropped.
pub(super) struct Board {
    standings: Arc<Standings>,
    joined: watch::Receiver<bool>,
    task: JoinHandle<()>,
}

impl Board {
    /// Waits for the feed's first frame.
    pub(super) async fn joined(&self, deadline: Duration) -> Result<(), BenchError> {
        let mut joined = self.joined.clone();
        let waited = tokio::time::timeout(deadline, joined.wait_for(|joined| *joined)).await;
        waited.map(drop).map_err(|_| BenchError::Deadline(deadline, "the feed said nothing".to_owned()))
    }

    /// Waits until a run stands as asked.
    pub(super) async fn until(
        &self,
        run: &str,
        deadline: Duration,
        good: impl Fn(&Standing) -> bool,
    ) -> Result<Standing, BenchError> {
        let mut watch = self.standings.watch(run);
        let waited = tokio::time::timeout(deadline, watch.wait_for(|standing| good(standing))).await;
        match waited {
            Ok(Ok(standing)) => Ok(standing.clone()),
            _ => Err(BenchError::Deadline(
                deadline,
                format!("run {run} stands at {:?}", self.standings.watch(run).borrow()),
            )),
        }
    }

    /// Drops what is known of a run.
    pub(super) fn forget(&self, run: &str) {
        self.standings.forget(run);
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Server-sent events from bytes: each event's name and its JSON data.
#[derive(Default)]
struct EventReader {
    rest: Vec<u8>,
    /// How far `rest` was searched for an event's end.
    searched: usize,
}

impl EventReader {
    fn feed(&mut self, bytes: &[u8]) -> Result<Vec<(String, Value)>, BenchError> {
        self.rest.extend_from_slice(bytes);
        let mut events = Vec::new();
        let mut start = 0;
        while let Some(end) = self.rest[self.searched..].windows(2).position(|w| w == b"\n\n") {
            let end = self.searched + end;
            events.extend(event(&self.rest[start..end]));
            start = end + 2;
            self.searched = start;
        }
        self.rest.drain(..start);
        // The last byte may be the first half of an end.
        self.searched = self.rest.len().saturating_sub(1);
        if self.rest.len() > EVENT_MAX_BYTES {
            return Err(BenchError::Unexpected(format!("an event of the feed has more than {EVENT_MAX_BYTES} bytes")));
        }
        Ok(events)
    }
}

fn event(bytes: &[u8]) -> Option<(String, Value)> {
    let text = String::from_utf8_lossy(bytes);
    let field =
        |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim_start));
    let data: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("data:").map(str::trim_start)).collect();
    let data = serde_json::from_str(&data.join("\n")).ok()?;
    Some((field("event").unwrap_or("message").to_owned(), data))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_at_every_split() {
        let text = ": ping\n\nevent: runs\nid: 1.0\ndata: [{\"runId\":\"a\",\"status\":\"live\",\"value\":\"wait\"}]\n\nretry: 2000\n\nevent: status\ndata: {\"runId\":\"b\",\ndata: \"status\":\"done\",\"value\":\"x\"}\n\n";
        for split in 0..=text.len() {
            let mut reader = EventReader::default();
            let mut events = reader.feed(&text.as_bytes()[..split]).unwrap();
            events.extend(reader.feed(&text.as_bytes()[split..]).unwrap());
            assert_eq!(events.len(), 2, "split at {split}");
            let standings = Standings::default();
            for (event, data) in events {
                standings.take(&event, data);
            }
            assert!(standings.watch("a").borrow().parked_at("wait"));
            assert!(standings.watch("b").borrow().ended());
            assert!(!standings.watch("c").borrow().ended());
        }
    }
}
