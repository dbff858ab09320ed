//! The bytes of a question. Equal inputs give equal bytes, and a conversation that grows keeps its bytes as a prefix, so
//! that no byte a provider's cache has seen ever changes (group G).

use crate::briefing;

use super::quirks::Quirks;
use super::{ChatMessage, ModelRequest, ToolCall};
use serde_json::{Map, Value, json};

/// The body of `POST …/chat/completions`. Everything fixed comes first, the messages last.
pub fn body(request: &ModelRequest, quirks: &Quirks, default_max_tokens: Option<u64>) -> Vec<u8> {
    let mut body = Map::new();
    body.insert("model".into(), json!(request.model));
    body.insert("stream".into(), json!(true));
    if quirks.include_usage {
        body.insert("stream_options".into(), json!({"include_usage": true}));
    }
    if let Some(limit) = request.max_tokens.or(default_max_tokens) {
        body.insert(quirks.max_tokens_field.into(), json!(limit));
    }
    if let Some(temperature) = request.temperature {
        body.insert("temperature".into(), json!(temperature));
    }
    if let Some(level) = request.thinking {
        quirks.think(level, &mut body);
    }
    if !request.tools.is_empty() {
        body.insert("tools".into(), request.tools.iter().map(tool).collect());
    }
    body.insert("messages".into(), request.messages.iter().map(|m| message(m, quirks)).collect());
    Value::Object(body).to_string().into_bytes()
}

fn tool(tool: &super::ToolSpec) -> Value {
    json!({"type": "function", "function":
        {"name": tool.name, "description": tool.description, "parameters": tool.parameters}})
}

fn message(message: &ChatMessage, quirks: &Quirks) -> Value {
    match message {
        ChatMessage::System(text) => json!({"role": "system", "content": text}),
        ChatMessage::User(text) => json!({"role": "user", "content": text}),
        ChatMessage::Tool { call_id, content } => json!({"role": "tool", "tool_call_id": call_id, "content": content}),
        ChatMessage::Assistant { text, reasoning, tool_calls } => {
            // Strict servers refuse `null` without calls, and some templates print it.
            let mut value = json!({"role": "assistant", "content": text});
            if let Some(reasoning) = reasoning.as_ref().filter(|_| quirks.sends_reasoning) {
                value["reasoning_content"] = json!(reasoning);
            }
            if !tool_calls.is_empty() {
                value["tool_calls"] = tool_calls.iter().map(call).collect();
            }
            value
        }
    }
}

/// Arguments that are no object go back as a marked stub: servers answer 500 to history they cannot parse (F20).
fn call(call: &ToolCall) -> Value {
    let arguments = match call.parsed() {
        Ok(_) if call.arguments.trim().starts_with('{') => call.arguments.clone(),
        Ok(map) => Value::Object(map).to_string(),
        Err(_) => briefing::bad_arguments_stub(&call.arguments),
    };
    json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::quirks::quirks;
    use crate::model::{ThinkingLevel, ToolSpec};
    use proptest::prelude::*;

    fn request(messages: Vec<ChatMessage>) -> ModelRequest {
        let parameters = json!({"type": "object", "properties": {"z": {}, "a": {}}});
        let tool = ToolSpec { name: "read".into(), description: "d".into(), parameters };
        ModelRequest {
            model: "m".into(),
            messages,
            tools: vec![tool].into(),
            thinking: Some(ThinkingLevel::Low),
            max_tokens: Some(9),
            temperature: Some(0.5),
        }
    }

    fn assistant(arguments: &str) -> ChatMessage {
        let call = ToolCall { id: "c".into(), name: "n".into(), arguments: arguments.into() };
        ChatMessage::Assistant { text: "t".into(), reasoning: Some("r".into()), tool_calls: vec![call] }
    }

    fn text(request: &ModelRequest, quirk: &str) -> String {
        String::from_utf8(body(request, &quirks(quirk).unwrap(), None)).unwrap()
    }

    #[test]
    fn the_whole_body() {
        let all = request(vec![
            ChatMessage::System("s".into()),
            ChatMessage::User("u".into()),
            assistant("{\"k\": 1}"),
            ChatMessage::Tool { call_id: "c".into(), content: "ok".into() },
        ]);
        insta::assert_snapshot!(text(&all, "openai"), @r#"{"model":"m","stream":true,"stream_options":{"include_usage":true},"max_completion_tokens":9,"temperature":0.5,"reasoning_effort":"low","tools":[{"type":"function","function":{"name":"read","description":"d","parameters":{"type":"object","properties":{"z":{},"a":{}}}}}],"messages":[{"role":"system","content":"s"},{"role":"user","content":"u"},{"role":"assistant","content":"t","tool_calls":[{"id":"c","type":"function","function":{"name":"n","arguments":"{\"k\": 1}"}}]},{"role":"tool","tool_call_id":"c","content":"ok"}]}"#);
    }

    #[test]
    fn defaults_of_the_provider() {
        let mut plain = request(vec![]);
        plain.max_tokens = None;
        plain.tools = Vec::new().into();
        plain.thinking = None;
        plain.temperature = None;
        let body = String::from_utf8(body(&plain, &Quirks::default(), Some(7))).unwrap();
        assert_eq!(
            body,
            r#"{"model":"m","stream":true,"stream_options":{"include_usage":true},"max_tokens":7,"messages":[]}"#
        );
    }

    /// am17an/llama.cpp#43
    #[test]
    fn f20_history_never_holds_unparsable_arguments() {
        for (written, sent) in [
            ("{\"a\": \"x", r#"{"unparsable_arguments":"{\"a\": \"x"}"#),
            ("[1]", r#"{"unparsable_arguments":"[1]"}"#),
            ("", "{}"),
            ("null", "{}"),
            ("\"{\\\"a\\\":1}\"", "{\"a\":1}"),
        ] {
            let value: Value = serde_json::from_str(&text(&request(vec![assistant(written)]), "generic")).unwrap();
            let got = value["messages"][0]["tool_calls"][0]["function"]["arguments"].as_str().unwrap();
            assert_eq!(got, sent);
            assert!(serde_json::from_str::<Value>(got).unwrap().is_object());
        }
    }

    /// BerriAI/litellm#26395, anomalyco/opencode#25058, continuedev/continue#9720, langchain-ai/langchain#34166
    #[test]
    fn f31_reasoning_goes_back_only_when_asked() {
        let all = request(vec![assistant("{}")]);
        assert!(text(&all, "litellm+reasoning").contains(r#""reasoning_content":"r""#));
        assert!(!text(&all, "litellm").contains("reasoning_content"));
    }

    fn any_message() -> impl Strategy<Value = ChatMessage> {
        prop_oneof![
            ".*".prop_map(ChatMessage::User),
            ".*".prop_map(|a| assistant(&a)),
            (".*", ".*").prop_map(|(call_id, content)| ChatMessage::Tool { call_id, content }),
        ]
    }

    proptest! {
        /// goruck/home-generative-agent#617, librefang/librefang#3700, earendil-works/pi#1873
        #[test]
        fn g01_a_growing_conversation_keeps_its_bytes(
            first in proptest::collection::vec(any_message(), 1..6), more in proptest::collection::vec(any_message(), 0..4),
        ) {
            let short = text(&request(first.clone()), "generic");
            let long = text(&request(first.into_iter().chain(more).collect()), "generic");
            let kept = short.strip_suffix("]}").unwrap();
            prop_assert!(long.starts_with(kept));
            prop_assert!(serde_json::from_str::<Value>(&long).is_ok());
        }
    }
}
