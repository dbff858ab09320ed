//! Where this process's own memory cgroup lies, in either version, in a container's namespace too.

use super::processes::me;
use jr2_shared::cgroup::{Mount, Version};
use std::path::{Component, Path, PathBuf};

/// Longest `cgroup` or `mountinfo` text that is read in bytes.
const TEXT_MAX_BYTES: u64 = 1 << 20;

/// This process's memory cgroup, v2 first; `None` where no hierarchy counts memory, or where it cannot be seen.
pub fn own_group() -> Option<(Version, PathBuf)> {
    let groups = read("/proc/self/cgroup")?;
    let mounts = read("/proc/self/mountinfo")?;
    candidates(&groups, &mounts)
        .into_iter()
        .find(|(version, folder)| counts_memory(*version, folder) && holds_me(folder))
}

fn read(path: &str) -> Option<String> {
    use std::io::Read as _;
    let mut text = String::new();
    std::fs::File::open(path).ok()?.take(TEXT_MAX_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

/// A v2 group counts memory only where the controller was handed down to it.
fn counts_memory(version: Version, folder: &Path) -> bool {
    let limit = match version {
        Version::V2 => "memory.max",
        Version::V1 => "memory.limit_in_bytes",
    };
    folder.join("memory.stat").is_file() && folder.join(limit).is_file()
}

/// Paths of another namespace look like our own: only a group that lists this process is its group.
fn holds_me(folder: &Path) -> bool {
    let text = std::fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
    text.lines().any(|line| line.trim().parse() == Ok(me()))
}

/// Where the group may lie, by `/proc/self/cgroup` and `/proc/self/mountinfo`.
fn candidates(groups: &str, mounts: &str) -> Vec<(Version, PathBuf)> {
    let mut found = Vec::new();
    for version in [Version::V2, Version::V1] {
        let Some(group) = version.group_in(groups) else { continue };
        for mount in mounts.lines().filter_map(Mount::parse).filter(|mount| mount.version == version) {
            for below in below(&mount.root, group) {
                let folder = (version, mount.point.join(below));
                if !found.contains(&folder) {
                    found.push(folder);
                }
            }
        }
    }
    found
}

/// The group below its mount point: less the mounted root, as it stands (a namespace's paths), or the mount itself.
fn below(root: &Path, group: &str) -> Vec<PathBuf> {
    let plain = |path: &Path| path.components().filter(|c| matches!(c, Component::Normal(_))).collect();
    let mut found: Vec<PathBuf> = Vec::new();
    if let Ok(rest) = Path::new(group).strip_prefix(root) {
        found.push(plain(rest));
    }
    found.push(plain(Path::new(group)));
    found.push(PathBuf::new());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
        35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
        36 31 0:33 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
        41 31 0:38 / /sys/fs/cgroup/uni\\040fied rw,relatime - cgroup2 cgroup2 rw\nnonsense\n";

    fn paths(groups: &str, mounts: &str) -> Vec<String> {
        candidates(groups, mounts).into_iter().map(|(v, path)| format!("{v:?} {}", path.display())).collect()
    }

    #[test]
    fn both_versions_are_looked_at_v2_first() {
        let found = paths("9:cpu:/x\n4:cpu,memory:/jobs/7\n0::/scope\n", MOUNTS);
        assert_eq!(
            found,
            [
                "V2 /sys/fs/cgroup/uni fied/scope",
                "V2 /sys/fs/cgroup/uni fied/",
                "V1 /sys/fs/cgroup/memory/jobs/7",
                "V1 /sys/fs/cgroup/memory/"
            ]
        );
        assert!(paths("", MOUNTS).is_empty() && paths("0::/\n", "").is_empty());
    }

    #[test]
    fn a_container_s_mount_shows_a_part_of_the_tree() {
        let mounts = "35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        let found = paths("4:memory:/docker/abc/inner\n", mounts);
        assert_eq!(found[0], "V1 /sys/fs/cgroup/memory/inner");
        // In a namespace of its own the group is `/`, whatever the mount's root says.
        let mounts = "35 31 0:32 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        assert_eq!(paths("0::/\n", mounts), ["V2 /sys/fs/cgroup/"]);
        assert_eq!(paths("0::/../x\n", mounts)[0], "V2 /sys/fs/cgroup/x");
    }

    #[test]
    fn this_very_process_s_group_lists_it_where_there_is_one() {
        if let Some((_, folder)) = own_group() {
            assert!(holds_me(&folder) && folder.join("memory.stat").is_file());
        }
    }
}
