//! What stands between an Agent's commands and the machine: `GET /isolation` of a Harness, shown by `jr2 status`.

use serde::{Deserialize, Serialize};

/// What a Harness's kernel keeps from commands. A field that an older Harness does not say counts as not kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Isolation {
    /// Landlock's version; 0 = none.
    pub landlock: u32,
    /// System calls no Agent needs are refused.
    pub system_calls: bool,
    /// No command gains rights by running a program.
    pub no_new_privileges: bool,
    /// The Harness's user is root, whom many walls do not hold.
    pub root: bool,
    /// Most processes and threads of the user, counted over all of them; `None` = nothing bounds them here.
    pub processes: Option<u64>,
    /// Most open files of one process.
    pub open_files: Option<u64>,
    /// The meter of the memory guard, or [`NO_GUARD`] (`docs/memory-guard.md`); `None` = the Harness does not say.
    pub memory_guard: Option<String>,
}

/// What `memoryGuard` says where nothing keeps a memory limit.
pub const NO_GUARD: &str = "off";

impl Isolation {
    /// Files outside the Sandbox are kept from commands.
    pub fn files(&self) -> bool {
        self.landlock >= 1
    }

    /// TCP ports are.
    pub fn tcp(&self) -> bool {
        self.landlock >= 4
    }

    /// Signals to processes outside, and looking into them, are.
    pub fn signals(&self) -> bool {
        self.landlock >= 6
    }

    /// Unix sockets by path are.
    pub fn sockets(&self) -> bool {
        self.landlock >= 9
    }

    /// What holds, in words.
    pub fn active(&self) -> Vec<String> {
        let mut words = Vec::new();
        let mut say = |holds: bool, text: &str| {
            if holds {
                words.push(text.to_owned());
            }
        };
        say(self.files(), "files");
        say(self.tcp(), "TCP ports");
        say(self.signals(), "processes");
        say(self.sockets(), "Unix sockets");
        say(self.system_calls, "system calls");
        say(self.no_new_privileges, "no new privileges");
        words.extend(self.processes.map(|n| format!("at most {n} processes")));
        words.extend(self.open_files.map(|n| format!("{n} open files")));
        let guard = self.memory_guard.as_deref().filter(|meter| *meter != NO_GUARD);
        words.extend(guard.map(|meter| format!("memory ({meter})")));
        words
    }

    /// What this kernel or user leaves open, in words. What is open everywhere is in `docs/isolation.md`.
    pub fn open(&self) -> Vec<&'static str> {
        let mut words = Vec::new();
        let mut say = |open: bool, text| {
            if open {
                words.push(text);
            }
        };
        say(self.root, "the user is root");
        say(!self.files(), "every file of the user (no Landlock)");
        say(!self.tcp(), "TCP ports (Landlock before ABI 4)");
        say(!self.signals(), "signals to other processes (Landlock before ABI 6)");
        say(!self.sockets(), "Unix sockets by path (Landlock before ABI 9)");
        say(!self.system_calls, "all system calls (no seccomp)");
        say(!self.no_new_privileges, "set-uid programs");
        say(self.processes.is_none(), "the number of processes");
        say(self.memory_guard.as_deref() == Some(NO_GUARD), "memory (no limit)");
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_and_what_is_open_never_overlap() {
        for landlock in 0..=9 {
            let some = Isolation { landlock, system_calls: true, no_new_privileges: true, ..Isolation::default() };
            assert_eq!(some.active().len() + some.open().len(), 7, "{some:?}: each wall once");
        }
        let all = Isolation {
            landlock: 9,
            system_calls: true,
            no_new_privileges: true,
            processes: Some(9),
            memory_guard: Some("cgroup-v2".to_owned()),
            ..Isolation::default()
        };
        assert_eq!(all.active().last().map(String::as_str), Some("memory (cgroup-v2)"));
        let unbounded = Isolation { memory_guard: Some(NO_GUARD.to_owned()), ..all.clone() };
        assert_eq!(unbounded.open(), ["memory (no limit)"]);
        assert!(all.open().is_empty());
        assert_eq!(Isolation { root: true, ..all }.open(), ["the user is root"]);
    }

    #[test]
    fn an_older_harness_s_answer_reads_as_open() {
        let read: Isolation = serde_json::from_str(r#"{"landlock": 3, "later": 1}"#).unwrap();
        assert_eq!(read.active(), ["files"]);
    }
}
