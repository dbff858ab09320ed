//! The two cgroup meters: the same reading, other file names.

use super::counters::Counters;
use super::{Kind, Meter};
use crate::guard::child_group::ChildGroup;
use crate::guard::processes;
use jr2_shared::cgroup::Version;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::{Path, PathBuf};

/// Above this a v1 limit means none: the kernel writes a page-rounded 2^63 there.
const UNLIMITED: u64 = 1 << 60;

/// What the files are called.
struct Names {
    limit: &'static str,
    /// All memory, page cache too: an upper bound in one number.
    all: &'static str,
    /// Anonymous and shared memory in `memory.stat`, the groups below included.
    keys: &'static [&'static str],
    /// Where the kernel counts its kills.
    kills: &'static str,
}

/// v2. `anon` holds huge pages too. `oom` is not a kill: it counts tries (public fault A14).
const V2: Names =
    Names { limit: "memory.max", all: "memory.current", keys: &["anon", "shmem"], kills: "memory.events" };
/// v1. `total_rss` is anonymous memory alone, huge pages included.
const V1: Names = Names {
    limit: "memory.limit_in_bytes",
    all: "memory.usage_in_bytes",
    keys: &["total_rss", "total_shmem"],
    kills: "memory.oom_control",
};
/// Counted kills: of one process, and of a group at once (public fault A15). Either key may be missing.
const KILL_KEYS: &[&str] = &["oom_kill", "oom_group_kill"];

/// A cgroup that holds the Harness and the Agent's processes, and nobody else's.
pub struct Group {
    version: Version,
    folder: PathBuf,
    all: Counters,
    stat: Counters,
    kills: Option<Counters>,
    child: Option<ChildGroup>,
}

impl Group {
    /// Opens the files of a group.
    pub fn open(version: Version, folder: &Path, child: Option<ChildGroup>) -> io::Result<Self> {
        let names = names(version);
        // v1 counts a kill where the killed process was, v2 in the groups above it too.
        let counts_kills = match (&child, version) {
            (Some(child), Version::V1) => child.folder(),
            _ => folder,
        };
        let mut opened = Self {
            version,
            folder: folder.to_owned(),
            all: Counters::open(&folder.join(names.all))?,
            stat: Counters::open(&folder.join("memory.stat"))?,
            kills: Counters::open(&counts_kills.join(names.kills)).ok(),
            child,
        };
        // What cannot be read now will not be later: then another meter is the right one.
        opened.at_most()?;
        opened.used()?;
        Ok(opened)
    }
}

fn names(version: Version) -> &'static Names {
    match version {
        Version::V2 => &V2,
        Version::V1 => &V1,
    }
}

/// The limit of a group in bytes; `None` when it has none.
pub fn limit(version: Version, folder: &Path) -> Option<u64> {
    let limit = Counters::open(&folder.join(names(version).limit)).ok()?.number().ok()??;
    (1..UNLIMITED).contains(&limit).then_some(limit)
}

impl Meter for Group {
    fn kind(&self) -> Kind {
        match (self.version, &self.child) {
            (Version::V2, Some(_)) => Kind::V2Exact,
            (Version::V2, None) => Kind::V2,
            (Version::V1, Some(_)) => Kind::V1Exact,
            (Version::V1, None) => Kind::V1,
        }
    }

    fn at_most(&mut self) -> io::Result<u64> {
        self.all.number()?.ok_or_else(|| io::Error::other("the group's use is no number"))
    }

    fn used(&mut self) -> io::Result<u64> {
        self.stat.sum(names(self.version).keys)?.ok_or_else(|| io::Error::other("memory.stat has none of the counters"))
    }

    fn kernel_kills(&mut self) -> Option<u64> {
        self.kills.as_mut()?.sum(KILL_KEYS).ok()?
    }

    fn kernel_signal(&self) -> Option<BorrowedFd<'_>> {
        // v1's file tells nobody.
        if self.version == Version::V2 { self.kills.as_ref().map(|file| file.as_fd()) } else { None }
    }

    fn processes(&mut self) -> Vec<i32> {
        processes::of_the_agent(processes::in_group(&self.folder))
    }

    fn kill(&mut self, pids: &[i32]) {
        if let Some(child) = &self.child {
            child.kill();
        }
        processes::kill(pids);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A group of files; the same reader reads the kernel's.
    struct Files(tempfile::TempDir);

    impl Files {
        fn new(files: &[(&str, &str)]) -> Self {
            let files_ = Self(tempfile::tempdir().unwrap());
            for (name, text) in files {
                files_.set(name, text);
            }
            files_
        }

        fn set(&self, name: &str, text: &str) {
            std::fs::write(self.0.path().join(name), text).unwrap();
        }
    }

    const V2_STAT: &str = "anon 1000\nfile 900000\nkernel 7\nshmem 200\nanon_thp 500\ninactive_anon 1200\n";
    const V1_STAT: &str =
        "cache 900200\nrss 900\nrss_huge 500\nshmem 100\ntotal_cache 900200\ntotal_rss 1000\ntotal_shmem 200\n";

    #[test]
    fn mt_4_page_cache_is_no_use_in_either_version() {
        let v2 = Files::new(&[("memory.current", "901200\n"), ("memory.stat", V2_STAT), ("memory.max", "1000000\n")]);
        let mut meter = Group::open(Version::V2, v2.0.path(), None).unwrap();
        assert_eq!((meter.at_most().unwrap(), meter.used().unwrap()), (901_200, 1_200));
        assert_eq!((meter.kind(), limit(Version::V2, v2.0.path())), (Kind::V2, Some(1_000_000)));
        v2.set("memory.stat", "anon 5\nshmem 6\nnew_key_of_a_new_kernel 9\n");
        v2.set("memory.max", "max\n");
        assert_eq!((meter.used().unwrap(), limit(Version::V2, v2.0.path())), (11, None));

        let files = [
            ("memory.usage_in_bytes", "901200\n"),
            ("memory.stat", V1_STAT),
            ("memory.limit_in_bytes", "9223372036854771712\n"),
        ];
        let v1 = Files::new(&files);
        let mut meter = Group::open(Version::V1, v1.0.path(), None).unwrap();
        assert_eq!((meter.at_most().unwrap(), meter.used().unwrap()), (901_200, 1_200));
        assert_eq!((meter.kind(), limit(Version::V1, v1.0.path())), (Kind::V1, None), "2^63 is no limit");
        v1.set("memory.limit_in_bytes", "268435456\n");
        assert_eq!(limit(Version::V1, v1.0.path()), Some(256 << 20));
    }

    #[test]
    fn a14_a15_kills_are_counted_by_both_keys_and_tries_are_not() {
        let files =
            [("memory.current", "1"), ("memory.stat", V2_STAT), ("memory.events", "low 0\noom 7\noom_kill 2\n")];
        let group = Files::new(&files);
        let mut meter = Group::open(Version::V2, group.0.path(), None).unwrap();
        assert_eq!(meter.kernel_kills(), Some(2));
        assert!(meter.kernel_signal().is_some());
        group.set("memory.events", "oom 8\noom_kill 3\noom_group_kill 1\nsomething_new x\n");
        assert_eq!(meter.kernel_kills(), Some(4));
        group.set("memory.events", "oom 8\n");
        assert_eq!(meter.kernel_kills(), None);
        let v1 = [
            ("memory.usage_in_bytes", "1"),
            ("memory.stat", V1_STAT),
            ("memory.oom_control", "under_oom 0\noom_kill 5\n"),
        ];
        let v1 = Files::new(&v1);
        let mut meter = Group::open(Version::V1, v1.0.path(), None).unwrap();
        assert_eq!((meter.kernel_kills(), meter.kernel_signal().is_some()), (Some(5), false));
    }

    #[test]
    fn a_group_that_cannot_be_read_is_no_meter() {
        let empty = Files::new(&[]);
        assert!(Group::open(Version::V2, empty.0.path(), None).is_err());
        let odd = Files::new(&[("memory.current", "lots"), ("memory.stat", V2_STAT)]);
        assert!(Group::open(Version::V2, odd.0.path(), None).is_err());
        let other = Files::new(&[("memory.current", "1"), ("memory.stat", "cache 1\n")]);
        assert!(Group::open(Version::V2, other.0.path(), None).is_err());
    }
}
