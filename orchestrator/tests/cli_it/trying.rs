//! `jr2 try`: the whole of it, killed anywhere.

use super::rig::{Ended, Rig, eventually, harnesses, kill};
use rustix::process::Signal;
use std::path::Path;
use std::process::Command;

fn git(repo: &Path, args: &[&str]) -> String {
    let output = Command::new("git").args(args).current_dir(repo).output().unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// One run, one Gate, one commit that passes the test, on a branch of the sample.
#[track_caller]
fn assert_one_of_each(rig: &Rig, ended: &Ended) {
    let status = ended.json();
    assert_eq!(status["output"]["outcome"], "approved", "{status:#}");
    let branch = status["branches"][0]["branch"].as_str().unwrap();
    let repo = Path::new(status["branches"][0]["repository"].as_str().unwrap());
    assert_eq!(git(repo, &["rev-list", "--count", &format!("main..{branch}")]), "1");
    git(repo, &["checkout", "--quiet", branch]);
    assert!(Command::new("sh").arg("test.sh").current_dir(repo).output().unwrap().status.success());
    let dir = rig.dir().join("t");
    let dir = dir.to_str().unwrap();
    let runs = rig.run(&["runs", "--dir", dir, "--json"]).expect(0).json();
    assert_eq!(runs["runs"].as_array().unwrap().len(), 1, "{runs:#}");
    let log = rig.run(&["logs", status["runId"].as_str().unwrap(), "--dir", dir, "--json"]).expect(0);
    let gates = log.out.lines().filter(|line| line.contains("\"kind\":\"gate\"")).count();
    assert_eq!(gates, 1, "{}", log.out);
    rig.run(&["replay", status["runId"].as_str().unwrap(), "--dir", dir]).expect(0).says("no difference");
    rig.run(&["store", "verify", "--dir", dir]).expect(0);
}

#[test]
fn a_try_ends_in_one_commit_and_one_gate() {
    let rig = Rig::new();
    let ended = rig.run(&["try", "--yes", "--dir", "t", "--json"]).expect(0);
    assert_one_of_each(&rig, &ended);
    let ended = ended.says("+name=\"${1:-world}\"").says("coder bash: sh test.sh").says("approved (--yes)");
    ended.says("is saved in");
    assert!(harnesses(&rig.dir()).is_empty());
    assert!(!rig.dir().join("t/try.json").exists());
    let left: Vec<_> = std::fs::read_dir(rig.dir().join("t/.jr2/sandboxes")).unwrap().flatten().collect();
    assert!(left.is_empty(), "an ended run left {left:?}");
}

#[test]
fn a_killed_try_goes_on_with_one_commit_and_one_gate() {
    for moment in
        ["started", "is being made", "coder works", "coder edit", "git add -A", "picks finish", "Gate review#1"]
    {
        let rig = Rig::new();
        let first = rig.start(&["try", "--yes", "--dir", "t"]);
        first.until(moment);
        first.kill();
        let ended = rig.run(&["try", "--yes", "--dir", "t", "--json"]);
        assert_eq!(ended.code, Some(0), "killed at `{moment}`: {}", ended.err);
        assert_one_of_each(&rig, &ended);
    }
}

#[test]
fn a_killed_harness_is_started_again_and_the_work_is_done_once() {
    for moment in ["coder bash", "coder edit", "git add -A"] {
        let rig = Rig::new();
        let running = rig.start(&["try", "--yes", "--dir", "t", "--json"]);
        running.until(moment);
        let pid = eventually("the Harness's record", || harnesses(&rig.dir()).pop());
        kill(pid, Signal::KILL);
        let ended = running.wait();
        assert_eq!(ended.code, Some(0), "killed at `{moment}`: {}", ended.err);
        assert_one_of_each(&rig, &ended);
    }
}

#[test]
fn off_a_terminal_the_gate_is_left_with_the_line_that_answers_it() {
    let rig = Rig::new();
    let parked = rig.run(&["try", "--dir", "t"]).expect(3);
    let line = parked.err.lines().find(|l| l.contains("jr2 send") && l.contains("approve")).unwrap().trim().to_owned();
    assert!(line.contains("--activation 'review#1'"), "{line}");
    let sent = rig.shell(&format!("{line} --json")).expect(0);
    assert_one_of_each(&rig, &sent);
    // The try's own view of it: over, and said so.
    rig.run(&["try", "--dir", "t"]).expect(0).says("is saved in");
}

#[test]
fn a_reviewer_s_note_is_worked_on_without_a_server() {
    let rig = Rig::new();
    let parked = rig.run(&["try", "--dir", "t"]).expect(3);
    let line = parked.err.lines().find(|l| l.contains("request_changes")).unwrap().trim().to_owned();
    let again = rig.shell(&line.replace("notes=…", "notes='say why'")).expect(3);
    again.says("review#2").says("REVIEW.md");
    let ended = rig.run(&["try", "--yes", "--dir", "t", "--json"]).expect(0).json();
    let repo = Path::new(ended["branches"][0]["repository"].as_str().unwrap());
    let range = format!("main..{}", ended["branches"][0]["branch"].as_str().unwrap());
    assert_eq!(git(repo, &["rev-list", "--count", &range]), "2");
}

/// A model server that answers each of these statuses once, the last one for ever.
fn model(statuses: &'static [u16]) -> String {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let Ok(mut stream) = stream else { return };
            let status = statuses[number.min(statuses.len() - 1)];
            // One read holds the head; the answer closes the connection.
            let _ = stream.read(&mut [0; 8_192]);
            let body = "{\"error\":{\"message\":\"no\"}}";
            let head = format!("HTTP/1.1 {status} No\r\ncontent-type: application/json\r\nconnection: close");
            let _ = write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    url
}

#[test]
fn a_refusing_model_is_said_and_a_given_up_try_leaves_no_branch() {
    let rig = Rig::new();
    let repo = rig.dir().join("mine");
    std::fs::create_dir(&repo).unwrap();
    git(&repo, &["init", "-q", "-b", "main"]);
    let commit = ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "--allow-empty", "-m", "one"];
    git(&repo, &commit);
    let url = model(&[503, 400]);
    let args = ["try", "--yes", "--dir", "t", "--repo", "mine", "--test", "false", "--model-url", &url, "--model", "m"];
    let ended = rig.run(&args);
    assert_eq!(ended.code, Some(4), "{}", ended.err);
    let ended = ended.says("does not answer (HTTP 503), trying again").says("answers again");
    assert_eq!(ended.err.matches("trying again").count(), 1, "{}", ended.err);
    assert_eq!(git(&repo, &["for-each-ref", "--format=%(refname:short)", "refs/heads"]), "main");
}
