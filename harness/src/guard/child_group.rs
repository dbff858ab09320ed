//! The exact guard: a group of the Agent's own below the Harness's, whose limit is under the Sandbox's (spec M-4).
//!
//! At its limit the kernel looks for somebody to kill inside that group alone: never at the Harness, which would otherwise be
//! next while the memory of a killed process is still on its way back.
//!
//! cgroup v2: only where the starter handed the group over to be divided (`JR2_CGROUP=delegated`). A group with children
//! holds no processes itself, so the Harness moves to one leaf and the Agent's commands start in another: `…/harness` and
//! `…/agent`; the kernel kills the agent's leaf as a whole. cgroup v1 knows no such rule: the Harness stays, and the group
//! `…/agent` is made wherever that is allowed.

use super::pace::fire_at;
use super::processes;
use jr2_shared::cgroup::Version;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

/// The Harness's leaf.
const HARNESS: &str = "harness";
/// The leaf of the Agent's processes.
const AGENT: &str = "agent";
/// Limits are whole pages; this is a multiple of every page size in use.
const PAGE_MAX: u64 = 64 << 10;

/// The agent's leaf.
#[derive(Debug)]
pub struct ChildGroup {
    folder: PathBuf,
}

impl ChildGroup {
    /// Makes it in a group with this limit in bytes. When a step is refused everything is as it was.
    pub fn make(version: Version, group: &Path, limit: u64) -> io::Result<Self> {
        if version == Version::V1 {
            return Self::below(group, limit);
        }
        let made = Self::divide(group, limit);
        if made.is_err() {
            undo(group);
        }
        made
    }

    fn divide(group: &Path, limit: u64) -> io::Result<Self> {
        let (harness, agent) = (group.join(HARNESS), group.join(AGENT));
        make_folder(&harness)?;
        move_all(group, &harness)?;
        write(&group.join("cgroup.subtree_control"), "+memory")?;
        make_folder(&agent)?;
        write(&agent.join("memory.max"), &Self::kernel_limit(Version::V2, limit).to_string())?;
        write(&agent.join("memory.oom.group"), "1")?;
        // Swap would only put the kill off; a kernel without it has no such file.
        let _ = write(&agent.join("memory.swap.max"), "0");
        Ok(Self { folder: agent })
    }

    fn below(group: &Path, limit: u64) -> io::Result<Self> {
        // Without it the group above would not count what its children use.
        if std::fs::read_to_string(group.join("memory.use_hierarchy"))?.trim() != "1" {
            return Err(io::Error::other("the group does not count its children"));
        }
        let agent = group.join(AGENT);
        make_folder(&agent)?;
        let own = Self::kernel_limit(Version::V1, limit).to_string();
        let with_swap = || write(&agent.join("memory.memsw.limit_in_bytes"), &own);
        // The sum with swap may not be below the limit: it goes first when both grow, last when they are new.
        let _ = with_swap();
        if let Err(error) = write(&agent.join("memory.limit_in_bytes"), &own) {
            let _ = std::fs::remove_dir(&agent);
            return Err(error);
        }
        let _ = with_swap();
        Ok(Self { folder: agent })
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where the kernel kills in it, in bytes and whole pages: in v2 as a whole and where the guard would fire, in v1 one
    /// process at a time and past that, so that the guard comes first when it can.
    pub fn kernel_limit(version: Version, limit: u64) -> u64 {
        let bytes = match version {
            Version::V2 => fire_at(limit),
            Version::V1 => limit - limit / 20,
        };
        bytes / PAGE_MAX * PAGE_MAX
    }

    /// The way in: a command writes `0` here before it becomes its program.
    pub fn door(&self) -> io::Result<File> {
        OpenOptions::new().write(true).open(self.folder.join("cgroup.procs"))
    }

    /// Kills all at once, with no way to fork out of it; kernels before 5.14 have no such file.
    pub fn kill(&self) {
        let _ = write(&self.folder.join("cgroup.kill"), "1");
    }
}

/// The group a Harness was started in, when that is the leaf an earlier one made.
pub fn divided(group: &Path) -> &Path {
    match group.parent() {
        Some(above) if group.ends_with(HARNESS) && above.join(AGENT).is_dir() => above,
        _ => group,
    }
}

fn make_folder(folder: &Path) -> io::Result<()> {
    match std::fs::create_dir(folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Moves every process of a group itself to another one. One that ends meanwhile is no fault.
fn move_all(from: &Path, to: &Path) -> io::Result<()> {
    let text = std::fs::read_to_string(from.join("cgroup.procs"))?;
    let door = to.join("cgroup.procs");
    for pid in text.lines().map(str::trim) {
        if let Err(error) = write(&door, pid)
            && pid.parse() == Ok(processes::me())
        {
            return Err(error);
        }
    }
    Ok(())
}

fn undo(group: &Path) {
    let harness = group.join(HARNESS);
    let _ = std::fs::remove_dir(group.join(AGENT));
    let _ = write(&group.join("cgroup.subtree_control"), "-memory");
    let _ = move_all(&harness, group);
    let _ = std::fs::remove_dir(harness);
}

/// One write to a file of the kernel's; nothing is made.
fn write(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m_04_a_group_is_divided_and_its_agent_s_leaf_is_killed_as_a_whole_below_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let group = dir.path();
        // The kernel makes the files of a group; here they are there before.
        for (leaf, names) in [
            ("", &["cgroup.procs", "cgroup.subtree_control"][..]),
            (HARNESS, &["cgroup.procs"]),
            (AGENT, &["cgroup.procs", "memory.max", "memory.oom.group", "cgroup.kill"]),
        ] {
            std::fs::create_dir_all(group.join(leaf)).unwrap();
            for name in names {
                std::fs::write(group.join(leaf).join(name), "").unwrap();
            }
        }
        std::fs::write(group.join("cgroup.procs"), format!("{}\n", processes::me())).unwrap();
        let limit = 256 << 20;
        let child = ChildGroup::make(Version::V2, group, limit).unwrap();
        let read = |path: &str| std::fs::read_to_string(group.join(path)).unwrap();
        assert_eq!(read("harness/cgroup.procs"), processes::me().to_string());
        assert_eq!((read("cgroup.subtree_control"), read("agent/memory.oom.group")), ("+memory".into(), "1".into()));
        let own: u64 = read("agent/memory.max").parse().unwrap();
        assert!(own == ChildGroup::kernel_limit(Version::V2, limit) && own <= limit / 10 * 9 && own > limit / 100 * 89);
        child.kill();
        assert_eq!(read("agent/cgroup.kill"), "1");
        child.door().unwrap().write_all(b"0").unwrap();
        assert_eq!(read("agent/cgroup.procs"), "0");
        assert_eq!((divided(&group.join(HARNESS)), divided(&group.join(AGENT))), (group, group.join(AGENT).as_path()));
    }

    #[test]
    fn m_04_in_v1_the_harness_stays_and_the_agent_s_group_lies_below_it() {
        let dir = tempfile::tempdir().unwrap();
        let (group, agent) = (dir.path(), dir.path().join(AGENT));
        std::fs::write(group.join("memory.use_hierarchy"), "0\n").unwrap();
        assert!(ChildGroup::make(Version::V1, group, 1 << 30).is_err() && !agent.exists());
        std::fs::write(group.join("memory.use_hierarchy"), "1\n").unwrap();
        std::fs::create_dir(&agent).unwrap();
        std::fs::write(agent.join("memory.limit_in_bytes"), "").unwrap();
        let child = ChildGroup::make(Version::V1, group, 1 << 30).unwrap();
        let own: u64 = std::fs::read_to_string(agent.join("memory.limit_in_bytes")).unwrap().parse().unwrap();
        assert!(own > fire_at(1 << 30) && own < 1 << 30);
        assert_eq!(child.folder(), agent);
    }

    #[test]
    fn a_refusal_leaves_no_leaf_behind() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("cgroup.procs"), "").unwrap();
        assert!(ChildGroup::make(Version::V2, dir.path(), 1 << 30).is_err(), "no subtree_control");
        assert!(!dir.path().join(HARNESS).exists() && !dir.path().join(AGENT).exists());
    }
}
