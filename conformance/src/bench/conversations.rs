//! What one more conversation costs an Instance Harness that holds many, in memory and in time.

use super::harness_step::{TOKEN, start_harness, surface};
use super::process::Memory;
use super::{BenchError, Times};
use axum::Router;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use futures_util::{StreamExt as _, stream};
use serde::Serialize;
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// Conversations at the same time.
const AT_ONCE: usize = 50;
/// How long one Turn may take.
const PATIENCE: Duration = Duration::from_mins(2);

/// What they cost.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// How many.
    pub conversations: usize,
    /// Memory they took, by their number, in bytes: one short Turn each.
    pub bytes_per_conversation: u64,
    /// From the admission to the settlement, 50 at once.
    pub turn: Times,
    /// The Harness with all of them.
    pub memory: Memory,
    /// The same after `kill -9` and a new start, which reads all of them back.
    pub memory_restored: Memory,
    /// From that start to `/healthz`, in milliseconds.
    pub restored_ms: f64,
}

/// Holds `count` conversations of one Turn each.
pub async fn run(harness: &Path, folder: &Path, count: usize) -> Result<Report, BenchError> {
    crate::tls::install();
    let world = Router::new().route("/agents/{iid}/surface", get(surface)).route("/v1/chat/completions", post(answer));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.map_err(BenchError::io("a port"))?;
    let address = listener.local_addr().map_err(BenchError::io("a port"))?;
    let served = tokio::spawn(async move { axum::serve(listener, world).await });
    let more = [("JR2_MENU_ONLY", "1")];
    let (mut started, url) = start_harness(harness, folder, address, &more).await?;
    let client = reqwest::Client::builder().no_proxy().build()?;
    // The first ones pay for what all share.
    for n in 0..AT_ONCE {
        turn(&client, &url, n).await?;
    }
    let before = started.memory()?;
    let (client, url) = (&client, url.as_str());
    let turns = stream::iter(AT_ONCE..AT_ONCE + count).map(|n| turn(client, url, n)).buffer_unordered(AT_ONCE);
    let turns: Vec<Result<Duration, BenchError>> = turns.collect().await;
    let turns = turns.into_iter().collect::<Result<Vec<_>, _>>()?;
    let memory = started.memory()?;
    let grown = memory.rss_kib.saturating_sub(before.rss_kib) << 10;
    started.kill();
    let (restored, _) = start_harness(harness, folder, address, &more).await?;
    served.abort();
    Ok(Report {
        conversations: count,
        bytes_per_conversation: grown / count.max(1) as u64,
        turn: Times::of(turns),
        memory,
        memory_restored: restored.memory()?,
        restored_ms: restored.up.as_secs_f64() * 1_000.0,
    })
}

async fn turn(client: &reqwest::Client, url: &str, n: usize) -> Result<Duration, BenchError> {
    let conversation = format!("{url}/agents/bench/run%2Froot%2Fbench%2F{n:08x}");
    let definition = json!({ "model": "bench/m", "instructions": "Answer.", "workspace": "none" });
    let body = json!({ "message": "Say something.", "definition": definition });
    let begun = Instant::now();
    let admitted = client.post(&conversation).bearer_auth(TOKEN).json(&body).send().await?.error_for_status()?;
    let admitted: Value = admitted.json().await?;
    let mut offset = admitted["offset"].as_str().unwrap_or_default().to_owned();
    while begun.elapsed() < PATIENCE {
        let page = client.get(format!("{conversation}?offset={offset}&view=updates&live=long-poll"));
        let page = page.bearer_auth(TOKEN).send().await?.error_for_status()?;
        let next = page.headers().get("stream-next-offset").and_then(|value| value.to_str().ok());
        offset = next.unwrap_or_default().to_owned();
        let events: Value = serde_json::from_slice(&page.bytes().await?).unwrap_or_default();
        let settled = events.as_array().into_iter().flatten().find(|event| event["type"] == "submission-settled");
        match settled {
            Some(settled) if settled["outcome"] == "completed" => return Ok(begun.elapsed()),
            Some(settled) => return Err(BenchError::Unexpected(format!("it settled {settled}"))),
            None => {}
        }
    }
    Err(BenchError::Deadline(PATIENCE, "the Submission did not settle".to_owned()))
}

/// A model that says one sentence.
async fn answer() -> impl IntoResponse {
    let chunk = |delta: Value, finish: Value| {
        let body = json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] });
        format!("data: {body}\n\n")
    };
    let text = chunk(json!({ "content": "Something." }), Value::Null) + &chunk(json!({}), json!("stop"));
    ([(header::CONTENT_TYPE, "text/event-stream")], text + "data: [DONE]\n\n")
}
