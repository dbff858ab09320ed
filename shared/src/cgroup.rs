//! Where memory cgroups lie: the two files of `/proc` that say so, read the same way by the Orchestrator, which makes a
//! Sandbox's group, and by the Harness, which guards its own.

use std::path::PathBuf;

/// The version of a cgroup hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// One hierarchy for all controllers.
    V2,
    /// A hierarchy of the memory controller's own.
    V1,
}

impl Version {
    /// The group of a process in the hierarchy of this version that may count memory, by its `/proc/PID/cgroup`.
    pub fn group_in(self, groups: &str) -> Option<&str> {
        let wanted = match self {
            Version::V2 => "",
            Version::V1 => "memory",
        };
        groups.lines().find_map(|line| {
            let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
            controllers.split(',').any(|name| name == wanted).then_some(group)
        })
    }
}

/// A mounted hierarchy that may count memory: one line of `mountinfo` (proc_pid_mountinfo(5)), as far as it is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// Which hierarchy.
    pub version: Version,
    /// Which group of the hierarchy is mounted.
    pub root: PathBuf,
    /// Where it is mounted.
    pub point: PathBuf,
}

impl Mount {
    /// A line of mountinfo, `… root point options … - kind source options`; `None` for every other kind of mount.
    pub fn parse(line: &str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split(' ');
        let (kind, options) = (after.next()?, after.nth(1)?);
        let version = match kind {
            "cgroup2" => Version::V2,
            "cgroup" if options.split(',').any(|option| option == "memory") => Version::V1,
            _ => return None,
        };
        let mut fields = before.split(' ').skip(3);
        Some(Self { version, root: unescape(fields.next()?), point: unescape(fields.next()?) })
    }
}

/// The kernel writes space, tab, newline and backslash as `\ooo`.
fn unescape(text: &str) -> PathBuf {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        let code = after.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        out.push(code.map_or('\\', char::from));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    out.push_str(rest);
    out.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_of_memory_is_read_and_no_other() {
        let v2 = Mount::parse("32 31 0:32 / /c\\040g rw,relatime - cgroup2 cgroup2 rw");
        assert_eq!(v2, Some(Mount { version: Version::V2, root: "/".into(), point: "/c g".into() }));
        let v1 = Mount::parse("33 31 0:33 /pod7 /v1/memory rw shared:4 - cgroup cgroup rw,memory");
        assert_eq!(v1, Some(Mount { version: Version::V1, root: "/pod7".into(), point: "/v1/memory".into() }));
        for other in
            ["34 31 0:34 / /v1/cpu rw - cgroup cgroup rw,cpu", "31 23 0:28 / /sys rw - tmpfs tmpfs rw", "x", " - "]
        {
            assert_eq!(Mount::parse(other), None, "{other}");
        }
        assert_eq!(unescape("a\\134b\\"), PathBuf::from("a\\b\\"));
        assert_eq!(unescape("\\ü9\\777"), PathBuf::from("\\ü9\\777"), "what is no code stays as it is");
    }

    #[test]
    fn a_process_has_a_group_in_each_version() {
        let groups = "12:cpu:/x\n4:memory,hugetlb:/pod7/me:too\n0::/user.slice\n";
        assert_eq!(Version::V1.group_in(groups), Some("/pod7/me:too"));
        assert_eq!(Version::V2.group_in(groups), Some("/user.slice"));
        assert_eq!(Version::V1.group_in("0::/\nnonsense"), None);
    }
}
