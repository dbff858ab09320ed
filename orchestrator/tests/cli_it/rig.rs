//! A folder, and `jr2` in it with nothing of the user's environment.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, Once};
use std::time::{Duration, Instant};

/// Until something awaited must have happened.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// A workflow that asks a person.
pub const ASK: &str = "\
workflow: ask
input: { type: object, properties: { word: { type: string, default: hello }, count: { type: integer } } }
events:
  agree: { from: external, description: Go on. }
  refuse: { from: external, payload: { type: object, required: [why], properties: { why: { type: string } } } }
context: { why: '' }
initial: asking
states:
  asking:
    gate: { question: '{{ input.word }}?' }
    on: { agree: done, refuse: { to: done, set: { why: event.why } } }
  done: { final: true, output: { why: '{{ context.why }}' } }
";

static BUILT: Once = Once::new();

/// The folder of `jr2` and its companions, which a build of one package alone does not make.
pub fn programs() -> PathBuf {
    let jr2 = PathBuf::from(env!("CARGO_BIN_EXE_jr2"));
    let folder = jr2.parent().unwrap().to_owned();
    BUILT.call_once(|| {
        let there = ["jr2-harness", "jr2-conformance"].iter().all(|name| folder.join(name).is_file());
        if !there {
            let target = folder.parent().unwrap();
            let mut build = Command::new(env!("CARGO"));
            build.args(["build", "-p", "jr2-harness", "-p", "jr2-conformance", "--bins", "--target-dir"]).arg(target);
            if folder.ends_with("release") {
                build.arg("--release");
            }
            assert!(build.status().unwrap().success());
        }
    });
    folder
}

pub struct Rig {
    root: tempfile::TempDir,
}

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ended {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:#?}"))
    }

    #[track_caller]
    pub fn expect(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{}\n{}", self.out, self.err);
        self
    }

    #[track_caller]
    pub fn says(self, text: &str) -> Self {
        assert!(self.err.contains(text) || self.out.contains(text), "no `{text}` in\n{}\n{}", self.out, self.err);
        self
    }
}

impl Rig {
    pub fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("home")).unwrap();
        std::fs::create_dir_all(root.path().join("i/workflows")).unwrap();
        Self { root }
    }

    /// With the asking workflow.
    pub fn asking() -> Self {
        let rig = Self::new();
        rig.write("workflows/ask.yaml", ASK);
        rig
    }

    /// The Instance's folder.
    pub fn dir(&self) -> PathBuf {
        self.root.path().join("i")
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.dir().join(name), text).unwrap();
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let folder = programs();
        let mut command = Command::new(folder.join("jr2"));
        let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
        command.args(args).current_dir(self.dir()).env_clear().env("PATH", path);
        command.env("HOME", self.root.path().join("home")).stdin(Stdio::null());
        command
    }

    pub fn start(&self, args: &[&str]) -> Running {
        Running::of(self.command(args))
    }

    pub fn run(&self, args: &[&str]) -> Ended {
        self.start(args).wait()
    }

    /// Runs a line as a shell does.
    pub fn shell(&self, line: &str) -> Ended {
        let jr2 = self.command(&[]);
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).current_dir(self.dir()).env_clear().stdin(Stdio::null());
        shell.envs(jr2.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Running::of(shell).wait()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // Harnesses outlive their Orchestrator on purpose; a failed test must not leave them.
        for pid in harnesses(self.root.path()) {
            kill(pid, rustix::process::Signal::KILL);
        }
    }
}

/// Harness processes that a tree of state folders names.
pub fn harnesses(root: &Path) -> Vec<i32> {
    let mut pids = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name();
            if path.is_dir() && !path.is_symlink() {
                if name != "work" && name != "home" {
                    folders.push(path);
                }
            } else if folder.ends_with("sandboxes") {
                let record: Value =
                    serde_json::from_slice(&std::fs::read(&path).unwrap_or_default()).unwrap_or_default();
                pids.extend(record["process"]["pid"].as_i64().map(|pid| pid as i32));
            }
        }
    }
    pids
}

pub fn kill(pid: i32, signal: rustix::process::Signal) {
    if let Some(pid) = rustix::process::Pid::from_raw(pid) {
        // It may be gone already.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// A command that runs; killed when dropped.
pub struct Running {
    child: Child,
    err: Arc<(Mutex<String>, Condvar)>,
    readers: Vec<std::thread::JoinHandle<()>>,
    out: Arc<Mutex<String>>,
}

impl Running {
    fn of(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let err: Arc<(Mutex<String>, Condvar)> = Arc::default();
        let out: Arc<Mutex<String>> = Arc::default();
        let (heard, told) = (err.clone(), out.clone());
        let lines = std::thread::spawn(move || {
            let mut reader = BufReader::new(stderr);
            let mut line = Vec::new();
            while reader.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
                heard.0.lock().unwrap().push_str(&String::from_utf8_lossy(&line));
                heard.1.notify_all();
                line.clear();
            }
            heard.0.lock().unwrap().push('\0');
            heard.1.notify_all();
        });
        let data = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let mut stdout = stdout;
            let _ = stdout.read_to_end(&mut bytes);
            told.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes));
        });
        Self { child, err, readers: vec![lines, data], out }
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// Waits until stderr holds a text; answers everything it said.
    #[track_caller]
    pub fn until(&self, text: &str) -> String {
        let (said, changed) = &*self.err;
        let over = |said: &mut String| !said.contains(text) && !said.ends_with('\0');
        let (said, _) = changed.wait_timeout_while(said.lock().unwrap(), DEADLINE, over).unwrap();
        assert!(said.contains(text), "no `{text}` in\n{said}");
        said.clone()
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        kill(self.pid(), signal);
    }

    /// `kill -9`, and waits until it is gone.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    #[track_caller]
    pub fn wait(mut self) -> Ended {
        let status = self.exit();
        for reader in self.readers.drain(..) {
            reader.join().unwrap();
        }
        let err = self.err.0.lock().unwrap().trim_end_matches('\0').to_owned();
        Ended { code: status.code(), out: self.out.lock().unwrap().clone(), err }
    }

    #[track_caller]
    fn exit(&mut self) -> ExitStatus {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(begun.elapsed() < DEADLINE, "it does not end; it said\n{}", self.err.0.lock().unwrap());
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Calls until the answer is there.
#[track_caller]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < DEADLINE, "not in time: {what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}
