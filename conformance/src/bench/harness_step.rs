//! What a Harness adds to one model step: from the last byte of a model's answer to the first of its next request.

use super::process::{Memory, Started, free_address, log_to};
use super::{BenchError, Times};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path as UrlPath, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use jr2_shared::harness::{AdmitRequest, HarnessConfig, Provider, token_digest};
use jr2_shared::surface::{MenuItem, PICKS_KEYED, Surface, empty_object_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Nobody else can reach the Harness under measurement.
pub(super) const TOKEN: &str = "bench";
/// Steps of one Submission: under the runaway bound of 256.
const STEPS: usize = 200;
/// How long one Submission may take.
const PATIENCE: Duration = Duration::from_mins(5);
/// Pause between two looks at a Submission's progress.
const LOOK: Duration = Duration::from_millis(20);

/// What a Harness adds.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// One step with a `read` of a small file between two model requests.
    pub added: Times,
    /// Conversations at the same time.
    pub at_once: usize,
    /// Steps a second of all of them; the model's own work and the measuring share the cores.
    pub steps_per_second: f64,
    /// The Harness afterwards.
    pub memory: Memory,
}

#[derive(Default)]
struct Seen {
    /// By the model's name, of which each conversation has its own.
    conversations: HashMap<String, Progress>,
    gaps: Vec<Duration>,
}

#[derive(Default)]
struct Progress {
    ended: Option<Instant>,
    steps: usize,
}

/// What the model reads of a request.
#[derive(Deserialize)]
struct Question {
    model: String,
}

type Shared = Arc<Mutex<Seen>>;

/// Runs `submissions` of `STEPS` steps each, `at_once` at the same time.
pub async fn run(harness: &Path, folder: &Path, submissions: usize, at_once: usize) -> Result<Report, BenchError> {
    crate::tls::install();
    let work = folder.join("work");
    std::fs::create_dir_all(&work).map_err(BenchError::io("the working directory"))?;
    std::fs::write(work.join("file.txt"), "one small file\n").map_err(BenchError::io("file.txt"))?;
    let seen: Shared = Shared::default();
    let world = Router::new()
        .route("/agents/{iid}/surface", get(surface))
        .route("/v1/chat/completions", post(answer))
        .with_state(seen.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.map_err(BenchError::io("a port"))?;
    let address = listener.local_addr().map_err(BenchError::io("a port"))?;
    let served = tokio::spawn(async move { axum::serve(listener, world).await });
    let (started, url) = start_harness(harness, folder, address, &[]).await?;
    let begun = Instant::now();
    let (url, work, watched) = (url.as_str(), work.as_path(), &seen);
    let all = stream::iter(0..submissions).map(|n| submission(url, work, watched, n)).buffer_unordered(at_once);
    all.try_collect::<Vec<()>>().await?;
    let took = begun.elapsed().as_secs_f64();
    served.abort();
    let gaps = std::mem::take(&mut lock(&seen).gaps);
    let steps_per_second = (submissions * STEPS) as f64 / took;
    Ok(Report { added: Times::of(gaps), at_once, steps_per_second, memory: started.memory()? })
}

/// Starts a Harness whose Custodian and model are both at `address`; it and its URL.
pub(super) async fn start_harness(
    harness: &Path,
    folder: &Path,
    address: SocketAddr,
    more: &[(&str, &str)],
) -> Result<(Started, String), BenchError> {
    let provider = Provider {
        id: "bench".into(),
        api: "chat-completions".into(),
        base_url: format!("http://{address}/v1"),
        quirk: "generic".into(),
        stand_in: None,
        context_window: None,
        max_tokens: None,
        idle_seconds: None,
    };
    let config = serde_json::to_string(&HarnessConfig { providers: vec![provider] }).unwrap_or_default();
    let at = free_address()?;
    let url = format!("http://{at}");
    let mut command = Command::new(harness);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("JR2_LISTEN", at.to_string()).env("JR2_HARNESS_TOKEN_SHA256", token_digest(TOKEN));
    command.env("JR2_CUSTODIAN_URL", format!("http://{address}")).env("JR2_HARNESS_JSON", config);
    command.env("JR2_CONVERSATIONS_DIR", folder.join("conversations"));
    command.stdout(std::process::Stdio::null()).stderr(log_to(folder, "harness.log")?);
    command.envs(more.iter().copied());
    let started = Started::wait_healthy(command, &url, Duration::from_secs(30)).await?;
    Ok((started, url))
}

async fn submission(url: &str, work: &Path, seen: &Shared, n: usize) -> Result<(), BenchError> {
    let client = reqwest::Client::builder().no_proxy().build()?;
    let conversation = format!("{url}/agents/bench/run%2Froot%2Fbench%2F{n:08x}");
    let request = AdmitRequest {
        message: "Read the file.".into(),
        cwd: Some(work.display().to_string()),
        definition: serde_json::from_value(json!({ "model": format!("bench/{n}"), "instructions": "Read." }))
            .map_err(|e| BenchError::Unexpected(e.to_string()))?,
        model: None,
        thinking_level: None,
        notices: Vec::new(),
        receipt: None,
        kept: false,
        admission_id: Some(format!("run/root/bench/{n:08x}#1")),
    };
    client.post(&conversation).bearer_auth(TOKEN).json(&request).send().await?.error_for_status()?;
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        // Asking costs the Harness time: not before the model has said its last word.
        let asked_all = lock(seen).conversations.get(&n.to_string()).is_some_and(|one| one.steps >= STEPS);
        tokio::time::sleep(LOOK).await;
        if !asked_all {
            continue;
        }
        let history = client.get(format!("{conversation}?view=history")).bearer_auth(TOKEN).send().await?;
        let history: Value = history.error_for_status()?.json().await?;
        match history["settlements"].get(0) {
            Some(settled) if settled["outcome"] == "completed" => return Ok(()),
            Some(settled) => return Err(BenchError::Unexpected(format!("it settled {settled}"))),
            None => {}
        }
    }
    Err(BenchError::Deadline(PATIENCE, "the Submission did not settle".to_owned()))
}

pub(super) async fn surface(UrlPath(iid): UrlPath<String>) -> impl IntoResponse {
    axum::Json(Surface {
        instance_id: iid,
        run_id: "run".into(),
        sandbox: None,
        menu: Some(vec![MenuItem {
            name: "finish".into(),
            description: None,
            input: empty_object_schema(),
            semantics: "ack".into(),
            briefing: None,
        }]),
        allowed: Some(Vec::new()),
        accepts: None,
        picks: Some(PICKS_KEYED.into()),
    })
}

/// A model that answers at once: a `read` with other arguments each time, then a stop.
async fn answer(State(seen): State<Shared>, body: Bytes) -> Response {
    let arrived = Instant::now();
    let Ok(Question { model }) = serde_json::from_slice(&body) else { return StatusCode::BAD_REQUEST.into_response() };
    let step = {
        let mut seen = lock(&seen);
        let one = seen.conversations.entry(model.clone()).or_default();
        one.steps += 1;
        let (step, ended) = (one.steps, one.ended.take());
        seen.gaps.extend(ended.map(|ended| arrived.duration_since(ended)));
        step
    };
    let last = step >= STEPS;
    let delta = if last {
        json!({ "content": "Done." })
    } else {
        let arguments = json!({ "path": "file.txt", "limit": step + 1 }).to_string();
        let call = json!({ "index": 0, "id": format!("call_{step}"), "type": "function",
                           "function": { "name": "read", "arguments": arguments } });
        json!({ "tool_calls": [call] })
    };
    let finish = if last { "stop" } else { "tool_calls" };
    let chunk = |delta: Value, finish: Value| {
        let body = json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] });
        format!("data: {body}\n\n")
    };
    let text = format!("{}{}data: [DONE]\n\n", chunk(delta, Value::Null), chunk(json!({}), json!(finish)));
    if let Some(one) = lock(&seen).conversations.get_mut(&model).filter(|_| !last) {
        one.ended = Some(Instant::now());
    }
    ([(header::CONTENT_TYPE, "text/event-stream")], text).into_response()
}

fn lock(seen: &Shared) -> std::sync::MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}
