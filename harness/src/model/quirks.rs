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
}

const GENERIC: Quirks = Quirks {
    name: "generic",
    thinking: ThinkingStyle::Effort { off: None, most: "high" },
    max_tokens_field: "max_tokens",
    include_usage: true,
    sends_reasoning: false,
};

const TABLE: &[Quirks] = &[
    GENERIC,
    Quirks {
        name: "openai",
        thinking: ThinkingStyle::Effort { off: Some("none"), most: "xhigh" },
        max_tokens_field: "max_completion_tokens",
        ..GENERIC
    },
    Quirks { name: "vllm", thinking: ThinkingStyle::TemplateKwargs, ..GENERIC },
    Quirks { name: "llama.cpp", thinking: ThinkingStyle::TemplateKwargs, ..GENERIC },
    Quirks { name: "ollama", thinking: ThinkingStyle::Effort { off: Some("none"), most: "high" }, ..GENERIC },
    Quirks { name: "mlx", thinking: ThinkingStyle::TemplateKwargs, ..GENERIC },
    Quirks { name: "litellm", thinking: ThinkingStyle::Effort { off: Some("none"), most: "high" }, ..GENERIC },
];

/// What servers say, in lower case, when a question does not fit (F36). One list for all rows, because gateways pass their
/// upstream's words through. A false friend would cost one compaction; a missing text ends the Turn.
const OVERFLOW: &[&str] = &[
    "context_length_exceeded",            // OpenAI and what copies its codes
    "maximum context length",             // OpenAI, vLLM, SGLang, OpenRouter, Mistral
    "exceeds the context",                // OpenAI, Ollama, mlx
    "input tokens exceed the configured", // OpenAI
    "maximum model length",               // vLLM
    "exceed_context_size_error",          // llama.cpp
    "available context size",             // llama.cpp
    "context size has been exceeded",     // llama.cpp, in a stream
    "exceeded max context length",        // Ollama
    "exceeds maximum context",            // Ollama
    "input length exceeds",               // Ollama
    "contextwindowexceedederror",         // LiteLLM
    "prompt is too long",                 // Anthropic, mlx
    "prompt too long",                    // Ollama
    "exceed context limit",               // Anthropic
    "context length exceeded",            // many
    "longer than the model's context",    // SGLang
    "maximum number of tokens allowed",   // Gemini
    "maximum prompt length",              // xAI
    "exceeded model token limit",         // Moonshot
    "loaded with context length of only", // LM Studio
    "`max_new_tokens` must be <=",        // TGI
    "input is too long for",              // Bedrock
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

/// Whether an error's code and words mean that the question does not fit the window (F36).
pub fn is_overflow(code: &str, message: &str) -> bool {
    let all = format!("{code} {message}").to_lowercase();
    OVERFLOW.iter().any(|text| all.contains(text))
}

/// What stands before the window in a refusal, most telling first.
const LIMIT_ANCHORS: &[&str] = &[
    "n_ctx",
    "maximum context length is",
    "maximum context length of",
    "available context size",
    "maximum model length of",
    "model's context length",
    "context length of only",
    "the context length of",
    "maximum prompt length is",
    "maximum number of tokens allowed",
    "configured limit of",
    "model token limit",
    "must be <=",
    "tokens >",
    "context limit:",
];

/// The window in tokens that an overflow message names, if it does (F39).
pub fn limit_in(message: &str) -> Option<u64> {
    let lower = message.to_lowercase();
    LIMIT_ANCHORS.iter().find_map(|anchor| {
        let (_, after) = lower.split_once(anchor)?;
        // Here the window is what a sum is compared with.
        let after = if *anchor == "context limit:" { after.split_once('>')?.1 } else { after };
        let digits: String = after
            .trim_start_matches([' ', '(', ':', '='])
            .chars()
            .take_while(|c| c.is_ascii_digit() || *c == ',' || *c == '_')
            .filter(char::is_ascii_digit)
            .collect();
        digits.parse().ok().filter(|tokens| *tokens > 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture(name: &str) -> Vec<Value> {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../conformance/fixtures/llm-errors/");
        serde_json::from_str(&std::fs::read_to_string(format!("{folder}{name}")).unwrap()).unwrap()
    }

    #[test]
    fn f39_the_window_is_read_from_a_refusal_or_is_unknown() {
        assert_eq!(limit_in("This model's maximum context length is 128,000 tokens"), Some(128_000));
        for message in ["no number", "n_ctx 0", "maximum context length is very long", "context limit: 1 + 2"] {
            assert_eq!(limit_in(message), None, "{message}");
        }
    }

    /// earendil-works/pi#5930, can1357/oh-my-pi#3752, earendil-works/pi#6751
    #[test]
    fn f36_every_server_has_refusals_that_are_known() {
        let all = fixture("overflow.json");
        for row in TABLE {
            assert!(all.iter().any(|entry| entry["quirk"] == row.name), "{} has no text", row.name);
        }
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
