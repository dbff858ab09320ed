//! The clients: each keeps one place filled with a run of one kind, whatever happens to the server meanwhile.

use crate::ledger::Ledger;
use crate::server::{Answer, Folder};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Pause before a server that was not there is asked again, and between two looks at a run.
const AGAIN: Duration = Duration::from_millis(15);
/// What a run may take once the killing is over, and a request at any time.
const RUN_MAX: Duration = Duration::from_mins(2);
/// Events that one run is sent from outside.
const ANSWERS: u64 = 3;

/// What the clients share.
pub struct World {
    pub folder: Folder,
    pub ledger: Ledger,
    pub ledger_url: String,
    pub repo: String,
    pub stop: AtomicBool,
    /// Every acknowledged run: its start key and its kind.
    pub started: Mutex<BTreeMap<String, (String, &'static str)>>,
    pub finished: AtomicU64,
    /// Answers that a Gate gave again under the same key.
    pub resent: AtomicU64,
    /// Kills of the Instance Harness so far, and what they were when each run that uses it began.
    pub instance_kills: AtomicU64,
    pub judging: Mutex<BTreeMap<String, u64>>,
    next: AtomicU64,
}

impl World {
    pub fn new(folder: Folder, ledger: Ledger, ledger_url: String, repo: String) -> Self {
        Self {
            folder,
            ledger,
            ledger_url,
            repo,
            stop: false.into(),
            started: Mutex::default(),
            finished: 0.into(),
            resent: 0.into(),
            instance_kills: 0.into(),
            judging: Mutex::default(),
            next: 0.into(),
        }
    }

    /// Asks until there is an answer: a request without one is sent again under its key.
    async fn insist(&self, method: &str, path: &str, body: Option<&Value>, key: Option<&str>) -> (Answer, bool) {
        let begun = Instant::now();
        let mut unknown = false;
        loop {
            match self.folder.ask(method, path, body, key).await {
                Ok((503, _)) | Err(_) => unknown = true,
                Ok(answer) => return (answer, unknown),
            }
            assert!(begun.elapsed() < RUN_MAX, "nobody answers {method} {path}");
            // Poll: until the server answers.
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Keeps one place filled until told to stop, and then sees its last run through.
    pub async fn keep_filled(&self, kind: &'static str) {
        while !self.stop.load(Ordering::Relaxed) {
            let key = format!("{kind}-{}", self.next.fetch_add(1, Ordering::Relaxed));
            if kind == "judge" {
                self.judging.lock().unwrap().insert(key.clone(), self.instance_kills.load(Ordering::Relaxed));
            }
            let run = self.start(kind, &key).await;
            match kind {
                "gates" => self.send_three(&run, "gates/ask/events", "answer").await,
                "hints" => self.send_three(&run, "events", "hint").await,
                "cancelled" => self.cancel(&run).await,
                _ => {}
            }
            let status = self.see_through(&run).await;
            self.check(kind, &run, &status);
            self.judging.lock().unwrap().remove(&key);
            self.finished.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The Instance Harness may be killed: no Turn on it has met its three kills yet.
    pub fn may_kill_the_instance_harness(&self, most: u64) -> bool {
        let now = self.instance_kills.load(Ordering::Relaxed);
        self.judging.lock().unwrap().values().all(|then| now - then < most)
    }

    async fn start(&self, kind: &'static str, key: &str) -> String {
        let input = match kind {
            "ledger" | "family" => json!({ "url": self.ledger_url }),
            "commands" | "work" | "cancelled" => json!({ "repo": self.repo }),
            _ => json!({}),
        };
        let workflow = if kind == "cancelled" { "work" } else { kind };
        let path = format!("/workflows/{workflow}/runs");
        let ((status, body), _) = self.insist("POST", &path, Some(&input), Some(key)).await;
        assert_eq!(status, 201, "{kind}: {body}");
        let run = body["runId"].as_str().unwrap().to_owned();
        let twice = self.started.lock().unwrap().insert(run.clone(), (key.to_owned(), kind));
        assert!(twice.is_none(), "{run} was given to {twice:?} and to {key}");
        run
    }

    /// Each event under a key of its own; one that was taken is sent once more, and must count once.
    async fn send_three(&self, run: &str, to: &str, event: &str) {
        let path = format!("/runs/{run}/{to}");
        for n in 0..ANSWERS {
            let (body, key) = (json!({ "type": event, "n": n }), format!("{run}-{n}"));
            let ((status, first), unknown) = self.insist("POST", &path, Some(&body), Some(&key)).await;
            assert_eq!(status, 200, "run {run}, {event} {n}: {first}");
            if n % 2 == 0 {
                let ((status, again), _) = self.insist("POST", &path, Some(&body), Some(&key)).await;
                assert_eq!((status, &again), (200, &first), "run {run}, {event} {n} again");
            }
            self.resent.fetch_add(u64::from(unknown), Ordering::Relaxed);
        }
    }

    /// Ends a run wherever it is: in its Sandbox's making, in a Turn, or over already.
    async fn cancel(&self, run: &str) {
        let pause = self.next.load(Ordering::Relaxed) * 37 % 1_500;
        // Poll: until the server answers.
        tokio::time::sleep(Duration::from_millis(pause)).await;
        let body = json!({ "type": "CANCEL" });
        let ((status, answer), _) = self.insist("POST", &format!("/runs/{run}/events"), Some(&body), None).await;
        // 409: it is over, by itself or by the first of two requests.
        assert!([200, 202, 409].contains(&status), "cancel of {run}: {status} {answer}");
    }

    /// Waits for a run's end. It must be there whenever somebody answers.
    async fn see_through(&self, run: &str) -> Value {
        let mut quiet = None;
        loop {
            let ((code, status), _) = self.insist("GET", &format!("/runs/{run}"), None, None).await;
            assert_eq!(code, 200, "run {run} is gone: {status}");
            let rests = status["status"] != "live" && status["idle"] == true;
            if rests {
                return status;
            }
            if self.stop.load(Ordering::Relaxed) {
                let quiet = *quiet.get_or_insert_with(Instant::now);
                assert!(quiet.elapsed() < RUN_MAX, "run {run} hangs: {status}");
            }
            // Poll: until the server answers.
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// What a run of this kind must have come to.
    pub fn check(&self, kind: &str, run: &str, status: &Value) {
        if kind == "cancelled" && status["status"] == "cancelled" {
            return;
        }
        assert_eq!(status["status"], "done", "{kind} {run}: {status}");
        let output = &status["output"];
        match kind {
            "ledger" => {
                let keys: Vec<String> = (1..=3).map(|n| format!("{run}/count#{n}")).collect();
                assert_eq!((&output["n"], &output["seen"]), (&json!(3), &json!(self.entries(run, &keys))), "{status}");
            }
            "family" => {
                let keys = ["first.ask", "both.left.work.ask", "both.right.work.ask"];
                let keys: Vec<String> = keys.iter().map(|k| format!("{run}/{k}#1")).collect();
                let mut seen: Vec<u64> = serde_json::from_value(output["seen"].clone()).unwrap();
                let mut entries = self.entries(run, &keys);
                seen.sort_unstable();
                entries.sort_unstable();
                assert_eq!(seen, entries, "{status}");
            }
            "commands" => {
                let keys: Vec<String> = (1..=3).map(|n| format!("{run}/note#{n}")).collect();
                assert_eq!(output["keys"].as_str().unwrap().lines().collect::<Vec<_>>(), keys, "{status}");
            }
            "gates" => assert_eq!(*output, json!({ "taken": 3, "seen": [0, 1, 2] }), "{run}"),
            "timers" => assert_eq!(*output, json!({ "first": 1, "second": 1, "again": 1 }), "{run}"),
            "judge" => {
                assert_eq!(output["word"], "fine", "{status}");
                // A Harness that dies between the pick and its receipt cannot know; it never picks twice.
                assert!(output["notes"].as_u64().unwrap() <= 1, "{status}");
            }
            "hints" => assert_eq!(*output, json!({ "seen": [0, 1, 2] }), "{run}"),
            "work" | "cancelled" => assert_eq!(*output, json!({ "finished": 1 }), "{status}"),
            other => panic!("no kind {other}"),
        }
    }

    /// The ledger's entries of exactly these keys of a run, and no others.
    fn entries(&self, run: &str, keys: &[String]) -> Vec<u64> {
        let books = self.ledger.keys();
        let of_run: Vec<&String> = books.keys().filter(|k| k.starts_with(&format!("{run}/"))).collect();
        let mut expected: Vec<&String> = keys.iter().collect();
        expected.sort();
        assert_eq!(of_run, expected, "the keys of {run}");
        keys.iter().map(|key| books[key].entry.unwrap_or_else(|| panic!("{key} never happened"))).collect()
    }
}
