//! The thin shell: one question over HTTP, asked again within the budget.
//!
//! A retry sends the same request anew and drops what the broken answer had streamed. That is safe, because nothing of
//! an answer acts before it is complete: no tool call runs and nothing is recorded.

use super::decode::{Decoder, StreamFault, error_in, server_fault};
use super::quirks::{Quirks, is_overflow, quirks};
use super::retry::{
    IDLE_RETRIES_PER_QUESTION, RETRY_AFTER_MAX, RetryBudget, StatusClass, backoff, classify, retry_after,
};
use super::windows::{self, Windows};
use super::{ModelAnswer, ModelError, ModelRequest, request};
use jr2_shared::harness::{HarnessConfig, Provider};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

/// How long to wait for what.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For a connection.
    pub connect: Duration,
    /// Between two bytes, and before the first: a local server may read a long prompt for minutes.
    pub idle: Duration,
    /// For one whole answer.
    pub total: Duration,
    /// For token counts and `[DONE]` once the finish reason is there.
    pub tail: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            idle: Duration::from_mins(5),
            total: Duration::from_hours(1),
            tail: Duration::from_secs(10),
        }
    }
}

/// Largest body of a refusal that is read, in bytes.
const REFUSAL_MAX_BYTES: usize = 64 << 10;

/// A configuration that cannot work.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// `JR2_CUSTODIAN_URL` is neither `http://…` nor `unix:/…`.
    #[error("the Custodian's URL {0:?} is neither http://… nor unix:/…")]
    Custodian(String),
    /// A provider's wire is not known.
    #[error("provider {id:?}: api {api:?} is not known; known: chat-completions")]
    Api {
        /// The provider.
        id: String,
        /// Its `api`.
        api: String,
    },
    /// A provider's quirk is not in the table.
    #[error(
        "provider {id:?}: quirk {quirk:?} is not known; known: openai, vllm, llama.cpp, ollama, mlx, litellm, generic, \
         each with +reasoning behind it or not"
    )]
    Quirk {
        /// The provider.
        id: String,
        /// Its `quirk`.
        quirk: String,
    },
    /// A provider's base URL is neither absolute nor a path.
    #[error("provider {id:?}: baseUrl {url:?} must start with http://, https:// or /")]
    BaseUrl {
        /// The provider.
        id: String,
        /// Its `baseUrl`.
        url: String,
    },
    /// The HTTP client could not be made.
    #[error("the HTTP client could not be made: {0}")]
    Http(#[from] reqwest::Error),
}

#[derive(Debug)]
struct Route {
    base: String,
    via_custodian: bool,
    provider: Provider,
    quirks: Quirks,
}

/// Asks models; cheap to share behind an `Arc`.
#[derive(Debug)]
pub struct ModelClient {
    routes: BTreeMap<String, Route>,
    direct: reqwest::Client,
    custodian: reqwest::Client,
    timeouts: Timeouts,
    windows: Windows,
}

/// Why one attempt gave no answer.
enum Attempt {
    /// Ask again, if the budget allows; else this is the error.
    Again { error: ModelError, wish: Option<Duration> },
    /// Do not.
    Over(ModelError),
}

impl ModelClient {
    /// A client for every provider of the configuration. `custodian_url` is `http://…` or `unix:/path`.
    ///
    /// # Errors
    /// [`ClientError`] names what is wrong in the configuration.
    pub fn new(config: &HarnessConfig, custodian_url: &str) -> Result<Self, ClientError> {
        Self::with_timeouts(config, custodian_url, Timeouts::default())
    }

    /// The same with other limits.
    ///
    /// # Errors
    /// As [`ModelClient::new`].
    pub fn with_timeouts(config: &HarnessConfig, custodian_url: &str, timeouts: Timeouts) -> Result<Self, ClientError> {
        crate::tls::install();
        let builder = || {
            // A redirect would carry the conversation to a place nobody configured.
            reqwest::Client::builder().connect_timeout(timeouts.connect).redirect(reqwest::redirect::Policy::none())
        };
        let (custodian, root) = match custodian_url.strip_prefix("unix:") {
            Some(path) if path.starts_with('/') => (builder().unix_socket(path), "http://custodian".to_owned()),
            None if custodian_url.starts_with("http://") => {
                (builder().no_proxy(), custodian_url.trim_end_matches('/').to_owned())
            }
            _ => return Err(ClientError::Custodian(custodian_url.to_owned())),
        };
        let mut routes = BTreeMap::new();
        for provider in &config.providers {
            routes.insert(provider.id.clone(), route(provider, &root)?);
        }
        Ok(Self {
            routes,
            direct: builder().build()?,
            custodian: custodian.build()?,
            timeouts,
            windows: Windows::default(),
        })
    }

    /// The context window of a model in tokens: what its server proved, what is configured, or what its `/models` says.
    /// `None` is unknown, and said in the log once.
    pub async fn window(&self, provider_id: &str, model: &str) -> Option<u64> {
        let route = self.routes.get(provider_id)?;
        let at_most = self.windows.proved(provider_id, model);
        if let Some(configured) = route.provider.context_window.filter(|tokens| *tokens > 0) {
            return Some(at_most.map_or(configured, |proved| proved.min(configured)));
        }
        if self.windows.may_look(provider_id, model) {
            let found = self.look(route, model).await;
            self.windows.looked(provider_id, model, found);
        }
        self.windows.known(provider_id, model)
    }

    /// Keeps what a refusal showed of a window (F39). Only ever makes it smaller.
    pub fn proved(&self, provider_id: &str, model: &str, tokens: u64) {
        self.windows.prove(provider_id, model, tokens);
    }

    /// Asks `/models`. The error says whether asking again may help.
    async fn look(&self, route: &Route, model: &str) -> Result<Option<u64>, windows::Unanswered> {
        let answer = async {
            let mut call = self.client(route).get(format!("{}/models", route.base));
            if let Some(bearer) = &route.provider.stand_in {
                call = call.bearer_auth(bearer);
            }
            let mut response = call.send().await.map_err(|_| windows::Unanswered)?;
            let mut body = Vec::new();
            while let Some(bytes) = response.chunk().await.map_err(|_| windows::Unanswered)? {
                body.extend_from_slice(&bytes);
                if body.len() > windows::LIST_MAX_BYTES {
                    return Ok(None);
                }
            }
            Ok(serde_json::from_slice(&body).ok().and_then(|list| windows::window_in(&list, model)))
        };
        tokio::time::timeout(windows::LOOK_WAIT, answer).await.map_err(|_| windows::Unanswered)?
    }

    fn client(&self, route: &Route) -> &reqwest::Client {
        if route.via_custodian { &self.custodian } else { &self.direct }
    }

    /// Most tokens an answer may have: what was asked for, else the provider's configured default.
    pub fn max_tokens(&self, provider_id: &str, asked: Option<u64>) -> Option<u64> {
        asked.or_else(|| self.routes.get(provider_id)?.provider.max_tokens)
    }

    /// Asks once, and again within the budget. `abort` turning `true` ends it at any point; a dropped sender never does.
    ///
    /// # Errors
    /// [`ModelError`]; `Aborted` holds what had arrived.
    pub async fn ask(
        &self,
        provider_id: &str,
        request: &ModelRequest,
        budget: &mut RetryBudget,
        mut abort: watch::Receiver<bool>,
    ) -> Result<ModelAnswer, ModelError> {
        let Some(route) = self.routes.get(provider_id) else {
            let known = self.routes.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            let message = format!("there is no provider {provider_id:?}; known: {known}");
            return Err(ModelError::Provider { status: None, message });
        };
        let body = bytes::Bytes::from(request::body(request, &route.quirks, route.provider.max_tokens));
        let mut idle_retries = 0;
        for retry in 0.. {
            let mut decoder = Decoder::new(call_seed());
            let attempt = tokio::select! {
                biased;
                () = aborted(&mut abort) => return Err(ModelError::Aborted { partial: Box::new(decoder.partial()) }),
                attempt = self.attempt(route, body.clone(), &mut decoder) => attempt,
            };
            let (error, wish) = match attempt {
                Ok(answer) => return Ok(answer),
                Err(Attempt::Over(error)) => return Err(error),
                Err(Attempt::Again { error, wish }) => (error, wish),
            };
            if matches!(error, ModelError::Idle { .. }) {
                idle_retries += 1;
            }
            if idle_retries > IDLE_RETRIES_PER_QUESTION || wish.is_some_and(|w| w > RETRY_AFTER_MAX) || !budget.spend()
            {
                return Err(named(error, retry, wish));
            }
            let wait = wish.unwrap_or_default().max(backoff(retry, random_byte()));
            tracing::warn!(provider = provider_id, retry, wait_ms = wait.as_millis() as u64, %error, "model asked again");
            tokio::select! {
                () = aborted(&mut abort) => return Err(ModelError::Aborted { partial: Box::new(ModelAnswer::empty()) }),
                () = tokio::time::sleep(wait) => {}
            }
        }
        Err(ModelError::Transport { message: "it was asked without end".to_owned() })
    }

    async fn attempt(&self, route: &Route, body: bytes::Bytes, decoder: &mut Decoder) -> Result<ModelAnswer, Attempt> {
        let total = Instant::now() + self.timeouts.total;
        let mut call = self
            .client(route)
            .post(format!("{}/chat/completions", route.base))
            .header("content-type", "application/json")
            .header("accept", "text/event-stream")
            .body(body);
        if let Some(bearer) = &route.provider.stand_in {
            call = call.bearer_auth(bearer);
        }
        let silence = route.provider.idle_seconds.map_or(self.timeouts.idle, Duration::from_secs);
        let idle = |limit: Duration| (Instant::now() + limit).min(total);
        let mut response =
            timeout_at(idle(silence), call.send()).await.map_err(|_| timed_out(total, silence))?.map_err(transport)?;
        if !response.status().is_success() {
            return Err(self.refusal(response).await);
        }
        while !decoder.is_over() {
            let limit = if decoder.has_finish() { self.timeouts.tail } else { silence };
            match timeout_at(idle(limit), response.chunk()).await {
                Ok(Ok(Some(bytes))) => {
                    decoder.push(&bytes);
                }
                Ok(Ok(None)) => break,
                // The answer itself is whole: what breaks after it costs only token counts.
                _ if decoder.has_finish() => break,
                Ok(Err(error)) => return Err(transport(error)),
                Err(_) => return Err(timed_out(total, silence)),
            }
        }
        decoder.finish().map_err(broken)
    }

    async fn refusal(&self, mut response: reqwest::Response) -> Attempt {
        let status = response.status().as_u16();
        let header = |name: &str| response.headers().get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
        let wish =
            retry_after(header("retry-after").as_deref(), header("retry-after-ms").as_deref(), SystemTime::now());
        let mut body = Vec::new();
        let until = Instant::now() + self.timeouts.connect;
        while let Ok(Ok(Some(bytes))) = timeout_at(until, response.chunk()).await {
            body.extend_from_slice(&bytes);
            if body.len() > REFUSAL_MAX_BYTES {
                break;
            }
        }
        let text = String::from_utf8_lossy(&body).into_owned();
        let value = serde_json::from_str(&text).unwrap_or(serde_json::Value::String(text));
        let (code, message) = match server_fault(error_in(&value).unwrap_or(&value)) {
            StreamFault::Server { code, message, .. } => (code, message),
            other => (String::new(), other.to_string()),
        };
        refused(Some(status), &code, message, wish)
    }
}

fn route(provider: &Provider, custodian: &str) -> Result<Route, ClientError> {
    let id = || provider.id.clone();
    if provider.api != "chat-completions" {
        return Err(ClientError::Api { id: id(), api: provider.api.clone() });
    }
    let Some(quirks) = quirks(&provider.quirk) else {
        return Err(ClientError::Quirk { id: id(), quirk: provider.quirk.clone() });
    };
    let base = provider.base_url.trim_end_matches('/');
    let via_custodian = base.starts_with('/');
    if !via_custodian && !base.starts_with("http://") && !base.starts_with("https://") {
        return Err(ClientError::BaseUrl { id: id(), url: provider.base_url.clone() });
    }
    let root = if via_custodian { custodian } else { "" };
    Ok(Route { base: format!("{root}{base}"), via_custodian, provider: provider.clone(), quirks })
}

/// Completes once the abort is there.
async fn aborted(abort: &mut watch::Receiver<bool>) {
    if abort.wait_for(|aborted| *aborted).await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn timed_out(total: Instant, limit: Duration) -> Attempt {
    if Instant::now() >= total {
        let message = "the answer took longer than the limit for one answer".to_owned();
        return Attempt::Over(ModelError::Transport { message });
    }
    Attempt::Again { error: ModelError::Idle { limit, asked: 1 }, wish: None }
}

fn transport(error: reqwest::Error) -> Attempt {
    use std::error::Error as _;
    // Without the URL: it may hold a Stand-in, and people know their provider by its id.
    let error = error.without_url();
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        message = format!("{message}: {cause}");
        source = cause.source();
    }
    let fatal = error.is_builder();
    let error = ModelError::Transport { message };
    if fatal { Attempt::Over(error) } else { Attempt::Again { error, wish: None } }
}

fn broken(fault: StreamFault) -> Attempt {
    match fault {
        StreamFault::Server { status, code, message } => refused(status, &code, message, None),
        // The same question would give the same flood.
        StreamFault::TooBig(_) => Attempt::Over(ModelError::Provider { status: None, message: fault.to_string() }),
        StreamFault::Cut | StreamFault::Malformed => {
            Attempt::Again { error: ModelError::Transport { message: fault.to_string() }, wish: None }
        }
    }
}

fn refused(status: Option<u16>, code: &str, message: String, wish: Option<Duration>) -> Attempt {
    if status.is_none_or(|s| matches!(s, 400 | 413 | 422 | 500)) && is_overflow(code, &message) {
        return Attempt::Over(ModelError::ContextOverflow { message });
    }
    match classify(status, code, &message) {
        StatusClass::Quota => Attempt::Over(ModelError::Limit { message }),
        StatusClass::Limit => Attempt::Again { error: ModelError::Limit { message }, wish },
        StatusClass::Retry => Attempt::Again { error: ModelError::Provider { status, message }, wish },
        StatusClass::Fatal => Attempt::Over(ModelError::Provider { status, message }),
    }
}

/// The error that ends the question says how often it was asked and what wait was refused (F24).
fn named(error: ModelError, retries: u32, wish: Option<Duration>) -> ModelError {
    let mut note = format!(" (asked {} times)", retries + 1);
    if let Some(wish) = wish.filter(|w| *w > RETRY_AFTER_MAX) {
        note = format!("{note}; the provider wants {} s of silence", wish.as_secs());
    }
    match error {
        ModelError::Limit { message } => ModelError::Limit { message: message + &note },
        ModelError::Provider { status, message } => ModelError::Provider { status, message: message + &note },
        ModelError::Transport { message } => ModelError::Transport { message: message + &note },
        ModelError::Idle { limit, .. } => ModelError::Idle { limit, asked: retries + 1 },
        other => other,
    }
}

/// Start of the ids of calls that came without one; random, so that they differ over answers too.
fn call_seed() -> String {
    let mut bytes = [0u8; 6];
    // Without randomness the ids are still unique within the answer.
    let _ = getrandom::fill(&mut bytes);
    let number = bytes.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
    format!("call_{number:012x}_")
}

fn random_byte() -> u8 {
    let mut byte = [128u8];
    let _ = getrandom::fill(&mut byte);
    byte[0]
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
