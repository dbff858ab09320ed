//! The script file: what the scripted model answers, and to what.
//!
//! A script is JSON. It is read whole, checked whole, and every mistake is an error before the server listens.

use super::matching::{Range, TextTest};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Largest script file in bytes: a script is written by hand, so more is a mistake.
pub const SCRIPT_MAX_BYTES: u64 = 16 << 20;
/// Most rules of a script: every request may look at each.
pub const RULES_MAX: usize = 10_000;

/// Why a script cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The file, or a raw answer's file, cannot be read.
    #[error("cannot read {path}: {source}")]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is not the JSON of a script.
    #[error("the script is malformed: {0}")]
    Malformed(#[from] serde_json::Error),
    /// A rule contradicts itself or names something that is not there.
    #[error("rule {rule}: {problem}")]
    Rule {
        /// Its name, or its place from 1.
        rule: String,
        /// What is wrong.
        problem: String,
    },
    /// The script as a whole is out of bounds.
    #[error("{0}")]
    Bound(String),
}

/// A whole script.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Script {
    /// For people; not read.
    #[serde(default)]
    pub description: Option<String>,
    /// What `GET …/models` lists.
    #[serde(default = "default_models")]
    pub models: Vec<String>,
    /// Refuse malformed requests with 400 as real servers do; `false` only records what is wrong with them.
    #[serde(default = "yes")]
    pub strict: bool,
    /// Values read from every request, by name; usable in conditions and answers as `{{name}}`.
    #[serde(default)]
    pub captures: BTreeMap<String, Capture>,
    /// The first rule whose conditions all hold answers.
    pub rules: Vec<Rule>,
}

fn default_models() -> Vec<String> {
    vec!["scripted".to_owned()]
}

fn yes() -> bool {
    true
}

/// One condition-and-answer pair.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Rule {
    /// For people and records; its place from 1 when absent.
    #[serde(default)]
    pub name: String,
    /// All must hold; an empty condition always does.
    #[serde(default)]
    pub when: When,
    /// Answers at most this many requests. Counted by this process: a restart forgets it.
    #[serde(default)]
    pub times: Option<u64>,
    /// What is said.
    pub answer: Answer,
}

/// The conditions of a rule.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct When {
    /// The request's path.
    pub path: Option<TextTest>,
    /// The request's `model`.
    pub model: Option<TextTest>,
    /// Whether it asks for a stream.
    pub stream: Option<bool>,
    /// The system message.
    pub system: Option<TextTest>,
    /// The newest user message, wherever it stands.
    pub last_user: Option<TextTest>,
    /// Some user message.
    pub any_user: Option<TextTest>,
    /// The request ends in tool results, and the last of them says this.
    pub last_tool: Option<TextTest>,
    /// Some tool result of the conversation.
    pub any_tool: Option<TextTest>,
    /// The request ends in a tool result, and this is the call it answers.
    pub last_call: Option<CallTest>,
    /// Role of the last message: `user`, `tool`, `assistant`, `system`.
    pub ends: Option<String>,
    /// How many assistant messages the request holds.
    pub assistant_messages: Option<Range>,
    /// How many of them come after the newest user message.
    pub since_user: Option<Range>,
    /// Header values by lower-case name; a missing header is the empty text.
    #[serde(default)]
    pub headers: BTreeMap<String, TextTest>,
    /// Names of tools that must be offered.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Captures that must have a value.
    #[serde(default)]
    pub has: Vec<String>,
    /// Captures that must have none.
    #[serde(default)]
    pub lacks: Vec<String>,
    /// The body's text as it came.
    pub body: Option<TextTest>,
    /// The conversation's key.
    pub conversation: Option<TextTest>,
    /// Which request of this conversation it is, from 1. Counted by this process: a restart forgets it.
    pub conversation_call: Option<Range>,
    /// Which request to this server it is, from 1. Counted by this process: a restart forgets it.
    pub call: Option<Range>,
}

/// A condition on a tool call.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct CallTest {
    /// The tool's name, whole.
    #[serde(default)]
    pub name: Option<String>,
    /// Conditions on top-level arguments; a value that is no string is compared as its JSON text.
    #[serde(default)]
    pub arguments: BTreeMap<String, TextTest>,
}

/// A value read from a request.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Capture {
    /// Where to look.
    pub from: CaptureSource,
    /// The first group, or the whole match without one, is the value; the newest message that matches gives it.
    pub regex: String,
    /// The value when nothing matches.
    #[serde(default)]
    pub default: Option<String>,
    #[serde(skip)]
    pub(super) compiled: Option<regex::Regex>,
}

/// Where a capture looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CaptureSource {
    /// The system message.
    System,
    /// User messages, newest first.
    User,
    /// Tool results, newest first.
    Tool,
    /// User messages and tool results, newest first.
    Any,
    /// The body's text.
    Body,
}

/// What a rule says: one of text, reasoning and tool calls together; `raw`; `error`; or `close`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Answer {
    /// Assistant text.
    #[serde(default)]
    pub text: Option<String>,
    /// Thinking, as `reasoning_content`.
    #[serde(default)]
    pub reasoning: Option<String>,
    /// Tool calls in order.
    #[serde(default)]
    pub tool_calls: Vec<ScriptedCall>,
    /// `tool_calls` when there are some, else `stop`.
    #[serde(default)]
    pub finish_reason: Option<String>,
    /// Token counts; estimated from lengths when absent.
    #[serde(default)]
    pub usage: Option<Usage>,
    /// Characters of one streamed delta; whole texts when absent.
    #[serde(default)]
    pub delta_chars: Option<usize>,
    /// Leave out `data: [DONE]`.
    #[serde(default)]
    pub no_done: bool,
    /// Bytes given as they stand.
    #[serde(default)]
    pub raw: Option<Raw>,
    /// A refusal.
    #[serde(default)]
    pub error: Option<ErrorAnswer>,
    /// Close the connection without one byte.
    #[serde(default)]
    pub close: bool,
    /// Extra response headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Milliseconds before the first byte.
    #[serde(default)]
    pub delay_ms: u64,
    /// Bytes of one write. When absent: one event per write with `chunkDelayMs` or `deltaChars`, else one write for all.
    #[serde(default)]
    pub chunk_bytes: Option<usize>,
    /// Milliseconds between writes.
    #[serde(default)]
    pub chunk_delay_ms: u64,
    /// Close the connection after this many bytes of the body.
    #[serde(default)]
    pub cut_after_bytes: Option<usize>,
}

/// A tool call of an answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ScriptedCall {
    /// The tool.
    pub name: String,
    /// An object, or a string that is sent as it stands, valid JSON or not.
    #[serde(default = "empty_object")]
    pub arguments: Value,
    /// `call_<assistant messages so far>_<place>` when absent.
    #[serde(default)]
    pub id: Option<String>,
}

fn empty_object() -> Value {
    Value::Object(serde_json::Map::new())
}

/// Token counts of an answer, named as `promptTokens`, `completionTokens`, `cachedTokens`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// Of the request.
    #[serde(rename = "promptTokens")]
    pub prompt: u64,
    /// Of the answer.
    #[serde(rename = "completionTokens")]
    pub completion: u64,
    /// Of the request, found in the cache.
    #[serde(default, rename = "cachedTokens")]
    pub cached: u64,
}

/// Bytes given as they stand.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Raw {
    /// The bytes as text.
    #[serde(default)]
    pub body: Option<String>,
    /// Or a file beside the script.
    #[serde(default)]
    pub file: Option<PathBuf>,
    /// The bytes are a whole recorded response: status line, headers, empty line, body.
    #[serde(default)]
    pub recorded: bool,
    /// The status; 200 when absent.
    #[serde(default)]
    pub status: Option<u16>,
    /// `text/event-stream` when absent.
    #[serde(default)]
    pub content_type: Option<String>,
    #[serde(skip)]
    pub(super) bytes: Vec<u8>,
}

impl Raw {
    /// These bytes as an event stream.
    pub fn of(bytes: impl Into<Vec<u8>>) -> Self {
        Self { bytes: bytes.into(), ..Self::default() }
    }
}

/// A refusal in the shape of the chat-completions wire.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ErrorAnswer {
    /// HTTP status.
    pub status: u16,
    /// `error.message`.
    #[serde(default)]
    pub message: String,
    /// `error.type`.
    #[serde(default, rename = "type")]
    pub kind: Option<String>,
    /// `error.code`.
    #[serde(default)]
    pub code: Option<Value>,
    /// The header `retry-after` as it stands.
    #[serde(default)]
    pub retry_after: Option<String>,
    /// The whole body instead of the usual shape.
    #[serde(default)]
    pub body: Option<String>,
}

impl Script {
    /// Reads and checks a script file; raw files are looked for beside it.
    pub fn load(path: &Path) -> Result<Self, ScriptError> {
        let unreadable = |source| ScriptError::Unreadable { path: path.to_owned(), source };
        let size = std::fs::metadata(path).map_err(unreadable)?.len();
        if size > SCRIPT_MAX_BYTES {
            return Err(ScriptError::Bound(format!(
                "the script has {size} bytes; at most {SCRIPT_MAX_BYTES} are read"
            )));
        }
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        Self::parse(&text, path.parent().unwrap_or(Path::new(".")))
    }

    /// Reads and checks a script's text; raw files are looked for in `folder`.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, ScriptError> {
        let mut script: Self = serde_json::from_str(text)?;
        script.complete(folder)?;
        Ok(script)
    }

    /// A script built in a test: `Script::from_json(json!({"rules": […]}))`. Raw files are looked for in the present folder.
    pub fn from_json(value: Value) -> Result<Self, ScriptError> {
        let mut script: Self = serde_json::from_value(value)?;
        script.complete(Path::new("."))?;
        Ok(script)
    }

    /// Names the rules, loads raw files, compiles captures, and refuses what contradicts itself.
    fn complete(&mut self, folder: &Path) -> Result<(), ScriptError> {
        if self.rules.len() > RULES_MAX {
            return Err(ScriptError::Bound(format!("a script has at most {RULES_MAX} rules")));
        }
        for (name, capture) in &mut self.captures {
            let compiled = regex::Regex::new(&capture.regex)
                .map_err(|e| ScriptError::Bound(format!("capture {name}: not a regular expression: {e}")))?;
            capture.compiled = Some(compiled);
        }
        for (index, rule) in self.rules.iter_mut().enumerate() {
            if rule.name.is_empty() {
                rule.name = (index + 1).to_string();
            }
            check_answer(&rule.answer).map_err(|problem| ScriptError::Rule { rule: rule.name.clone(), problem })?;
            if let Some(raw) = &mut rule.answer.raw {
                load_raw(raw, folder)?;
            }
        }
        Ok(())
    }
}

fn check_answer(answer: &Answer) -> Result<(), String> {
    let says = answer.text.is_some() || answer.reasoning.is_some() || !answer.tool_calls.is_empty();
    let kinds =
        [says, answer.raw.is_some(), answer.error.is_some(), answer.close].into_iter().filter(|kind| *kind).count();
    if kinds != 1 {
        return Err("an answer is one of: text, reasoning and toolCalls; raw; error; close".to_owned());
    }
    if answer.chunk_bytes == Some(0) || answer.delta_chars == Some(0) {
        return Err("chunkBytes and deltaChars are at least 1".to_owned());
    }
    if let Some(raw) = &answer.raw
        && raw.body.is_some() == raw.file.is_some()
    {
        return Err("raw has one of body and file".to_owned());
    }
    for call in &answer.tool_calls {
        if !call.arguments.is_object() && !call.arguments.is_string() {
            return Err(format!("arguments of {} are an object or a string", call.name));
        }
    }
    Ok(())
}

fn load_raw(raw: &mut Raw, folder: &Path) -> Result<(), ScriptError> {
    raw.bytes = match (&raw.body, &raw.file) {
        (_, Some(file)) => {
            let path = folder.join(file);
            std::fs::read(&path).map_err(|source| ScriptError::Unreadable { path, source })?
        }
        (Some(body), None) => body.clone().into_bytes(),
        (None, None) => Vec::new(),
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refused(value: Value) -> String {
        Script::from_json(value).unwrap_err().to_string()
    }

    #[test]
    fn mistakes_in_a_script_are_named() {
        assert_eq!(
            refused(json!({"rules": [{"name": "a", "answer": {}}]})),
            "rule a: an answer is one of: text, reasoning and toolCalls; raw; error; close"
        );
        assert!(refused(json!({"rules": [{"answer": {"text": "x"}, "wen": {}}]})).contains("unknown field `wen`"));
        assert!(
            refused(json!({"rules": [{"when": {"lastUser": {"regex": "("}}, "answer": {"text": "x"}}]})).contains('(')
        );
        assert!(refused(json!({"rules": [{"answer": {"raw": {"body": "", "file": "x"}}}]})).starts_with("rule 1:"));
        assert!(refused(json!({"rules": [{"answer": {"raw": {"file": "no/such"}}}]})).contains("no/such"));
        assert!(refused(json!({"captures": {"x": {"from": "user", "regex": "["}}, "rules": []})).contains("capture x"));
        assert!(
            refused(json!({"rules": [{"answer": {"toolCalls": [{"name": "t", "arguments": 7}]}}]}))
                .contains("arguments of t")
        );
    }
}
