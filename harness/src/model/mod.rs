//! Stand-in for the model client: the contract's types and the smallest client that can drive a test.

use jr2_shared::harness::{HarnessConfig, ThinkingLevel};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;

/// True = stop now.
pub type CancellationSignal = tokio::sync::watch::Receiver<bool>;

/// One request.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    /// Model id without the provider.
    pub model: String,
    /// The conversation.
    pub messages: Vec<ChatMessage>,
    /// The tools block.
    pub tools: Arc<[ToolSpec]>,
    /// How hard to think.
    pub thinking: Option<ThinkingLevel>,
    /// Most tokens of the answer.
    pub max_tokens: Option<u64>,
    /// Sampling temperature.
    pub temperature: Option<f64>,
}

/// One message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChatMessage {
    /// System prompt.
    System(String),
    /// User side.
    User(String),
    /// The model's.
    Assistant {
        /// What it said.
        text: String,
        /// What it thought.
        reasoning: Option<String>,
        /// What it called.
        tool_calls: Vec<ToolCall>,
    },
    /// A tool's result.
    Tool {
        /// Which call.
        call_id: String,
        /// The result.
        content: String,
    },
}

/// One call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Its id.
    pub id: String,
    /// The tool.
    pub name: String,
    /// Raw JSON text.
    pub arguments: String,
}

/// One tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// JSON Schema.
    pub parameters: Value,
}

/// Why an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// Natural end.
    Stop,
    /// Calls follow.
    ToolCalls,
    /// Output limit.
    Length,
    /// Filtered.
    ContentFilter,
    /// Anything else.
    Unknown(Option<String>),
}

/// Tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Prompt.
    pub input: u64,
    /// Answer.
    pub output: u64,
}

/// One answer.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelAnswer {
    /// Text.
    pub text: String,
    /// Thinking.
    pub reasoning: Option<String>,
    /// Calls.
    pub tool_calls: Vec<ToolCall>,
    /// Why it ended.
    pub finish: Finish,
    /// Tokens, when said.
    pub usage: Option<Usage>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// Rate or quota.
    #[error("{message}")]
    Limit {
        /// Words.
        message: String,
    },
    /// Refused.
    #[error("{message}")]
    Provider {
        /// HTTP status, when there was one.
        status: Option<u16>,
        /// Words.
        message: String,
    },
    /// Never got through.
    #[error("{message}")]
    Transport {
        /// Words.
        message: String,
    },
    /// Nothing came for too long.
    #[error("idle")]
    Idle,
    /// Stopped.
    #[error("aborted")]
    Aborted {
        /// What had come.
        partial: Box<ModelAnswer>,
    },
    /// Too long for the window.
    #[error("{message}")]
    ContextOverflow {
        /// Words.
        message: String,
    },
}

/// Retries left in this Submission.
#[derive(Debug, Default)]
pub struct RetryBudget;

/// The client.
pub struct ModelClient {
    http: reqwest::Client,
    config: HarnessConfig,
    base: String,
}

impl ModelClient {
    /// Builds it.
    pub fn new(config: &HarnessConfig, custodian_url: &str) -> Result<Self, reqwest::Error> {
        let builder = reqwest::Client::builder().no_proxy();
        let (builder, base) = match custodian_url.strip_prefix("unix:") {
            Some(path) => (builder.unix_socket(path), "http://custodian".to_owned()),
            None => (builder, custodian_url.to_owned()),
        };
        Ok(Self { http: builder.build()?, config: config.clone(), base })
    }

    /// Asks.
    pub async fn ask(
        &self,
        provider_id: &str,
        request: &ModelRequest,
        _budget: &mut RetryBudget,
        abort: &CancellationSignal,
    ) -> Result<ModelAnswer, ModelError> {
        let mut abort = abort.clone();
        tokio::select! {
            answer = self.once(provider_id, request) => answer,
            _ = abort.wait_for(|stop| *stop) => Err(ModelError::Aborted { partial: Box::new(empty()) }),
        }
    }

    async fn once(&self, provider_id: &str, request: &ModelRequest) -> Result<ModelAnswer, ModelError> {
        let Some(provider) = self.config.providers.iter().find(|p| p.id == provider_id) else {
            return Err(ModelError::Transport { message: "no such provider".into() });
        };
        let base = if provider.base_url.starts_with('/') {
            format!("{}{}", self.base, provider.base_url)
        } else {
            provider.base_url.clone()
        };
        let messages: Vec<Value> = request.messages.iter().map(wire).collect();
        let tools: Vec<Value> = request.tools.iter().map(|t| json!({"type": "function", "function": t})).collect();
        let body = json!({"model": request.model, "stream": true, "messages": messages, "tools": tools});
        let transport = |e: reqwest::Error| ModelError::Transport { message: e.to_string() };
        let answer = self.http.post(format!("{base}/chat/completions")).json(&body).send().await.map_err(transport)?;
        let status = answer.status();
        let text = answer.text().await.map_err(transport)?;
        if status.as_u16() == 429 {
            return Err(ModelError::Limit { message: text });
        }
        if !status.is_success() {
            return Err(ModelError::Provider { status: Some(status.as_u16()), message: text });
        }
        let mut out = empty();
        for line in text.lines() {
            let Some(data) = line.strip_prefix("data: ") else { continue };
            let Ok(chunk) = serde_json::from_str::<Value>(data) else { continue };
            let delta = &chunk["choices"][0]["delta"];
            if let Some(piece) = delta["content"].as_str() {
                out.text.push_str(piece);
            }
            for call in delta["tool_calls"].as_array().into_iter().flatten() {
                out.tool_calls.push(ToolCall {
                    id: call["id"].as_str().unwrap_or_default().to_owned(),
                    name: call["function"]["name"].as_str().unwrap_or_default().to_owned(),
                    arguments: call["function"]["arguments"].as_str().unwrap_or_default().to_owned(),
                });
            }
            match chunk["choices"][0]["finish_reason"].as_str() {
                Some("length") => out.finish = Finish::Length,
                Some("tool_calls") => out.finish = Finish::ToolCalls,
                _ => {}
            }
        }
        Ok(out)
    }
}

fn empty() -> ModelAnswer {
    ModelAnswer { text: String::new(), reasoning: None, tool_calls: Vec::new(), finish: Finish::Stop, usage: None }
}

fn wire(message: &ChatMessage) -> Value {
    match message {
        ChatMessage::System(text) => json!({"role": "system", "content": text}),
        ChatMessage::User(text) => json!({"role": "user", "content": text}),
        ChatMessage::Assistant { text, tool_calls, .. } => json!({"role": "assistant", "content": text,
            "tool_calls": tool_calls.iter().map(|c| json!({"id": c.id, "type": "function",
                "function": {"name": c.name, "arguments": c.arguments}})).collect::<Vec<_>>()}),
        ChatMessage::Tool { call_id, content } => json!({"role": "tool", "tool_call_id": call_id, "content": content}),
    }
}
