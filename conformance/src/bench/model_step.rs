//! The scripted model's own answer time: what has to be taken off before a Harness's share of a model step is known.

use super::{BenchError, Times};
use crate::model::{Script, ScriptedModel};
use serde::Serialize;
use serde_json::json;
use std::time::{Duration, Instant};

/// Requests before the measured ones: connections and caches warm up.
const WARM_UP: usize = 50;

/// How long the scripted model takes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// From sending a request to the end of its streamed answer, over a kept connection.
    pub answer: Times,
}

/// Asks `count` times for a streamed tool call.
pub async fn run(count: usize) -> Result<Report, BenchError> {
    let script = json!({"rules": [{"answer": {"text": "I look.", "toolCalls": [{"name": "read", "arguments": {"path": "a"}}]}}]});
    let script = Script::from_json(script).map_err(|e| BenchError::Unexpected(e.to_string()))?;
    let model = ScriptedModel::start(script)?;
    crate::tls::install();
    let client = reqwest::Client::builder().no_proxy().build()?;
    let url = format!("{}/chat/completions", model.url());
    let body = json!({"model": "m", "stream": true, "stream_options": {"include_usage": true},
                      "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]});
    let mut times = Vec::with_capacity(count);
    for index in 0..WARM_UP + count {
        let took = ask(&client, &url, &body).await?;
        if index >= WARM_UP {
            times.push(took);
        }
    }
    Ok(Report { answer: Times::of(times) })
}

async fn ask(client: &reqwest::Client, url: &str, body: &serde_json::Value) -> Result<Duration, BenchError> {
    let begun = Instant::now();
    let answer = client.post(url).json(body).send().await?.error_for_status()?.bytes().await?;
    let took = begun.elapsed();
    if !answer.ends_with(b"data: [DONE]\n\n") {
        return Err(BenchError::Unexpected("the stream has no end".to_owned()));
    }
    Ok(took)
}

#[cfg(test)]
mod tests {
    #[tokio::test]
    async fn it_measures_whole_answers() {
        assert_eq!(super::run(3).await.unwrap().answer.count, 3);
    }
}
