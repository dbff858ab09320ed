//! `jr2.yaml`: its tables, from which the reader and the schema are made, and its reader.

use super::{Settings, provider};
use crate::store::Durability;
use crate::workflow::diagnostic::Problems;
use crate::workflow::shape::{Key, NameRule, SIZE, Shape, Table, check};
use crate::workflow::source::{self, Node, NodeKind, SourceText};
use crate::workflow::{Diagnostics, codes, schema_of};
use crate::workspace::{ProviderBinding, ProviderKey};
use jr2_shared::size::{parse_cpu, parse_memory};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;

/// The file's name in the Instance's folder.
pub const CONFIG_FILE: &str = "jr2.yaml";
/// Longest path, address or URL in bytes.
const TEXT_MAX_BYTES: usize = 4 << 10;
/// Rows of the Harness's quirk table.
const QUIRKS: &[&str] = &[
    "openai",
    "vllm",
    "llama.cpp",
    "ollama",
    "mlx",
    "litellm",
    "generic",
    "openai+reasoning",
    "vllm+reasoning",
    "llama.cpp+reasoning",
    "ollama+reasoning",
    "mlx+reasoning",
    "litellm+reasoning",
    "generic+reasoning",
];
/// What an acknowledged save survives.
const DURABILITIES: &[&str] = &["power", "process"];
/// Largest number of tokens that may be written: far above any model.
const TOKENS_MAX: u64 = 100_000_000;
/// Longest silence that may be waited for: an answer as a whole ends after an hour.
const IDLE_MAX_SECS: u64 = 3_600;

const fn key(name: &'static str, shape: Shape, about: &'static str) -> Key {
    Key { name, about, shape, required: false }
}

/// The whole file.
pub static SETTINGS: Table = Table {
    noun: "the settings (a mapping)",
    name: "settings",
    keys: &[
        key("listen", Shape::Text(TEXT_MAX_BYTES), "Address and port of the API. Default: 127.0.0.1:4000."),
        key("workflows", Shape::Text(TEXT_MAX_BYTES), "The folder of workflow files. Default: workflows."),
        key("store", Shape::Object(&STORE), "Where runs are kept."),
        key("size", Shape::Object(&SIZE), "The ceiling of a Sandbox whose workflow says none."),
        key(
            "providers",
            Shape::Map(NameRule::Plain, &PROVIDER_SHAPE),
            "Model providers by the word before a model's slash.",
        ),
    ],
    rest: None,
};

static PROVIDER_SHAPE: Shape = Shape::Object(&PROVIDER);

static STORE: Table = Table {
    noun: "the store (a mapping)",
    name: "store",
    keys: &[
        key("dir", Shape::Text(TEXT_MAX_BYTES), "Its directory. Default: .jr2/store."),
        key("durability", Shape::Choice(DURABILITIES), "What an acknowledged save survives. Default: power."),
        key("diskMax", Shape::Memory, "Most bytes on disk, as in 4Gi."),
    ],
    rest: None,
};

static PROVIDER: Table = Table {
    noun: "a provider (a mapping)",
    name: "provider",
    keys: &[
        Key { required: true, ..key("baseUrl", Shape::Text(TEXT_MAX_BYTES), "Its OpenAI-compatible base URL.") },
        key("quirk", Shape::Choice(QUIRKS), "How its answers differ. Default: generic."),
        key("key", Shape::Object(&KEY), "Where its key is. Without it none is sent."),
        key("contextWindow", Shape::Count(1, TOKENS_MAX), "Tokens of its context window."),
        key("maxTokens", Shape::Count(1, TOKENS_MAX), "Most tokens of one answer."),
        key("idleSeconds", Shape::Count(1, IDLE_MAX_SECS), "Longest silence of a stream. Default: 300."),
    ],
    rest: None,
};

static KEY: Table = Table {
    noun: "a key's place (a mapping)",
    name: "key",
    keys: &[Key {
        required: true,
        ..key("env", Shape::Name(NameRule::Variable), "The environment variable that holds it; the file never does.")
    }],
    rest: None,
};

/// The JSON Schema of the file.
pub fn schema() -> Value {
    schema_of(&SETTINGS, "jr2 settings")
}

/// Reads the file into the settings.
pub fn read(path: &Path, settings: &mut Settings) -> Result<(), Diagnostics> {
    let source = Arc::new(SourceText::load(path).map_err(Diagnostics::one)?);
    let mut problems = Problems::new(source);
    if let Some(root) = source::read(&mut problems).filter(|root| !matches!(root.kind, NodeKind::Null)) {
        check(&Shape::Object(&SETTINGS), &root, "the file", &mut problems);
        apply(&root, settings, &mut problems);
    }
    if problems.items.is_empty() { Ok(()) } else { Err(Diagnostics::new(problems.items)) }
}

fn apply(root: &Node, settings: &mut Settings, problems: &mut Problems) {
    if let Some(node) = root.get("listen") {
        match node.text().map(str::parse) {
            Some(Ok(listen)) => settings.listen = listen,
            Some(Err(_)) => {
                let message = "`listen` must be an address with a port";
                problems.add(&codes::BAD_SETTING, node.span, message, "write `127.0.0.1:4000`");
            }
            None => {}
        }
    }
    if let Some(folder) = root.get("workflows").and_then(Node::text) {
        settings.workflows = settings.dir.join(folder);
    }
    if let Some(store) = root.get("store") {
        if let Some(dir) = store.get("dir").and_then(Node::text) {
            settings.store = settings.dir.join(dir);
        }
        if store.get("durability").and_then(Node::text) == Some("process") {
            settings.durability = Durability::Process;
        }
        if let Some(bytes) = store.get("diskMax").and_then(plain).and_then(|text| parse_memory(&text).ok()) {
            settings.disk_max_bytes = bytes;
        }
    }
    let size = |name: &str| root.get("size").and_then(|s| s.get(name)).and_then(plain);
    settings.memory = size("memory").filter(|text| parse_memory(text).is_ok());
    settings.cpu = size("cpu").filter(|text| parse_cpu(text).is_ok());
    for entry in root.get("providers").map(Node::entries).unwrap_or_default() {
        if let Some(found) = provider_of(&entry.key.value, &entry.value, problems) {
            settings.providers.push(found);
        }
    }
}

fn provider_of(id: &str, node: &Node, problems: &mut Problems) -> Option<ProviderBinding> {
    let base = node.get("baseUrl")?;
    let url = base.text()?;
    if !(url.starts_with("http://") || url.starts_with("https://")) {
        let message = format!("the base URL of `{id}` must be http or https");
        problems.add(&codes::BAD_SETTING, base.span, message, "write `https://HOST/v1`");
        return None;
    }
    let key = node.get("key").and_then(|k| k.get("env")).and_then(Node::text);
    let key = key.map_or(ProviderKey::None, |name| ProviderKey::Env(name.to_owned()));
    let quirk = node.get("quirk").and_then(Node::text).unwrap_or("generic");
    let count = |name: &str| node.get(name).and_then(plain).and_then(|text| text.parse().ok());
    let mut binding = provider(id, url, quirk, key);
    binding.provider.context_window = count("contextWindow");
    binding.provider.max_tokens = count("maxTokens");
    binding.provider.idle_seconds = count("idleSeconds");
    Some(binding)
}

/// A scalar as written.
fn plain(node: &Node) -> Option<String> {
    match &node.kind {
        NodeKind::Text(text) => Some(text.clone()),
        NodeKind::Number(number) => Some(number.to_string()),
        _ => None,
    }
}
