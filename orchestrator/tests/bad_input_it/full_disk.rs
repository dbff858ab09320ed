//! A disk without room: requests are refused or the process ends with its reason, and what was acknowledged is there after.

use crate::server::{Folder, LOOK, PATIENCE};
use crate::{ASK, start};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const TIMER: &str = "workflow: timer\ncontext: { n: 0 }\ninitial: wait\nstates:\n  wait: { after: { 1500ms: { to: done, set: { n: context.n + 1 } } } }\n  \
    done: { final: true, output: { n: \"{{ context.n }}\" } }\n";

/// A small file system that is taken away again.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path) -> Result<Self, String> {
        std::fs::create_dir(at).map_err(|e| e.to_string())?;
        let output = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=48m", "jr2-small-disk"])
            .arg(at)
            .output()
            .map_err(|e| e.to_string())?;
        if output.status.success() {
            return Ok(Self(at.to_owned()));
        }
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }

    /// Fills it but for `left` bytes.
    fn fill(&self, left: u64) {
        self.clear();
        let stat = rustix::fs::statvfs(&self.0).unwrap();
        let free = stat.f_bavail * stat.f_frsize;
        let mut file = std::fs::File::create(self.0.join("filler")).unwrap();
        let mut rest = free.saturating_sub(left);
        while rest > 0 {
            let piece = rest.min(1 << 16);
            if std::io::Write::write_all(&mut file, &vec![1; piece as usize]).is_err() {
                break; // as full as it gets
            }
            rest -= piece;
        }
    }

    fn clear(&self) {
        let _ = std::fs::remove_file(self.0.join("filler"));
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

fn full((status, body): &(u16, Value)) -> bool {
    if *status == 507 {
        assert!(body["error"].as_str().is_some_and(|e| e.contains("no room")), "{body}");
    }
    *status == 507
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_at_its_bound_refuses_requests_and_keeps_its_runs() {
    let settings = "store: { durability: process, diskMax: 3Mi }\n";
    let folder = Folder::new(settings, &[("ask", ASK)]);
    let mut server = folder.start().await;
    let mut acknowledged = Vec::new();
    let text = json!({ "text": "y".repeat(20_000) });
    let begun = Instant::now();
    loop {
        let answer = folder.post("/workflows/ask/runs", &text).await.unwrap();
        if full(&answer) {
            break;
        }
        assert_eq!(answer.0, 201, "{answer:?}");
        acknowledged.push(answer.1["runId"].as_str().unwrap().to_owned());
        assert!(begun.elapsed() < PATIENCE, "the bound is never met");
    }
    let gate = format!("/runs/{}/gates/review/events", acknowledged[0]);
    let answer = folder.ask("POST", &gate, Some(&json!({ "type": "approve" })), Some("k")).await.unwrap();
    assert!(full(&answer), "{answer:?}");
    let status = folder.until(&acknowledged[0], "parked", |s| s["status"] == "live").await;
    assert_eq!(status["gates"][0]["gate"], "review", "a refused answer leaves the Gate open");
    server.kill();
    std::fs::write(folder.dir.join("jr2.yaml"), "store: { durability: process, diskMax: 1Gi }\n").unwrap();
    let _server = folder.start().await;
    let (_, list) = folder.get("/runs").await.unwrap();
    assert_eq!(list["runs"].as_array().unwrap().len(), acknowledged.len(), "acknowledged and no others");
    let answer = folder.ask("POST", &gate, Some(&json!({ "type": "approve" })), Some("k")).await.unwrap();
    assert_eq!(answer.0, 200, "{answer:?}");
    folder.until(&acknowledged[0], "done", |s| s["status"] == "done").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_loses_no_acknowledged_run() {
    let folder = Folder::new("store: { dir: disk/store }\n", &[("ask", ASK), ("timer", TIMER)]);
    let disk = match SmallDisk::mount(&folder.dir.join("disk")) {
        Ok(disk) => disk,
        Err(why) => {
            // The bound of the store above is the same path without rights.
            println!("skipped: no small disk can be mounted ({why})");
            return;
        }
    };
    let mut server = folder.start().await;
    let mut acknowledged = Vec::new();
    for _ in 0..5 {
        acknowledged.push(start(&folder, "ask", &json!({})).await);
    }
    let timer = start(&folder, "timer", &json!({})).await;
    disk.fill(16 << 20);
    let answer = folder.post("/workflows/ask/runs", &json!({})).await.unwrap();
    assert!(full(&answer), "{answer:?}");
    let gate = format!("/runs/{}/gates/review/events", acknowledged[0]);
    let answer = folder.ask("POST", &gate, Some(&json!({ "type": "approve" })), Some("k")).await.unwrap();
    assert!(full(&answer), "{answer:?}");
    // The delay comes due and waits for room; whoever asks meanwhile is answered.
    let begun = Instant::now();
    while !folder.log().contains("a save waits for space") {
        assert!(begun.elapsed() < PATIENCE, "the delay never came due");
        // Poll: until the condition holds.
        tokio::time::sleep(LOOK).await;
    }
    let asked = tokio::time::timeout(Duration::from_secs(5), folder.get(&format!("/runs/{timer}"))).await;
    println!("status of the run that waits for room: {asked:?}");
    assert!(asked.is_ok_and(|answer| answer.is_ok_and(|(status, _)| status == 200)), "a status cannot be read");
    disk.clear();
    let status = folder.until(&timer, "done", |s| s["status"] == "done").await;
    assert_eq!(status["output"]["n"], 1);
    let answer = folder.ask("POST", &gate, Some(&json!({ "type": "approve" })), Some("k")).await.unwrap();
    assert_eq!(answer.0, 200, "{answer:?}");

    // No byte is left, and the process is killed and started again on that.
    disk.fill(0);
    let answer = folder.post("/workflows/ask/runs", &json!({})).await.unwrap();
    assert!(full(&answer), "{answer:?}");
    server.kill();
    let said_before = folder.log().len();
    let mut child = folder.serve_command().spawn().unwrap();
    let begun = Instant::now();
    let ended = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if folder.log()[said_before..].contains("jr2 serves at") {
            break None;
        }
        assert!(begun.elapsed() < PATIENCE, "it neither serves nor ends");
        // Poll: until the condition holds.
        tokio::time::sleep(LOOK).await;
    };
    let said = folder.log()[said_before..].to_owned();
    match ended {
        Some(status) => {
            println!("ended with {status}: {said}");
            assert_eq!(status.code(), Some(1), "{said}");
            assert!(said.contains("jr2: ") && said.contains("store"), "{said}");
        }
        None => {
            let answer = folder.post("/workflows/ask/runs", &json!({})).await.unwrap();
            assert!(full(&answer), "{answer:?}");
            let _ = child.kill();
        }
    }
    let _ = child.wait();
    disk.clear();
    let server = folder.start().await;
    let (_, list) = folder.get("/runs").await.unwrap();
    assert_eq!(list["runs"].as_array().unwrap().len(), acknowledged.len() + 1, "acknowledged and no others: {list}");
    folder.until(&acknowledged[0], "done", |s| s["status"] == "done").await;
    for run in &acknowledged[1..] {
        let gate = format!("/runs/{run}/gates/review/events");
        assert_eq!(folder.post(&gate, &json!({ "type": "approve" })).await.unwrap().0, 200);
        folder.until(run, "done", |s| s["status"] == "done").await;
    }
    drop(server);
}
