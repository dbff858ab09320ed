//! What a model says, in short; and a request to it, read.

use crate::model::{Answer, ErrorAnswer, Raw, RecordedRequest, ScriptedCall};
use serde_json::{Value, json};

/// A plain text.
pub fn text(said: &str) -> Answer {
    Answer { text: Some(said.to_owned()), ..Answer::default() }
}

/// Thinking, and a text or none.
pub fn reasoning(thought: &str, said: Option<&str>) -> Answer {
    Answer { reasoning: Some(thought.to_owned()), text: said.map(str::to_owned), ..Answer::default() }
}

/// One tool call.
pub fn call(id: &str, tool: &str, arguments: Value) -> Answer {
    calls([(id, tool, arguments)])
}

/// Several tool calls of one answer: id, tool, arguments (an object, or a text that is sent as it stands).
pub fn calls<const N: usize>(list: [(&str, &str, Value); N]) -> Answer {
    let call = |(id, tool, arguments): (&str, &str, Value)| ScriptedCall {
        name: tool.to_owned(),
        arguments,
        id: Some(id.to_owned()),
    };
    Answer { tool_calls: list.into_iter().map(call).collect(), ..Answer::default() }
}

/// A call of `bash`.
pub fn bash(id: &str, command: &str) -> Answer {
    call(id, "bash", json!({ "command": command }))
}

/// Bytes of an event stream as they stand.
pub fn raw(bytes: impl Into<Vec<u8>>) -> Answer {
    Answer { raw: Some(Raw::of(bytes)), ..Answer::default() }
}

/// A refusal by the provider.
pub fn refusal(status: u16, message: &str) -> Answer {
    Answer {
        error: Some(ErrorAnswer { status, message: message.to_owned(), ..ErrorAnswer::default() }),
        ..Answer::default()
    }
}

/// `data:` events of these JSON values, and `[DONE]`.
pub fn events(values: &[Value]) -> String {
    let lines = values.iter().map(|value| ["data: ", &value.to_string(), "\n\n"].concat());
    lines.collect::<String>() + "data: [DONE]\n\n"
}

/// A request, read.
pub trait RequestExt {
    /// Contents of the messages with this role.
    fn said_by(&self, role: &str) -> Vec<String>;
    /// The newest message with this role, or the empty text.
    fn last_of(&self, role: &str) -> String;
    /// Names of the offered tools.
    fn tool_names(&self) -> Vec<String>;
    /// An offered tool, whole; null when it is not offered.
    fn tool(&self, name: &str) -> Value;
}

impl RequestExt for RecordedRequest {
    fn said_by(&self, role: &str) -> Vec<String> {
        let of_role = self.messages().iter().filter(|message| message["role"] == role);
        of_role.map(|message| content(&message["content"])).collect()
    }

    fn last_of(&self, role: &str) -> String {
        self.said_by(role).pop().unwrap_or_default()
    }

    fn tool_names(&self) -> Vec<String> {
        let tools = self.body["tools"].as_array().into_iter().flatten();
        tools.map(|tool| tool["function"]["name"].as_str().unwrap_or_default().to_owned()).collect()
    }

    fn tool(&self, name: &str) -> Value {
        let mut tools = self.body["tools"].as_array().into_iter().flatten();
        tools.find(|tool| tool["function"]["name"] == name).map(|tool| tool["function"].clone()).unwrap_or_default()
    }
}

/// A content as one text, written as a text or as parts.
fn content(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}
