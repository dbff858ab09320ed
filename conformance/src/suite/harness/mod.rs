//! The Harness under judgement: its process, and its wire as a client sees it.

mod process;
mod wire;

pub use process::{CPUS, PROVIDER, Plan, Process, SMALL_PROVIDER, SMALL_WINDOW, STAND_IN, StartError};
pub use wire::{Answer, Bearer, Wire};
