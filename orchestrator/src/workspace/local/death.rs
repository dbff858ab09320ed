//! How a Harness ended, and whether the kernel killed it for memory. Judged purely; the counter is read by the supervisor.

use super::process::ProcessId;
use crate::workspace::LastEnd;
use serde::{Deserialize, Serialize};
use std::process::ExitStatus;
use std::time::Duration;

/// The exit code of an end that nobody could read: the process was not our child.
pub const UNKNOWN_EXIT_CODE: i32 = -1;
/// A kernel kill this long before an end, or up to twice as long, is taken for its cause: a process with many pages takes a
/// while to end.
const OOM_WINDOW: Duration = Duration::from_secs(5);

/// The end of one Harness process, as the record keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ended {
    /// Which process: an end is recorded once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessId>,
    /// How it ended.
    pub end: LastEnd,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// By itself.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// It was not our child, or nobody looked.
    Unknown,
}

impl Exit {
    /// What a reaped child says.
    pub fn of(status: ExitStatus) -> Self {
        use std::os::unix::process::ExitStatusExt;
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => Self::Unknown,
        }
    }

    /// The last end of a Harness that ended so; `kills` counts kernel kills in its cgroup since its start.
    pub fn end(self, kills: Option<u64>, at: u64, limit: Option<String>) -> LastEnd {
        let oom = judge(self, kills);
        let (exit_code, reason) = match self {
            Self::Code(code) => (code, format!("the Harness exited with code {code}")),
            Self::Signal(signal) if oom == Some(true) => {
                (128 + signal, "the kernel killed the Harness at the Sandbox's memory limit".to_owned())
            }
            Self::Signal(signal) => (128 + signal, format!("the Harness was ended by signal {signal}")),
            Self::Unknown => (UNKNOWN_EXIT_CODE, "the Harness ended; how is not known".to_owned()),
        };
        LastEnd { exit_code, oom, reason, at, limit }
    }
}

/// Was it the kernel's kill for memory? `None` = not known: SIGKILL or exit 137 alone is neither one nor the other
/// (public fault A16).
pub fn judge(exit: Exit, kills: Option<u64>) -> Option<bool> {
    let kill = rustix::process::Signal::KILL.as_raw();
    match exit {
        Exit::Signal(signal) if signal == kill => kills.is_some_and(|k| k > 0).then_some(true),
        Exit::Code(code) if code == 128 + kill => None,
        Exit::Unknown => None,
        Exit::Code(_) | Exit::Signal(_) => Some(false),
    }
}

/// Tells how many kernel kills for memory a Sandbox's cgroup has counted.
pub trait OomCounter: Send + Sync {
    /// The count now; `None` where the Sandbox has no cgroup of its own or it cannot be read.
    fn kills(&self) -> Option<u64>;
}

/// Kills since `before`; a counter that went back (a new cgroup of the same path) counts from its start.
fn kills_since(before: Option<u64>, now: Option<u64>) -> Option<u64> {
    let (before, now) = (before?, now?);
    Some(if now < before { now } else { now - before })
}

/// What the counter said a while ago. Only kills close to an end speak of that end: an earlier one took another process.
#[derive(Clone, Debug)]
pub struct Baseline {
    /// Old enough.
    old: Option<u64>,
    /// Becomes `old` once it is as old as [`OOM_WINDOW`].
    young: (Duration, Option<u64>),
}

impl Baseline {
    /// A Harness begins with this count at `now`, an instant of any fixed clock.
    pub fn new(now: Duration, count: Option<u64>) -> Self {
        Self { old: count, young: (now, count) }
    }

    /// The Harness lives, and the count is this.
    pub fn note(&mut self, now: Duration, count: Option<u64>) {
        if now.saturating_sub(self.young.0) >= OOM_WINDOW {
            self.old = self.young.1;
            self.young = (now, count);
        }
    }

    /// Kernel kills in the last moments, by the count after the end.
    pub fn kills(&self, count: Option<u64>) -> Option<u64> {
        kills_since(self.old, count)
    }
}

#[cfg(test)]
mod tests {
    use super::super::cgroup::{kills_in_events, kills_in_oom_control};
    use super::*;

    const QUIET: &str = "low 0\nhigh 0\nmax 12\noom 0\noom_kill 0\noom_group_kill 0\n";
    const SIGKILL: Exit = Exit::Signal(9);

    /// One line of a table: the counter file before and after, the exit, the judgement.
    fn check(rows: &[(&str, &str, Exit, Option<bool>)]) {
        for (before, after, exit, expected) in rows {
            let kills = kills_since(kills_in_events(before), kills_in_events(after));
            assert_eq!(judge(*exit, kills), *expected, "{before:?} -> {after:?}, {exit:?}");
        }
    }

    #[test]
    fn a12_one_killed_process_in_a_harness_that_ends_otherwise_is_not_its_own_kill() {
        let one_child = "oom 1\noom_kill 1\n";
        check(&[
            (QUIET, one_child, Exit::Code(1), Some(false)),
            (QUIET, one_child, Exit::Code(0), Some(false)),
            (QUIET, one_child, Exit::Signal(15), Some(false)),
            (QUIET, one_child, SIGKILL, Some(true)),
            // Counted before this Harness began.
            (one_child, one_child, SIGKILL, None),
        ]);
    }

    #[test]
    fn a14_the_attempts_counter_says_nothing() {
        check(&[
            ("oom 0\noom_kill 0\n", "oom 7\noom_kill 0\n", SIGKILL, None),
            ("oom 0\noom_kill 0\n", "oom 0\noom_kill 1\n", SIGKILL, Some(true)),
            ("oom 0\n", "oom 7\n", SIGKILL, None),
        ]);
    }

    #[test]
    fn a15_group_kills_count_and_unknown_keys_pass() {
        check(&[
            (QUIET, "oom 1\noom_kill 0\noom_group_kill 1\n", SIGKILL, Some(true)),
            (QUIET, "sock_throttled 3\nnew thing with words\n\noom_kill 2\n", SIGKILL, Some(true)),
            (QUIET, "oom_kill_of_another 5\noom_kill 0\n", SIGKILL, None),
            ("oom_kill 3\n", "oom_kill 3\noom_group_kill 0\n", SIGKILL, None),
        ]);
        assert_eq!(kills_in_events("oom_kill many\n"), None);
        assert_eq!(kills_in_events(""), None);
        assert_eq!(kills_in_oom_control("oom_kill_disable 0\nunder_oom 0\noom_kill 4\n"), Some(4));
        assert_eq!(kills_in_oom_control("oom_kill_disable 0\nunder_oom 0\n"), None);
    }

    #[test]
    fn a16_sigkill_or_137_alone_is_neither_claimed_nor_denied() {
        let rows: [(Exit, Option<u64>, Option<bool>); 8] = [
            (SIGKILL, None, None),
            (SIGKILL, Some(0), None),
            (SIGKILL, Some(1), Some(true)),
            (Exit::Code(137), None, None),
            (Exit::Code(137), Some(1), None),
            (Exit::Unknown, Some(1), None),
            (Exit::Code(1), None, Some(false)),
            (Exit::Signal(11), None, Some(false)),
        ];
        for (exit, kills, expected) in rows {
            assert_eq!(judge(exit, kills), expected, "{exit:?} {kills:?}");
        }
        assert!(!SIGKILL.end(None, 1, None).reason.contains("memory"));
        assert!(SIGKILL.end(Some(1), 1, None).reason.contains("memory limit"));
    }

    #[test]
    fn a_kill_long_before_an_end_is_not_its_cause() {
        let at = Duration::from_secs;
        let mut baseline = Baseline::new(at(0), Some(1));
        assert_eq!(baseline.kills(Some(2)), Some(1));
        // A child was killed at second 1; the Harness lives on.
        for second in 1..=9 {
            baseline.note(at(second), Some(2));
        }
        assert_eq!(baseline.kills(Some(2)), Some(1), "the count of a moment ago may miss the kill that ends it");
        for second in 10..=12 {
            baseline.note(at(second), Some(2));
        }
        assert_eq!((baseline.kills(Some(2)), baseline.kills(Some(3))), (Some(0), Some(1)));
        assert_eq!(kills_since(Some(5), Some(1)), Some(1), "a new group of the same path");
        assert_eq!((kills_since(None, Some(1)), kills_since(Some(1), None)), (None, None));
    }
}
