//! A state folder, a source repository and a stand-in Harness: this very test program, started again by a small script.

use axum::Router;
use axum::body::Body;
use axum::extract::Json;
use axum::response::Response;
use axum::routing::{get, post};
use jr2_orchestrator::workspace::{
    LocalOptions, LocalProvider, ProviderBinding, Provisioned, RepoBinding, SandboxEvent, SandboxProvider, SandboxSpec,
};
use jr2_shared::size::Size;
use serde::{Deserialize, Serialize};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Until something awaited must have happened.
pub const DEADLINE: Duration = Duration::from_secs(20);

pub struct Rig {
    root: TempDir,
    pub state: PathBuf,
    pub source: PathBuf,
    pub harness: PathBuf,
    pub providers: Vec<ProviderBinding>,
    /// Sandboxes get memory cgroups.
    pub memory_cgroups: bool,
    pub events: UnboundedReceiver<SandboxEvent>,
    send: UnboundedSender<SandboxEvent>,
}

impl Rig {
    pub fn new() -> Self {
        Self::with_state("s/.jr2")
    }

    pub fn with_state(state: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        let (send, events) = unbounded_channel();
        let path = root.path().canonicalize().unwrap();
        let rig = Self {
            state: path.join(state),
            source: path.join("source"),
            harness: path.join("fake-harness"),
            providers: Vec::new(),
            memory_cgroups: false,
            events,
            send,
            root,
        };
        let program = std::env::current_exe().unwrap();
        rig.script(&format!("exec '{}' --exact rig::fake_harness --nocapture", program.display()));
        std::fs::create_dir(&rig.source).unwrap();
        git(&rig.source, &["init", "-q", "-b", "main"]);
        commit(&rig.source, "a.txt", "one\n");
        rig
    }

    /// Replaces what the Harness program does.
    pub fn script(&self, body: &str) {
        let part = self.harness.with_extension("part");
        std::fs::write(&part, format!("#!/bin/sh\n{body}\n")).unwrap();
        std::fs::set_permissions(&part, std::fs::Permissions::from_mode(0o700)).unwrap();
        std::fs::rename(part, &self.harness).unwrap();
    }

    pub fn root(&self) -> &Path {
        self.root.path()
    }

    pub fn options(&self) -> LocalOptions {
        let control = Arc::new(|sandbox: &str| {
            let name = sandbox.to_owned();
            Router::new().route("/agents/{iid}/surface", get(move || async move { name }))
        });
        let mut options = LocalOptions::new(self.state.clone(), self.harness.clone(), control, self.send.clone());
        options.providers.clone_from(&self.providers);
        options.memory_cgroups = self.memory_cgroups;
        options.api_port = Some(4_000);
        options.owner_epoch = 3;
        options.limits.look = Duration::from_millis(20);
        options.limits.restarts.pause = Duration::from_millis(1);
        options
    }

    pub fn provider(&self) -> LocalProvider {
        LocalProvider::new(self.options()).unwrap()
    }

    pub fn spec(&self, name: &str) -> SandboxSpec {
        SandboxSpec {
            name: name.into(),
            run: "run".into(),
            repos: vec![RepoBinding {
                slot: "app".into(),
                url: self.source.to_string_lossy().into_owned(),
                reference: None,
            }],
            branch: "jr2/fix".into(),
            size: Size::default(),
        }
    }

    pub fn record(&self, name: &str) -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(self.record_path(name)).unwrap()).unwrap()
    }

    pub fn record_path(&self, name: &str) -> PathBuf {
        self.state.join(format!("sandboxes/{name}.json"))
    }

    /// The running Harness's pid as the record has it.
    pub fn pid(&self, name: &str) -> i32 {
        i32::try_from(self.record(name)["process"]["pid"].as_i64().unwrap()).unwrap()
    }

    pub async fn event(&mut self) -> SandboxEvent {
        tokio::time::timeout(DEADLINE, self.events.recv())
            .await
            .expect("no event in time")
            .expect("the channel is open")
    }
}

impl Drop for Rig {
    /// Harnesses outlive their provider on purpose; a test's do not outlive the test.
    fn drop(&mut self) {
        let mark = format!("JR2_SANDBOX_DIR={}", self.state.display());
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else { continue };
            let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            if environment.split(|b| *b == 0).any(|line| line.starts_with(mark.as_bytes())) {
                kill(pid);
            }
        }
        if let Ok(runtime) = std::fs::read_to_string(self.state.join("runtime-dir")) {
            let _ = std::fs::remove_dir_all(runtime.trim());
        }
    }
}

/// git with nothing of this machine's configuration.
pub fn git(dir: &Path, args: &[&str]) -> String {
    let out = Command::new("git")
        .current_dir(dir)
        .args(["-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgSign=false"])
        .args(args)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap();
    assert!(out.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).trim().to_owned()
}

/// Writes a file and commits everything; answers the commit.
pub fn commit(dir: &Path, file: &str, text: &str) -> String {
    std::fs::write(dir.join(file), text).unwrap();
    git(dir, &["add", "-A"]);
    git(dir, &["commit", "-q", "-m", "change"]);
    git(dir, &["rev-parse", "HEAD"])
}

pub fn worktree(made: &Provisioned) -> PathBuf {
    PathBuf::from(&made.repos[0].1)
}

pub fn kill(pid: i32) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

/// The process runs and is no zombie.
pub fn runs(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or_default().trim_start().starts_with('Z'))
}

pub async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !done() {
        assert!(Instant::now() < end, "not in time: {what}");
        // Poll: until the condition holds.
        tokio::time::sleep(Duration::from_millis(3)).await;
    }
}

/// An HTTP client on a Unix socket.
pub fn client(socket: &str) -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let path = socket.strip_prefix("unix:").unwrap_or(socket);
    reqwest::Client::builder().unix_socket(path).tls_danger_accept_invalid_certs(true).build().unwrap()
}

/// What the stand-in Harness is asked to send to its Custodian.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Call {
    pub method: String,
    pub path: String,
    /// `sandbox` = the Sandbox token of its environment.
    pub bearer: String,
    pub body: String,
}

/// Lets the Sandbox's Harness make a request of its own.
pub async fn through_harness(provider: &LocalProvider, name: &str, call: &Call) -> reqwest::Response {
    let url = provider.endpoint(name).expect("the Sandbox is up").url;
    client(&url).post("http://harness/call").json(call).send().await.unwrap()
}

/// The stand-in Harness: the other tests start this executable again with its environment; otherwise it does nothing.
#[test]
fn fake_harness() {
    let Some(listen) = std::env::var_os("JR2_LISTEN") else { return };
    let dir = PathBuf::from(std::env::var_os("JR2_SANDBOX_DIR").unwrap());
    if dir.join("tmp/crash").exists() {
        println!("told to crash");
        std::process::exit(3);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async move {
        let app = Router::new()
            .route("/healthz", get(|| async { axum::http::StatusCode::NO_CONTENT }))
            .route("/call", post(call_custodian))
            .route("/hog", post(eat_memory))
            .route("/stray", post(leave_a_stray));
        let path = listen.to_str().unwrap().strip_prefix("unix:").unwrap().to_owned();
        axum::serve(tokio::net::UnixListener::bind(path).unwrap(), app).await.unwrap();
    });
}

async fn call_custodian(Json(call): Json<Call>) -> Response {
    let bearer = if call.bearer == "sandbox" { std::env::var("JR2_SANDBOX_TOKEN").unwrap() } else { call.bearer };
    let answer = client(&std::env::var("JR2_CUSTODIAN_URL").unwrap())
        .request(call.method.parse().unwrap(), format!("http://custodian{}", call.path))
        .bearer_auth(bearer)
        .body(call.body)
        .send()
        .await
        .unwrap();
    let mut response = Response::builder().status(answer.status());
    if let Some(value) = answer.headers().get("x-jr2-custodian") {
        response = response.header("x-jr2-custodian", value);
    }
    response.body(Body::from_stream(answer.bytes_stream())).unwrap()
}

/// Takes memory until the kernel ends the process.
async fn eat_memory() {
    let mut eaten: Vec<Vec<u8>> = Vec::new();
    loop {
        eaten.push(vec![1; 1 << 20]);
    }
}

/// Starts a process that left the session and was orphaned.
async fn leave_a_stray() -> String {
    let out = Command::new("setsid").args(["sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!"]).output().unwrap();
    String::from_utf8_lossy(&out.stdout).trim().to_owned()
}
