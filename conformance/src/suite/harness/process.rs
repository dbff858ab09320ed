//! A Harness process on a fresh folder: started by the owner's command, ended by signal or `kill -9`, started again.

use super::Wire;
use jr2_shared::harness::token_digest;
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::json;
use std::fs::OpenOptions;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Longest start of a Harness: a slow machine and a slow runtime together.
const START_MAX: Duration = Duration::from_secs(20);
/// How often a start is looked at.
const LOOK: Duration = Duration::from_millis(5);
/// How much of a log a failure shows, in bytes.
const LOG_SHOWN_BYTES: usize = 4_000;

/// How a Harness is started.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The owner's command, as a shell reads it.
    pub command: String,
    /// The Custodian's URL.
    pub custodian: String,
    /// The scripted model's URL.
    pub model: String,
    /// The bearer to accept.
    pub bearer: String,
    /// Variables of this start beside the usual ones.
    pub env: Vec<(String, String)>,
}

/// Why a Harness did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The command, its folder or its logs.
    #[error("the Harness cannot be started: {0}")]
    Io(#[from] io::Error),
    /// No client for it.
    #[error("no client for the Harness: {0}")]
    Client(#[from] reqwest::Error),
    /// It ended instead of serving.
    #[error("the Harness ended at its start with {status}; its log ends:\n{log}")]
    Ended {
        /// How.
        status: String,
        /// The end of its standard error.
        log: String,
    },
    /// It never served.
    #[error("GET /healthz was not 204 in {} s; the Harness's log ends:\n{log}", START_MAX.as_secs())]
    Late {
        /// The end of its standard error.
        log: String,
    },
}

/// A Harness process.
#[derive(Debug)]
pub struct Process {
    plan: Plan,
    folder: PathBuf,
    port: u16,
    child: Option<Child>,
    wire: Wire,
}

impl Process {
    /// Starts one on this empty folder; it serves when this returns.
    pub async fn start(plan: Plan, folder: &Path) -> Result<Self, StartError> {
        std::fs::create_dir_all(folder)?;
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let wire = Wire::new(&format!("http://127.0.0.1:{port}"), &plan.bearer)?;
        let mut process = Self { plan, folder: folder.to_owned(), port, child: None, wire };
        process.boot().await?;
        Ok(process)
    }

    /// Starts it again on the same folder and port.
    pub async fn boot(&mut self) -> Result<(), StartError> {
        // Its own from the first moment: whoever gives up waiting drops it, and that ends it.
        self.child = Some(self.command()?.spawn()?);
        let late = tokio::time::Instant::now() + START_MAX;
        loop {
            if self.wire.is_up().await {
                return Ok(());
            }
            if let Some(status) = self.child.as_mut().map(Child::try_wait).transpose()?.flatten() {
                return Err(StartError::Ended { status: status.to_string(), log: self.stderr() });
            }
            if tokio::time::Instant::now() > late {
                self.kill9();
                return Err(StartError::Late { log: self.stderr() });
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The environment of spec H-19; what the suite's own environment says of jr2 and of proxies is left out.
    fn command(&self) -> io::Result<Command> {
        let log = |name: &str| -> io::Result<Stdio> {
            Ok(OpenOptions::new().create(true).append(true).open(self.folder.join(name))?.into())
        };
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("exec {}", self.plan.command)).current_dir(&self.folder);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("JR2_") || text.to_ascii_lowercase().ends_with("_proxy") {
                command.env_remove(&name);
            }
        }
        let provider = |id: &str| json!({"id": id, "api": "chat-completions", "baseUrl": self.plan.model});
        let mut small = provider(SMALL_PROVIDER);
        small["contextWindow"] = json!(SMALL_WINDOW);
        let models = json!({"provider": provider(PROVIDER), "providers": [provider(PROVIDER), small]});
        command
            .env("JR2_CUSTODIAN_URL", &self.plan.custodian)
            .env("JR2_SANDBOX_TOKEN", STAND_IN)
            .env("JR2_HARNESS_TOKEN_SHA256", token_digest(&self.plan.bearer))
            .env("JR2_HARNESS_JSON", models.to_string())
            .env("JR2_CONVERSATIONS_DIR", self.conversations())
            .env("JR2_CPUS", CPUS.to_string())
            .env("JR2_MEMORY", "2Gi")
            .env("PORT", self.port.to_string())
            .env("NO_PROXY", "127.0.0.1,localhost");
        for (name, value) in &self.plan.env {
            // An empty value takes a variable away.
            if value.is_empty() {
                command.env_remove(name)
            } else {
                command.env(name, value)
            };
        }
        command.stdin(Stdio::null()).stdout(log("stdout")?).stderr(log("stderr")?).process_group(0);
        Ok(command)
    }

    /// Its client.
    pub fn wire(&self) -> &Wire {
        &self.wire
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where its conversations persist.
    pub fn conversations(&self) -> PathBuf {
        self.folder.join("conversations")
    }

    /// What it wrote to standard output so far.
    pub fn stdout(&self) -> String {
        read(&self.folder.join("stdout"))
    }

    /// What it wrote to standard error so far.
    pub fn stderr(&self) -> String {
        read(&self.folder.join("stderr"))
    }

    /// The end of its standard error.
    pub fn stderr_end(&self) -> String {
        let text = self.stderr();
        text[text.ceil_char_boundary(text.len().saturating_sub(LOG_SHOWN_BYTES))..].to_owned()
    }

    /// Ends it as a crash does, and waits until it is gone.
    pub fn kill9(&mut self) {
        if let Some(mut child) = self.child.take() {
            end(&mut child);
        }
    }

    /// Sends it SIGTERM.
    pub fn terminate(&self) {
        if let Some(pid) = self.child.as_ref().and_then(|child| Pid::from_raw(child.id().cast_signed())) {
            // One that is gone already needs no signal.
            let _ = rustix::process::kill_process(pid, Signal::TERM);
        }
    }

    /// Waits for it to end by itself: its exit code, `None` for a signal.
    pub async fn exit(&mut self) -> io::Result<Option<i32>> {
        let Some(child) = &mut self.child else { return Ok(None) };
        loop {
            if let Some(status) = child.try_wait()? {
                self.child = None;
                return Ok(status.code());
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill9();
    }
}

/// Ends the process group that `spawn` made, and takes the child's status.
fn end(child: &mut Child) {
    if let Some(pid) = Pid::from_raw(child.id().cast_signed()) {
        let _ = kill_process_group(pid, Signal::KILL);
    }
    let _ = child.wait();
}

fn read(path: &Path) -> String {
    std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

/// The provider of almost every conversation: its window is unknown.
pub const PROVIDER: &str = "suite";
/// The provider whose window is known.
pub const SMALL_PROVIDER: &str = "small";
/// That window in tokens: small enough to fill, large enough that the reserve of spec H-33 is the plain one.
pub const SMALL_WINDOW: u64 = 60_000;
/// CPUs that the Briefing states.
pub const CPUS: u64 = 2;
/// What the Harness sends on control routes.
pub const STAND_IN: &str = "conformance-stand-in";

#[cfg(test)]
#[allow(clippy::unwrap_used)] // A test fails by panicking.
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_start_that_nobody_waits_for_any_more_leaves_no_process() {
        let folder = tempfile::tempdir().unwrap();
        let plan = Plan {
            command: "sh -c 'echo $$ > pid; exec sleep 600'".to_owned(),
            custodian: String::new(),
            model: String::new(),
            bearer: "b".to_owned(),
            env: Vec::new(),
        };
        let pid = folder.path().join("pid");
        let runs = async {
            while read(&pid).trim().is_empty() {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::select! {
            started = Process::start(plan, folder.path()) => drop(started.unwrap()),
            () = runs => {}
        }
        let stat = read(&Path::new("/proc").join(read(&pid).trim()).join("stat"));
        assert!(stat.is_empty(), "it lives: {stat}");
    }
}
