//! How servers differ: one row a server, data only (decision 16).

use super::ThinkingLevel;
use serde_json::{Map, Value, json};

/// How a thinking level is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThinkingStyle {
    /// `reasoning_effort`, with these words for `off` and `xhigh`; `None` leaves the field out.
    Effort {
        /// The word for no thinking.
        off: Option<&'static str>,
        /// The word for the most thinking.
        most: &'static str,
    },
    /// `chat_template_kwargs`: `enable_thinking`, and `reasoning_effort` beside it for templates that know levels.
    TemplateKwargs,
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quirks {
    /// Its name in the configuration.
    pub name: &'static str,
    /// How a thinking level is said.
    pub thinking: ThinkingStyle,
    /// The field that bounds the answer.
    pub max_tokens_field: &'static str,
    /// Whether `stream_options.include_usage` is asked for: without it most servers count nothing (F34).
    pub include_usage: bool,
    /// Whether reasoning goes back as `reasoning_content` (F31). A configured name that ends in `+reasoning` turns it on.
    pub sends_reasoning: bool,
    /// Lower-case texts of this server's context overflow, beside the common ones.
    overflow: &'static [&'static str],
}

const GENERIC: Quirks = Quirks {
    name: "generic",
    thinking: ThinkingStyle::Effort { off: None, most: "high" },
    max_tokens_field: "max_tokens",
    include_usage: true,
    sends_reasoning: false,
    overflow: &[],
};

const TABLE: &[Quirks] = &[
    GENERIC,
    Quirks {
        name: "openai",
        thinking: ThinkingStyle::Effort { off: Some("none"), most: "xhigh" },
        max_tokens_field: "max_completion_tokens",
        ..GENERIC
    },
    Quirks {
        name: "vllm",
        thinking: ThinkingStyle::TemplateKwargs,
        overflow: &["maximum model length", "please reduce the length of the input"],
        ..GENERIC
    },
    Quirks {
        name: "llama.cpp",
        thinking: ThinkingStyle::TemplateKwargs,
        overflow: &["exceed_context_size_error", "available context size", "context size has been exceeded"],
        ..GENERIC
    },
    Quirks {
        name: "ollama",
        thinking: ThinkingStyle::Effort { off: Some("none"), most: "high" },
        overflow: &["input length exceeds", "exceeds maximum context"],
        ..GENERIC
    },
    Quirks { name: "mlx", thinking: ThinkingStyle::TemplateKwargs, ..GENERIC },
    Quirks {
        name: "litellm",
        thinking: ThinkingStyle::Effort { off: Some("none"), most: "high" },
        overflow: &["contextwindowexceedederror"],
        ..GENERIC
    },
];

/// Overflow texts that many servers share: gateways pass their upstream's words through, whatever row is configured.
const COMMON_OVERFLOW: &[&str] = &[
    "context_length_exceeded",
    "maximum context length",
    "context length exceeded",
    "exceeds the context",
    "exceed_context_size_error",
    "available context size",
    "maximum model length",
    "prompt is too long",
    "input is too long for",
    "contextwindowexceedederror",
];

/// The row of a configured name; `None` for a name the table does not have. `NAME+reasoning` sends reasoning back.
pub fn quirks(name: &str) -> Option<Quirks> {
    let (base, extra) = name.split_once('+').unwrap_or((name, ""));
    let row = TABLE.iter().find(|row| row.name == base)?;
    match extra {
        "" => Some(row.clone()),
        "reasoning" => Some(Quirks { sends_reasoning: true, ..row.clone() }),
        _ => None,
    }
}

impl Default for Quirks {
    /// The `generic` row.
    fn default() -> Self {
        GENERIC
    }
}

impl Quirks {
    /// Whether an error's code and words mean that the question does not fit the window (F36).
    pub fn is_overflow(&self, code: &str, message: &str) -> bool {
        let all = format!("{code} {message}").to_lowercase();
        COMMON_OVERFLOW.iter().chain(self.overflow).any(|text| all.contains(text))
    }

    /// Adds a thinking level to a request body.
    pub fn think(&self, level: ThinkingLevel, body: &mut Map<String, Value>) {
        let word = match level {
            ThinkingLevel::Off => None,
            ThinkingLevel::Minimal => Some("minimal"),
            ThinkingLevel::Low => Some("low"),
            ThinkingLevel::Medium => Some("medium"),
            ThinkingLevel::High => Some("high"),
            ThinkingLevel::Xhigh => Some(match self.thinking {
                ThinkingStyle::Effort { most, .. } => most,
                ThinkingStyle::TemplateKwargs => "high",
            }),
        };
        match self.thinking {
            ThinkingStyle::Effort { off, .. } => {
                if let Some(word) = word.or(off) {
                    body.insert("reasoning_effort".to_owned(), json!(word));
                }
            }
            ThinkingStyle::TemplateKwargs => {
                let mut kwargs = json!({"enable_thinking": word.is_some()});
                if let Some(word) = word {
                    // The templates that know levels know three.
                    kwargs["reasoning_effort"] = json!(if word == "minimal" { "low" } else { word });
                }
                body.insert("chat_template_kwargs".to_owned(), kwargs);
            }
        }
    }
}

/// The window in tokens that an overflow message names, if it does (F39).
pub fn limit_in(message: &str) -> Option<u64> {
    let lower = message.to_lowercase();
    let anchors = [
        "n_ctx",
        "maximum context length is",
        "maximum context length of",
        "available context size",
        "maximum model length of",
    ];
    anchors.iter().find_map(|anchor| {
        let after = &lower[lower.find(anchor)? + anchor.len()..];
        let digits: String = after
            .trim_start_matches([' ', '(', ':', '='])
            .chars()
            .take_while(|c| c.is_ascii_digit() || *c == ',' || *c == '_')
            .filter(char::is_ascii_digit)
            .collect();
        digits.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// earendil-works/pi#5930, can1357/oh-my-pi#3752
    #[test]
    fn f36_overflow_is_known_per_server() {
        let texts = [
            ("openai", "context_length_exceeded", "This model's maximum context length is 8192 tokens."),
            ("vllm", "400", "The decoder prompt (length 9000) is longer than the maximum model length of 8192."),
            (
                "llama.cpp",
                "exceed_context_size_error",
                "request (9021 tokens) exceeds the available context size (8192 tokens)",
            ),
            ("ollama", "", "the input length exceeds the context length"),
            ("litellm", "400", "litellm.ContextWindowExceededError: prompt is too long"),
            ("generic", "", "prompt is too long: 210000 tokens > 200000 maximum"),
        ];
        for (name, code, message) in texts {
            assert!(quirks(name).unwrap().is_overflow(code, message), "{name}");
        }
        for message in ["Invalid tool_choice: sometimes", "max_tokens is too large", "rate limit"] {
            assert!(TABLE.iter().all(|row| !row.is_overflow("400", message)), "{message}");
        }
    }

    /// earendil-works/pi#6751
    #[test]
    fn f39_the_real_window_is_read_from_the_refusal() {
        assert_eq!(limit_in("request exceeds the available context size (8192 tokens)"), Some(8192));
        assert_eq!(limit_in("too big (n_ctx 4096)"), Some(4096));
        assert_eq!(limit_in("This model's maximum context length is 128,000 tokens"), Some(128_000));
        assert_eq!(limit_in("no number"), None);
    }

    #[test]
    fn names() {
        for row in TABLE {
            assert_eq!(quirks(row.name).as_ref(), Some(row));
            assert!(!row.sends_reasoning);
        }
        assert!(quirks("vllm+reasoning").unwrap().sends_reasoning);
        assert_eq!(quirks("nope"), None);
        assert_eq!(quirks("vllm+nope"), None);
    }

    #[test]
    fn levels_are_said_in_each_servers_way() {
        let said = |name: &str, level| {
            let mut body = Map::new();
            quirks(name).unwrap().think(level, &mut body);
            Value::Object(body).to_string()
        };
        assert_eq!(said("openai", ThinkingLevel::Xhigh), r#"{"reasoning_effort":"xhigh"}"#);
        assert_eq!(said("openai", ThinkingLevel::Off), r#"{"reasoning_effort":"none"}"#);
        assert_eq!(said("generic", ThinkingLevel::Off), "{}");
        assert_eq!(said("generic", ThinkingLevel::Xhigh), r#"{"reasoning_effort":"high"}"#);
        assert_eq!(said("vllm", ThinkingLevel::Off), r#"{"chat_template_kwargs":{"enable_thinking":false}}"#);
        assert_eq!(
            said("mlx", ThinkingLevel::Minimal),
            r#"{"chat_template_kwargs":{"enable_thinking":true,"reasoning_effort":"low"}}"#
        );
    }
}
