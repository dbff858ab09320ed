//! Processes by identity: a pid with its start time, so that a recycled pid is never taken for ours.

use super::cgroup::Cgroup;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How long the processes of a Sandbox may take to end after SIGKILL before teardown reports them.
const END_LIMIT: Duration = Duration::from_secs(10);
/// Pause between two looks at processes that were told to end.
const END_POLL: Duration = Duration::from_millis(4);

/// A process that cannot be confused with a later one of the same pid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessId {
    /// The pid.
    pub pid: i32,
    /// Field 22 of `/proc/<pid>/stat`: ticks since boot.
    pub start_time: u64,
    /// Which boot: ticks start anew with it.
    pub boot: String,
}

/// What `/proc/<pid>/stat` says, as far as it is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    state: u8,
    parent: i32,
    session: i32,
    start_time: u64,
}

/// The kernel's id of this boot.
pub fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// The identity of a running process.
pub fn identify(pid: i32) -> Option<ProcessId> {
    let stat = read_stat(pid)?;
    (stat.state != b'Z').then(|| ProcessId { pid, start_time: stat.start_time, boot: boot_id() })
}

/// The very process still runs; one that ended and was not reaped does not.
pub fn is_alive(process: &ProcessId) -> bool {
    identify(process.pid).as_ref() == Some(process)
}

/// A handle on a running process that becomes readable at its end.
pub fn watch(process: &ProcessId) -> Option<OwnedFd> {
    let fd = pidfd_open(Pid::from_raw(process.pid)?, PidfdFlags::NONBLOCK).ok()?;
    // Only after opening is the identity certain.
    is_alive(process).then_some(fd)
}

/// Sends a signal to the very process, or to none.
pub fn signal(process: &ProcessId, signal: Signal) {
    if let Some(fd) = watch(process) {
        let _ = pidfd_send_signal(fd, signal);
    }
}

/// Running processes whose starting environment holds one of these `NAME=value` lines.
pub fn with_environment(lines: &[String]) -> Vec<ProcessId> {
    pids().into_iter().filter(|pid| environment_holds(*pid, lines)).filter_map(identify).collect()
}

/// How the processes of a Sandbox are known, whatever session they moved to.
#[derive(Clone, Debug)]
pub struct Marks {
    /// `NAME=value` lines of their starting environment.
    pub environment: Vec<String>,
    /// The group that nothing else is in, where there is one: no process leaves it by itself.
    pub cgroup: Option<Cgroup>,
}

/// Ends a Harness and everything it started: its session, its descendants, and processes with its marks. Answers how many
/// would not end.
pub async fn end_all(leader: Option<&ProcessId>, marks: &Marks) -> usize {
    let leader = leader.filter(|l| l.boot == boot_id());
    let alive = leader.filter(|l| is_alive(l));
    if let Some(leader) = alive {
        // A stopped leader starts nothing more.
        signal(leader, Signal::STOP);
    }
    let deadline = Instant::now() + END_LIMIT;
    loop {
        let others = belonging(leader, marks);
        if others.is_empty() {
            if let Some(leader) = alive {
                signal(leader, Signal::KILL);
            }
            let leader_ended = alive.is_none_or(|l| !is_alive(l));
            if leader_ended && belonging(leader, marks).is_empty() {
                return 0;
            }
        }
        for process in &others {
            signal(process, Signal::KILL);
        }
        if Instant::now() > deadline {
            return others.len().max(1);
        }
        tokio::time::sleep(END_POLL).await;
    }
}

/// Everything that belongs to a Harness but the Harness itself.
fn belonging(leader: Option<&ProcessId>, marks: &Marks) -> Vec<ProcessId> {
    let stats: Vec<(i32, Stat)> = pids().into_iter().filter_map(|pid| Some((pid, read_stat(pid)?))).collect();
    let mut mine: Vec<i32> = Vec::new();
    if let Some(leader) = leader {
        // The session's number is free for others only when nobody is left in it.
        let recycled = stats.iter().any(|(pid, stat)| *pid == leader.pid && stat.start_time != leader.start_time);
        if !recycled {
            mine.extend(stats.iter().filter(|(_, s)| s.session == leader.pid).map(|(pid, _)| *pid));
            if !mine.contains(&leader.pid) {
                mine.push(leader.pid);
            }
        }
    }
    mine.extend(stats.iter().map(|(pid, _)| *pid).filter(|pid| environment_holds(*pid, &marks.environment)));
    mine.extend(marks.cgroup.iter().flat_map(Cgroup::pids));
    loop {
        let more: Vec<i32> = stats
            .iter()
            .filter(|(pid, stat)| mine.contains(&stat.parent) && !mine.contains(pid))
            .map(|(pid, _)| *pid)
            .collect();
        if more.is_empty() {
            break;
        }
        mine.extend(more);
    }
    mine.sort_unstable();
    mine.dedup();
    mine.into_iter().filter(|pid| leader.is_none_or(|l| l.pid != *pid)).filter_map(identify).collect()
}

fn pids() -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries.flatten().filter_map(|e| e.file_name().to_str()?.parse().ok()).collect()
}

/// The process started with one of these `NAME=value` lines in its environment.
pub fn environment_holds(pid: i32, lines: &[String]) -> bool {
    if lines.is_empty() {
        return false;
    }
    let Ok(environment) = std::fs::read(format!("/proc/{pid}/environ")) else { return false };
    environment.split(|b| *b == 0).any(|entry| lines.iter().any(|line| line.as_bytes() == entry))
}

fn read_stat(pid: i32) -> Option<Stat> {
    parse_stat(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// The command's name may hold anything, a `)` too: what counts starts after the last one.
fn parse_stat(text: &[u8]) -> Option<Stat> {
    let end = text.iter().rposition(|b| *b == b')')?;
    let rest = std::str::from_utf8(text.get(end + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    Some(Stat {
        state: *fields.first()?.as_bytes().first()?,
        parent: fields.get(1)?.parse().ok()?,
        session: fields.get(3)?.parse().ok()?,
        start_time: fields.get(19)?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_read_behind_the_commands_name() {
        let line = b"42 (a) b (c) S 7 42 41 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 2";
        assert_eq!(parse_stat(line), Some(Stat { state: b'S', parent: 7, session: 41, start_time: 98_765 }));
        assert_eq!(parse_stat(b"nonsense"), None);
    }

    #[test]
    fn a_recycled_pid_is_not_ours() {
        let me = identify(std::process::id().cast_signed()).unwrap();
        assert!(is_alive(&me));
        assert!(!is_alive(&ProcessId { start_time: me.start_time + 1, ..me.clone() }));
        assert!(!is_alive(&ProcessId { boot: "another".into(), ..me.clone() }));
        assert!(watch(&ProcessId { start_time: me.start_time + 1, ..me }).is_none());
    }
}
