//! The stream decoder: bytes in, events and one answer out. Pure, never panics, and unknown things are values.
//!
//! How an answer ends is judged here: a finish reason, `[DONE]`, or a usage chunk without choices is an end; a body that
//! just closes is a cut stream (F04, F06).

use super::calls::Calls;
use super::frame::{Frame, Framer};
use super::{Finish, ModelAnswer, Usage};
use serde_json::Value;

/// Longest server message that is kept, in characters: it goes into faults that people read.
pub const MESSAGE_MAX_CHARS: usize = 2_000;

/// What a push completed.
#[derive(Clone, Debug, PartialEq)]
pub enum DecodeEvent {
    /// A piece of text.
    Text(String),
    /// A piece of reasoning.
    Reasoning(String),
    /// A call began; the name may still be empty.
    CallStarted(String),
    /// Token counts; a later one replaces an earlier one.
    Usage(Usage),
    /// A finish reason.
    Finish(Finish),
    /// `[DONE]`.
    Done,
    /// The stream is broken; nothing follows.
    Fault(StreamFault),
}

/// Why a stream gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StreamFault {
    /// It closed before its end.
    #[error("the stream ended before the answer was complete")]
    Cut,
    /// The server put an error into it.
    #[error("{message}")]
    Server {
        /// HTTP-like status from the error object.
        status: Option<u16>,
        /// The error object's `code` or `type`, for classifying.
        code: String,
        /// The server's words.
        message: String,
    },
    /// A payload is no JSON, so a part of the answer is missing.
    #[error("the stream holds a chunk that is not JSON")]
    Malformed,
    /// A bound was passed: the answer, a line, an event, or the number of calls.
    #[error("the stream is too big: {0}")]
    TooBig(&'static str),
}

/// The decoder of one answer.
#[derive(Clone, Debug)]
pub struct Decoder {
    framer: Framer,
    seed: String,
    text: String,
    reasoning: String,
    calls: Calls,
    finish: Option<Finish>,
    usage: Option<Usage>,
    /// `[DONE]`, or a usage chunk without choices.
    ended: bool,
    done: bool,
    fault: Option<StreamFault>,
}

impl Decoder {
    /// A decoder that gives calls without an id ids that start with `seed`.
    pub fn new(seed: impl Into<String>) -> Self {
        Self {
            framer: Framer::new(),
            seed: seed.into(),
            text: String::new(),
            reasoning: String::new(),
            calls: Calls::default(),
            finish: None,
            usage: None,
            ended: false,
            done: false,
            fault: None,
        }
    }

    /// Takes bytes, gives the events they complete. The events do not depend on how the bytes are cut.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<DecodeEvent> {
        let frames = self.framer.push(bytes);
        self.apply(frames)
    }

    /// The body has ended: gives the answer, or why there is none.
    pub fn finish(&mut self) -> Result<ModelAnswer, StreamFault> {
        let frames = self.framer.close();
        self.apply(frames);
        match &self.fault {
            Some(fault) => Err(fault.clone()),
            None if self.finish.is_none() && !self.ended => Err(StreamFault::Cut),
            None => Ok(self.answer()),
        }
    }

    /// What has arrived so far, without tool calls: the part worth keeping of an aborted answer (spec H-21).
    pub fn partial(&self) -> ModelAnswer {
        ModelAnswer { tool_calls: Vec::new(), finish: Finish::Unknown(None), ..self.answer() }
    }

    /// Whether reading on is pointless: `[DONE]` was seen, or a fault.
    pub fn is_over(&self) -> bool {
        self.done || self.fault.is_some()
    }

    /// Whether the model has finished, so that only token counts may still come.
    pub fn has_finish(&self) -> bool {
        self.finish.is_some()
    }

    fn answer(&self) -> ModelAnswer {
        let tool_calls = self.calls.build(&self.seed);
        let finish = match (&self.finish, tool_calls.is_empty()) {
            // Calls count by their presence, not by the reason (F08).
            (None | Some(Finish::Stop | Finish::Unknown(_)), false) => Finish::ToolCalls,
            (None, true) => Finish::Stop,
            (Some(finish), _) => finish.clone(),
        };
        let text = if self.text.trim().is_empty() { String::new() } else { self.text.clone() };
        let reasoning = (!self.reasoning.trim().is_empty()).then(|| self.reasoning.clone());
        ModelAnswer { text, reasoning, tool_calls, finish, usage: self.usage }
    }

    fn apply(&mut self, frames: Vec<Frame>) -> Vec<DecodeEvent> {
        let mut out = Vec::new();
        for frame in frames {
            if self.is_over() {
                break;
            }
            match frame {
                Frame::Json(value) => self.chunk(&value, &mut out),
                Frame::Error(text) => {
                    let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
                    self.fail(server_fault(value.get("error").unwrap_or(&value)), &mut out);
                }
                Frame::Done => {
                    self.done = true;
                    self.ended = true;
                    out.push(DecodeEvent::Done);
                }
                Frame::Malformed(_) => self.fail(StreamFault::Malformed, &mut out),
                Frame::TooBig(what) => self.fail(StreamFault::TooBig(what), &mut out),
            }
        }
        out
    }

    fn fail(&mut self, fault: StreamFault, out: &mut Vec<DecodeEvent>) {
        out.push(DecodeEvent::Fault(fault.clone()));
        self.fault = Some(fault);
    }

    fn chunk(&mut self, chunk: &Value, out: &mut Vec<DecodeEvent>) {
        if let Some(error) = error_in(chunk) {
            return self.fail(server_fault(error), out);
        }
        let choice = chunk.get("choices").and_then(Value::as_array).and_then(|choices| {
            // We ask for one choice; a server that sends more does not get two answers into one.
            choices.iter().find(|c| c.get("index").and_then(Value::as_u64).unwrap_or(0) == 0)
        });
        if let Some(usage) = chunk.get("usage").and_then(|usage| usage_in(usage, chunk)) {
            self.usage = Some(usage);
            self.ended |= choice.is_none();
            out.push(DecodeEvent::Usage(usage));
        }
        let Some(choice) = choice else { return };
        for key in ["delta", "message"] {
            if let Some(delta) = choice.get(key).filter(|d| d.is_object()) {
                self.delta(delta, out);
            }
        }
        if let Some(finish) = choice.get("finish_reason").and_then(finish_in) {
            self.finish = Some(finish.clone());
            out.push(DecodeEvent::Finish(finish));
        }
    }

    fn delta(&mut self, delta: &Value, out: &mut Vec<DecodeEvent>) {
        let reasoning = ["reasoning_content", "reasoning"].iter().find_map(|key| text_in(delta.get(*key)));
        if let Some(piece) = reasoning {
            self.reasoning.push_str(&piece);
            out.push(DecodeEvent::Reasoning(piece));
        }
        for key in ["content", "refusal"] {
            if let Some(piece) = text_in(delta.get(key)) {
                self.text.push_str(&piece);
                out.push(DecodeEvent::Text(piece));
            }
        }
        let calls = match delta.get("tool_calls") {
            Some(Value::Array(calls)) => calls.iter().collect(),
            Some(call @ Value::Object(_)) => vec![call],
            _ => delta.get("function_call").filter(|c| c.is_object()).into_iter().collect(),
        };
        for call in calls {
            match self.calls.take(call) {
                Ok(Some(name)) => out.push(DecodeEvent::CallStarted(name)),
                Ok(None) => {}
                Err(()) => return self.fail(StreamFault::TooBig("tool calls"), out),
            }
        }
    }
}

/// Non-empty text of a string or of a list of text parts.
fn text_in(value: Option<&Value>) -> Option<String> {
    let text = match value? {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|p| p.get("text").and_then(Value::as_str)).collect(),
        _ => return None,
    };
    (!text.is_empty()).then_some(text)
}

fn finish_in(value: &Value) -> Option<Finish> {
    Some(match value.as_str()? {
        "" | "null" => return None,
        "stop" | "end_turn" | "eos" | "stop_sequence" => Finish::Stop,
        "tool_calls" | "tool_call" | "function_call" | "tool_use" => Finish::ToolCalls,
        "length" | "max_tokens" => Finish::Length,
        "content_filter" => Finish::ContentFilter,
        other => Finish::Unknown(Some(other.chars().take(64).collect())),
    })
}

/// The counts of a chunk. llama.cpp says what came from its cache beside them in older builds.
fn usage_in(value: &Value, chunk: &Value) -> Option<Usage> {
    let number = |path: &str| value.pointer(path).and_then(Value::as_u64);
    let timed = chunk.pointer("/timings/cache_n").and_then(Value::as_u64);
    value.as_object().map(|_| Usage {
        prompt_tokens: number("/prompt_tokens"),
        completion_tokens: number("/completion_tokens"),
        cached_tokens: number("/prompt_tokens_details/cached_tokens")
            .or_else(|| number("/prompt_cache_hit_tokens")) // DeepSeek
            .or(timed),
        reasoning_tokens: number("/completion_tokens_details/reasoning_tokens"),
    })
}

/// The error of a body or chunk, in the shapes servers use.
pub(super) fn error_in(value: &Value) -> Option<&Value> {
    match value.get("error") {
        None | Some(Value::Null | Value::Bool(false)) => {}
        Some(error) => return Some(error),
    }
    let is_error = value.get("object").and_then(Value::as_str) == Some("error") || value.get("detail").is_some();
    (is_error && value.get("choices").is_none()).then_some(value)
}

/// Reads an error object, or an error that is only text.
pub(super) fn server_fault(error: &Value) -> StreamFault {
    let text = |key: &str| match error.get(key) {
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Null) | None => None,
        Some(other) => Some(other.to_string()),
    };
    let status = ["code", "status", "status_code", "http_code"].iter().find_map(|key| {
        let value = error.get(*key)?;
        let number = value.as_u64().or_else(|| value.as_str()?.parse().ok())?;
        u16::try_from(number).ok().filter(|n| (400..600).contains(n))
    });
    let mut message = match error {
        Value::String(text) => text.clone(),
        _ => text("message").or_else(|| text("detail")).unwrap_or_else(|| error.to_string()),
    };
    // llama.cpp gives its real window here and not always in the words (F39).
    if let Some(n) = error.get("n_ctx").and_then(Value::as_u64) {
        message = format!("{message} (n_ctx {n})");
    }
    let code = [text("code"), text("type")].into_iter().flatten().collect::<Vec<_>>().join(" ");
    StreamFault::Server { status, code, message: message.chars().take(MESSAGE_MAX_CHARS).collect() }
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
