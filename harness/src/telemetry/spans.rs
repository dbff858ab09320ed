//! One model call, one tool call: timed while it runs, counted and traced when it is over.

use super::metrics;
use crate::model::{ChatMessage, Finish, ModelAnswer, ModelError, ModelRequest};
use jr2_telemetry::context::TraceParent;
use jr2_telemetry::{Kind, Span, Value, genai};
use serde_json::json;
use std::time::{Instant, SystemTime};

/// A question that is being answered.
pub struct Asked<'a> {
    provider: &'a str,
    request: &'a ModelRequest,
    conversation: &'a str,
    trace: Option<TraceParent>,
    began: SystemTime,
    clock: Instant,
}

impl<'a> Asked<'a> {
    /// It leaves now.
    pub fn now(
        provider: &'a str,
        request: &'a ModelRequest,
        conversation: &'a str,
        trace: Option<TraceParent>,
    ) -> Self {
        Self { provider, request, conversation, trace, began: SystemTime::now(), clock: Instant::now() }
    }

    /// It is over.
    pub fn over(self, answer: &Result<ModelAnswer, ModelError>) {
        let took = self.clock.elapsed();
        let outcome = answer.as_ref().map_or_else(error_word, |_| "answered");
        metrics().question.observe(took.as_secs_f64());
        metrics().asked(self.provider, outcome);
        let usage = answer.as_ref().ok().and_then(|answer| answer.usage).unwrap_or_default();
        metrics().tokens("input", usage.prompt_tokens);
        metrics().tokens("output", usage.completion_tokens);
        metrics().tokens("cached", usage.cached_tokens);
        if !jr2_telemetry::wanted() {
            return;
        }
        let mut attributes = vec![
            (genai::OPERATION, text(genai::CHAT)),
            (genai::PROVIDER, text(self.provider)),
            (genai::REQUEST_MODEL, text(&self.request.model)),
            (genai::CONVERSATION, text(self.conversation)),
        ];
        let counts = [
            (genai::INPUT_TOKENS, usage.prompt_tokens),
            (genai::OUTPUT_TOKENS, usage.completion_tokens),
            (genai::CACHED_TOKENS, usage.cached_tokens),
        ];
        // Unknown is unknown: an attribute that is not there, never a zero.
        let number = |n: u64| Value::Number(i64::try_from(n).unwrap_or(i64::MAX));
        attributes.extend(counts.into_iter().filter_map(|(name, count)| Some((name, number(count?)))));
        match answer {
            Ok(answer) => {
                attributes.push((genai::FINISH_REASONS, Value::Texts(vec![finish_word(&answer.finish).to_owned()])));
            }
            Err(_) => attributes.push((genai::ERROR_TYPE, text(outcome))),
        }
        if genai::captures() {
            attributes.extend(self.content(answer.as_ref().ok()));
        }
        jr2_telemetry::finish(Span {
            name: format!("{} {}", genai::CHAT, self.request.model),
            kind: Kind::Client,
            own: None,
            parent: self.trace,
            began: self.began,
            ended: self.began + took,
            attributes,
            error: answer.as_ref().err().map(ToString::to_string),
        });
    }

    /// The newest message and the answer, for whoever asked for them.
    fn content(&self, answer: Option<&ModelAnswer>) -> Vec<(&'static str, Value)> {
        let message = |role: &str, words: &str| {
            let part = json!({ "type": "text", "content": genai::captured(words) });
            Value::Text(json!([{ "role": role, "parts": [part] }]).to_string())
        };
        let newest = self.request.messages.last().map(|newest| match newest {
            ChatMessage::System(words) => message("system", words),
            ChatMessage::User(words) => message("user", words),
            ChatMessage::Assistant { text, .. } => message("assistant", text),
            ChatMessage::Tool { content, .. } => message("tool", content),
        });
        let answer = answer.map(|answer| (genai::OUTPUT_MESSAGES, message("assistant", &answer.text)));
        newest.map(|newest| (genai::INPUT_MESSAGES, newest)).into_iter().chain(answer).collect()
    }
}

/// A call that runs.
pub struct Called<'a> {
    /// The tool's or the pick's name, as it may be shown.
    name: &'a str,
    call: &'a str,
    trace: Option<TraceParent>,
    began: SystemTime,
    clock: Instant,
}

impl<'a> Called<'a> {
    /// It starts now.
    pub fn now(name: &'a str, call: &'a str, trace: Option<TraceParent>) -> Self {
        Self { name, call, trace, began: SystemTime::now(), clock: Instant::now() }
    }

    /// It is over. `counted` is its name among the metrics; `failed` is why, as a short word.
    pub fn over(self, counted: &str, failed: Option<&str>) {
        let took = self.clock.elapsed();
        metrics().call.observe(took.as_secs_f64());
        metrics().called(counted, failed.unwrap_or("ok"));
        if !jr2_telemetry::wanted() {
            return;
        }
        let mut attributes = vec![(genai::OPERATION, text(genai::EXECUTE_TOOL)), (genai::TOOL, text(self.name))];
        if !self.call.is_empty() {
            attributes.push((genai::TOOL_CALL, text(self.call)));
        }
        attributes.extend(failed.map(|word| (genai::ERROR_TYPE, text(word))));
        jr2_telemetry::finish(Span {
            name: format!("{} {}", genai::EXECUTE_TOOL, self.name),
            kind: Kind::Internal,
            own: None,
            parent: self.trace,
            began: self.began,
            ended: self.began + took,
            attributes,
            error: failed.map(str::to_owned),
        });
    }
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

fn error_word(error: &ModelError) -> &'static str {
    match error {
        ModelError::Limit { .. } => "limit",
        ModelError::Provider { .. } => "provider",
        ModelError::Transport { .. } => "transport",
        ModelError::Idle { .. } => "idle",
        ModelError::Aborted { .. } => "aborted",
        ModelError::ContextOverflow { .. } => "context-overflow",
    }
}

fn finish_word(finish: &Finish) -> &str {
    match finish {
        Finish::Stop => "stop",
        Finish::ToolCalls => "tool_calls",
        Finish::Length => "length",
        Finish::ContentFilter => "content_filter",
        Finish::Unknown(word) => word.as_deref().unwrap_or("unknown"),
    }
}
