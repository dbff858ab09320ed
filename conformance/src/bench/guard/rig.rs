//! A real Harness in a real cgroup, with a model that asks for one `bash` call a conversation.

use super::super::BenchError;
use super::super::process::{Started, free_address, log_to};
use super::{Groups, Hog};
use axum::Router;
use axum::extract::{Path as UrlPath, State};
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::{get, post};
use jr2_shared::harness::{AdmitRequest, HarnessConfig, Provider, token_digest};
use jr2_shared::surface::{MenuItem, PICKS_KEYED, Surface, empty_object_schema};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Nobody else can reach the Harness under test.
const TOKEN: &str = "bench";
/// How long one call may take: a slow ramp, on a slow machine.
const PATIENCE: Duration = Duration::from_secs(90);
/// Pause between two questions.
const LOOK: Duration = Duration::from_millis(10);
/// How the model names a call's conversation.
const MARK: &str = "call number ";
/// What a kill's verdict starts with (spec M-5).
pub const VERDICT: &str = "killed: memory limit (peak ";

/// What is started.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `jr2-harness` binary.
    pub harness: PathBuf,
    /// An empty folder.
    pub folder: PathBuf,
    /// The Size's memory in bytes.
    pub limit: u64,
    /// Most processes, for a fork bomb.
    pub pids_max: Option<u64>,
    /// Without a cgroup of its own the Harness measures its process tree.
    pub in_group: bool,
    /// A mount namespace with a `/dev/shm` of its own.
    pub shm_private: bool,
    /// A cgroup v2 is handed over to be divided: the exact guard.
    pub divided: bool,
    /// How this program is started as a hog, as shell words.
    pub program: String,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The guard killed, and the kernel did not.
    Won,
    /// The kernel killed first; the Harness lives, and the call has the verdict all the same.
    Spared,
    /// The Harness died, or the call ended without the verdict.
    Lost,
    /// Nobody killed.
    Quiet,
}

/// One call.
#[derive(Clone, Debug)]
pub struct Trial {
    /// How it ended.
    pub outcome: Outcome,
    /// The call's result as the model saw it.
    pub text: String,
    /// From the call's start to its result.
    pub took: Duration,
}

#[derive(Default)]
struct Said {
    commands: HashMap<usize, String>,
    results: HashMap<usize, String>,
}

type Shared = Arc<Mutex<Said>>;

/// A running Harness.
pub struct Rig {
    options: Options,
    groups: Option<Groups>,
    started: Started,
    url: String,
    said: Shared,
    calls: usize,
    http: reqwest::Client,
    model: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.model.abort();
    }
}

impl Rig {
    /// Starts it.
    ///
    /// # Errors
    /// When no cgroup can be made, or the Harness does not come up.
    pub async fn start(name: &str, options: Options) -> Result<Self, BenchError> {
        crate::tls::install();
        let groups = options.in_group.then(|| Groups::make(name, options.limit, options.pids_max)).transpose()?;
        let said = Shared::default();
        let world = Router::new()
            .route("/agents/{iid}/surface", get(surface))
            .route("/v1/chat/completions", post(answer))
            .with_state(said.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.map_err(BenchError::io("a port"))?;
        let address = listener.local_addr().map_err(BenchError::io("a port"))?;
        let model = tokio::spawn(async move { axum::serve(listener, world).await });
        let at = free_address()?;
        let url = format!("http://{at}");
        std::fs::create_dir_all(work(&options)).map_err(BenchError::io("the working directory"))?;
        let mut command = command(&options, groups.as_ref());
        command.env("JR2_LISTEN", at.to_string()).env("JR2_CUSTODIAN_URL", format!("http://{address}"));
        command.env("JR2_HARNESS_JSON", provider(&format!("http://{address}/v1")));
        command.stdout(std::process::Stdio::null()).stderr(log_to(&options.folder, "harness.log")?);
        let started = Started::wait_healthy(command, &url, Duration::from_mins(1)).await?;
        let http = reqwest::Client::builder().no_proxy().build()?;
        Ok(Self { options, groups, started, url, said, calls: 0, http, model })
    }

    /// Which meter the guard has.
    pub async fn meter(&self) -> Result<String, BenchError> {
        let answer = self.http.get(format!("{}/healthz", self.url)).send().await?;
        let value = answer.headers().get("jr2-memory-guard").and_then(|value| value.to_str().ok());
        Ok(value.unwrap_or("none").to_owned())
    }

    /// The Harness's process.
    pub fn pid(&self) -> u32 {
        self.started.id()
    }

    /// What the Harness wrote to its log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.options.folder.join("harness.log")).unwrap_or_default()
    }

    /// The kept kills, as `GET /memory-kills` answers.
    pub async fn kills(&self) -> Result<Vec<Value>, BenchError> {
        let answer = self.http.get(format!("{}/memory-kills", self.url)).bearer_auth(TOKEN).send().await?;
        let body: Value = answer.error_for_status()?.json().await?;
        Ok(body["kills"].as_array().cloned().unwrap_or_default())
    }

    /// Runs one hog as a `bash` call.
    pub async fn hog(&mut self, hog: Hog, mib: u64) -> Result<Trial, BenchError> {
        self.call(&hog.command(&self.options.program, mib)).await
    }

    /// Begins a `bash` call; answers its number.
    pub async fn begin(&mut self, command: &str) -> Result<usize, BenchError> {
        self.calls += 1;
        let number = self.calls;
        lock(&self.said).commands.insert(number, command.to_owned());
        let request = AdmitRequest {
            message: format!("{MARK}{number}."),
            cwd: Some(work(&self.options).display().to_string()),
            definition: serde_json::from_value(json!({ "model": "bench/m", "instructions": "Run." }))
                .map_err(|e| BenchError::Unexpected(e.to_string()))?,
            model: None,
            thinking_level: None,
            notices: Vec::new(),
            receipt: None,
            kept: false,
            admission_id: Some(format!("run/root/bench/{number:08x}#1")),
        };
        let conversation = format!("{}/agents/bench/run%2Froot%2Fbench%2F{number:08x}", self.url);
        self.http.post(&conversation).bearer_auth(TOKEN).json(&request).send().await?.error_for_status()?;
        Ok(number)
    }

    /// The result of a call, once it is there; `Err` with how the Harness ended when it is gone.
    pub async fn result(&mut self, number: usize) -> Result<Result<String, String>, BenchError> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            if let Some(text) = lock(&self.said).results.get(&number) {
                return Ok(Ok(text.clone()));
            }
            if let Some(status) = self.started.ended() {
                return Ok(Err(format!("the Harness is gone: {status}")));
            }
            tokio::time::sleep(LOOK).await;
        }
        Err(BenchError::Deadline(PATIENCE, format!("call {number} has no result; the log: {}", self.log())))
    }

    /// Runs one `bash` call to its end.
    pub async fn call(&mut self, command: &str) -> Result<Trial, BenchError> {
        let (begun, before) = (Instant::now(), self.kernel_kills());
        let number = self.begin(command).await?;
        let text = self.result(number).await?;
        let by_kernel = self.kernel_kills() > before;
        let verdict = text.as_ref().is_ok_and(|text| text.contains(VERDICT));
        let outcome = match (verdict, by_kernel) {
            (true, false) => Outcome::Won,
            (true, true) => Outcome::Spared,
            (false, false) if text.is_ok() => Outcome::Quiet,
            _ => Outcome::Lost,
        };
        Ok(Trial { outcome, text: text.unwrap_or_else(|end| end), took: begun.elapsed() })
    }

    /// How many processes the kernel killed for memory.
    pub fn kernel_kills(&self) -> u64 {
        self.groups.as_ref().map_or(0, Groups::kernel_kills)
    }
}

/// Where the hogs work: inside the Sandbox, which is all they may write to.
fn work(options: &Options) -> PathBuf {
    options.folder.join("sandbox/work")
}

fn command(options: &Options, groups: Option<&Groups>) -> Command {
    let enter = groups.map(Groups::enter).unwrap_or_default();
    let harness = options.harness.display();
    let script = if options.shm_private {
        format!("{enter}exec unshare -m sh -c 'mount -t tmpfs tmpfs /dev/shm && exec {harness}'")
    } else {
        format!("{enter}exec {harness}")
    };
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("JR2_HARNESS_TOKEN_SHA256", token_digest(TOKEN)).env("JR2_MEMORY", options.limit.to_string());
    command.env("JR2_CONVERSATIONS_DIR", options.folder.join("conversations"));
    command.env("JR2_SANDBOX_DIR", options.folder.join("sandbox"));
    command.env("RUST_LOG", std::env::var("RUST_LOG").unwrap_or_else(|_| "info".to_owned()));
    if let Some(folder) = std::env::current_exe().ok().as_deref().and_then(std::path::Path::parent) {
        command.env("JR2_TOOLCHAINS", folder);
    }
    if options.shm_private {
        command.env("JR2_SHM", "private");
    }
    if groups.is_some_and(Groups::is_v2) {
        command.env("JR2_CGROUP", if options.divided { "delegated" } else { "private" });
    }
    command
}

fn provider(base_url: &str) -> String {
    let provider = Provider {
        id: "bench".into(),
        api: "chat-completions".into(),
        base_url: base_url.to_owned(),
        quirk: "generic".into(),
        stand_in: None,
        context_window: None,
        max_tokens: None,
        idle_seconds: None,
    };
    serde_json::to_string(&HarnessConfig { providers: vec![provider] }).unwrap_or_default()
}

async fn surface(UrlPath(iid): UrlPath<String>) -> impl IntoResponse {
    let menu = vec![MenuItem {
        name: "finish".into(),
        description: None,
        input: empty_object_schema(),
        semantics: "ack".into(),
        briefing: None,
    }];
    axum::Json(Surface {
        instance_id: iid,
        run_id: "run".into(),
        sandbox: None,
        menu: Some(menu),
        allowed: Some(Vec::new()),
        accepts: None,
        picks: Some(PICKS_KEYED.into()),
    })
}

/// A model that asks for the conversation's command, then keeps what it was told and stops.
async fn answer(State(said): State<Shared>, body: axum::Json<Value>) -> impl IntoResponse {
    let number: usize = body.0.to_string().split(MARK).nth(1).map_or(0, |rest| {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap_or(0)
    });
    let last = body["messages"].as_array().and_then(|messages| messages.last()).cloned().unwrap_or_default();
    let told = last["role"] == "tool";
    let delta = if told {
        lock(&said).results.insert(number, last["content"].as_str().unwrap_or_default().to_owned());
        json!({ "content": "Done." })
    } else {
        let command = lock(&said).commands.get(&number).cloned().unwrap_or_default();
        let arguments = json!({ "command": command }).to_string();
        let call = json!({ "index": 0, "id": "call_1", "type": "function",
                           "function": { "name": "bash", "arguments": arguments } });
        json!({ "tool_calls": [call] })
    };
    let chunk = |delta: Value, finish: Value| {
        format!("data: {}\n\n", json!({ "choices": [{ "index": 0, "delta": delta, "finish_reason": finish }] }))
    };
    let finish = if told { "stop" } else { "tool_calls" };
    let text = format!("{}{}data: [DONE]\n\n", chunk(delta, Value::Null), chunk(json!({}), json!(finish)));
    ([(header::CONTENT_TYPE, "text/event-stream")], text)
}

fn lock(said: &Shared) -> std::sync::MutexGuard<'_, Said> {
    said.lock().unwrap_or_else(PoisonError::into_inner)
}
