//! A real `jr2 serve` in a folder of its own, on a port that outlives its processes.

// Several test binaries use this file, each a part of it.
#![allow(dead_code)]

use serde_json::Value;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The `jr2` that is meant when it is not this package's own; its `jr2-harness` lies beside it.
pub static PROGRAM: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
/// How long anything may take that has to happen.
pub const PATIENCE: Duration = Duration::from_mins(1);
/// Pause between two looks at a condition.
pub const LOOK: Duration = Duration::from_millis(5);
/// Below the ports that systems give to outgoing connections, so that none of them takes ours between two processes.
const PORTS: std::ops::Range<u16> = 20_000..30_000;

/// A folder with `jr2.yaml`, workflows and state; what it left running is ended when it is dropped.
pub struct Folder {
    pub dir: PathBuf,
    pub port: u16,
    client: reqwest::Client,
    _held: tempfile::TempDir,
}

/// A running server; killed when dropped.
pub struct Server {
    pub child: Child,
    pub token: String,
}

impl Folder {
    pub fn new(settings: &str, workflows: &[(&str, &str)]) -> Self {
        // The client is built without a provider of its own.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let held = tempfile::Builder::new().prefix("jr2k").tempdir().unwrap();
        let dir = held.path().canonicalize().unwrap();
        std::fs::write(dir.join("jr2.yaml"), settings).unwrap();
        std::fs::create_dir(dir.join("workflows")).unwrap();
        for (name, text) in workflows {
            std::fs::write(dir.join("workflows").join(format!("{name}.yaml")), text).unwrap();
        }
        let client = reqwest::Client::builder().no_proxy().timeout(PATIENCE).build().unwrap();
        Self { dir, port: free_port(), client, _held: held }
    }

    /// The next server listens elsewhere.
    pub fn move_port(&mut self) {
        self.port = free_port();
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    pub fn state(&self) -> PathBuf {
        self.dir.join(".jr2")
    }

    /// What every server of this folder said on stderr.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.join("serve.log")).unwrap_or_default()
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let built = option_env!("CARGO_BIN_EXE_jr2").map(PathBuf::from);
        let program = PROGRAM.get().cloned().or(built).expect("the test says which `jr2` it means");
        let harness = program.with_file_name("jr2-harness");
        assert!(harness.is_file(), "{} is missing: `cargo build -p jr2-harness` makes it", harness.display());
        let mut command = Command::new(&program);
        command.arg("--dir").arg(&self.dir).args(arguments).env_clear();
        for name in ["PATH", "LANG", "TZ", "LLVM_PROFILE_FILE"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.env("HOME", &self.dir).stdin(Stdio::null());
        command
    }

    pub fn serve_command(&self) -> Command {
        let mut command = self.command(&["serve", "--listen", &self.address().to_string()]);
        let log = std::fs::File::options().create(true).append(true).open(self.dir.join("serve.log")).unwrap();
        command.stdout(log.try_clone().unwrap()).stderr(log);
        command
    }

    /// Starts a server and waits until it answers; a server that ends instead fails the test with its words.
    pub async fn start(&self) -> Server {
        self.start_with(self.serve_command()).await
    }

    pub async fn start_with(&self, mut command: Command) -> Server {
        let child = command.spawn().unwrap();
        let mut server = Server { child, token: String::new() };
        let begun = Instant::now();
        loop {
            if let Some(status) = server.child.try_wait().unwrap() {
                panic!("the server ended at its start: {status}\n{}", tail(&self.log()));
            }
            if self.announced() == Some(server.child.id())
                && self.client.get(format!("{}/healthz", self.url())).send().await.is_ok()
            {
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "the server does not answer\n{}", tail(&self.log()));
            // Poll: until the condition holds.
            tokio::time::sleep(LOOK).await;
        }
        server.token = self.token();
        server
    }

    pub fn token(&self) -> String {
        std::fs::read_to_string(self.state().join("token")).unwrap_or_default().trim().to_owned()
    }

    fn announced(&self) -> Option<u32> {
        let text = std::fs::read_to_string(self.state().join("server.json")).ok()?;
        serde_json::from_str::<Value>(&text).ok()?["pid"].as_u64().map(|pid| pid as u32)
    }

    /// A request with the Instance token: status and body. The error is a request whose outcome is unknown.
    pub async fn ask(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
        key: Option<&str>,
    ) -> Result<Answer, String> {
        let method = method.parse().unwrap();
        let mut request = self.client.request(method, format!("{}{path}", self.url())).bearer_auth(self.token());
        if let Some(body) = body {
            request = request.json(body);
        }
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        answer(request).await
    }

    pub async fn get(&self, path: &str) -> Result<Answer, String> {
        self.ask("GET", path, None, None).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Result<Answer, String> {
        self.ask("POST", path, Some(body), None).await
    }

    /// A request without the token.
    pub async fn stranger(&self, method: &str, path: &str) -> Answer {
        let method = method.parse().unwrap();
        answer(self.client.request(method, format!("{}{path}", self.url()))).await.unwrap()
    }

    pub fn client(&self) -> &reqwest::Client {
        &self.client
    }

    /// Waits until a run stands as asked; its status.
    pub async fn until(&self, run: &str, what: &str, good: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let seen = self.get(&format!("/runs/{run}")).await;
            if let Ok((200, status)) = &seen
                && good(status)
            {
                return status.clone();
            }
            assert!(begun.elapsed() < PATIENCE, "run {run} never is {what}: {seen:?}\n{}", tail(&self.log()));
            // Poll: until the condition holds.
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Processes that a Sandbox of this folder marks: pid and arguments.
    pub fn sandbox_processes(&self) -> Vec<(u32, Vec<String>)> {
        let mark = format!("JR2_SANDBOX_DIR={}/", self.dir.display());
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").unwrap().flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
            let parts = |name: &str| -> Vec<String> {
                let bytes = std::fs::read(entry.path().join(name)).unwrap_or_default();
                bytes.split(|b| *b == 0).map(|part| String::from_utf8_lossy(part).into_owned()).collect()
            };
            if parts("environ").iter().any(|line| line.starts_with(&mark)) {
                found.push((pid, parts("cmdline").into_iter().filter(|a| !a.is_empty()).collect()));
            }
        }
        found
    }

    /// Harness processes, and nothing they started.
    pub fn harnesses(&self) -> Vec<u32> {
        let all = self.sandbox_processes();
        let is_harness = |arguments: &[String]| arguments.len() == 1 && arguments[0].ends_with("jr2-harness");
        all.into_iter().filter(|(_, arguments)| is_harness(arguments)).map(|(pid, _)| pid).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        for (pid, _) in self.sandbox_processes() {
            kill(pid);
        }
        let runtime = std::fs::read_to_string(self.state().join("runtime-dir")).unwrap_or_default();
        if runtime.starts_with("/tmp/jr2-") {
            let _ = std::fs::remove_dir_all(runtime.trim());
        }
    }
}

impl Server {
    /// `kill -9`, and waits until the process is gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for the process to end by itself.
    pub async fn ended(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < PATIENCE, "the server does not end");
            // Poll: until the condition holds.
            tokio::time::sleep(LOOK).await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Status and JSON body; a body that is no JSON as its text.
pub type Answer = (u16, Value);

pub async fn answer(request: reqwest::RequestBuilder) -> Result<Answer, String> {
    let response = request.send().await.map_err(|e| e.to_string())?;
    let status = response.status().as_u16();
    let text = response.text().await.map_err(|e| e.to_string())?;
    Ok((status, serde_json::from_str(&text).unwrap_or(Value::String(text))))
}

pub fn kill(pid: u32) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid.cast_signed()) {
        // It may have ended by itself.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

/// The last lines of a text.
pub fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

fn free_port() -> u16 {
    let start = (std::process::id() as u16 % 500) * 20;
    let mut ports = PORTS.skip(usize::from(start)).chain(PORTS);
    ports.find(|port| !taken(*port)).unwrap()
}

/// Taken by anybody, or given to another test of this process.
fn taken(port: u16) -> bool {
    static GIVEN: std::sync::Mutex<Vec<u16>> = std::sync::Mutex::new(Vec::new());
    let mut given = GIVEN.lock().unwrap();
    if given.contains(&port) || TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_err() {
        return true;
    }
    given.push(port);
    false
}

/// Runs a shell command in a folder, without anybody's git configuration.
pub fn shell(folder: &Path, command: &str) -> String {
    let output = Command::new("sh")
        .args(["-c", command])
        .current_dir(folder)
        .env("HOME", folder)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {text}");
    text
}

/// A repository with one commit.
pub fn repository(path: &Path) {
    std::fs::create_dir(path).unwrap();
    std::fs::write(path.join("README"), "seed\n").unwrap();
    shell(path, "git init -q -b main && git add -A && git -c user.name=seed -c user.email=s@e.invalid commit -qm seed");
}
