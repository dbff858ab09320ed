//! The memory guard of a Harness, seen from outside: hogs inside real cgroups, who won, and what the watching costs.

mod cost;
mod group;
pub mod hog;
mod rig;
mod trials;

pub use cost::{Cost, measure};
pub use group::Groups;
pub use hog::Hog;
pub use rig::{Options, Outcome, Rig, Trial};
pub use trials::{Score, run};

/// Bytes of a MiB.
const MIB: u64 = 1 << 20;
