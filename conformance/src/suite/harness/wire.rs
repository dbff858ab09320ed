//! The Harness's routes, client side: every request and answer goes into the journal of the check that sent it.

use crate::suite::case::{Halt, failed};
use crate::suite::stage::Journal;
use reqwest::header::HeaderMap;
use serde_json::Value;
use std::fmt::Write as _;
use std::sync::Arc;

/// Longest body a journal shows, in characters.
const SHOWN_CHARS: usize = 400;

/// Whose bearer a request carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bearer {
    /// The Orchestrator's.
    Right,
    /// Another one.
    Wrong,
    /// No `Authorization` at all.
    None,
}

/// An answer, read whole.
#[derive(Clone, Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Headers.
    pub headers: HeaderMap,
    /// The body.
    pub text: String,
    /// The body's JSON; null when it is none.
    pub value: Value,
}

impl Answer {
    /// A header's value, or the empty text.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The answer when it has this status.
    pub fn expect(self, status: u16, what: &str) -> Result<Self, Halt> {
        if self.status == status {
            return Ok(self);
        }
        failed(format!("{what}: HTTP {} where {status} belongs; body: {}", self.status, shown(&self.text)))
    }
}

/// A client of one Harness.
#[derive(Clone, Debug)]
pub struct Wire {
    http: reqwest::Client,
    base: String,
    bearer: String,
    journal: Arc<Journal>,
}

impl Wire {
    /// A client for `http://host:port` or `unix:/path`.
    pub fn new(url: &str, bearer: &str) -> Result<Self, reqwest::Error> {
        crate::tls::install();
        let builder = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
        let (builder, base) = match url.strip_prefix("unix:") {
            Some(path) => (builder.unix_socket(path), "http://harness".to_owned()),
            None => (builder, url.trim_end_matches('/').to_owned()),
        };
        Ok(Self { http: builder.build()?, base, bearer: bearer.to_owned(), journal: Arc::default() })
    }

    /// The same client, its requests told to this journal.
    pub fn told_to(&self, journal: &Arc<Journal>) -> Self {
        Self { journal: Arc::clone(journal), ..self.clone() }
    }

    /// Sends a request with the right bearer and an optional JSON body.
    pub async fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Answer, Halt> {
        self.send(Bearer::Right, method, path, body.map(Value::to_string)).await
    }

    /// Sends a request with this bearer and this body as it stands.
    pub async fn send(&self, who: Bearer, method: &str, path: &str, body: Option<String>) -> Result<Answer, Halt> {
        self.send_with(who, method, path, body, None).await
    }

    /// The same with one more header.
    pub async fn send_with(
        &self,
        who: Bearer,
        method: &str,
        path: &str,
        body: Option<String>,
        header: Option<(&'static str, String)>,
    ) -> Result<Answer, Halt> {
        let shown_body = body.as_deref().map(|text| format!(" {}", shown(text))).unwrap_or_default();
        let shown_header = header.as_ref().map(|(name, value)| format!(" [{name}: {value}]")).unwrap_or_default();
        let said = format!("{method} {path}{shown_header}{shown_body}");
        let verb = method.parse().map_err(|_| Halt::Failed(format!("{method} is no method")))?;
        let mut request = self.http.request(verb, format!("{}{path}", self.base));
        request = match who {
            Bearer::Right => request.bearer_auth(&self.bearer),
            Bearer::Wrong => request.bearer_auth(format!("not-{}", self.bearer)),
            Bearer::None => request,
        };
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body);
        }
        let answer = match request.send().await {
            Ok(answer) => answer,
            Err(error) => return failed(format!("{said}: no answer: {}", chain(&error))),
        };
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        let text = answer.text().await.map_err(|e| Halt::Failed(format!("{said}: a broken answer: {}", chain(&e))))?;
        self.journal.note(format!("{said} -> {status} {}", shown(&text)));
        let value = serde_json::from_str(&text).unwrap_or_default();
        Ok(Answer { status, headers, text, value })
    }

    /// Whether the Harness answers `/healthz`.
    pub async fn is_up(&self) -> bool {
        let answer = self.http.get(format!("{}/healthz", self.base)).send().await;
        matches!(answer, Ok(answer) if answer.status() == 204)
    }

    /// The bearer it sends.
    pub fn bearer(&self) -> &str {
        &self.bearer
    }
}

/// The beginning of a text.
fn shown(text: &str) -> String {
    let mut head: String = text.chars().take(SHOWN_CHARS).collect();
    if head.len() < text.len() {
        // Writing to a String cannot fail.
        let _ = write!(head, "… ({} bytes)", text.len());
    }
    head
}

/// An error and its causes on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
