//! The Orchestrator's HTTP API from the command's side.

use super::exit::{Exit, Failure};
use super::sse::{Decoder, SseEvent};
use futures_util::StreamExt;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::time::Duration;
use tokio::time::Instant;

/// How long a server may take to say that it is there.
const HELLO_LIMIT: Duration = Duration::from_secs(2);
/// How long any other request may take; starts and answers wait for a save.
const REQUEST_LIMIT: Duration = Duration::from_mins(1);
/// A feed that says nothing for this long is dead: pings come every 15 s.
const FEED_SILENCE: Duration = Duration::from_secs(45);

/// Speaks to one Orchestrator.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    base: String,
    token: String,
}

/// One segment of a path.
fn segment(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

impl Client {
    /// To a URL with the Instance token.
    pub fn new(base: &str, token: &str) -> Result<Self, Failure> {
        let mut builder = reqwest::Client::builder().connect_timeout(HELLO_LIMIT);
        if base.starts_with("http://") {
            // Never speaks TLS, so a machine without root certificates can still use it.
            builder = builder.no_proxy().tls_danger_accept_invalid_certs(true);
        }
        let http = builder.build().map_err(|e| Failure::failed(format!("no HTTP client: {e}")))?;
        Ok(Self { http, base: base.trim_end_matches('/').to_owned(), token: token.to_owned() })
    }

    /// Does a server answer?
    pub async fn hello(&self) -> bool {
        let asked = self.http.get(format!("{}/healthz", self.base)).timeout(HELLO_LIMIT).send().await;
        asked.is_ok_and(|answer| answer.status().is_success())
    }

    /// Does it take our token? A port may have gone to another folder's server since.
    pub async fn is_ours(&self) -> bool {
        self.hello().await && self.get("/runs/resolve?prefix=0000").await.is_ok()
    }

    async fn call(&self, request: reqwest::RequestBuilder) -> Result<Value, Failure> {
        let answer = request.bearer_auth(&self.token).timeout(REQUEST_LIMIT).send().await;
        let answer = answer.map_err(|e| Failure::failed(format!("{}: {}", self.base, words(&e))))?;
        let status = answer.status();
        let text = answer.text().await.map_err(|e| Failure::failed(format!("{}: {}", self.base, words(&e))))?;
        let body: Value = serde_json::from_str(&text).unwrap_or(Value::Null);
        if status.is_success() {
            return Ok(body);
        }
        let said = body["error"].as_str().map_or_else(|| format!("HTTP {status}"), str::to_owned);
        Err(match status.as_u16() {
            404 => Failure::new(Exit::NotFound, said),
            401 | 403 => Failure::failed(said).help("JR2_TOKEN must hold the Instance token (.jr2/token)"),
            _ => Failure::failed(said),
        })
    }

    /// `GET` of a path.
    pub async fn get(&self, path: &str) -> Result<Value, Failure> {
        self.call(self.http.get(format!("{}{path}", self.base))).await
    }

    async fn post(&self, path: &str, body: &Value, key: Option<&str>) -> Result<Value, Failure> {
        let mut request = self.http.post(format!("{}{path}", self.base)).json(body);
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        self.call(request).await
    }

    /// Starts a deployed workflow; answers the run's id.
    pub async fn start(&self, workflow: &str, input: &Value, key: Option<&str>) -> Result<String, Failure> {
        let path = format!("/workflows/{}/runs", segment(workflow));
        run_id(&self.post(&path, input, key).await?)
    }

    /// Starts a program; answers the run's id.
    pub async fn start_program(&self, program: &str, input: &Value, key: Option<&str>) -> Result<String, Failure> {
        run_id(&self.post("/runs", &json!({ "program": program, "input": input }), key).await?)
    }

    /// The whole id that a prefix names.
    pub async fn resolve(&self, prefix: &str) -> Result<String, Failure> {
        let status = self.get(&format!("/runs/{}", segment(prefix))).await?;
        run_id(&status)
    }

    /// The whole status.
    pub async fn status(&self, run: &str) -> Result<Value, Failure> {
        self.get(&format!("/runs/{}", segment(run))).await
    }

    /// Answers a Gate.
    pub async fn answer(
        &self,
        run: &str,
        gate: &str,
        body: &Value,
        activation: Option<&str>,
        key: Option<&str>,
    ) -> Result<Value, Failure> {
        let query = activation.map(|a| format!("?activation={}", segment(a))).unwrap_or_default();
        let path = format!("/runs/{}/gates/{}/events{query}", segment(run), segment(gate));
        self.post(&path, body, key).await
    }

    /// An outside event, or `CANCEL`.
    pub async fn event(&self, run: &str, body: &Value, key: Option<&str>) -> Result<Value, Failure> {
        self.post(&format!("/runs/{}/events", segment(run)), body, key).await
    }

    /// History entries from a save on.
    pub async fn history(&self, run: &str, from: u64) -> Result<Value, Failure> {
        self.get(&format!("/runs/{}/history?from={from}", segment(run))).await
    }

    /// Re-steps a run.
    pub async fn replay(&self, run: &str) -> Result<Value, Failure> {
        self.get(&format!("/runs/{}/replay", segment(run))).await
    }

    /// Moves a run to the present text.
    pub async fn adopt(&self, run: &str) -> Result<Value, Failure> {
        self.post(&format!("/runs/{}/adopt", segment(run)), &json!({}), None).await
    }

    /// A run's feed after an id.
    pub async fn feed(&self, run: &str, after: Option<&str>) -> Result<Feed, Failure> {
        let mut request = self.http.get(format!("{}/runs/{}/events", self.base, segment(run)));
        if let Some(id) = after {
            request = request.header("last-event-id", id);
        }
        let answer = request.bearer_auth(&self.token).send().await;
        let answer = answer.map_err(|e| Failure::failed(format!("{}: {}", self.base, words(&e))))?;
        if !answer.status().is_success() {
            let exit = if answer.status().as_u16() == 404 { Exit::NotFound } else { Exit::Failed };
            return Err(Failure::new(exit, format!("the feed of {run}: HTTP {}", answer.status())));
        }
        let bytes = answer.bytes_stream().map(|chunk| chunk.map(|b| b.to_vec())).boxed();
        Ok(Feed { bytes, decoder: Decoder::default(), ready: VecDeque::new(), heard: Instant::now() })
    }
}

fn run_id(body: &Value) -> Result<String, Failure> {
    body["runId"].as_str().map(str::to_owned).ok_or_else(|| Failure::failed(format!("the server answered {body}")))
}

/// A transport error with its causes, without the URL, which may be long.
fn words(error: &reqwest::Error) -> String {
    let mut text = if error.is_connect() { "no server answers".to_owned() } else { error.to_string() };
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// An open feed.
pub struct Feed {
    bytes: futures_util::stream::BoxStream<'static, reqwest::Result<Vec<u8>>>,
    decoder: Decoder,
    ready: VecDeque<SseEvent>,
    heard: Instant,
}

impl Feed {
    /// The next event; `None` when the feed ended, broke or fell silent: whoever wants more joins again by id.
    pub async fn next(&mut self) -> Option<SseEvent> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            // Counted from the last bytes: whoever waits here may give up and come back.
            let chunk = tokio::time::timeout_at(self.heard + FEED_SILENCE, self.bytes.next()).await.ok()??.ok()?;
            self.heard = Instant::now();
            self.ready.extend(self.decoder.feed(&chunk).ok()?);
        }
    }
}
