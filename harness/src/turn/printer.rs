//! The printer: one line an item on stdout, for whoever reads the pod's log (spec H-23).

use crate::briefing::one_line;
use crate::model::ChatMessage;
use serde_json::Value;
use std::io::Write;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Longest printed bash call in characters (spec H-23).
const BASH_MAX_CHARS: usize = 100;
/// Longest other item in characters (spec H-23).
const ITEM_MAX_CHARS: usize = 150;
/// Lines that may wait for a slow reader; beyond it lines are dropped, because a log must not hold up a Turn.
const BACKLOG_MAX: usize = 1_024;

/// A thread that owns stdout.
pub struct Printer {
    lines: Option<SyncSender<String>>,
    thread: Option<JoinHandle<()>>,
}

impl Printer {
    /// Starts it.
    pub fn start() -> std::io::Result<Self> {
        let (lines, waiting) = sync_channel::<String>(BACKLOG_MAX);
        let thread = std::thread::Builder::new().name("printer".into()).spawn(move || {
            let mut out = std::io::stdout();
            for line in waiting {
                // A reader that is gone is no reason to end a Turn.
                let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
            }
        })?;
        Ok(Self { lines: Some(lines), thread: Some(thread) })
    }

    /// Prints one line, or drops it when the reader is far behind.
    pub fn print(&self, line: &str) {
        if let Some(lines) = &self.lines {
            let _ = lines.try_send(format!("{line}\n"));
        }
    }

    /// Prints the items of a message.
    pub fn message(&self, agent: &str, message: &ChatMessage) {
        for line in lines_of(agent, message) {
            self.print(&line);
        }
    }
}

impl Drop for Printer {
    fn drop(&mut self) {
        self.lines = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The lines of a message: prompts, thoughts, texts and calls; results are never shown.
pub fn lines_of(agent: &str, message: &ChatMessage) -> Vec<String> {
    let line = |kind: &str, text: &str| format!("[{agent}] [{kind}] {}", cut(text, ITEM_MAX_CHARS));
    match message {
        ChatMessage::System(_) | ChatMessage::Tool { .. } => Vec::new(),
        ChatMessage::User(text) => vec![line("prompt", text)],
        ChatMessage::Assistant { text, reasoning, tool_calls } => {
            let thought = reasoning.as_deref().filter(|text| !text.trim().is_empty());
            let spoken = Some(text.as_str()).filter(|text| !text.trim().is_empty());
            let items = thought.map(|text| line("thinking", text)).into_iter();
            let items = items.chain(spoken.map(|text| line("text", text)));
            let calls = tool_calls.iter().map(|call| {
                let (name, shown) = (cut(&call.name, ITEM_MAX_CHARS), call_words(&call.name, &call.arguments));
                format!("[{agent}] [{name}] {shown}")
            });
            items.chain(calls).collect()
        }
    }
}

fn call_words(name: &str, arguments: &str) -> String {
    let field = |key: &str| {
        let value: Option<Value> = serde_json::from_str(arguments).ok();
        value.and_then(|value| value.get(key).and_then(Value::as_str).map(str::to_owned))
    };
    match name {
        "bash" => cut(&field("command").unwrap_or_else(|| arguments.to_owned()), BASH_MAX_CHARS),
        "read" | "write" | "edit" => {
            cut(&field("path").or_else(|| field("file_path")).unwrap_or_else(|| arguments.to_owned()), ITEM_MAX_CHARS)
        }
        _ => cut(arguments, ITEM_MAX_CHARS),
    }
}

/// One line, cut.
pub fn cut(text: &str, max_chars: usize) -> String {
    let mut head: String = one_line(text.trim()).chars().take(max_chars + 1).collect();
    if let Some((end, _)) = head.char_indices().nth(max_chars) {
        head.truncate(end);
        head.push('…');
    }
    head
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ToolCall;

    #[test]
    fn h_23_one_line_an_item_and_results_never() {
        let call =
            |name: &str, arguments: &str| ToolCall { id: "c".into(), name: name.into(), arguments: arguments.into() };
        let long = format!(r#"{{"command":"echo {}"}}"#, "x".repeat(200));
        let message = ChatMessage::Assistant {
            text: "two\nlines".into(),
            reasoning: Some("hm".into()),
            tool_calls: vec![call("bash", &long), call("read", r#"{"path":"/w/a.rs"}"#), call("mcp__jr2__go", "{}")],
        };
        let lines = lines_of("coder", &message);
        assert_eq!(lines[0], "[coder] [thinking] hm");
        assert_eq!(lines[1], "[coder] [text] two lines");
        assert_eq!(lines[2], format!("[coder] [bash] echo {}…", "x".repeat(95)));
        assert_eq!(lines[3], "[coder] [read] /w/a.rs");
        assert_eq!(lines[4], "[coder] [mcp__jr2__go] {}");
        assert!(lines_of("coder", &ChatMessage::Tool { call_id: "c".into(), content: "secret".into() }).is_empty());
    }
}
