//! Which meter a Harness uses (decision 14).

use super::child_group::{ChildGroup, divided};
use super::meter::{Group, Meter, Tree, limit};
use super::pace::Gauge;
use super::place::own_group;
use super::processes;
use jr2_shared::cgroup::Version;
use std::fs::File;
use std::path::{Path, PathBuf};

/// What the starter says of the cgroup the Harness is in (`JR2_CGROUP`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CgroupUse {
    /// Nothing: it is this Sandbox's own only if nobody else is in it at the start.
    #[default]
    Unknown,
    /// `private`: whatever is in it besides the first process and the Harness is the Agent's.
    Private,
    /// `delegated`: private, and the Harness may divide it.
    Delegated,
}

impl CgroupUse {
    /// Reads the variable; what is not known says nothing.
    pub fn read(text: Option<&str>) -> Self {
        match text {
            Some("private") => Self::Private,
            Some("delegated") => Self::Delegated,
            _ => Self::Unknown,
        }
    }
}

/// What the choice depends on.
#[derive(Clone, Debug, Default)]
pub struct Circumstances {
    /// The Size's memory in bytes, when it was said.
    pub memory: Option<u64>,
    /// CPUs that the Agent may use, when they were said.
    pub cpus: Option<u64>,
    /// Whose the cgroup is.
    pub cgroup: CgroupUse,
    /// `/dev/shm` is this Sandbox's own (decision 45).
    pub shm_private: bool,
    /// `JR2_SANDBOX_DIR`: the Agent's processes are known by a home below it.
    pub sandbox: Option<PathBuf>,
}

/// The meter, the limit, and the way into the Agent's own group.
pub struct Chosen {
    pub(super) meter: Box<dyn Meter>,
    pub(super) gauge: Gauge,
    pub(super) door: Option<File>,
    pub(super) shm_private: bool,
}

impl Chosen {
    /// The meter's name.
    pub fn name(&self) -> &'static str {
        self.meter.kind().name()
    }

    /// The limit in bytes.
    pub fn limit(&self) -> u64 {
        self.gauge.limit
    }
}

/// Chooses; `None` without any limit, where the guard is off (spec 10.2).
pub fn choose(circumstances: &Circumstances) -> Option<Chosen> {
    let own = own_group().map(|(version, folder)| (version, divided(&folder).to_owned()));
    let group_limit = own.as_ref().and_then(|(version, folder)| limit(*version, folder));
    let bytes = [group_limit, circumstances.memory].into_iter().flatten().min()?;
    let cpus = circumstances.cpus.or_else(|| std::thread::available_parallelism().ok().map(|n| n.get() as u64));
    let gauge = Gauge::new(bytes, cpus.unwrap_or(1));
    let ours = |folder: &Path| circumstances.cgroup != CgroupUse::Unknown || is_alone(&processes::in_group(folder));
    let chosen = own.filter(|(_, folder)| ours(folder));
    let chosen = chosen.and_then(|(version, folder)| by_group(version, &folder, gauge, circumstances));
    Some(chosen.unwrap_or_else(|| {
        let marks = circumstances.sandbox.iter().map(|dir| format!("HOME={}", dir.join("home").display())).collect();
        let meter = Box::new(Tree::new(marks, circumstances.shm_private));
        Chosen { meter, gauge, door: None, shm_private: circumstances.shm_private }
    }))
}

fn by_group(version: Version, folder: &Path, gauge: Gauge, circumstances: &Circumstances) -> Option<Chosen> {
    let divide = version == Version::V1 || circumstances.cgroup == CgroupUse::Delegated;
    let child = divide.then(|| {
        let child = ChildGroup::make(version, folder, gauge.limit)?;
        child.door().map(|door| (child, door))
    });
    let (child, door) = match child {
        Some(Ok((child, door))) => (Some(child), Some(door)),
        Some(Err(error)) => {
            tracing::info!(%error, "the cgroup cannot be divided: the memory guard polls it");
            (None, None)
        }
        None => (None, None),
    };
    let kernel_limit = child.as_ref().map_or(gauge.limit, |_| ChildGroup::kernel_limit(version, gauge.limit));
    let gauge = gauge.with_kernel_limit(kernel_limit);
    match Group::open(version, folder, child) {
        Ok(meter) => Some(Chosen { meter: Box::new(meter), gauge, door, shm_private: circumstances.shm_private }),
        Err(error) => {
            tracing::warn!(%error, folder = %folder.display(), "the memory cgroup cannot be read");
            None
        }
    }
}

/// Nobody but this process is in the group.
fn is_alone(pids: &[i32]) -> bool {
    pids.iter().all(|pid| *pid == processes::me())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_any_limit_there_is_no_guard_and_with_one_in_a_shared_group_the_tree_is_measured() {
        // A test binary's group is its starter's too.
        let shared = Circumstances { memory: Some(64 << 20), ..Circumstances::default() };
        let chosen = choose(&shared).unwrap();
        assert_eq!((chosen.name(), chosen.limit() <= 64 << 20), ("process-tree", true));
        if own_group().and_then(|(version, folder)| limit(version, &folder)).is_none() {
            assert!(choose(&Circumstances::default()).is_none());
        }
    }

    #[test]
    fn the_starter_s_word_is_read_and_nothing_else() {
        let read = |text| CgroupUse::read(Some(text));
        assert_eq!((read("private"), read("delegated")), (CgroupUse::Private, CgroupUse::Delegated));
        assert_eq!((read("own"), CgroupUse::read(None)), (CgroupUse::Unknown, CgroupUse::Unknown));
        assert!(is_alone(&[processes::me()]) && !is_alone(&[70_000_001, processes::me()]));
    }
}
