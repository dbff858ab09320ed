//! One life of a run that passes every crash point: two kills, a nudge, two Gates, a state that is left under its Turn.

use crate::server::{self, Folder, LOOK, PATIENCE, Server};
use jr2_conformance::model::{Script, ScriptedModel};
use jr2_shared::crash::Point;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Instant;

const WORKFLOW: &str = "
workflow: dying
input: { type: object, required: [repo], properties: { repo: { type: string } } }
agents:
  writer: { model: scripted/writer, instructions: Write., workspace: write }
  reader: { model: scripted/reader, instructions: Read., workspace: read }
events:
  finish: { from: agent }
  go: { from: external }
  leave: { from: external }
workspace: { repos: { target: '{{ input.repo }}' }, branch: 'jr2/{{ run.id }}' }
context: { faults: 0 }
initial: first
states:
  first: { agent: writer, continue: true, prompt: FIRST, on: { finish: pause, agent.fault: { to: pause, set: { faults: context.faults + 1 } }, workspace.lost: lost } }
  pause: { gate: {}, on: { go: slow } }
  slow: { agent: reader, prompt: SLOW, on: { leave: second, finish: second, agent.fault: second, workspace.lost: lost } }
  second: { agent: reader, prompt: SECOND, on: { finish: again, agent.fault: { to: again, set: { faults: context.faults + 1 } }, workspace.lost: lost } }
  again: { gate: {}, on: { go: third } }
  third: { agent: writer, continue: true, prompt: THIRD, on: { finish: done, agent.fault: { to: done, set: { faults: context.faults + 1 } }, workspace.lost: lost } }
  done: { final: true, output: { faults: '{{ context.faults }}' } }
  lost: { final: true, output: { lost: true } }
";

/// The words of every memory kill.
const KILLED: &str = "Notice: the Sandbox's processes were killed at its memory limit";
/// The verdict a bash call returns.
const VERDICT: &str = "killed: memory limit";

/// Both programs of the test build, by the names they go under.
pub fn prepare() {
    static BESIDE: OnceLock<PathBuf> = OnceLock::new();
    let folder = BESIDE.get_or_init(|| {
        let built = Path::new(env!("CARGO_BIN_EXE_jr2-crashing"));
        let folder = built.with_file_name(format!("crashing-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for name in ["jr2", "jr2-harness"] {
            // Another name for the same file: a program finds its companion beside itself.
            std::fs::hard_link(built, folder.join(name)).unwrap();
        }
        folder
    });
    server::PROGRAM.set(folder.join("jr2")).ok();
}

/// What one life left behind.
pub struct Life {
    deaths: Vec<Point>,
    folder: Folder,
    model: ScriptedModel,
    run: String,
    status: Value,
    marks: PathBuf,
    server: Server,
    /// Orders to kill that left: one whose answer was lost may have been obeyed.
    strikes: usize,
}

fn model() -> ScriptedModel {
    let call = |name: &str, arguments: Value| json!({ "toolCalls": [{ "name": name, "arguments": arguments }] });
    let finish = call("mcp__jr2__finish", json!({}));
    let script = json!({
        "models": ["writer", "reader"],
        "rules": [
            // Only the state's exit ends this one.
            { "when": { "lastUser": { "contains": "SLOW" }, "ends": "user" }, "answer": call("bash", json!({ "command": "touch SLOW-runs; sleep 300" })) },
            // Runs until the kill strikes it, then stops without a pick: the nudge asks for one.
            { "when": { "lastUser": { "regex": "^FIRST" }, "ends": "user" }, "answer": call("bash", json!({ "command": "touch FIRST-runs; sleep 300" })) },
            { "when": { "lastTool": { "contains": VERDICT } }, "answer": { "text": "I stop." } },
            { "when": { "ends": "user" }, "answer": finish },
            { "when": {}, "answer": { "text": "I stop." } },
        ],
    });
    ScriptedModel::start(Script::from_json(script).unwrap()).unwrap()
}

impl Life {
    /// Lives it, and dies at every one of `deaths` once.
    pub async fn live(deaths: &[Point]) -> Self {
        let model = model();
        let settings = format!("providers: {{ scripted: {{ baseUrl: '{}' }} }}\n", model.url());
        let folder = Folder::new(&settings, &[("dying", WORKFLOW)]);
        let marks = folder.dir.join("marks");
        std::fs::create_dir(&marks).unwrap();
        server::repository(&folder.dir.join("source"));
        let server = start(&folder, deaths, &marks).await;
        let mut life = Self {
            deaths: deaths.to_vec(),
            folder,
            model,
            run: String::new(),
            status: Value::Null,
            marks,
            server,
            strikes: 0,
        };
        life.run = life.begin().await;
        life.first_turn().await;
        life.at_gate("pause").await;
        life.kill_processes().await;
        life.say("pause", "go").await;
        life.leave_the_slow_one().await;
        life.at_gate("again").await;
        life.say("again", "go").await;
        life.status = life.until("ended", |s| s["status"] != "live").await;
        life
    }

    /// Starts the server again when it died.
    async fn revive(&mut self) {
        if self.server.child.try_wait().unwrap().is_some() {
            self.server = start(&self.folder, &self.deaths, &self.marks).await;
        }
    }

    async fn until(&mut self, what: &str, good: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            self.revive().await;
            let seen = self.folder.get(&format!("/runs/{}", self.run)).await;
            if let Ok((200, status)) = &seen
                && good(status)
            {
                return status.clone();
            }
            let log = server::tail(&self.folder.log());
            assert!(begun.elapsed() < PATIENCE, "{:?}: the run never is {what}: {seen:?}\n{log}", self.names());
            // Poll: until the condition holds.
            tokio::time::sleep(LOOK * 4).await;
        }
    }

    async fn at_gate(&mut self, gate: &str) {
        let gate = gate.to_owned();
        self.until(&format!("at {gate}"), move |s| s["gates"][0]["gate"] == gate.as_str()).await;
    }

    /// A request that is made again under its key until it is answered.
    async fn insist(&mut self, path: &str, body: &Value, key: &str) -> (u16, Value) {
        let begun = Instant::now();
        loop {
            self.revive().await;
            match self.folder.ask("POST", path, Some(body), Some(key)).await {
                Ok((status, answer)) if status < 500 => return (status, answer),
                other => assert!(begun.elapsed() < PATIENCE, "{:?}: {path}: {other:?}", self.names()),
            }
            tokio::time::sleep(LOOK).await; // Poll: until it is answered.
        }
    }

    async fn begin(&mut self) -> String {
        let body = json!({ "repo": self.folder.dir.join("source") });
        let (status, started) = self.insist("/workflows/dying/runs", &body, "start").await;
        assert!(status < 300, "{:?}: {started}", self.names());
        started["runId"].as_str().unwrap().to_owned()
    }

    async fn say(&mut self, gate: &str, event: &str) {
        let path = format!("/runs/{}/gates/{gate}/events", self.run);
        let (status, answer) = self.insist(&path, &json!({ "type": event }), gate).await;
        assert_eq!(status, 200, "{:?}: {answer}", self.names());
    }

    /// Strikes the first Turn's command when it runs; after a restart of the Harness there may be none left to strike.
    async fn first_turn(&mut self) {
        let begun = Instant::now();
        loop {
            self.revive().await;
            let asked = self.prompts("FIRST") > 0;
            if asked && self.runs_a_command("FIRST") {
                self.kill_processes().await;
                return;
            }
            let status = self.folder.get(&format!("/runs/{}", self.run)).await;
            if matches!(&status, Ok((200, s)) if s["gates"][0]["gate"] == "pause") {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{:?}: no command runs: {status:?}", self.names());
            tokio::time::sleep(LOOK * 2).await; // Poll: until the condition holds.
        }
    }

    /// The state is left while its Turn's command runs.
    async fn leave_the_slow_one(&mut self) {
        let begun = Instant::now();
        loop {
            self.revive().await;
            let status = self.folder.get(&format!("/runs/{}", self.run)).await;
            if let Ok((200, s)) = &status {
                if s["gates"][0]["gate"] == "again" || s["status"] != "live" {
                    return;
                }
                if self.prompts("SLOW") > 0 && self.runs_a_command("SLOW") {
                    let path = format!("/runs/{}/events", self.run);
                    let (code, answer) = self.insist(&path, &json!({ "type": "leave" }), "leave").await;
                    assert_eq!(code, 200, "{:?}: {answer}", self.names());
                    return;
                }
            }
            assert!(begun.elapsed() < PATIENCE, "{:?}: the slow Turn never runs: {status:?}", self.names());
            tokio::time::sleep(LOOK * 2).await; // Poll: until the condition holds.
        }
    }

    /// The command of this task has begun: it leaves a file where it works.
    fn runs_a_command(&self, task: &str) -> bool {
        exists_below(&self.folder.state(), &format!("{task}-runs"), 5)
    }

    /// The guard kills, as its test hook does; asked again when the Harness dies of it.
    async fn kill_processes(&mut self) {
        let begun = Instant::now();
        loop {
            self.revive().await;
            let struck = strike(&self.folder).await;
            self.strikes += usize::from(struck.is_some());
            if struck == Some(true) {
                return;
            }
            if self.marks.join(Point::KillKept.name()).exists() || self.marks.join(Point::KillAnnounced.name()).exists()
            {
                return; // it was kept before the Harness died of it
            }
            assert!(begun.elapsed() < PATIENCE, "{:?}: no Harness takes the kill", self.names());
            tokio::time::sleep(LOOK * 4).await; // Poll: until one takes it.
        }
    }

    fn names(&self) -> Vec<&str> {
        self.deaths.iter().map(|point| point.name()).collect()
    }

    /// Requests whose newest user message begins with the task.
    fn prompts(&self, task: &str) -> usize {
        self.newest().iter().filter(|prompt| prompt.starts_with(task)).count()
    }

    fn newest(&self) -> Vec<String> {
        let text = |messages: &[Value]| {
            let user = messages.iter().rev().find(|m| m["role"] == "user");
            user.and_then(|m| m["content"].as_str()).unwrap_or_default().to_owned()
        };
        self.model.requests().iter().map(|request| text(request.messages())).collect()
    }

    /// Distinct user messages, over all requests, that say a memory kill.
    fn said(&self) -> Vec<String> {
        let mut said: Vec<String> = Vec::new();
        for request in self.model.requests() {
            for message in request.messages().iter().filter(|m| m["role"] == "user") {
                let text = message["content"].as_str().unwrap_or_default();
                if text.contains(KILLED) && !said.iter().any(|known| known == text) {
                    said.push(text.to_owned());
                }
            }
        }
        said
    }

    /// What is claimed.
    pub fn check(self) {
        let names = self.names();
        // The first death of a pair may take the run past the second one's place.
        let passed = self.deaths.iter().filter(|point| self.marks.join(point.name()).exists()).count();
        assert!(passed > 0, "{names:?}: never passed");
        assert_eq!(self.status["status"], "done", "{names:?}: {:#}", self.status);
        assert_eq!(self.status["output"], json!({ "faults": 0 }), "{names:?}: {:#}", self.status);
        let said = self.said();
        // Each is said once at most; the first may have been told by its own bash answer alone.
        assert!(!said.is_empty(), "{names:?}: the kill between the Turns was never said");
        let kills = said.iter().map(|text| text.matches(KILLED).count()).sum::<usize>();
        assert!(kills <= self.strikes, "{names:?}: said {kills} times: {said:#?}");
        assert!(said.iter().all(|text| !text.starts_with("FIRST")), "{names:?}: before it happened: {said:#?}");
        drop(self.server);
    }
}

fn exists_below(folder: &Path, name: &str, depth: u8) -> bool {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).any(|path| {
        path.file_name().is_some_and(|n| n == name)
            || (depth > 0 && path.is_dir() && exists_below(&path, name, depth - 1))
    })
}

async fn start(folder: &Folder, deaths: &[Point], marks: &Path) -> Server {
    // The marks keep it from dying at the same point again, here and in the Harness it starts.
    let all: Vec<&str> = deaths.iter().map(|point| point.name()).collect();
    let begun = Instant::now();
    loop {
        let mut command = folder.serve_command();
        command.env("JR2_CRASH_AT", all.join(",")).env("JR2_CRASH_ONCE", marks);
        let child = command.spawn().unwrap();
        if let Some(server) = up(folder, child).await {
            return server;
        }
        assert!(begun.elapsed() < PATIENCE, "{all:?}: no server stays up\n{}", server::tail(&folder.log()));
    }
}

/// A server that answers, or none when it died at its start: a restored run passes points at once.
async fn up(folder: &Folder, child: std::process::Child) -> Option<Server> {
    let mut server = Server { child, token: String::new() };
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if server.child.try_wait().unwrap().is_some() {
            return None;
        }
        let said = std::fs::read_to_string(folder.state().join("server.json")).unwrap_or_default();
        let pid = serde_json::from_str::<Value>(&said).ok().and_then(|v| v["pid"].as_u64());
        let answers = folder.client().get(format!("{}/healthz", folder.url())).send().await.is_ok();
        if pid == Some(u64::from(server.child.id())) && answers {
            server.token = folder.token();
            return Some(server);
        }
        tokio::time::sleep(LOOK).await; // Poll: until it answers or ends.
    }
    None
}

/// Tells the Harness's injector to kill; `None` = it could not be asked.
async fn strike(folder: &Folder) -> Option<bool> {
    let pid = *folder.harnesses().first()?;
    let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut variables = environment.split(|b| *b == 0).filter_map(|part| std::str::from_utf8(part).ok());
    let socket = variables.find_map(|line| line.strip_prefix("JR2_LISTEN=unix:"))?.to_owned();
    let records = std::fs::read_dir(folder.state().join("sandboxes")).ok()?.flatten();
    let token = records.map(|entry| entry.path()).find_map(|path| {
        let record: Value = serde_json::from_str(&std::fs::read_to_string(path).ok()?).ok()?;
        record["harnessToken"].as_str().map(str::to_owned)
    })?;
    let client = reqwest::Client::builder().no_proxy().unix_socket(socket).build().ok()?;
    let request = client.post("http://localhost/test/memory-kill").bearer_auth(token);
    let request = request.header("content-type", "application/json").body(r#"{"peak":"1.9Gi","limit":"2Gi"}"#);
    let answer = request.timeout(PATIENCE).send().await;
    Some(answer.is_ok_and(|answer| answer.status().is_success()))
}
