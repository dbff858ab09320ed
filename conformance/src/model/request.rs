//! What the scripted model sees in a request, and what is wrong with it.

use serde_json::Value;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Longest tool name real servers take.
const TOOL_NAME_MAX: usize = 64;

/// Longest conversation key in characters: it stands in ids and in memory.
const CONVERSATION_KEY_MAX_CHARS: usize = 256;

/// A request, read.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The path asked.
    pub path: String,
    /// Headers in lower case, in order.
    pub headers: Vec<(String, String)>,
    /// The body as it came.
    pub body: String,
    /// `model`.
    pub model: String,
    /// `stream`.
    pub stream: bool,
    /// `stream_options.include_usage`.
    pub include_usage: bool,
    /// Every message in order.
    pub messages: Vec<SeenMessage>,
    /// Names of the offered tools in order.
    pub tools: Vec<String>,
    /// Tells one conversation from another: `prompt_cache_key`, else `user`, else a digest of the system and first user message.
    pub conversation: String,
}

/// One message.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeenMessage {
    /// `system`, `developer`, `user`, `assistant`, `tool`.
    pub role: String,
    /// Its text parts, joined.
    pub text: String,
    /// Tool calls of an assistant message.
    pub calls: Vec<SeenCall>,
    /// The call a tool message answers.
    pub answers: Option<String>,
}

/// One tool call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SeenCall {
    /// Its id.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The arguments' text.
    pub arguments: String,
}

impl Seen {
    /// Reads a chat-completions body. The error says what is not JSON or not an object.
    pub fn read(path: &str, headers: Vec<(String, String)>, body: String) -> Result<Self, String> {
        let value: Value = serde_json::from_str(&body).map_err(|e| format!("the body is not JSON: {e}"))?;
        if !value.is_object() {
            return Err("the body is not a JSON object".to_owned());
        }
        let messages: Vec<SeenMessage> =
            value["messages"].as_array().map(|list| list.iter().map(read_message).collect()).unwrap_or_default();
        let tools = value["tools"]
            .as_array()
            .map(|list| list.iter().map(|t| text_of(&t["function"]["name"])).collect())
            .unwrap_or_default();
        Ok(Self {
            path: path.to_owned(),
            headers,
            model: text_of(&value["model"]),
            stream: value["stream"] == Value::Bool(true),
            include_usage: value["stream_options"]["include_usage"] == Value::Bool(true),
            conversation: conversation_key(&value, &messages),
            messages,
            tools,
            body,
        })
    }

    /// The system message, or the empty text.
    pub fn system(&self) -> &str {
        self.messages.iter().find(|m| is_system(&m.role)).map_or("", |m| &m.text)
    }

    /// The newest user message.
    pub fn last_user(&self) -> Option<&str> {
        self.messages.iter().rev().find(|m| m.role == "user").map(|m| m.text.as_str())
    }

    /// The tool result the request ends in.
    pub fn last_tool(&self) -> Option<&SeenMessage> {
        self.messages.last().filter(|m| m.role == "tool")
    }

    /// The call that the last tool result answers.
    pub fn last_call(&self) -> Option<&SeenCall> {
        let id = self.last_tool()?.answers.as_deref()?;
        self.messages.iter().rev().flat_map(|m| &m.calls).find(|call| call.id == id)
    }

    /// How many assistant messages there are.
    pub fn assistant_messages(&self) -> u64 {
        self.messages.iter().filter(|m| m.role == "assistant").count() as u64
    }

    /// How many assistant messages come after the newest user message.
    pub fn since_user(&self) -> u64 {
        self.messages.iter().rev().take_while(|m| m.role != "user").filter(|m| m.role == "assistant").count() as u64
    }

    /// A header's value, or the empty text.
    pub fn header(&self, name: &str) -> &str {
        self.headers.iter().find(|(n, _)| n == name).map_or("", |(_, value)| value)
    }

    /// What a real server would refuse: each problem in one line, none when the request is well formed.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.model.is_empty() {
            problems.push("`model` is missing".to_owned());
        }
        if self.messages.is_empty() {
            problems.push("`messages` is missing or empty".to_owned());
        }
        let mut names = HashSet::new();
        for name in &self.tools {
            let valid = (1..=TOOL_NAME_MAX).contains(&name.len())
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
            if !valid {
                problems.push(format!("tool name `{}` is not 1 to 64 of A-Z a-z 0-9 _ -", short(name)));
            }
            if !names.insert(name) {
                problems.push(format!("tool `{}` is offered twice", short(name)));
            }
        }
        self.message_problems(&mut problems);
        problems
    }

    fn message_problems(&self, problems: &mut Vec<String>) {
        let mut open: Vec<&str> = Vec::new();
        for (index, message) in self.messages.iter().enumerate() {
            let at = format!("messages[{index}]");
            match message.role.as_str() {
                "tool" => match message.answers.as_deref() {
                    Some(id) if open.contains(&id) => open.retain(|o| *o != id),
                    Some(id) => problems.push(format!("{at}: no open tool call `{}`", short(id))),
                    None => problems.push(format!("{at}: a tool message without `tool_call_id`")),
                },
                "system" | "developer" | "user" | "assistant" => {
                    for id in open.drain(..) {
                        problems.push(format!("{at}: tool call `{}` has no result before it", short(id)));
                    }
                    if is_system(&message.role) && index > 0 {
                        problems.push(format!("{at}: a system message that is not the first"));
                    }
                }
                other => problems.push(format!("{at}: unknown role `{}`", short(other))),
            }
            for call in &message.calls {
                if open.contains(&call.id.as_str()) || call.id.is_empty() {
                    problems.push(format!("{at}: tool call id `{}` is empty or used twice", short(&call.id)));
                }
                if serde_json::from_str::<Value>(&call.arguments).is_err() {
                    problems.push(format!("{at}: arguments of `{}` are not JSON", short(&call.name)));
                }
                open.push(&call.id);
            }
        }
        for id in open {
            problems.push(format!("tool call `{}` has no result at the end", short(id)));
        }
    }

    /// The request in a few words, for errors.
    pub fn summary(&self) -> String {
        let last = self.messages.last();
        format!(
            "model `{}`, {} messages ({} from the assistant), tools [{}], the last message is from {}: {:?}",
            short(&self.model),
            self.messages.len(),
            self.assistant_messages(),
            self.tools.join(", "),
            last.map_or("nobody", |m| &m.role),
            last.map_or(String::new(), |m| short(&m.text)),
        )
    }
}

fn is_system(role: &str) -> bool {
    role == "system" || role == "developer"
}

fn read_message(value: &Value) -> SeenMessage {
    let calls = value["tool_calls"].as_array().map(|list| list.iter().map(read_call).collect()).unwrap_or_default();
    SeenMessage {
        role: text_of(&value["role"]),
        text: content_text(&value["content"]),
        calls,
        answers: value["tool_call_id"].as_str().map(str::to_owned),
    }
}

fn read_call(value: &Value) -> SeenCall {
    SeenCall {
        id: text_of(&value["id"]),
        name: text_of(&value["function"]["name"]),
        arguments: text_of(&value["function"]["arguments"]),
    }
}

/// `content` is a string or a list of parts.
fn content_text(content: &Value) -> String {
    match content {
        Value::Array(parts) => parts.iter().map(|part| text_of(&part["text"])).collect(),
        other => text_of(other),
    }
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn conversation_key(value: &Value, messages: &[SeenMessage]) -> String {
    if let Some(key) = value["prompt_cache_key"].as_str().or_else(|| value["user"].as_str()) {
        return key.chars().take(CONVERSATION_KEY_MAX_CHARS).collect();
    }
    let mut hasher = DefaultHasher::new();
    for role in ["system", "user"] {
        messages.iter().find(|m| m.role == role).map(|m| &m.text).hash(&mut hasher);
    }
    format!("{:016x}", hasher.finish())
}

/// At most 200 characters of a text, for errors.
pub(super) fn short(text: &str) -> String {
    const SHOWN: usize = 200;
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn seen(body: Value) -> Seen {
        Seen::read("/v1/chat/completions", Vec::new(), body.to_string()).unwrap()
    }

    fn call(id: &str, arguments: &str) -> Value {
        json!({"id": id, "type": "function", "function": {"name": "t", "arguments": arguments}})
    }

    #[test]
    fn a_whole_conversation_is_well_formed() {
        let seen = seen(json!({"model": "m", "tools": [{"function": {"name": "t"}}], "messages": [
            {"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": null, "tool_calls": [call("1", "{}"), call("2", "{\"x\":1}")]},
            {"role": "tool", "tool_call_id": "1", "content": "one"}, {"role": "tool", "tool_call_id": "2", "content": "two"}]}));
        assert_eq!(seen.problems(), Vec::<String>::new());
        assert_eq!(seen.last_user(), Some("ab"));
        assert_eq!(seen.last_call().unwrap().id, "2");
        assert_eq!((seen.assistant_messages(), seen.since_user()), (1, 1));
    }

    #[test]
    fn what_real_servers_refuse_is_found() {
        let problems = |messages: Value| seen(json!({"model": "m", "messages": messages})).problems().join("; ");
        let user = json!({"role": "user", "content": "u"});
        let asks = json!({"role": "assistant", "tool_calls": [call("1", "{\"cut")]});
        assert!(problems(json!([])).contains("missing or empty"));
        assert!(problems(json!([user, {"role": "tool", "content": "x"}])).contains("without `tool_call_id`"));
        assert!(problems(json!([user, {"role": "tool", "tool_call_id": "9"}])).contains("no open tool call `9`"));
        let cut = problems(json!([user, asks, user]));
        assert!(cut.contains("arguments of `t` are not JSON") && cut.contains("no result before it"), "{cut}");
        assert!(problems(json!([user, {"role": "assistant", "tool_calls": [call("1", "{}")]}])).contains("at the end"));
        assert!(problems(json!([user, {"role": "system", "content": "late"}])).contains("not the first"));
        assert!(problems(json!([{"role": "robot"}])).contains("unknown role `robot`"));
        let tools = json!([{"function": {"name": "a b"}}, {"function": {"name": "c"}}, {"function": {"name": "c"}}]);
        let tools = seen(json!({"messages": [user], "tools": tools})).problems().join("; ");
        assert!(
            tools.contains("`model` is missing") && tools.contains("`a b` is not") && tools.contains("offered twice")
        );
    }

    #[test]
    fn conversations_are_told_apart_by_key_or_by_how_they_begin() {
        let with = |first: &str, rest: &str| {
            seen(json!({"messages": [{"role": "user", "content": first}, {"role": "user", "content": rest}]}))
                .conversation
        };
        assert_eq!(with("a", "b"), with("a", "c"));
        assert_ne!(with("a", "b"), with("b", "b"));
        assert_eq!(seen(json!({"user": "k"})).conversation, "k");
    }
}
