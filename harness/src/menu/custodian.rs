//! The Custodian's control routes, client side: surface, picks, outstanding answers (spec 7.2, 7.3, decisions 13, 21, 34).

use super::{Ladder, Menu};
use crate::mutation::{self, Mutation};
use futures_util::StreamExt;
use jr2_shared::harness::HEADER_CUSTODIAN;
use jr2_shared::surface::{PickAnswer, Refusal, Surface};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::StatusCode;
use reqwest::header::{ETAG, IF_NONE_MATCH};
use serde_json::{Map, Value};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Largest body read from a control route in bytes: a Menu of a few hundred events with schemas fits many times.
const ANSWER_MAX_BYTES: usize = 4 << 20;
/// Longest re-read at a step boundary (decision 21).
const REREAD_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest post of a pick that may not be repeated: the Orchestrator answers after one save, so this is generous.
const PICK_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest single poll for an outstanding answer: the Orchestrator holds one for 25 s (decision 13).
const AWAIT_TIMEOUT: Duration = Duration::from_secs(40);
/// Longest detail of a failure that reaches a model or a log line, in characters.
const DETAIL_MAX_CHARS: usize = 300;
/// Longest refusal that reaches a model, in characters: a schema error with its path fits many times.
const REFUSAL_MAX_CHARS: usize = 4_000;
/// One path segment: everything but unreserved characters is escaped.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'~');

/// What the first surface read came to.
#[derive(Clone, Debug, PartialEq)]
pub enum SurfaceRead {
    /// The Menu and its `ETag`.
    Found(Menu, Option<String>),
    /// 404: the Turn is over (spec P-14).
    Gone,
    /// Nothing usable came (spec P-12); the words settle the Submission.
    Failed(String),
    /// The Submission was stopped meanwhile.
    Stopped,
}

/// What a re-read at a step boundary came to (decision 21).
#[derive(Clone, Debug, PartialEq)]
pub enum Reread {
    /// 304.
    Unchanged,
    /// A new body.
    Changed(Menu, Option<String>),
    /// 404: the Turn is over.
    Gone,
    /// No answer: nothing is said.
    Unknown,
}

/// What a pick came to.
#[derive(Clone, Debug, PartialEq)]
pub enum PickOutcome {
    /// It was delivered.
    Answered(Box<PickAnswer>),
    /// It was not, or nobody knows.
    Refused(PickRefusal),
    /// The Submission was stopped while it was outstanding.
    Stopped,
}

/// Why a pick was not taken (E1 to E6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PickRefusal {
    /// E1.
    Transport {
        /// What failed.
        detail: String,
    },
    /// E2.
    Gone,
    /// E3.
    Unavailable {
        /// The Orchestrator's words.
        error: String,
    },
    /// E4.
    Custodian {
        /// The Custodian's words.
        detail: String,
    },
    /// E5.
    Invalid {
        /// The Orchestrator's words.
        error: String,
        /// Allowed now, when said.
        allowed: Option<Vec<String>>,
    },
    /// E6.
    Other {
        /// HTTP status.
        status: u16,
    },
}

/// The client.
pub struct Custodian {
    http: reqwest::Client,
    base: String,
    token: Option<String>,
    ladder: Ladder,
}

impl Custodian {
    /// A client for `JR2_CUSTODIAN_URL` (`http://…` or `unix:/path`).
    pub fn new(url: &str, token: Option<String>, ladder: Ladder) -> Result<Self, reqwest::Error> {
        // Proxies of the environment are for the Agent's processes, never for control routes.
        crate::tls::install();
        let builder = reqwest::Client::builder().no_proxy();
        let (builder, base) = match url.strip_prefix("unix:") {
            Some(path) => (builder.unix_socket(path), "http://custodian".to_owned()),
            None => (builder, url.to_owned()),
        };
        Ok(Self { http: builder.build()?, base, token, ladder })
    }

    /// The first read of a Submission's surface, on the ladder of spec P-10; ends early when `stop` turns true.
    pub async fn surface(&self, iid: &str, mut stop: watch::Receiver<bool>) -> SurfaceRead {
        tokio::select! {
            read = self.surface_ladder(iid) => read,
            Ok(_) = stop.wait_for(|stop| *stop) => SurfaceRead::Stopped,
        }
    }

    async fn surface_ladder(&self, iid: &str) -> SurfaceRead {
        let url = self.url(iid, "surface");
        let start = Instant::now();
        let mut attempts = 0;
        let mut last = "";
        loop {
            attempts += 1;
            let detail = match self.read_surface(&url, None, self.ladder.attempt).await {
                Ok(Read::Ok(read)) => {
                    if attempts > 1 {
                        let ms = start.elapsed().as_millis();
                        tracing::info!(
                            "jr2.routability seat=surface attempts={attempts} ms={ms} last={last} url={url}"
                        );
                    }
                    return read;
                }
                Ok(Read::Again { code, detail }) => {
                    last = code;
                    detail
                }
                Ok(Read::Unchanged) => return SurfaceRead::Failed(format!("{url} answered 304 to a first read")),
                Err(failure) => {
                    last = failure.code;
                    failure.detail
                }
            };
            match self.ladder.next(attempts, start.elapsed(), random()) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return SurfaceRead::Failed(format!("the Orchestrator never answered {url}: {detail}")),
            }
        }
    }

    /// Asks once more at a step boundary: one attempt of 2 s (decision 21).
    pub async fn reread(&self, iid: &str, etag: Option<&str>) -> Reread {
        match self.read_surface(&self.url(iid, "surface"), etag, REREAD_TIMEOUT).await {
            Ok(Read::Ok(SurfaceRead::Found(menu, etag))) => Reread::Changed(menu, etag),
            Ok(Read::Ok(SurfaceRead::Gone)) => Reread::Gone,
            Ok(Read::Unchanged) => Reread::Unchanged,
            Ok(_) | Err(_) => Reread::Unknown,
        }
    }

    async fn read_surface(&self, url: &str, etag: Option<&str>, limit: Duration) -> Result<Read, Failure> {
        let mut request = self.request(reqwest::Method::GET, url).timeout(limit);
        if let Some(etag) = etag {
            request = request.header(IF_NONE_MATCH, etag);
        }
        let answer = Answer::of(request).await?;
        Ok(match answer.status {
            StatusCode::OK => Read::Ok(answer.surface(url)),
            StatusCode::NOT_MODIFIED if etag.is_some() => Read::Unchanged,
            StatusCode::NOT_FOUND => Read::Ok(SurfaceRead::Gone),
            StatusCode::SERVICE_UNAVAILABLE => Read::Again { code: "503", detail: answer.error() },
            StatusCode::BAD_GATEWAY if answer.custodian => Read::Again { code: "502", detail: answer.error() },
            status => Read::Ok(SurfaceRead::Failed(format!(
                "the surface of \"{}\" could not be read: HTTP {}: {}",
                last_segment_owner(url),
                status.as_u16(),
                answer.error()
            ))),
        })
    }

    /// Posts a pick. An outcome that is unknown is re-sent under the same id only when the Orchestrator dedupes
    /// (`keyed`, decision 34); otherwise there is one attempt (spec P-8). Ends early when `stop` turns true.
    pub async fn pick(
        &self,
        iid: &str,
        pick_id: &str,
        event: &str,
        arguments: &Map<String, Value>,
        keyed: bool,
        mut stop: watch::Receiver<bool>,
    ) -> PickOutcome {
        let mut body = arguments.clone();
        body.shift_remove("type");
        if keyed {
            body.insert("pickId".into(), Value::String(pick_id.to_owned()));
        }
        // Last, so that no argument can change the event (spec P-4).
        body.insert("type".into(), Value::String(event.to_owned()));
        let body = Value::Object(body);
        tokio::select! {
            outcome = self.pick_ladder(iid, &body, keyed) => outcome,
            Ok(_) = stop.wait_for(|stop| *stop) => PickOutcome::Stopped,
        }
    }

    async fn pick_ladder(&self, iid: &str, body: &Value, keyed: bool) -> PickOutcome {
        let url = self.url(iid, "events");
        let start = Instant::now();
        let mut attempts = 0;
        let again = keyed || mutation::is(Mutation::PickRetried);
        loop {
            attempts += 1;
            let limit = if keyed { self.ladder.attempt } else { PICK_TIMEOUT };
            let request = self.request(reqwest::Method::POST, &url).timeout(limit).json(body);
            let refusal = match Answer::of(request).await {
                Ok(answer) => match answer.pick() {
                    PickOutcome::Refused(refusal) => refusal,
                    other => return other,
                },
                Err(failure) => PickRefusal::Transport { detail: failure.detail },
            };
            let unknown = matches!(
                refusal,
                PickRefusal::Transport { .. } | PickRefusal::Unavailable { .. } | PickRefusal::Custodian { .. }
            );
            match self.ladder.next(attempts, start.elapsed(), random()).filter(|_| again && unknown) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return PickOutcome::Refused(refusal),
            }
        }
    }

    /// Polls for the answer of an outstanding pick until it comes, the Turn ends, or `stop` turns true (decision 13).
    pub async fn outstanding(&self, iid: &str, delivery_id: &str, mut stop: watch::Receiver<bool>) -> PickOutcome {
        let url = format!("{}/{}", self.url(iid, "events"), utf8_percent_encode(delivery_id, SEGMENT));
        let poll = async {
            let mut failed = 0;
            loop {
                match Answer::of(self.request(reqwest::Method::GET, &url).timeout(AWAIT_TIMEOUT)).await {
                    // Held by the far side, so asked again at once.
                    Ok(answer) if answer.status == StatusCode::NO_CONTENT => {
                        failed = 0;
                        continue;
                    }
                    Ok(answer) => match answer.pick() {
                        PickOutcome::Answered(answer) if answer.outstanding => failed += 1,
                        PickOutcome::Refused(_) if answer.may_pass() => failed += 1,
                        other => return other,
                    },
                    Err(_) => failed += 1,
                }
                tokio::time::sleep(self.ladder.wait(failed, random())).await;
            }
        };
        tokio::select! {
            outcome = poll => outcome,
            Ok(_) = stop.wait_for(|stop| *stop) => PickOutcome::Stopped,
        }
    }

    fn url(&self, iid: &str, leaf: &str) -> String {
        format!("{}/agents/{}/{leaf}", self.base, utf8_percent_encode(iid, SEGMENT))
    }

    fn request(&self, method: reqwest::Method, url: &str) -> reqwest::RequestBuilder {
        let request = self.http.request(method, url);
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }
}

/// A surface answer, "as before", or a reason to ask again.
enum Read {
    Ok(SurfaceRead),
    Unchanged,
    Again { code: &'static str, detail: String },
}

/// A request without an answer.
struct Failure {
    code: &'static str,
    detail: String,
}

/// An answer with its bounded body.
struct Answer {
    status: StatusCode,
    etag: Option<String>,
    custodian: bool,
    body: Vec<u8>,
}

impl Answer {
    async fn of(request: reqwest::RequestBuilder) -> Result<Self, Failure> {
        let failure = |error: reqwest::Error| Failure {
            code: if error.is_timeout() { "timeout" } else { "transport" },
            detail: bounded(&chain(&error)),
        };
        let answer = request.send().await.map_err(failure)?;
        let header = |name: &str| answer.headers().get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
        let (status, etag, custodian) =
            (answer.status(), header(ETAG.as_str()), header(HEADER_CUSTODIAN).as_deref() == Some("unreachable"));
        let mut body = Vec::new();
        let mut stream = answer.bytes_stream();
        while let Some(chunk) = stream.next().await {
            let chunk = chunk.map_err(failure)?;
            if body.len() + chunk.len() > ANSWER_MAX_BYTES {
                return Err(Failure { code: "size", detail: format!("the answer is over {ANSWER_MAX_BYTES} bytes") });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Self { status, etag, custodian, body })
    }

    fn surface(self, url: &str) -> SurfaceRead {
        match read_surface(&self.body) {
            Ok(Ok(menu)) => SurfaceRead::Found(menu, self.etag),
            Ok(Err(words)) => SurfaceRead::Failed(words),
            Err(error) => SurfaceRead::Failed(format!("{url} answered something that is no surface: {error}")),
        }
    }

    /// Whether asking the same once more may give something else: reading an outstanding answer changes nothing, so
    /// everything that is not a plain "no" is asked again.
    fn may_pass(&self) -> bool {
        let wait = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_MANY_REQUESTS];
        self.status.is_success() || self.status.is_server_error() || wait.contains(&self.status)
    }

    fn pick(&self) -> PickOutcome {
        let refused = PickOutcome::Refused;
        match self.status {
            StatusCode::OK => match serde_json::from_slice::<PickAnswer>(&self.body) {
                Ok(answer) => PickOutcome::Answered(Box::new(answer)),
                Err(error) => {
                    refused(PickRefusal::Transport { detail: bounded(&format!("unreadable answer: {error}")) })
                }
            },
            StatusCode::NOT_FOUND => refused(PickRefusal::Gone),
            StatusCode::SERVICE_UNAVAILABLE => refused(PickRefusal::Unavailable { error: self.error() }),
            StatusCode::BAD_GATEWAY if self.custodian => refused(PickRefusal::Custodian { detail: self.error() }),
            StatusCode::BAD_REQUEST => {
                let (error, allowed) = match serde_json::from_slice::<Refusal>(&self.body) {
                    Ok(refusal) => (refusal.error.chars().take(REFUSAL_MAX_CHARS).collect(), refusal.allowed),
                    Err(_) => (self.error(), None),
                };
                refused(PickRefusal::Invalid { error, allowed })
            }
            status => refused(PickRefusal::Other { status: status.as_u16() }),
        }
    }

    /// The `error` of the body, or its beginning.
    fn error(&self) -> String {
        #[derive(serde::Deserialize)]
        struct Body {
            error: String,
        }
        let text = serde_json::from_slice::<Body>(&self.body)
            .map_or_else(|_| String::from_utf8_lossy(&self.body).into_owned(), |body| body.error);
        bounded(&text)
    }
}

/// Reads the body of a surface answer: the Menu, or E7 in the inner error.
pub fn read_surface(body: &[u8]) -> serde_json::Result<Result<Menu, String>> {
    serde_json::from_slice::<Surface>(body).map(Menu::of)
}

/// An error and its causes on one line: reqwest's own display hides why.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

fn bounded(text: &str) -> String {
    crate::briefing::one_line(text).chars().take(DETAIL_MAX_CHARS).collect()
}

/// The iid of a surface URL, still percent-encoded.
fn last_segment_owner(url: &str) -> &str {
    url.trim_end_matches("/surface").rsplit('/').next().unwrap_or(url)
}

fn random() -> u32 {
    getrandom::u32().unwrap_or(u32::MAX / 2)
}

#[cfg(test)]
#[path = "custodian_tests.rs"]
mod tests;
