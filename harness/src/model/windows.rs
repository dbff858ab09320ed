//! How large a model's context window is, where nobody configured it: what its server lists, and what its refusals prove
//! (spec 6.9; F39).

use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Longest wait for a list of models: it stands between an answer and the next question.
pub const LOOK_WAIT: Duration = Duration::from_secs(3);
/// Largest list that is read, in bytes: gateways list thousands of models.
pub const LIST_MAX_BYTES: usize = 8 << 20;
/// Times a list that did not come is asked for.
const LOOKS_MAX: u32 = 3;
/// Most models remembered; beyond it they are learned anew, so that memory is bounded.
const KNOWN_MAX: usize = 1_024;
/// Where servers say it in a model's entry, the truest first: what is loaded, what is served, what the model could.
const FIELDS: [&str; 12] = [
    "/loaded_context_length", // LM Studio
    "/meta/n_ctx",            // llama.cpp
    "/max_model_len",         // vLLM, SGLang
    "/top_provider/context_length",
    "/context_length", // OpenRouter, Together
    "/context_window", // Groq
    "/max_context_length",
    "/max_input_tokens", // LiteLLM
    "/model_info/max_input_tokens",
    "/limits/max_prompt_tokens",
    "/n_ctx",
    "/meta/n_ctx_train", // llama.cpp
];

/// No list came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unanswered;

#[derive(Clone, Copy, Debug, Default)]
struct Known {
    listed: Option<u64>,
    proved: Option<u64>,
    looks: u32,
    over: bool,
}

/// What is known of the windows, by provider and model.
#[derive(Debug, Default)]
pub struct Windows(Mutex<HashMap<(String, String), Known>>);

impl Windows {
    /// What refusals proved.
    pub fn proved(&self, provider: &str, model: &str) -> Option<u64> {
        self.get(provider, model).proved
    }

    /// The best that is known.
    pub fn known(&self, provider: &str, model: &str) -> Option<u64> {
        let known = self.get(provider, model);
        [known.listed, known.proved].into_iter().flatten().min()
    }

    /// Whether to ask for the list.
    pub fn may_look(&self, provider: &str, model: &str) -> bool {
        !self.get(provider, model).over
    }

    /// The list came, or did not. Says in the log, once, that compaction is off.
    pub fn looked(&self, provider: &str, model: &str, found: Result<Option<u64>, Unanswered>) {
        let (over, unknown) = self.change(provider, model, |known| {
            known.looks += 1;
            known.over = found.is_ok() || known.looks >= LOOKS_MAX;
            known.listed = found.unwrap_or(known.listed);
            (known.over, known.listed.or(known.proved).is_none())
        });
        if over && unknown {
            tracing::warn!(
                "the context window of {provider}/{model} is unknown: neither the configuration (contextWindow) nor the \
                 server's /models says it; compaction is off until the server refuses a question as too long"
            );
        }
    }

    /// A refusal showed that the window is at most this.
    pub fn prove(&self, provider: &str, model: &str, tokens: u64) {
        let at_most = self.change(provider, model, |known| {
            let at_most = known.proved.map_or(tokens, |before| before.min(tokens));
            known.proved = Some(at_most);
            at_most
        });
        tracing::warn!("the context window of {provider}/{model} is at most {at_most} tokens: its server refused more");
    }

    fn get(&self, provider: &str, model: &str) -> Known {
        self.lock().get(&(provider.to_owned(), model.to_owned())).copied().unwrap_or_default()
    }

    fn change<T>(&self, provider: &str, model: &str, change: impl FnOnce(&mut Known) -> T) -> T {
        let mut all = self.lock();
        let key = (provider.to_owned(), model.to_owned());
        if all.len() >= KNOWN_MAX && !all.contains_key(&key) {
            all.clear();
        }
        change(all.entry(key).or_default())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(String, String), Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The window that a list of models gives for one of them. A server that lists one model answers for any name: local
/// servers are asked by aliases.
pub fn window_in(list: &Value, model: &str) -> Option<u64> {
    let entries = [list.get("data"), list.get("models"), Some(list)].into_iter().flatten().find_map(Value::as_array)?;
    let named = |entry: &&Value| ["id", "name", "model"].iter().any(|key| entry[*key] == model);
    let entry = entries.iter().find(named).or_else(|| entries.first().filter(|_| entries.len() == 1))?;
    FIELDS.iter().find_map(|path| entry.pointer(path).and_then(Value::as_u64).filter(|tokens| *tokens > 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn f39_a_window_is_read_from_every_server_s_list() {
        let vllm =
            json!({"object": "list", "data": [{"id": "a", "max_model_len": 4096}, {"id": "b", "max_model_len": 8192}]});
        assert_eq!((window_in(&vllm, "b"), window_in(&vllm, "c")), (Some(8192), None));
        let llama = json!({"models": [{"name": "x.gguf"}], "object": "list", "data": [{"id": "x.gguf",
            "meta": {"vocab_type": 2, "n_vocab": 151_936, "n_ctx_train": 32_768, "n_params": 494_032_768}}]});
        assert_eq!(window_in(&llama, "any-alias"), Some(32_768));
        let newer = json!({"data": [{"id": "x", "meta": {"n_ctx": 8192, "n_ctx_train": 32_768}}]});
        assert_eq!(window_in(&newer, "x"), Some(8192), "what is served, not what was trained");
        for entry in [
            json!({"id": "m", "context_length": 9}),
            json!({"id": "m", "context_window": 9}),
            json!({"id": "m", "context_length": 99, "top_provider": {"context_length": 9}}),
            json!({"id": "m", "max_context_length": 99, "loaded_context_length": 9}),
            json!({"id": "m", "max_input_tokens": 9}),
        ] {
            assert_eq!(window_in(&json!({"data": [entry]}), "m"), Some(9), "{entry}");
            assert_eq!(window_in(&json!([entry]), "m"), Some(9), "a bare list: {entry}");
        }
        // OpenAI, Ollama, mlx_lm: a name and no window. And nonsense.
        for list in
            [json!({"data": [{"id": "m", "object": "model"}]}), json!({"data": []}), json!({}), json!(7), json!([0])]
        {
            assert_eq!(window_in(&list, "m"), None, "{list}");
        }
        assert_eq!(window_in(&json!({"data": [{"id": "m", "context_length": 0, "max_model_len": -4}]}), "m"), None);
    }

    #[test]
    fn f39_a_refusal_only_ever_makes_a_window_smaller() {
        let windows = Windows::default();
        assert!(windows.may_look("p", "m"));
        windows.looked("p", "m", Ok(Some(8192)));
        assert!(!windows.may_look("p", "m"));
        windows.prove("p", "m", 9_000);
        assert_eq!(windows.known("p", "m"), Some(8192));
        windows.prove("p", "m", 2_048);
        windows.prove("p", "m", 4_096);
        assert_eq!((windows.known("p", "m"), windows.proved("p", "m")), (Some(2_048), Some(2_048)));
        assert_eq!(windows.known("p", "other"), None);
    }

    #[test]
    fn a_list_that_does_not_come_is_asked_for_a_few_times() {
        let windows = Windows::default();
        for _ in 0..LOOKS_MAX {
            assert!(windows.may_look("p", "m"));
            windows.looked("p", "m", Err(Unanswered));
        }
        assert!(!windows.may_look("p", "m"));
    }
}
