//! Memory cgroups: one per Sandbox that holds its Harness and all it started, so that the Size's memory is a limit the kernel
//! keeps, and a kernel kill is counted (decision 14). cgroup v2 where a part of the tree is ours, cgroup v1 where it is writable.

use super::death::OomCounter;
use jr2_shared::cgroup::{Mount, Version};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{ErrorKind, Result};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// Largest file of a cgroup read in bytes: counters have a few lines, and a list of 64 Ki pids fits.
const FILE_MAX_BYTES: u64 = 512 << 10;
/// Longest `cgroup` or `mountinfo` file read in bytes.
const PROC_FILE_MAX_BYTES: u64 = 1 << 20;
/// How long the kernel may take to let go of a group whose processes have ended.
const REMOVE_LIMIT: Duration = Duration::from_secs(2);
/// Pause between two tries to remove one.
const REMOVE_POLL: Duration = Duration::from_millis(4);
/// An empty group of another state folder is removed once it is this old: its owner was killed and never came back.
const ABANDONED_AFTER: Duration = Duration::from_mins(10);
/// What every group made here is called first.
const PREFIX: &str = "jr2-";
/// The controller list of a v2 group; a v1 group has no such file.
const V2_MARK: &str = "cgroup.controllers";
/// The processes of a group, in either version.
const PROCS: &str = "cgroup.procs";
/// Kernel kills of a v2 group: first of its own processes alone, else of its whole tree.
const EVENTS_FILES: [&str; 2] = ["memory.events.local", "memory.events"];
/// Kernel kills of a v1 group.
const OOM_CONTROL_FILE: &str = "memory.oom_control";

/// Who enters a group. A Harness may divide a v2 group: then a process enters one of its leaves, for a group with children
/// holds none itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The Harness.
    Harness,
    /// A command of a `do` step.
    Command,
}

impl Who {
    /// The leaf's name, as the Harness makes it (`docs/memory-guard.md`).
    fn leaf(self) -> &'static str {
        match self {
            Self::Harness => "harness",
            Self::Command => "agent",
        }
    }
}

/// A memory cgroup that holds a Sandbox's Harness and everything it started, and nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroup {
    /// Its folder, in either version's hierarchy.
    pub path: PathBuf,
}

/// The way into a group: a child writes itself there before it starts its program.
pub struct Door(File);

impl Door {
    /// Makes `command`'s process enter first: nothing of it runs outside.
    pub fn enter_first(self, command: &mut std::process::Command) {
        let enter = move || rustix::io::write(&self.0, b"0").map(drop).map_err(Into::into);
        #[allow(unsafe_code)]
        // SAFETY: one write(2) on a descriptor that was open before the fork; no memory of the parent is touched.
        unsafe {
            command.pre_exec(enter);
        }
    }
}

impl Cgroup {
    /// Makes the group if it is not there, sets its limit in bytes, and opens its door.
    pub fn prepare(&self, limit: u64, who: Who) -> Result<Door> {
        match std::fs::create_dir(&self.path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let set = |name: &str, value: String| std::fs::write(self.path.join(name), value);
        if self.is_v2() {
            set("memory.max", limit.to_string())?;
            // Swap would only put the kill off; a kernel without it has no such file.
            let _ = set("memory.swap.max", "0".to_owned());
        } else {
            // The sum with swap may not be below the limit: it goes first when both grow, last when they are new.
            let with_swap = || set("memory.memsw.limit_in_bytes", limit.to_string());
            let _ = with_swap();
            set("memory.limit_in_bytes", limit.to_string())?;
            if with_swap().is_err() {
                let _ = set("memory.swappiness", "0".to_owned());
            }
        }
        let leaf = self.path.join(who.leaf());
        let room = if leaf.is_dir() { &leaf } else { &self.path };
        File::options().write(true).open(room.join(PROCS)).map(Door)
    }

    /// What a Harness in it may do with it (`JR2_CGROUP`).
    pub fn hand_over(&self) -> &'static str {
        if self.is_v2() { "delegated" } else { "private" }
    }

    /// Known before it is made, too: all groups beside it are of the same version.
    fn is_v2(&self) -> bool {
        self.path.join(V2_MARK).exists() || self.path.parent().is_some_and(|above| above.join(V2_MARK).exists())
    }

    /// The processes in it and in groups below it.
    pub fn pids(&self) -> Vec<i32> {
        let mut found = Vec::new();
        for folder in self.folders() {
            let text = read(&folder.join(PROCS), FILE_MAX_BYTES).unwrap_or_default();
            found.extend(text.lines().filter_map(|line| line.trim().parse::<i32>().ok()));
        }
        found
    }

    /// Removes it once its processes have ended; one that is held on to is left for the sweep.
    pub async fn remove(&self) {
        let deadline = Instant::now() + REMOVE_LIMIT;
        loop {
            match self.remove_now() {
                Ok(()) => return,
                Err(error) if Instant::now() > deadline => {
                    tracing::warn!(cgroup = %self.path.display(), %error, "sandbox.cgroup_kept");
                    return;
                }
                Err(_) => tokio::time::sleep(REMOVE_POLL).await,
            }
        }
    }

    fn remove_now(&self) -> Result<()> {
        for folder in self.folders().iter().rev() {
            match std::fs::remove_dir(folder) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Its folder and those below it, parents first. A group's files are never followed.
    fn folders(&self) -> Vec<PathBuf> {
        let mut all = vec![self.path.clone()];
        let mut next = 0;
        while let Some(folder) = all.get(next) {
            let below = std::fs::read_dir(folder).into_iter().flatten().flatten();
            let below: Vec<PathBuf> =
                below.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()).collect();
            all.extend(below);
            next += 1;
        }
        all
    }
}

impl OomCounter for Option<Cgroup> {
    fn kills(&self) -> Option<u64> {
        let group = &self.as_ref()?.path;
        // Of a divided group only the Harness's own leaf counts: kills among the Agent's processes are not its end.
        let leaf = group.join(Who::Harness.leaf());
        let path = if leaf.is_dir() { &leaf } else { group };
        let count = |name: &str, parse: fn(&str) -> Option<u64>| parse(&read(&path.join(name), FILE_MAX_BYTES)?);
        EVENTS_FILES
            .iter()
            .find_map(|name| count(name, kills_in_events))
            .or_else(|| count(OOM_CONTROL_FILE, kills_in_oom_control))
    }
}

/// `memory.events` of cgroup v2: `oom_kill` and `oom_group_kill` (public fault A15), never `oom`, which counts attempts and
/// may be counted elsewhere (A14). Unknown keys pass.
pub(super) fn kills_in_events(text: &str) -> Option<u64> {
    let counted = [value_of(text, "oom_kill"), value_of(text, "oom_group_kill")];
    counted.iter().any(Option::is_some).then(|| counted.iter().flatten().fold(0, |sum: u64, n| sum.saturating_add(*n)))
}

/// `memory.oom_control` of cgroup v1; kernels before 4.13 have no counter there.
pub(super) fn kills_in_oom_control(text: &str) -> Option<u64> {
    value_of(text, "oom_kill")
}

fn value_of(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        (name == key).then(|| value.trim().parse().ok())?
    })
}

fn read(path: &Path, max: u64) -> Option<String> {
    use std::io::Read;
    let mut text = String::new();
    File::open(path).ok()?.take(max).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Where this process may make groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ground {
    folder: PathBuf,
    /// What the groups of one state folder are called first.
    prefix: String,
}

impl Ground {
    /// Looks for a place where a group can be made, limited and entered; `owner` tells state folders apart.
    ///
    /// # Errors
    /// Why there is none, for the log.
    pub fn find(owner: &str) -> std::result::Result<Self, String> {
        let own = read(Path::new("/proc/self/cgroup"), PROC_FILE_MAX_BYTES).unwrap_or_default();
        let mounts = read(Path::new("/proc/self/mountinfo"), PROC_FILE_MAX_BYTES).unwrap_or_default();
        let mut why = "no cgroup hierarchy with a memory controller is mounted".to_owned();
        for folder in candidates(&own, &mounts) {
            let ground = Self { folder, prefix: format!("{PREFIX}{owner}-") };
            match ground.probe() {
                Ok(()) => return Ok(ground),
                Err(error) => why = format!("{}: {error}", ground.folder.display()),
            }
        }
        Err(why)
    }

    /// A process enters a group and ends before it starts anything: all rights are there or it fails.
    fn probe(&self) -> Result<()> {
        let group = Cgroup { path: self.folder.join(format!("{}probe-{}", self.prefix, std::process::id())) };
        let entered = group.prepare(1 << 30, Who::Harness).and_then(|door| {
            let mut command = std::process::Command::new("/");
            door.enter_first(&mut command);
            #[allow(unsafe_code)]
            // SAFETY: answers a constant.
            unsafe {
                command.pre_exec(|| Err(rustix::io::Errno::CANCELED.into()));
            }
            match command.spawn() {
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::CANCELED.raw_os_error()) => Ok(()),
                Err(error) => Err(error),
                Ok(_) => Err(ErrorKind::Other.into()),
            }
        });
        let removed = group.remove_now();
        entered.and(removed)
    }

    /// The group of a Sandbox; nothing is made yet. A Sandbox's name is a label and no path.
    pub fn group(&self, sandbox: &str) -> Cgroup {
        Cgroup { path: self.folder.join(format!("{}{sandbox}", self.prefix)) }
    }

    /// Removes empty groups that nobody needs: of this state folder when their Sandbox is not `live`, of others once old.
    pub fn sweep(&self, live: &[String]) {
        for entry in std::fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let unneeded = match name.strip_prefix(&self.prefix) {
                Some(sandbox) => !live.iter().any(|name| name == sandbox),
                None => name.starts_with(PREFIX) && is_older(&entry, ABANDONED_AFTER),
            };
            let group = Cgroup { path: entry.path() };
            if unneeded && group.pids().is_empty() {
                // One that filled up meanwhile cannot be removed.
                let _ = group.remove_now();
            }
        }
    }
}

fn is_older(entry: &std::fs::DirEntry, age: Duration) -> bool {
    let changed = entry.metadata().and_then(|m| m.modified());
    changed.is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|old| old > age))
}

/// Folders where groups with a memory limit may be possible, best first: in v2 the nearest one at or above our own that hands
/// the controller down, in v1 our own.
fn candidates(own: &str, mounts: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for mount in mounts.lines().filter_map(Mount::parse) {
        let Some(folder) = mount.version.group_in(own).and_then(|group| folder(&mount, group)) else { continue };
        match mount.version {
            Version::V2 => {
                let hands_down = |folder: &&Path| {
                    let text = read(&folder.join("cgroup.subtree_control"), FILE_MAX_BYTES).unwrap_or_default();
                    text.split_whitespace().any(|name| name == "memory")
                };
                let within = folder.ancestors().take_while(|f| f.starts_with(&mount.point));
                found.extend(within.filter(hands_down).map(|f| (Version::V2, f.to_owned())));
            }
            Version::V1 => found.push((Version::V1, folder)),
        }
    }
    found.sort_by_key(|(version, _)| *version);
    found.into_iter().map(|(_, folder)| folder).collect()
}

/// Where a group of a mounted hierarchy lies; none when it is outside of what is mounted.
fn folder(mount: &Mount, group: &str) -> Option<PathBuf> {
    let below = Path::new(group).strip_prefix(&mount.root).ok()?;
    // Trailing slashes would make another path of the same folder.
    Some(mount.point.join(below).components().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroups_files_are_read_in_either_version() {
        let dir = tempfile::tempdir().unwrap();
        let group = Cgroup { path: dir.path().into() };
        let cgroup = Some(group.clone());
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        assert_eq!(cgroup.kills(), None);
        write(OOM_CONTROL_FILE, "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
        assert_eq!(cgroup.kills(), Some(2));
        write("memory.events", "oom_kill 3\noom_group_kill 1\nmore 1\n");
        assert_eq!(cgroup.kills(), Some(4));
        write("memory.events.local", "oom_kill 1\n");
        assert_eq!(cgroup.kills(), Some(1), "kills in groups below it are not its own");
        assert_eq!(None::<Cgroup>.kills(), None);
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        write(PROCS, "7\n8\n");
        write("a/b/cgroup.procs", "9\nnonsense\n");
        assert_eq!(group.pids(), [7, 8, 9]);
    }

    #[test]
    fn a_v2_group_gets_its_limit_without_swap() {
        let dir = tempfile::tempdir().unwrap();
        for name in [V2_MARK, PROCS] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let group = Cgroup { path: dir.path().into() };
        drop(group.prepare(1 << 20, Who::Harness).unwrap());
        assert_eq!(group.hand_over(), "delegated");
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!((read("memory.max").as_str(), read("memory.swap.max").as_str()), ("1048576", "0"));
    }

    #[test]
    fn a_divided_group_is_entered_by_its_leaves_and_counts_the_harness_s_alone() {
        let dir = tempfile::tempdir().unwrap();
        let group = Cgroup { path: dir.path().into() };
        for leaf in ["", "harness", "agent"] {
            std::fs::create_dir_all(dir.path().join(leaf)).unwrap();
            std::fs::write(dir.path().join(leaf).join(PROCS), "").unwrap();
        }
        std::fs::write(dir.path().join(V2_MARK), "").unwrap();
        for (who, leaf) in [(Who::Harness, "harness"), (Who::Command, "agent")] {
            let Door(mut door) = group.prepare(1 << 20, who).unwrap();
            std::io::Write::write_all(&mut door, b"0").unwrap();
            assert_eq!(std::fs::read_to_string(dir.path().join(leaf).join(PROCS)).unwrap(), "0");
        }
        let counts = [("agent", 3), ("harness", 1)];
        for (leaf, count) in counts {
            std::fs::write(dir.path().join(leaf).join(EVENTS_FILES[0]), format!("oom_kill {count}\n")).unwrap();
        }
        assert_eq!(Some(group).kills(), Some(1));
    }

    #[test]
    fn the_ground_is_where_the_controller_is_handed_down() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("c g");
        let own = root.join("user.slice/app.slice/shell.scope");
        std::fs::create_dir_all(&own).unwrap();
        let mounts = format!(
            "31 23 0:28 / /sys rw - tmpfs tmpfs rw\n\
             32 31 0:32 / {} rw,relatime - cgroup2 cgroup2 rw\n\
             33 31 0:33 /pod7 /v1/memory rw,relatime - cgroup cgroup rw,memory\n\
             34 31 0:34 / /v1/cpu rw,relatime - cgroup cgroup rw,cpu\nnonsense\n",
            root.display().to_string().replace(' ', "\\040")
        );
        let groups = "12:cpu:/x\n4:memory:/pod7/me\n0::/user.slice/app.slice/shell.scope\n";
        assert_eq!(candidates(groups, &mounts), [PathBuf::from("/v1/memory/me")]);
        let above = root.join("user.slice/app.slice");
        std::fs::write(above.join("cgroup.subtree_control"), "cpu memory pids\n").unwrap();
        std::fs::write(own.join("cgroup.subtree_control"), "pids\n").unwrap();
        assert_eq!(candidates(groups, &mounts), [above, PathBuf::from("/v1/memory/me")]);
        assert_eq!(candidates("4:memory:/elsewhere\n", &mounts), Vec::<PathBuf>::new(), "outside of what is mounted");
        assert_eq!(candidates("", ""), Vec::<PathBuf>::new());
    }

    #[test]
    fn escaped_paths_are_read() {}

    #[test]
    fn a_sweep_takes_what_is_empty_and_unneeded() {
        let dir = tempfile::tempdir().unwrap();
        let ground = Ground { folder: dir.path().into(), prefix: "jr2-me-".into() };
        for name in ["jr2-me-live", "jr2-me-gone/agent", "jr2-other-young", "system.slice"] {
            std::fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        ground.sweep(&["live".to_owned()]);
        let mut left: Vec<String> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        left.sort();
        assert_eq!(left, ["jr2-me-live", "jr2-other-young", "system.slice"]);
        assert_eq!(ground.group("live").path, dir.path().join("jr2-me-live"));
    }
}
