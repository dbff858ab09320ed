//! The world around one Harness process: a Custodian's socket with a fake Orchestrator and a scripted model behind it.

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use jr2_shared::harness::token_digest;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::path::{Path as FilePath, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::watch;

/// Nothing a test waits for takes longer, on a slow machine either.
pub const DEADLINE: Duration = Duration::from_secs(30);
pub const BEARER: &str = "test-bearer";
pub const IID: &str = "run1/root/coder/00000001";

/// Polls with a deadline.
pub async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let waited = tokio::time::timeout(DEADLINE, async {
        while !condition() {
            // Poll: until the condition holds.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// One scripted model answer.
#[derive(Clone, Debug)]
pub enum Answer {
    Text(&'static str),
    /// Tool calls: id, name, arguments as written.
    Calls(Vec<(&'static str, &'static str, String)>),
    /// Calls whose answer was cut at the output limit.
    Cut(Vec<(&'static str, &'static str, String)>),
    Status(u16, &'static str),
    /// The answer, with what the server says it counted of the question.
    Counted(u64, Box<Answer>),
    /// One delta as it stands, and the finish reason.
    Delta(Value, &'static str),
    /// Never answers.
    Hang,
}

type PickHandler = Box<dyn Fn(&Value) -> (u16, Value) + Send>;

#[derive(Default)]
pub struct Script {
    pub surface: Option<Value>,
    pub answers: VecDeque<Answer>,
    pub model_requests: Vec<Value>,
    pub picks: Vec<Value>,
    pub surface_reads: Vec<u16>,
    pub on_pick: Option<PickHandler>,
    /// Statuses to answer surface reads with before the surface itself.
    pub surface_faults: VecDeque<u16>,
    /// Surfaces that take effect when the model is asked for the n-th time.
    pub surface_at_request: Vec<(usize, Value)>,
    /// What `GET …/models` answers; 404 without.
    pub models: Option<Value>,
    /// Answers of the outstanding route, `None` = 204.
    pub outstanding: VecDeque<Option<Value>>,
}

/// The far side of the Custodian's socket.
pub struct Fake {
    script: Mutex<Script>,
    tick: watch::Sender<u64>,
}

impl Fake {
    pub fn with<T>(&self, f: impl FnOnce(&mut Script) -> T) -> T {
        let result = f(&mut self.script.lock().unwrap());
        self.tick.send_modify(|n| *n += 1);
        result
    }

    /// Waits until the script shows something.
    pub async fn until(&self, what: &str, mut condition: impl FnMut(&Script) -> bool) {
        let mut tick = self.tick.subscribe();
        let waited = tokio::time::timeout(DEADLINE, async {
            while !condition(&self.script.lock().unwrap()) {
                tick.changed().await.unwrap();
            }
        });
        waited.await.unwrap_or_else(|_| panic!("never: {what}"));
    }
}

/// A Harness process and its world.
pub struct World {
    pub dir: TempDir,
    pub fake: Arc<Fake>,
    pub http: reqwest::Client,
    child: Option<Child>,
    env: Vec<(String, String)>,
}

pub fn surface(menu: &[&str], allowed: &[&str]) -> Value {
    let items: Vec<Value> = menu
        .iter()
        .map(|name| {
            json!({"name": name, "description": format!("Pick {name}."), "semantics": "ack",
                "input": {"type": "object", "properties": {"note": {"type": "string"}}}})
        })
        .collect();
    json!({"instanceId": IID, "runId": "run1", "menu": items, "allowed": allowed, "picks": "keyed"})
}

impl World {
    /// A world with a persistent Harness, `done` on the Menu and allowed.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    pub async fn start_with(env: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let script = Script { surface: Some(surface(&["done", "more"], &["done"])), ..Script::default() };
        let fake = Arc::new(Fake { script: Mutex::new(script), tick: watch::Sender::new(0) });
        let listener = tokio::net::UnixListener::bind(dir.path().join("custodian.sock")).unwrap();
        let router = Router::new()
            .route("/agents/{iid}/surface", get(read_surface))
            .route("/agents/{iid}/events", post(pick))
            .route("/agents/{iid}/events/{delivery}", get(outstanding))
            .route("/providers/p/chat/completions", post(model))
            .route("/providers/p/models", get(models))
            .with_state(Arc::clone(&fake));
        tokio::spawn(async move { axum::serve(listener, router).await });
        std::fs::create_dir(dir.path().join("work")).unwrap();
        jr2_harness::tls::install();
        let http = reqwest::Client::builder().no_proxy().unix_socket(dir.path().join("harness.sock")).build().unwrap();
        let env = env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let mut world = Self { dir, fake, http, child: None, env };
        world.boot().await;
        world
    }

    pub fn work(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    pub fn conversations(&self) -> PathBuf {
        self.dir.path().join("conversations")
    }

    pub fn command(&self, program: &str) -> Command {
        let at = |name: &str| self.dir.path().join(name).display().to_string();
        let output =
            |name: &str| Stdio::from(std::fs::OpenOptions::new().create(true).append(true).open(at(name)).unwrap());
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", std::env::var("PATH").unwrap_or_default())
            .env("JR2_LISTEN", format!("unix:{}", at("harness.sock")))
            .env("JR2_CUSTODIAN_URL", format!("unix:{}", at("custodian.sock")))
            .env("JR2_SANDBOX_TOKEN", "stand-in")
            .env("JR2_HARNESS_TOKEN_SHA256", token_digest(BEARER))
            .env("JR2_HARNESS_JSON", json!({"providers": [{"id": "p", "baseUrl": "/providers/p"}]}).to_string())
            .env("JR2_CONVERSATIONS_DIR", at("conversations"))
            .env("JR2_CPUS", "2")
            .env("JR2_MEMORY", "2Gi")
            .envs(self.env.iter().cloned())
            .stdin(Stdio::null())
            .stdout(output("stdout"))
            .stderr(output("stderr"));
        command
    }

    /// Sets a variable for later boots.
    pub fn set(&mut self, name: &str, value: &str) {
        self.env.push((name.to_owned(), value.to_owned()));
    }

    pub async fn boot(&mut self) {
        let child = self.command(env!("CARGO_BIN_EXE_jr2-harness")).spawn().unwrap();
        self.adopt(child).await;
    }

    pub async fn adopt(&mut self, child: Child) {
        self.child = Some(child);
        let up = async {
            while !matches!(self.http.get("http://h/healthz").send().await, Ok(answer) if answer.status() == 204) {
                // Poll: until /healthz answers.
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let came = tokio::time::timeout(DEADLINE, up).await;
        assert!(came.is_ok(), "the Harness never came up: {}", self.stderr());
    }

    pub fn stderr(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("stderr")).unwrap_or_default()
    }

    pub fn stdout(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("stdout")).unwrap_or_default()
    }

    pub fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(self.child.as_ref().unwrap());
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// A number of the process's status, in KiB.
    pub fn resident_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.as_ref().unwrap().id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// How many files the process has open.
    pub fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.as_ref().unwrap().id())).unwrap().count()
    }

    /// Waits for the process to end by itself.
    pub async fn exit(&mut self) -> Option<i32> {
        let mut child = self.child.take().unwrap();
        let waited = tokio::task::spawn_blocking(move || child.wait().unwrap().code());
        tokio::time::timeout(DEADLINE, waited).await.expect("the Harness never ended").unwrap()
    }

    pub fn body(&self, message: &str) -> Value {
        json!({"message": message, "cwd": self.work(),
            "definition": {"model": "p/tiny", "instructions": "You are a coder."}})
    }

    pub async fn call(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value, HeaderMap) {
        let method = method.parse().unwrap();
        let mut request = self.http.request(method, format!("http://h{path}")).bearer_auth(BEARER);
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = tokio::time::timeout(DEADLINE, request.send()).await.unwrap().unwrap();
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        let text = answer.text().await.unwrap();
        let value =
            if text.is_empty() { Value::Null } else { serde_json::from_str(&text).unwrap_or(Value::String(text)) };
        (status, value, headers)
    }

    #[allow(clippy::unused_self)] // every test asks its world
    pub fn path(&self) -> String {
        format!("/agents/coder/{}", IID.replace('/', "%2F"))
    }

    pub async fn admit(&self, body: Value) -> Value {
        let (status, answer, _) = self.call("POST", &self.path(), Some(body)).await;
        assert_eq!(status, 200, "{answer}");
        answer
    }

    /// Long-polls for a Submission's settlement.
    pub async fn settled(&self, submission: &str) -> Value {
        let wait = async {
            let mut offset = "0".to_owned();
            loop {
                let path = format!("{}?offset={offset}&view=updates&live=long-poll", self.path());
                let (status, events, headers) = self.call("GET", &path, None).await;
                assert!(status == 200 || status == 204, "{status} {events}");
                for event in events.as_array().into_iter().flatten() {
                    if event["type"] == "submission-settled" && event["submissionId"] == submission {
                        return event.clone();
                    }
                }
                headers["stream-next-offset"].to_str().unwrap().clone_into(&mut offset);
            }
        };
        let event = tokio::time::timeout(DEADLINE, wait).await;
        event.unwrap_or_else(|late| panic!("never settled ({late}); log: {}", self.stderr()))
    }

    pub async fn history(&self) -> Value {
        let (status, history, _) = self.call("GET", &format!("{}?view=history", self.path()), None).await;
        assert_eq!(status, 200);
        history
    }

    /// Admits and waits for the end.
    pub async fn turn(&self, body: Value) -> Value {
        let answer = self.admit(body).await;
        self.settled(answer["submissionId"].as_str().unwrap()).await
    }

    pub fn script(&self, answers: Vec<Answer>) {
        self.fake.with(|script| script.answers = answers.into());
    }

    pub fn log_file(&self) -> PathBuf {
        fn find(dir: &FilePath) -> Option<PathBuf> {
            std::fs::read_dir(dir).ok()?.flatten().find_map(|entry| {
                let path = entry.path();
                if path.is_dir() { find(&path) } else { path.ends_with("log.jsonl").then_some(path) }
            })
        }
        find(&self.conversations()).expect("no record")
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The content of the newest message with this role in a model request.
pub fn last_of<'a>(request: &'a Value, role: &str) -> &'a str {
    let messages = request["messages"].as_array().unwrap();
    messages.iter().rev().find(|m| m["role"] == role).and_then(|m| m["content"].as_str()).unwrap()
}

pub fn pick_answer(event: &str, moved: bool, over: bool, allowed: &[&str]) -> Value {
    json!({"delivered": true, "event": event, "moved": moved, "turnComplete": over, "deliveryId": "d1",
        "allowed": allowed})
}

async fn read_surface(State(fake): State<Arc<Fake>>, headers: HeaderMap) -> Response {
    assert_eq!(headers["authorization"], "Bearer stand-in");
    fake.with(|script| {
        let (status, body, etag) = match script.surface_faults.pop_front() {
            Some(status) => (status, json!({"error": "busy"}), String::new()),
            None => match &script.surface {
                None => (404, json!({"error": "no live agent surface"}), String::new()),
                Some(surface) => {
                    let etag = format!("\"{}\"", token_digest(&surface.to_string()));
                    let same = headers.get("if-none-match").is_some_and(|value| *value == *etag);
                    (if same { 304 } else { 200 }, surface.clone(), etag)
                }
            },
        };
        script.surface_reads.push(status);
        let status = StatusCode::from_u16(status).unwrap();
        if status == StatusCode::NOT_MODIFIED {
            return status.into_response();
        }
        (status, [("etag", etag)], axum::Json(body)).into_response()
    })
}

async fn pick(State(fake): State<Arc<Fake>>, Path(_iid): Path<String>, body: axum::Json<Value>) -> Response {
    let (status, answer) = fake.with(|script| {
        script.picks.push(body.0.clone());
        match &script.on_pick {
            Some(handler) => handler(&body.0),
            None => (200, pick_answer(body.0["type"].as_str().unwrap(), true, true, &[])),
        }
    });
    (StatusCode::from_u16(status).unwrap(), axum::Json(answer)).into_response()
}

async fn outstanding(State(fake): State<Arc<Fake>>) -> Response {
    let mut tick = fake.tick.subscribe();
    loop {
        match fake.with(|script| script.outstanding.pop_front()) {
            Some(Some(answer)) => return axum::Json(answer).into_response(),
            Some(None) => return StatusCode::NO_CONTENT.into_response(),
            None => {
                tick.borrow_and_update();
                tick.changed().await.unwrap();
            }
        }
    }
}

async fn models(State(fake): State<Arc<Fake>>) -> Response {
    match fake.with(|script| script.models.clone()) {
        Some(list) => axum::Json(list).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn model(State(fake): State<Arc<Fake>>, body: axum::Json<Value>) -> Response {
    let answer = fake.with(|script| {
        script.model_requests.push(body.0);
        let asked = script.model_requests.len();
        if let Some((_, surface)) = script.surface_at_request.iter().find(|(n, _)| *n == asked) {
            script.surface = Some(surface.clone()).filter(|surface| !surface.is_null());
        }
        script.answers.pop_front().unwrap_or(Answer::Text("All done."))
    });
    let chunk = |delta: Value, finish: Value| {
        format!(
            "data: {}\n\n",
            json!({"id": "c", "object": "chat.completion.chunk", "model": "tiny",
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
        )
    };
    let calls = |calls: Vec<(&str, &str, String)>, finish: &str| {
        let list: Vec<Value> = calls
            .into_iter()
            .enumerate()
            .map(|(index, (id, name, arguments))| {
                json!({"index": index, "id": id, "type": "function",
                    "function": {"name": name, "arguments": arguments}})
            })
            .collect();
        chunk(json!({"role": "assistant", "tool_calls": list}), Value::Null) + &chunk(json!({}), json!(finish))
    };
    let (answer, usage) = match answer {
        Answer::Counted(prompt, answer) => {
            let usage = json!({"prompt_tokens": prompt, "completion_tokens": 10});
            (*answer, format!("data: {}\n\n", json!({"choices": [], "usage": usage})))
        }
        other => (other, String::new()),
    };
    let text = match answer {
        Answer::Text(text) => {
            chunk(json!({"role": "assistant", "content": text}), Value::Null) + &chunk(json!({}), json!("stop"))
        }
        Answer::Delta(delta, finish) => chunk(delta, Value::Null) + &chunk(json!({}), json!(finish)),
        Answer::Calls(list) => calls(list, "tool_calls"),
        Answer::Cut(list) => calls(list, "length"),
        Answer::Status(status, words) => {
            let body = json!({"error": {"message": words}});
            return (StatusCode::from_u16(status).unwrap(), axum::Json(body)).into_response();
        }
        Answer::Counted(..) | Answer::Hang => std::future::pending().await,
    };
    ([("content-type", "text/event-stream")], Body::from(text + &usage + "data: [DONE]\n\n")).into_response()
}
