//! The scripted model's sockets: reads requests, asks the pure parts what to say, writes it as slowly or as badly as told.

use super::answer::{End, Reply, render};
use super::lanes::Lane;
use super::matching::{Counts, captures, fits};
use super::record::{RecordedRequest, Recorder};
use super::request::Seen;
use super::script::Script;
use bytes::Bytes;
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::json;
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::net::TcpListener;

/// Largest request body in bytes: more than the longest window a harness may fill.
pub const BODY_MAX_BYTES: usize = 32 << 20;
/// How many rules an error explains, so that it stays readable.
const EXPLAINED_RULES: usize = 20;

/// Most conversations whose requests are counted; beyond it the counts begin anew, so that memory is bounded.
const COUNTED_CONVERSATIONS: usize = 65_536;

/// The rule's name in the record of a request that a lane answered.
const LANE_RULE: &str = "(lane)";

/// What all connections share.
pub(super) struct Shared {
    script: Script,
    state: Mutex<State>,
}

/// What a restart forgets, and the record.
#[derive(Default)]
pub(super) struct State {
    pub(super) recorder: Recorder,
    calls: u64,
    conversation_calls: HashMap<String, u64>,
    uses: HashMap<usize, u64>,
    pub(super) lanes: HashMap<String, Arc<Lane>>,
}

impl Shared {
    pub(super) fn new(script: Script, recorder: Recorder) -> Self {
        Self { script, state: Mutex::new(State { recorder, ..State::default() }) }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves until the task is dropped.
pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors: others may close.
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let service = hyper::service::service_fn(move |request| handle(request, Arc::clone(&shared)));
            let connection = hyper::server::conn::http1::Builder::new()
                .serve_connection(hyper_util::rt::TokioIo::new(stream), service);
            // A cut answer ends here as an error: that is its purpose.
            let _ = connection.await;
        });
    }
}

/// The connection is to close without an answer.
#[derive(Debug, thiserror::Error)]
#[error("closed as the script says")]
struct Closed;

type Body = UnsyncBoxBody<Bytes, Closed>;

async fn handle(request: Request<Incoming>, shared: Arc<Shared>) -> Result<Response<Body>, Closed> {
    let (parts, body) = request.into_parts();
    if parts.method == Method::GET && parts.uri.path().ends_with("/models") {
        // Not recorded: it is no question.
        return respond(models(&shared.script)).await;
    }
    let mut record = RecordedRequest {
        method: parts.method.to_string(),
        path: parts.uri.path().to_owned(),
        headers: parts
            .headers
            .iter()
            .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
            .collect(),
        ..RecordedRequest::default()
    };
    let reply = match Limited::new(body, BODY_MAX_BYTES).collect().await {
        Ok(body) => {
            record.body_text = String::from_utf8_lossy(&body.to_bytes()).into_owned();
            record.body = serde_json::from_str(&record.body_text).unwrap_or_default();
            answer(&parts.method, &mut record, &shared).await
        }
        Err(_) => refuse(&mut record, 413, "too_large", format!("the body has more than {BODY_MAX_BYTES} bytes")),
    };
    record.status = reply.status;
    let recorded = shared.lock().recorder.add(record);
    let reply = match recorded {
        Ok(()) => reply,
        Err(error) => Reply::error(500, "record_failed", &format!("the record could not be written: {error}")),
    };
    respond(reply).await
}

fn models(script: &Script) -> Reply {
    let model = |id: &String| json!({"id": id, "object": "model", "created": 0, "owned_by": "scripted"});
    let list: Vec<_> = script.models.iter().map(model).collect();
    Reply::json(200, &json!({"object": "list", "data": list}))
}

async fn answer(method: &Method, record: &mut RecordedRequest, shared: &Shared) -> Reply {
    if method != Method::POST || !record.path.ends_with("/chat/completions") {
        return refuse(record, 404, "not_found", "only POST …/chat/completions and GET …/models are served".to_owned());
    }
    let seen = match Seen::read(&record.path, record.headers.clone(), record.body_text.clone()) {
        Ok(seen) => seen,
        Err(problem) => return refuse(record, 400, "invalid_request_error", problem),
    };
    record.conversation.clone_from(&seen.conversation);
    record.problems = seen.problems();
    let lane = shared.lock().lanes.get(&seen.model).cloned();
    if let Some(lane) = lane {
        record.rule = Some(LANE_RULE.to_owned());
        return lane.answer(record, &seen).await;
    }
    if shared.script.strict && !record.problems.is_empty() {
        return refuse(record, 400, "invalid_request_error", record.problems.join("; "));
    }
    choose(&seen, record, shared)
}

/// Finds the first rule that fits, counts it, and renders its answer.
fn choose(seen: &Seen, record: &mut RecordedRequest, shared: &Shared) -> Reply {
    let values = captures(&shared.script, seen);
    let mut against = Vec::new();
    let mut state = shared.lock();
    state.calls += 1;
    if state.conversation_calls.len() >= COUNTED_CONVERSATIONS {
        state.conversation_calls.clear();
    }
    let of_conversation = state.conversation_calls.entry(seen.conversation.clone()).or_default();
    *of_conversation += 1;
    let counts = Counts { conversation_call: *of_conversation, call: state.calls };
    for (index, rule) in shared.script.rules.iter().enumerate() {
        let used = state.uses.get(&index).copied().unwrap_or(0);
        let fit = fits(&rule.when, seen, &values, counts);
        match fit {
            Ok(()) if rule.times.is_some_and(|times| used >= times) => {
                against.push(format!("`{}`: answered {used} times already", rule.name));
            }
            Ok(()) => {
                *state.uses.entry(index).or_default() += 1;
                record.rule = Some(rule.name.clone());
                drop(state);
                return render(&rule.answer, seen, &values).unwrap_or_else(|problem| {
                    refuse(record, 400, "script_error", format!("rule `{}`: {problem}", rule.name))
                });
            }
            Err(reason) => against.push(format!("`{}`: {reason}", rule.name)),
        }
    }
    drop(state);
    let total = against.len();
    against.truncate(EXPLAINED_RULES);
    let message = format!("no rule fits. Seen: {}. Rules ({total}): {}", seen.summary(), against.join("; "));
    refuse(record, 400, "no_rule", message)
}

fn refuse(record: &mut RecordedRequest, status: u16, kind: &str, message: String) -> Reply {
    tracing::warn!(status, kind, message, "refused");
    let reply = Reply::error(status, kind, &message);
    record.refusal = Some(message);
    reply
}

async fn respond(reply: Reply) -> Result<Response<Body>, Closed> {
    if !reply.delay.is_zero() {
        tokio::time::sleep(reply.delay).await;
    }
    if reply.end == End::Close {
        return Err(Closed);
    }
    let whole = reply.pieces.len() == 1 && reply.end == End::Whole;
    let body: Body = match (whole, reply.pieces.first()) {
        (true, Some(piece)) => {
            http_body_util::Full::new(piece.clone()).map_err(|e: Infallible| match e {}).boxed_unsync()
        }
        _ => pieces_body(reply.pieces, reply.piece_delay, reply.end),
    };
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    for (name, value) in reply.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            response.headers_mut().append(name, value);
        }
    }
    Ok(response)
}

/// A body that gives each piece its own write.
fn pieces_body(pieces: Vec<Bytes>, delay: std::time::Duration, end: End) -> Body {
    let steps = stream::unfold((pieces.into_iter(), true, false), move |(mut pieces, first, over)| async move {
        if over {
            return None;
        }
        if !first || pieces.len() == 0 {
            // Not ready at once, so that hyper flushes what it holds before it asks again.
            if delay.is_zero() { tokio::task::yield_now().await } else { tokio::time::sleep(delay).await }
        }
        match pieces.next() {
            Some(piece) => Some((Ok(Frame::data(piece)), (pieces, false, false))),
            None if end == End::Cut => Some((Err(Closed), (pieces, false, true))),
            None => None,
        }
    });
    StreamBody::new(steps).boxed_unsync()
}
