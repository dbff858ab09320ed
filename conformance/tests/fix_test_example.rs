//! The script of `examples/fix-test` really repairs its sample, cut at any step, with one commit.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test fails by panicking.

use jr2_conformance::model::{Script, ScriptedModel};
use jr2_shared::prompts::{READMIT_KEPT, nudge};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// More steps than any honest run of the example takes.
const STEPS_MAX: usize = 40;

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/fix-test")
}

/// Runs a shell command in a folder with no git configuration but the command's own: output, then whether it ended well.
fn shell(folder: &Path, command: &str) -> (String, bool) {
    let output = Command::new("sh")
        .args(["-c", command])
        .current_dir(folder)
        .env("HOME", folder)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CEILING_DIRECTORIES", folder.parent().unwrap())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (text, output.status.success())
}

fn sample() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(example().join("repo")).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    let (text, ok) =
        shell(folder.path(), "git init -q && git add -A && git -c user.name=a -c user.email=a@b commit -qm seed");
    assert!(ok, "{text}");
    folder
}

/// A Harness in twenty lines: enough to let the script work.
struct Seat<'a> {
    folder: &'a Path,
    model: &'a ScriptedModel,
    client: reqwest::Client,
    messages: Vec<Value>,
}

impl Seat<'_> {
    fn user(&mut self, text: &str) {
        let block = format!(
            "<jr2-turn>\nWorking directory: {}\nAllowed now: `mcp__jr2__finish`.\n</jr2-turn>",
            self.folder.display()
        );
        self.messages.push(json!({"role": "user", "content": format!("{text}\n\n{block}")}));
    }

    /// One model step and its tool calls. `cut`: the tools run, but their results are lost. The pick's arguments when it came.
    async fn step(&mut self, cut: bool) -> Result<Option<Value>, String> {
        let body = json!({"model": "gpt-5-mini", "messages": self.messages});
        let answer: Value = self
            .client
            .post(format!("{}/chat/completions", self.model.url()))
            .json(&body)
            .send()
            .await
            .unwrap()
            .json()
            .await
            .unwrap();
        let message = answer["choices"][0]["message"].clone();
        if !message.is_object() {
            return Err(answer.to_string());
        }
        self.messages.push(message.clone());
        let Some(calls) = message["tool_calls"].as_array() else {
            return Err(message["content"].as_str().unwrap_or_default().to_owned());
        };
        let mut pick = None;
        for call in calls {
            let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
            let name = call["function"]["name"].as_str().unwrap();
            let result = self.run(name, &arguments);
            if name == "mcp__jr2__finish" {
                pick = Some(arguments);
            }
            let result = if cut { "The Harness restarted while this call ran.".to_owned() } else { result };
            self.messages.push(json!({"role": "tool", "tool_call_id": call["id"], "content": result}));
        }
        Ok(pick)
    }

    fn run(&self, name: &str, arguments: &Value) -> String {
        let text = |key: &str| arguments[key].as_str().unwrap().to_owned();
        match name {
            "bash" => shell(self.folder, &text("command")).0,
            "read" => std::fs::read_to_string(self.folder.join(text("path"))).unwrap(),
            "write" => {
                std::fs::write(self.folder.join(text("path")), text("content")).unwrap();
                "Written.".to_owned()
            }
            "edit" => {
                let path = self.folder.join(text("path"));
                let before = std::fs::read_to_string(&path).unwrap();
                assert_eq!(before.matches(&text("old")).count(), 1);
                std::fs::write(path, before.replace(&text("old"), &text("new"))).unwrap();
                "Edited.".to_owned()
            }
            "mcp__jr2__finish" => "Delivered \"finish\" to the workflow (delivery d).".to_owned(),
            other => panic!("the script calls {other}"),
        }
    }

    /// Steps until the pick; at step `cut` the Harness restarts. The pick's summary.
    async fn turn(&mut self, cut: Option<usize>) -> String {
        for step in 0..STEPS_MAX {
            let pick = self.step(cut == Some(step)).await.unwrap();
            if cut == Some(step) {
                self.user(READMIT_KEPT);
            } else if let Some(pick) = pick {
                return pick["summary"].as_str().unwrap().to_owned();
            }
        }
        panic!("no pick after {STEPS_MAX} steps: {:#?}", self.messages);
    }

    fn commits(&self) -> usize {
        shell(self.folder, "git log --oneline").0.lines().count() - 1
    }
}

fn seat<'a>(folder: &'a Path, model: &'a ScriptedModel) -> Seat<'a> {
    jr2_conformance::tls::install();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    Seat { folder, model, client, messages: vec![json!({"role": "system", "content": "s"})] }
}

fn task(note: &str) -> String {
    format!("The command `sh test.sh` fails in this repository. Make it pass and commit, then call finish.\n{note}")
}

#[tokio::test]
async fn it_repairs_commits_and_picks_and_answers_a_review() {
    let folder = sample();
    let model = ScriptedModel::start(Script::load(&example().join("model.json")).unwrap()).unwrap();
    let mut seat = seat(folder.path(), &model);
    assert!(!shell(folder.path(), "sh test.sh").1);
    seat.user(&task(""));
    assert!(seat.turn(None).await.contains("no default"));
    assert!(shell(folder.path(), "sh test.sh").1);
    assert_eq!(seat.commits(), 1);
    for (round, note) in ["say \"why\" and $(rm -rf .)\nplease", "another"].into_iter().enumerate() {
        seat.user(&task(&format!("A reviewer asked: {note}")));
        assert!(seat.turn(None).await.contains("REVIEW.md"));
        assert_eq!(seat.commits(), round + 2);
        assert!(std::fs::read_to_string(folder.path().join("REVIEW.md")).unwrap().contains(note));
    }
    assert_eq!(shell(folder.path(), "git status --porcelain").0, "");
    assert_eq!(model.complaints(), Vec::<String>::new());
}

#[tokio::test]
async fn a_restart_at_any_step_leaves_one_commit() {
    let model = ScriptedModel::start(Script::load(&example().join("model.json")).unwrap()).unwrap();
    let mut cuts = 0;
    for cut in 0..STEPS_MAX {
        let folder = sample();
        let mut seat = seat(folder.path(), &model);
        seat.user(&task(""));
        seat.turn(Some(cut)).await;
        assert_eq!((seat.commits(), shell(folder.path(), "sh test.sh").1), (1, true), "cut at {cut}");
        if !seat.messages.iter().any(|m| m["content"].as_str().is_some_and(|text| text.starts_with(READMIT_KEPT))) {
            break;
        }
        cuts += 1;
    }
    assert_eq!(cuts, 6, "test, read, edit, test, commit, finish");
}

#[tokio::test]
async fn a_nudge_leads_to_the_pick_and_a_foreign_task_to_plain_words() {
    let folder = sample();
    let model = ScriptedModel::start(Script::load(&example().join("model.json")).unwrap()).unwrap();
    let mut working = seat(folder.path(), &model);
    working.user(&task(""));
    working.turn(None).await;
    working.user(&nudge(&["finish".to_owned()]));
    working.turn(None).await;
    assert_eq!(working.commits(), 1);
    let mut foreign = seat(folder.path(), &model);
    foreign.user("Write a poem.");
    assert!(foreign.step(false).await.unwrap_err().contains("only knows the task of fix-test"));
    let mut other = seat(folder.path(), &model);
    other.user(&task("").replace("sh test.sh", "echo no; false"));
    assert!(other.step(false).await.unwrap().is_none());
    assert!(other.step(false).await.unwrap_err().contains("only repairs the sample"));
}
