//! The Agent's processes: who they are, and SIGKILL for each (spec 10.2).
//!
//! jr2's own supervisors (one per `bash` call, a fork of the Harness that never became a program) are spared: they hold no
//! memory of the Agent's, adopt what it orphans, kill whatever was forked meanwhile, and end with their call.

use rustix::process::{Pid, Signal, kill_process};
use std::collections::HashSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Nobody's child and everybody's: the first process is never killed.
const INIT: i32 = 1;
/// Most processes that are looked at: more than any pids limit of a Sandbox.
const PROCESSES_MAX: usize = 65_536;
/// Groups within groups that are looked into.
const DEPTH_MAX: usize = 8;

/// This process.
pub fn me() -> i32 {
    std::process::id().cast_signed()
}

/// What of `pids` is the Agent's: all but the first process, the Harness and its supervisors.
pub fn of_the_agent(mut pids: Vec<i32>) -> Vec<i32> {
    let (me, spared) = (me(), supervisors());
    pids.retain(|pid| *pid > INIT && *pid != me && !spared.contains(pid));
    pids
}

/// Sends SIGKILL to each.
pub fn kill(pids: &[i32]) {
    for pid in pids.iter().copied().filter(|pid| *pid > INIT && *pid != me()) {
        if let Some(pid) = Pid::from_raw(pid) {
            // One that is gone is what was wanted.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Our children that run our own program.
fn supervisors() -> HashSet<i32> {
    let Some(ours) = program_of("self") else { return HashSet::new() };
    children(me()).into_iter().filter(|pid| program_of(&pid.to_string()) == Some(ours)).collect()
}

/// Which file a process runs.
fn program_of(pid: &str) -> Option<(u64, u64)> {
    let meta = std::fs::metadata(format!("/proc/{pid}/exe")).ok()?;
    Some((meta.dev(), meta.ino()))
}

/// A process's children, whichever of its threads forked them.
fn children(pid: i32) -> Vec<i32> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let mut found = Vec::new();
    for thread in threads.flatten() {
        let text = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        found.extend(text.split_ascii_whitespace().filter_map(|word| word.parse::<i32>().ok()));
    }
    found
}

/// Everything this process has started, however deep; the supervisors are in it.
///
/// A process that left its parent and its session is a child of its supervisor by then.
pub fn descendants() -> Vec<i32> {
    let mut found = children(me());
    let mut at = 0;
    while let Some(pid) = found.get(at).copied() {
        if found.len() >= PROCESSES_MAX {
            break;
        }
        for child in children(pid) {
            // A child may move to another parent while we look.
            if !found.contains(&child) {
                found.push(child);
            }
        }
        at += 1;
    }
    found
}

/// Processes that were started with one of these `NAME=value` lines: those whose supervisor was killed under them.
pub fn with_environment(lines: &[String]) -> Vec<i32> {
    if lines.is_empty() {
        return Vec::new();
    }
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| environment_holds(*pid, lines)).collect()
}

fn environment_holds(pid: i32, lines: &[String]) -> bool {
    let Ok(environment) = std::fs::read(format!("/proc/{pid}/environ")) else { return false };
    environment.split(|byte| *byte == 0).any(|entry| lines.iter().any(|line| line.as_bytes() == entry))
}

/// The processes of a cgroup and of the groups below it.
pub fn in_group(folder: &Path) -> Vec<i32> {
    let mut found = Vec::new();
    collect(folder, DEPTH_MAX, &mut found);
    found
}

fn collect(folder: &Path, depth: usize, found: &mut Vec<i32>) {
    let text = std::fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    let pids = text.lines().filter_map(|line| line.trim().parse::<i32>().ok());
    found.extend(pids.take(PROCESSES_MAX.saturating_sub(found.len())));
    if depth == 0 {
        return;
    }
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect(&entry.path(), depth - 1, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    #[test]
    fn a_group_s_processes_are_read_however_deep_and_the_first_and_ours_are_not_the_agent_s() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        std::fs::write(dir.path().join("cgroup.procs"), format!("1\n{}\n70000001\n", me())).unwrap();
        std::fs::write(dir.path().join("a/b/cgroup.procs"), "70000002\n0\nx\n").unwrap();
        assert_eq!(in_group(dir.path()), [1, me(), 70_000_001, 70_000_002, 0]);
        assert_eq!(of_the_agent(in_group(dir.path())), [70_000_001, 70_000_002]);
        kill(&[0, -1, 1, me()]);
    }

    #[test]
    fn what_a_child_started_is_found_and_a_mark_finds_what_left() {
        let mark = format!("HOME=/nowhere/{}", me());
        // The grandchild is an orphan in a session of its own when its parent ends.
        let script = "setsid sh -c 'echo $$; exec sleep 1000' & wait";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", mark.trim_start_matches("HOME="))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
        let left: i32 = line.trim().parse().unwrap();
        let ours = child.id().cast_signed();
        assert!(descendants().contains(&ours) && descendants().contains(&left));
        assert!(of_the_agent(descendants()).contains(&ours), "a program of its own is no supervisor");
        kill(&[ours]);
        child.wait().unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut marked = with_environment(std::slice::from_ref(&mark));
        while !marked.contains(&left) && Instant::now() < deadline {
            // Poll: a process in the middle of its exec has no environment to read.
            std::thread::sleep(Duration::from_millis(1));
            marked = with_environment(std::slice::from_ref(&mark));
        }
        assert!(!descendants().contains(&left) && marked.contains(&left), "{marked:?}");
        kill(&marked);
        assert_eq!(with_environment(&[]), Vec::<i32>::new());
    }
}
