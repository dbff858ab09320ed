//! One request over TCP or a Unix socket, its answer read up to a bound.

use super::HarnessClient;
use crate::workspace::HarnessEndpoint;
use bytes::Bytes;
use jr2_shared::harness::{HEADER_NEXT_OFFSET, HEADER_OWNER_EPOCH};
use reqwest::Method;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Longest error text taken from an answer, in bytes: it ends in a fault reason.
const ERROR_TEXT_MAX_BYTES: usize = 2 << 10;
/// Unix-socket clients kept: one a Sandbox that is up; more are made anew when they are needed.
const SOCKET_CLIENTS_MAX: usize = 256;
/// Longest time to connect: everything is local or one hop away.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a call has no usable answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// No Harness listens yet.
    #[error("the Harness is not up")]
    NotUp,
    /// The endpoint's URL is neither `http://…` nor `unix:/path`.
    #[error("`{0}` is no Harness endpoint: it must be `http://HOST:PORT` or `unix:/PATH`")]
    BadEndpoint(String),
    /// No connection.
    #[error("connect: {0}")]
    Connect(String),
    /// The connection broke; the request may have arrived.
    #[error("transport: {0}")]
    Transport(String),
    /// No answer in time; the request may have arrived.
    #[error("no answer after {0:?}")]
    Timeout(Duration),
    /// The answer is longer than it may be.
    #[error("the answer is longer than {0} bytes")]
    TooLarge(usize),
    /// The answer is not what the wire says.
    #[error("the answer is not readable: {0}")]
    Garbage(String),
    /// The Harness answered with an error.
    #[error("HTTP {status}: {error}")]
    Status {
        /// The status.
        status: u16,
        /// Its words.
        error: String,
    },
}

impl CallError {
    /// A short word for the routability line.
    pub(super) fn code(&self) -> String {
        match self {
            Self::NotUp => "not-up".into(),
            Self::BadEndpoint(_) => "bad-endpoint".into(),
            Self::Connect(_) => "connect".into(),
            Self::Transport(_) => "transport".into(),
            Self::Timeout(_) => "timeout".into(),
            Self::TooLarge(_) => "too-large".into(),
            Self::Garbage(_) => "garbage".into(),
            Self::Status { status, .. } => status.to_string(),
        }
    }
}

/// HTTP clients by endpoint, shared by every [`HarnessClient`]. No proxy, no redirect is ever followed.
#[derive(Clone)]
pub struct Connections {
    tcp: reqwest::Client,
    sockets: Arc<Mutex<BTreeMap<String, reqwest::Client>>>,
}

impl Connections {
    /// Fails only when the HTTP client cannot be built.
    pub fn new() -> Result<Self, CallError> {
        Ok(Self { tcp: build(None)?, sockets: Arc::default() })
    }

    fn client(&self, endpoint: &HarnessEndpoint) -> Result<(reqwest::Client, String), CallError> {
        let Some(path) = endpoint.url.strip_prefix("unix:") else {
            if !endpoint.url.starts_with("http://") {
                return Err(CallError::BadEndpoint(endpoint.url.clone()));
            }
            return Ok((self.tcp.clone(), endpoint.url.trim_end_matches('/').to_owned()));
        };
        if !path.starts_with('/') {
            return Err(CallError::BadEndpoint(endpoint.url.clone()));
        }
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        let client = match sockets.get(path) {
            Some(client) => client.clone(),
            None => {
                if sockets.len() >= SOCKET_CLIENTS_MAX {
                    sockets.pop_first();
                }
                let client = build(Some(path))?;
                sockets.insert(path.to_owned(), client.clone());
                client
            }
        };
        Ok((client, "http://localhost".to_owned()))
    }
}

fn build(socket: Option<&str>) -> Result<reqwest::Client, CallError> {
    // The wire is plain HTTP. An own TLS setup without roots keeps the client from asking for a process-wide one.
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| CallError::Connect(error.to_string()))?
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    crate::tls::install();
    let builder = reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIMEOUT);
    let builder = match socket {
        Some(path) => builder.unix_socket(path),
        None => builder,
    };
    builder.build().map_err(|error| CallError::Connect(words(error)))
}

/// What came back, whatever its status.
#[derive(Debug)]
pub(super) struct Answer {
    pub status: u16,
    pub next_offset: Option<String>,
    pub body: Vec<u8>,
}

impl Answer {
    /// The answer's own words, for people.
    pub fn error(&self) -> String {
        let value: Option<serde_json::Value> = serde_json::from_slice(&self.body).ok();
        let said = value.as_ref().and_then(|value| value.get("error")).and_then(|error| error.as_str());
        let mut text = match said {
            Some(text) => text.to_owned(),
            None => String::from_utf8_lossy(&self.body[..self.body.len().min(ERROR_TEXT_MAX_BYTES)]).trim().to_owned(),
        };
        text.truncate(text.floor_char_boundary(ERROR_TEXT_MAX_BYTES));
        if text.is_empty() { "no reason given".to_owned() } else { text }
    }

    /// `kept` of an error body (spec P-42).
    pub fn kept(&self) -> Option<bool> {
        serde_json::from_slice::<serde_json::Value>(&self.body).ok()?.get("kept")?.as_bool()
    }

    /// The body of a 2xx answer.
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T, CallError> {
        if !(200..300).contains(&self.status) {
            return Err(CallError::Status { status: self.status, error: self.error() });
        }
        serde_json::from_slice(&self.body).map_err(|error| CallError::Garbage(error.to_string()))
    }
}

/// One request.
pub(super) struct Request<'a> {
    pub method: Method,
    /// Path and query, percent-encoded.
    pub path: &'a str,
    pub body: Option<Bytes>,
    /// Longest answer in bytes.
    pub answer_max: usize,
    /// Longest attempt.
    pub timeout: Duration,
}

impl HarnessClient {
    /// One attempt.
    pub(super) async fn call(&self, request: Request<'_>) -> Result<Answer, CallError> {
        let timeout = request.timeout;
        match tokio::time::timeout(timeout, self.attempt(request)).await {
            Ok(result) => result,
            Err(_) => Err(CallError::Timeout(timeout)),
        }
    }

    async fn attempt(&self, request: Request<'_>) -> Result<Answer, CallError> {
        let endpoint = self.dial.endpoint().await.ok_or(CallError::NotUp)?;
        let (client, base) = self.connections.client(&endpoint)?;
        let mut sending = client
            .request(request.method, format!("{base}{}", request.path))
            .bearer_auth(&endpoint.token)
            .header(HEADER_OWNER_EPOCH, self.owner_epoch);
        if let Some(trace) = &self.trace {
            sending = sending.header(jr2_telemetry::context::HEADER, trace.to_string());
        }
        if let Some(body) = request.body {
            sending = sending.header(reqwest::header::CONTENT_TYPE, "application/json").body(body);
        }
        let mut response = sending.send().await.map_err(call_error)?;
        let next_offset =
            response.headers().get(HEADER_NEXT_OFFSET).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let mut answer = Answer { status: response.status().as_u16(), next_offset, body: Vec::new() };
        while let Some(chunk) = response.chunk().await.map_err(call_error)? {
            if answer.body.len() + chunk.len() > request.answer_max {
                return Err(CallError::TooLarge(request.answer_max));
            }
            answer.body.extend_from_slice(&chunk);
        }
        Ok(answer)
    }

    /// Random bits for a ladder. Without any, the ladder keeps its lower edge.
    pub(super) fn random_bits() -> u64 {
        getrandom::u64().unwrap_or(0)
    }
}

fn call_error(error: reqwest::Error) -> CallError {
    if error.is_connect() { CallError::Connect(words(error)) } else { CallError::Transport(words(error)) }
}

/// An error with its causes and without its URL, which people see elsewhere.
fn words(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}
