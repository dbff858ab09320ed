//! The process-tree meter: what the Harness's descendants hold, for where no cgroup is ours (decision 14).
//!
//! The bound is the sum of resident pages, a few microseconds a process. The exact figure is each process's proportional
//! share of anonymous and shared pages (`smaps_rollup`), so that a page that twenty workers share counts once; the kernel
//! walks page tables for it, which is why it is read near the limit only.

use super::{Kind, Meter};
use crate::guard::processes;
use crate::guard::shm;
use std::io;
use std::time::{Duration, Instant};

/// How often processes that left the tree are looked for: it reads every process's environment.
const STRAYS_EVERY: Duration = Duration::from_secs(5);

/// The meter.
pub struct Tree {
    /// `NAME=value` lines that only the Agent's processes start with.
    marks: Vec<String>,
    /// `/dev/shm` is the Sandbox's own, so what lies in it is the Agent's.
    shm_private: bool,
    page: u64,
    strays: Vec<i32>,
    strays_seen: Option<Instant>,
}

impl Tree {
    /// A meter of this process's descendants, and of processes that carry one of the marks.
    pub fn new(marks: Vec<String>, shm_private: bool) -> Self {
        Self { marks, shm_private, page: page_size(), strays: Vec::new(), strays_seen: None }
    }

    fn members(&mut self, all: bool) -> Vec<i32> {
        let mut pids = processes::descendants();
        if all || self.strays_seen.is_none_or(|seen| seen.elapsed() >= STRAYS_EVERY) {
            self.strays = processes::with_environment(&self.marks);
            self.strays_seen = Some(Instant::now());
        }
        for stray in &self.strays {
            if !pids.contains(stray) {
                pids.push(*stray);
            }
        }
        processes::of_the_agent(pids)
    }

    /// Bytes in a private `/dev/shm`, mapped or not.
    fn shm(&self) -> u64 {
        let used = |stat: rustix::fs::StatVfs| (stat.f_blocks - stat.f_bfree.min(stat.f_blocks)) * stat.f_frsize;
        if self.shm_private { rustix::fs::statvfs(shm::FOLDER).map_or(0, used) } else { 0 }
    }
}

impl Meter for Tree {
    fn kind(&self) -> Kind {
        Kind::Tree
    }

    fn at_most(&mut self) -> io::Result<u64> {
        let resident = |pid: &i32| {
            let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
            text.split(' ').nth(1)?.parse::<u64>().ok()
        };
        let pages: u64 = self.members(false).iter().filter_map(resident).sum();
        Ok(pages.saturating_mul(self.page).saturating_add(self.shm()))
    }

    fn used(&mut self) -> io::Result<u64> {
        let mut sum = Share::default();
        for pid in self.members(false) {
            // One that ended meanwhile holds nothing.
            let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
            sum.add(&parse(&text));
        }
        // A file in /dev/shm that is mapped too counts once.
        Ok(sum.anonymous.saturating_add(sum.shared.max(self.shm())))
    }

    fn processes(&mut self) -> Vec<i32> {
        let mut pids = self.members(true);
        pids.retain(|pid| lives(*pid));
        pids
    }
}

/// Bytes of a page.
fn page_size() -> u64 {
    // SAFETY: answers a number and touches no memory of ours.
    #[allow(unsafe_code)]
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(size).unwrap_or(4096)
}

/// A zombie holds nothing and cannot be killed.
fn lives(pid: i32) -> bool {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The command's name may hold anything, a `)` too.
    let Some(end) = stat.iter().rposition(|byte| *byte == b')') else { return false };
    !matches!(stat.get(end + 2), None | Some(b'Z' | b'X'))
}

/// A process's share in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Share {
    anonymous: u64,
    shared: u64,
}

impl Share {
    fn add(&mut self, other: &Self) {
        self.anonymous = self.anonymous.saturating_add(other.anonymous);
        self.shared = self.shared.saturating_add(other.shared);
    }
}

/// Reads a `smaps_rollup`; a kernel before 5.2 has no parts, there the whole share counts.
fn parse(text: &str) -> Share {
    let field = |name: &str| {
        let rest = text.lines().find_map(|line| line.strip_prefix(name))?;
        Some(rest.split_ascii_whitespace().next()?.parse::<u64>().ok()?.saturating_mul(1024))
    };
    match field("Pss_Anon:") {
        Some(anonymous) => Share { anonymous, shared: field("Pss_Shmem:").unwrap_or(0) },
        None => Share { anonymous: field("Pss:").unwrap_or(0), shared: 0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_rollup_is_read_with_and_without_its_parts() {
        let new = "55-7f ---p 0 00:00 0 [rollup]\nRss: 900 kB\nPss: 700 kB\nPss_Anon: 500 kB\nPss_File: 190 kB\nPss_Shmem: 10 kB\n";
        assert_eq!(parse(new), Share { anonymous: 500 << 10, shared: 10 << 10 });
        assert_eq!(parse("Rss: 900 kB\nPss: 700 kB\n"), Share { anonymous: 700 << 10, shared: 0 });
        assert_eq!(parse(""), Share::default());
    }

    #[test]
    fn a_child_s_memory_counts_and_the_bound_is_above_it() {
        // The shell holds a string of 32 MiB.
        let script = "x=$(head -c 33554432 /dev/zero | tr '\\0' x); echo; read y";
        let mut child =
            Command::new("bash").args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        io::BufRead::read_line(&mut io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
        let mut tree = Tree::new(Vec::new(), false);
        let (bound, used) = (tree.at_most().unwrap(), tree.used().unwrap());
        assert!(used >= 32 << 20 && bound >= used, "{used} of at most {bound}");
        let pid = child.id().cast_signed();
        assert!(tree.processes().contains(&pid));
        tree.kill(&[pid]);
        while lives(pid) {
            std::thread::yield_now();
        }
        assert!(!tree.processes().contains(&pid), "a zombie is nothing to kill");
        child.wait().unwrap();
    }
}
