//! Bounds the kernel holds a command and all it starts to.

use jr2_shared::isolation::Isolation;
use rustix::process::{Resource, Rlimit, geteuid, getrlimit, setrlimit};
use std::os::unix::fs::MetadataExt as _;
use std::sync::OnceLock;

/// Processes and threads a command's user may have beyond those that ran when the fence was made: a build of many jobs
/// fits, a fork bomb stops here. The kernel counts the user's, not the command's.
const PROCESSES_MORE: u64 = 4_096;
/// Most open files of one process: some programs close every number up to the limit, one by one.
const FILES_MAX: u64 = 1 << 16;

/// One bound, as `setrlimit` takes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    pub resource: libc::__rlimit_resource_t,
    pub value: libc::rlimit,
}

/// The bounds of a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub bounds: [Bound; 3],
}

impl Limits {
    /// Reads what runs now.
    pub fn now() -> Self {
        let files = files_at_start();
        let hard = at_most(files.maximum, FILES_MAX);
        let soft = at_most(files.current, FILES_MAX);
        let processes = getrlimit(Resource::Nproc);
        let most = processes_of_the_user() + PROCESSES_MORE;
        Self {
            bounds: [
                bound(libc::RLIMIT_CORE, 0, 0),
                bound(libc::RLIMIT_NOFILE, soft, hard),
                bound(libc::RLIMIT_NPROC, at_most(processes.current, most), at_most(processes.maximum, most)),
            ],
        }
    }
}

/// Fills in what these bounds are. The kernel holds root to no number of processes.
pub(super) fn describe(isolation: &mut Isolation) {
    let limits = Limits::now();
    isolation.root = geteuid().is_root();
    isolation.open_files = Some(limits.bounds[1].value.rlim_cur);
    isolation.processes = (!isolation.root).then_some(limits.bounds[2].value.rlim_cur);
}

/// Lets the Harness itself open as many files as it may: each conversation holds one, and each model call another.
/// Commands get the number from before.
pub fn raise_open_files() {
    let before = files_at_start();
    let raised = Rlimit { current: before.maximum, maximum: before.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!("harness: the number of open files stays at {:?}: {error}", before.current);
    }
}

fn files_at_start() -> Rlimit {
    static START: OnceLock<Rlimit> = OnceLock::new();
    *START.get_or_init(|| getrlimit(Resource::Nofile))
}

fn at_most(limit: Option<u64>, most: u64) -> u64 {
    limit.map_or(most, |limit| limit.min(most))
}

fn bound(resource: libc::__rlimit_resource_t, soft: u64, hard: u64) -> Bound {
    Bound { resource, value: libc::rlimit { rlim_cur: soft.min(hard), rlim_max: hard } }
}

/// Threads of this user, as the kernel's own count; 0 for what cannot be read.
fn processes_of_the_user() -> u64 {
    let user = geteuid().as_raw();
    let Ok(all) = std::fs::read_dir("/proc") else { return 0 };
    let own = all.flatten().filter(|entry| {
        let is_process = entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit());
        is_process && entry.metadata().is_ok_and(|meta| meta.uid() == user)
    });
    own.filter_map(|entry| {
        let status = std::fs::read_to_string(entry.path().join("status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("Threads:"))?.trim().parse::<u64>().ok()
    })
    .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_only_ever_lower() {
        let now = Limits::now();
        for bound in now.bounds {
            assert!(bound.value.rlim_cur <= bound.value.rlim_max);
        }
        assert_eq!(now.bounds[0].value.rlim_max, 0, "no core file");
        assert!(now.bounds[1].value.rlim_max <= FILES_MAX);
        assert!(processes_of_the_user() >= 1, "this one");
        assert!(now.bounds[2].value.rlim_max > 1);
    }
}
