//! The prompt cache of a conversation: a real Harness process goes through a conversation of many Turns, and every
//! request to its model is compared with the one before it (group G; spec 6.6, 6.9).

mod prefix;
mod world;

pub use prefix::{Exchange, Kind, Line, Report, report};

use crate::bench::BenchError;
use crate::bench::process::{Started, free_address, log_to};
use crate::model::{Script, ScriptError, ScriptedModel};
use jr2_shared::harness::{
    AdmitAnswer, AdmitRequest, HEADER_NEXT_OFFSET, HarnessConfig, LONG_POLL_SECS, Provider, token_digest,
};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use world::World;

/// Nobody else can reach the Harness under the look.
const TOKEN: &str = "cache";
const AGENT: &str = "reader";
const IID: &str = "cache/root/reader/00000001";
const SCRIPT: &str = include_str!("script.json");
/// Window of the scripted model, in tokens: small enough that twelve Turns are compacted on the way.
const SCRIPTED_WINDOW: u64 = 16_384;
/// Bytes of a file that a Turn reads: a source file of common length.
const FILE_BYTES: usize = 4_000;
const INSTRUCTIONS: &str = "You read files and count their bytes. In each Turn read the file it names with `read`, run `wc -c` on it with \
    `bash`, then call `mcp__jr2__finish`.";

/// What to look at.
#[derive(Clone, Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Options {
    /// The Harness binary; else `jr2-harness` beside this binary, else on PATH.
    #[arg(long, value_name = "FILE")]
    pub harness_bin: Option<PathBuf>,
    /// Turns of the conversation.
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(2..=200))]
    pub turns: u32,
    /// Base URL of an OpenAI-compatible server; without it a scripted model answers.
    #[arg(long, requires = "model")]
    pub url: Option<String>,
    /// The model's name at that server.
    #[arg(long, requires = "url")]
    pub model: Option<String>,
    /// The server's quirk: openai, vllm, llama.cpp, ollama, mlx, litellm, generic.
    #[arg(long, default_value = "generic")]
    pub quirk: String,
    /// The environment variable that holds the server's key.
    #[arg(long, value_name = "NAME")]
    pub key_env: Option<String>,
    /// The model's context window in tokens; the server's own word when absent.
    #[arg(long, value_name = "TOKENS")]
    pub context_window: Option<u64>,
    /// Longest time one Turn may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    pub turn_seconds: u64,
    /// Print the report as JSON.
    #[arg(long)]
    pub json: bool,
}

const EXAMPLES: &str = "Examples:
  jr2-conformance cache
      twelve Turns against a scripted model, one compaction on the way
  jr2-conformance cache --harness-bin ./my-harness --json
      the same of another Harness build
  jr2-conformance cache --url http://127.0.0.1:8080/v1 --model qwen --quirk llama.cpp
      against a real server, with what it says came from its cache
  jr2-conformance cache --url https://api.openai.com/v1 --model gpt-5-mini --quirk openai --key-env OPENAI_API_KEY

Exit code 0: every request begins with the one before it, but at marked compactions. 1: it does not, or it could not be looked at.";

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// A process, a port, a request.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// The built-in script.
    #[error(transparent)]
    Script(#[from] ScriptError),
    /// The named variable holds no key.
    #[error("the environment variable {0} is not set")]
    Key(String),
    /// A folder for the Harness.
    #[error("{0}: {1}")]
    Folder(PathBuf, std::io::Error),
    /// Too few questions were asked to compare any.
    #[error("the Harness asked its model {0} times in the conversation: nothing to compare; Turns ended: {1}")]
    TooFew(usize, String),
}

impl From<reqwest::Error> for CacheError {
    fn from(error: reqwest::Error) -> Self {
        Self::Bench(error.into())
    }
}

/// Goes through the conversation. `folder` is an empty folder for the Harness.
pub async fn run(options: &Options, harness: &Path, folder: &Path) -> Result<Report, CacheError> {
    let io = |path: &Path| {
        let path = path.to_owned();
        move |error| CacheError::Folder(path, error)
    };
    let work = folder.join("work");
    std::fs::create_dir_all(&work).map_err(io(&work))?;
    for turn in 1..=options.turns {
        let path = work.join(format!("file-{turn}.txt"));
        std::fs::write(&path, file(turn)).map_err(io(&path))?;
    }
    let key = match &options.key_env {
        Some(name) => Some(std::env::var(name).map_err(|_| CacheError::Key(name.clone()))?),
        None => None,
    };
    let scripted = match &options.url {
        None => Some(ScriptedModel::start(Script::parse(SCRIPT, Path::new("."))?).map_err(BenchError::from)?),
        Some(_) => None,
    };
    let upstream = scripted.as_ref().map(ScriptedModel::url).or_else(|| options.url.clone()).unwrap_or_default();
    let world = World::new(&upstream, key)?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.map_err(BenchError::io("a port"))?;
    let address = listener.local_addr().map_err(BenchError::io("a port"))?;
    let router = world.router();
    let served = tokio::spawn(async move { axum::serve(listener, router).await });
    let at = free_address()?;
    let url = format!("http://{at}");
    let mut command = command(harness, options, &format!("http://{address}"), scripted.is_some());
    command.env("JR2_LISTEN", at.to_string()).env("JR2_CONVERSATIONS_DIR", folder.join("conversations"));
    command.stdout(log_to(folder, "harness.out")?).stderr(log_to(folder, "harness.log")?);
    let _started = Started::wait_healthy(command, &url, Duration::from_secs(30)).await?;
    let mut ends = Vec::new();
    for turn in 1..=options.turns {
        world.set_turn(turn as usize);
        ends.push(one_turn(options, &url, &work, turn).await?);
    }
    served.abort();
    let mut exchanges = world.exchanges();
    if exchanges.len() < 2 {
        return Err(CacheError::TooFew(exchanges.len(), ends.join(", ")));
    }
    if scripted.is_some() {
        // It has no cache to tell of.
        for exchange in &mut exchanges {
            exchange.cached_tokens = None;
        }
    }
    Ok(report(&exchanges))
}

/// Text that differs from line to line and from file to file.
fn file(turn: u32) -> String {
    let mut text = String::new();
    for line in 1.. {
        if text.len() >= FILE_BYTES {
            break;
        }
        let _ = writeln!(text, "file {turn}, line {line}: value {}", u64::from(turn) * 7_919 + line * 104_729 % 65_537);
    }
    text
}

fn command(harness: &Path, options: &Options, world: &str, scripted: bool) -> Command {
    let provider = Provider {
        id: "m".into(),
        api: "chat-completions".into(),
        base_url: format!("{world}/model"),
        quirk: options.quirk.clone(),
        stand_in: None,
        context_window: options.context_window.or(scripted.then_some(SCRIPTED_WINDOW)),
        max_tokens: None,
        idle_seconds: Some(options.turn_seconds),
    };
    let config = serde_json::to_string(&HarnessConfig { providers: vec![provider] }).unwrap_or_default();
    let mut command = Command::new(harness);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("JR2_HARNESS_TOKEN_SHA256", token_digest(TOKEN));
    command.env("JR2_CUSTODIAN_URL", world).env("JR2_HARNESS_JSON", config);
    command
}

/// One Turn, from its admission to its settlement; how it ended.
async fn one_turn(options: &Options, url: &str, work: &Path, turn: u32) -> Result<String, CacheError> {
    let client = reqwest::Client::builder().no_proxy().build()?;
    let conversation = format!("{url}/agents/{AGENT}/{}", IID.replace('/', "%2F"));
    let model = options.model.as_deref().unwrap_or("scripted");
    let definition = json!({"model": format!("m/{model}"), "instructions": INSTRUCTIONS, "temperature": 0.0});
    // What a workflow says anew each Turn: it belongs behind what was said before.
    let notices = if turn.is_multiple_of(3) { json!([{"kind": "memory-limit", "limit": "2Gi"}]) } else { json!([]) };
    let unexpected = |error: serde_json::Error| BenchError::Unexpected(error.to_string());
    let request = AdmitRequest {
        message: format!("Turn {turn}: the file is file-{turn}.txt."),
        cwd: Some(work.display().to_string()),
        definition: serde_json::from_value(definition).map_err(unexpected)?,
        model: None,
        thinking_level: None,
        notices: serde_json::from_value(notices).map_err(unexpected)?,
        receipt: None,
        kept: turn > 1,
        admission_id: Some(format!("{IID}#{turn}")),
    };
    let admitted = client.post(&conversation).bearer_auth(TOKEN).json(&request).send().await?.error_for_status()?;
    let admitted: AdmitAnswer = admitted.json().await?;
    let (begun, patience) = (Instant::now(), Duration::from_secs(options.turn_seconds));
    let mut offset = admitted.offset;
    while begun.elapsed() < patience {
        let updates = format!("{conversation}?offset={offset}&view=updates&live=long-poll");
        let wait = Duration::from_secs(LONG_POLL_SECS + 10);
        let answer = client.get(updates).bearer_auth(TOKEN).timeout(wait).send().await?.error_for_status()?;
        if let Some(next) = answer.headers().get(HEADER_NEXT_OFFSET).and_then(|value| value.to_str().ok()) {
            next.clone_into(&mut offset);
        }
        let text = answer.text().await?;
        let events: Vec<Value> = serde_json::from_str(&text).unwrap_or_default();
        if let Some(end) = events.iter().find(|event| event["submissionId"] == admitted.submission_id.as_str()) {
            return Ok(end["outcome"].as_str().unwrap_or("unknown").to_owned());
        }
    }
    Err(BenchError::Deadline(patience, format!("Turn {turn} did not settle")).into())
}

impl Report {
    /// Whether every continued request begins with the one before it.
    pub fn is_whole(&self) -> bool {
        self.continued > 0 && self.least_shared_percent >= 100.0
    }

    /// For people.
    pub fn table(&self) -> String {
        let count = |tokens: Option<u64>| tokens.map_or("–".to_owned(), |tokens| tokens.to_string());
        let mut text = "Turn  request    bytes  shared with the one before  prompt tokens  cached\n".to_owned();
        for line in &self.lines {
            let kind = match line.kind {
                Kind::First => "first",
                Kind::Continued => "continued",
                Kind::Compacted => "compacted",
            };
            let shared = match line.kind {
                Kind::First => "–".to_owned(),
                _ => format!("{} {:>7.2} %", line.shared_bytes, line.shared_percent),
            };
            let _ = writeln!(
                text,
                "{:>4}  {kind:<9} {:>7}  {shared:>27}  {:>13}  {:>6}",
                line.turn,
                line.bytes,
                count(line.prompt_tokens),
                count(line.cached_tokens)
            );
            if let Some(parted) = &line.parted {
                let _ = writeln!(text, "      they part at {parted}");
            }
        }
        let _ = writeln!(
            text,
            "\ncontinued requests: {}, the least of them repeats {:.2} % of the one before; marked compactions: {}",
            self.continued, self.least_shared_percent, self.compactions
        );
        let _ = match (self.cached_percent, self.cached_of_possible_percent) {
            (Some(all), Some(possible)) => writeln!(
                text,
                "from the server's cache: {all:.1} % of their prompt tokens, {possible:.1} % of those that the request \
                 before had (more than 100 when answers are cached too)"
            ),
            _ => writeln!(text, "the server does not say what came from its cache"),
        };
        text
    }
}

/// The Harness binary: as named, beside this one, or on PATH.
pub fn harness_binary(named: Option<&Path>) -> std::io::Result<PathBuf> {
    if let Some(path) = named {
        return std::path::absolute(path);
    }
    let beside = std::env::current_exe()?.with_file_name("jr2-harness");
    Ok(if beside.is_file() { beside } else { PathBuf::from("jr2-harness") })
}
