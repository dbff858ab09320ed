//! Asking a model: what is asked, what came back, and what can go wrong (spec 6.6, decision 16).
//!
//! `decode` turns the bytes of a stream into an answer and knows nothing of the network; `request` makes the bytes of a
//! question; `quirks` says how servers differ; `retry` says when to ask again; `client` is the thin shell around them.

mod calls;
pub mod client;
pub mod decode;
mod frame;
pub mod quirks;
pub mod request;
pub mod retry;
pub mod windows;

pub use client::{ClientError, ModelClient, Timeouts};
pub use jr2_shared::harness::ThinkingLevel;
pub use retry::RetryBudget;

use crate::briefing;
use crate::mutation::{self, Mutation};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;

/// One question to a model.
#[derive(Clone, Debug)]
pub struct ModelRequest {
    /// The model's name at its provider, without the provider's id.
    pub model: String,
    /// The conversation, oldest first.
    pub messages: Vec<ChatMessage>,
    /// The tools block; shared, because it never changes within a conversation (spec D-2).
    pub tools: Arc<[ToolSpec]>,
    /// How hard to think; `None` leaves it to the provider.
    pub thinking: Option<ThinkingLevel>,
    /// Most tokens of the answer; `None` takes the provider's configured default, if any.
    pub max_tokens: Option<u64>,
    /// Sampling temperature; `None` leaves it to the provider.
    pub temperature: Option<f64>,
}

/// One message of a conversation, as the conversation record keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChatMessage {
    /// Instructions and standing part.
    System(String),
    /// A prompt.
    User(String),
    /// What the model said.
    Assistant {
        /// Its text; empty when it only called tools.
        text: String,
        /// Its reasoning, kept whether or not it is ever sent back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reasoning: Option<String>,
        /// The calls it made, in order.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ToolCall>,
    },
    /// A call's result.
    Tool {
        /// [`ToolCall::id`].
        call_id: String,
        /// The result text.
        content: String,
    },
}

/// A tool call as the model wrote it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// Unique within one answer, never empty. Servers may repeat ids over answers.
    pub id: String,
    /// The tool's name, never empty.
    pub name: String,
    /// Raw JSON text; may be cut or wrong, so read it with [`ToolCall::parsed`] or [`ModelAnswer::verdict`].
    pub arguments: String,
}

impl ToolCall {
    /// The arguments as an object. Empty text and `null` are `{}`; a JSON text inside a JSON string is unwrapped.
    ///
    /// # Errors
    /// A sentence for the model when the text is no JSON object.
    pub fn parsed(&self) -> Result<Map<String, Value>, String> {
        if self.arguments.trim().is_empty() {
            return Ok(Map::new());
        }
        let value = match serde_json::from_str::<Value>(&self.arguments) {
            Ok(Value::String(inner)) => serde_json::from_str(&inner).unwrap_or(Value::String(inner)),
            Ok(value) => value,
            Err(error) => return Err(format!("the arguments are not valid JSON: {error}")),
        };
        match value {
            Value::Object(map) => Ok(map),
            Value::Null => Ok(Map::new()),
            _ => Err("the arguments are not a JSON object".to_owned()),
        }
    }
}

/// A tool offered to the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// Name.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// JSON schema of its arguments.
    pub parameters: Value,
}

/// Why the model stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finish {
    /// It was done.
    Stop,
    /// It called tools. Also used when calls are present and the server said `stop`.
    ToolCalls,
    /// The output limit cut it.
    Length,
    /// The provider withheld the rest.
    ContentFilter,
    /// The server said something else, or nothing.
    Unknown(Option<String>),
}

/// Token counts as the server gave them; a missing one is unknown, not zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the question.
    pub prompt_tokens: Option<u64>,
    /// Tokens of the answer.
    pub completion_tokens: Option<u64>,
    /// Tokens of the question that came from the provider's cache.
    pub cached_tokens: Option<u64>,
    /// Tokens of the answer spent on reasoning.
    pub reasoning_tokens: Option<u64>,
}

/// What the model said.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelAnswer {
    /// Text; empty when it was only white space.
    pub text: String,
    /// Reasoning, when the server showed it.
    pub reasoning: Option<String>,
    /// Calls, in order.
    pub tool_calls: Vec<ToolCall>,
    /// Why it stopped.
    pub finish: Finish,
    /// Token counts.
    pub usage: Option<Usage>,
}

/// Whether a call may run.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Run it with these arguments.
    Run(Map<String, Value>),
    /// The output limit cut it: never run it, tell the model (this text) to send less.
    Cut(String),
    /// The arguments are wrong: never run it, this text is the call's result.
    Invalid(String),
}

impl ModelAnswer {
    /// An answer with nothing in it.
    pub fn empty() -> Self {
        Self {
            text: String::new(),
            reasoning: None,
            tool_calls: Vec::new(),
            finish: Finish::Unknown(None),
            usage: None,
        }
    }

    /// Judges call `index` by itself: under [`Finish::Length`] earlier calls may be whole while the last is cut.
    pub fn verdict(&self, index: usize) -> Verdict {
        let Some(call) = self.tool_calls.get(index) else {
            return Verdict::Invalid("no such call".to_owned());
        };
        let last_of_a_cut_answer = self.finish == Finish::Length && index + 1 == self.tool_calls.len();
        match call.parsed() {
            // Nothing written yet is `{}` for a whole answer, and a cut call for a cut one.
            Ok(_) if last_of_a_cut_answer && call.arguments.trim().is_empty() => {
                Verdict::Cut(briefing::CALL_CUT.to_owned())
            }
            Ok(arguments) => Verdict::Run(arguments),
            Err(_) if last_of_a_cut_answer && mutation::is(Mutation::CutCallRuns) => Verdict::Run(Map::new()),
            Err(_) if last_of_a_cut_answer => Verdict::Cut(briefing::CALL_CUT.to_owned()),
            Err(message) => Verdict::Invalid(briefing::call_invalid(&message)),
        }
    }

    /// Whether there is neither text nor a call: reasoning alone is no answer.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty() && self.tool_calls.is_empty()
    }

    /// The answer as the conversation keeps it.
    pub fn into_message(self) -> ChatMessage {
        ChatMessage::Assistant { text: self.text, reasoning: self.reasoning, tool_calls: self.tool_calls }
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The provider's limit or quota, after the retries (spec H-22; decision 24 fixes the prefix).
    #[error("provider limit: {message}")]
    Limit {
        /// The provider's words.
        message: String,
    },
    /// The provider refused or failed.
    #[error("provider error{}: {message}", status_text(.status))]
    Provider {
        /// HTTP status, when there was one.
        status: Option<u16>,
        /// The provider's words.
        message: String,
    },
    /// The connection failed or the stream was cut.
    #[error("provider unreachable: {message}")]
    Transport {
        /// What failed.
        message: String,
    },
    /// No byte arrived for the idle limit (F07).
    #[error("provider silent: no byte came for {} s (asked {asked} times)", .limit.as_secs_f32())]
    Idle {
        /// The limit.
        limit: Duration,
        /// How often the question was asked.
        asked: u32,
    },
    /// The caller aborted.
    #[error("aborted")]
    Aborted {
        /// What had arrived, without tool calls (spec H-21).
        partial: Box<ModelAnswer>,
    },
    /// The question does not fit the model's window.
    #[error("context overflow: {message}")]
    ContextOverflow {
        /// The provider's words; [`quirks::limit_in`] finds the window in them.
        message: String,
    },
}

#[allow(clippy::trivially_copy_pass_by_ref, clippy::ref_option)] // The shape thiserror hands over.
fn status_text(status: &Option<u16>) -> String {
    status.map(|s| format!(" {s}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(arguments: &str) -> ToolCall {
        ToolCall { id: "c".into(), name: "n".into(), arguments: arguments.into() }
    }

    fn answer(finish: Finish, calls: &[&str]) -> ModelAnswer {
        ModelAnswer { tool_calls: calls.iter().map(|a| call(a)).collect(), finish, ..ModelAnswer::empty() }
    }

    /// 0xPlaygrounds/rig#1437
    #[test]
    fn f27_no_arguments_are_an_empty_object() {
        for text in ["", "  ", "null", "{}", "\"{}\""] {
            assert_eq!(call(text).parsed(), Ok(Map::new()), "{text}");
        }
    }

    /// jaseci-labs/jac#6766, NousResearch/hermes-agent#25399
    #[test]
    fn f23_cut_arguments_are_never_run() {
        for cut in ["", "{", "{\"a\": \"x"] {
            let a = answer(Finish::Length, &["{\"a\":1}", cut]);
            assert!(matches!(a.verdict(0), Verdict::Run(_)));
            assert_eq!(a.verdict(1), Verdict::Cut(briefing::CALL_CUT.into()), "{cut}");
        }
        // Whole arguments survive a cut that came after them.
        assert!(matches!(answer(Finish::Length, &["{\"a\":1}"]).verdict(0), Verdict::Run(_)));
    }

    /// aaif-goose/goose#9486
    #[test]
    fn f26_a_parse_error_is_a_result_for_the_model() {
        let a = answer(Finish::ToolCalls, &["{\"a\":", "[1]"]);
        assert!(matches!(a.verdict(0), Verdict::Invalid(m) if m.contains("not valid JSON")));
        assert!(matches!(a.verdict(1), Verdict::Invalid(m) if m.contains("not a JSON object")));
        assert!(matches!(a.verdict(2), Verdict::Invalid(_)));
    }

    #[test]
    fn messages_survive_the_record() {
        let all = vec![
            ChatMessage::System("s".into()),
            ChatMessage::User("u".into()),
            ChatMessage::Assistant { text: "t".into(), reasoning: Some("r".into()), tool_calls: vec![call("{}")] },
            ChatMessage::Tool { call_id: "c".into(), content: "ok".into() },
        ];
        let text = serde_json::to_string(&all).unwrap();
        assert_eq!(serde_json::from_str::<Vec<ChatMessage>>(&text).unwrap(), all);
    }

    #[test]
    fn a_limit_says_so_first() {
        assert!(ModelError::Limit { message: "429".into() }.to_string().starts_with("provider limit"));
    }
}
