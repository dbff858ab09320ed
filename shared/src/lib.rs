//! The words both ends of a jr2 wire speak.
//!
//! Data and pure functions only: no runtime, no sockets, no clock. The Orchestrator, the Harness, the operator and the
//! conformance suite all depend on this crate and never on each other; they meet over the wires declared here.

pub mod cgroup;
pub mod crash;
pub mod harness;
pub mod ids;
pub mod isolation;
pub mod memory_kills;
pub mod notice;
pub mod prompts;
pub mod repo;
pub mod size;
pub mod step;
pub mod surface;
