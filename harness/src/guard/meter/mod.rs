//! How much memory the Agent uses, and which processes are its own: three meters behind one trait (decision 14).

mod counters;
mod group;
mod tree;

pub use group::{Group, limit};
pub use tree::Tree;

use std::io;
use std::os::fd::BorrowedFd;

/// Which meter is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// cgroup v2, the Agent's processes in a group of their own: the kernel's own kill spares the Harness.
    V2Exact,
    /// cgroup v2, polled.
    V2,
    /// cgroup v1, polled, the Agent's processes in a group of their own: the kernel's own kill spares the Harness.
    V1Exact,
    /// cgroup v1, polled.
    V1,
    /// The Harness's descendants, polled.
    Tree,
}

impl Kind {
    /// Its name, as a log line and the `jr2-memory-guard` header give it.
    pub fn name(self) -> &'static str {
        match self {
            Self::V2Exact => "cgroup-v2-exact",
            Self::V2 => "cgroup-v2",
            Self::V1Exact => "cgroup-v1-exact",
            Self::V1 => "cgroup-v1",
            Self::Tree => "process-tree",
        }
    }
}

/// A meter. What it measures is anonymous and shared memory: page cache goes when it must, and never counts (spec 10.2).
pub trait Meter: Send {
    /// Which it is.
    fn kind(&self) -> Kind;

    /// An upper bound of [`Meter::used`] in bytes, cheap.
    fn at_most(&mut self) -> io::Result<u64>;

    /// Anonymous and shared memory in bytes.
    fn used(&mut self) -> io::Result<u64>;

    /// How many processes the kernel has killed for memory here; `None` where it does not count.
    fn kernel_kills(&mut self) -> Option<u64> {
        None
    }

    /// Has an urgent event (`POLLPRI`) when [`Meter::kernel_kills`] may have changed.
    fn kernel_signal(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The Agent's living processes.
    fn processes(&mut self) -> Vec<i32>;

    /// Kills these, or all of the Agent's at once where the kernel can.
    fn kill(&mut self, pids: &[i32]) {
        super::processes::kill(pids);
    }
}
