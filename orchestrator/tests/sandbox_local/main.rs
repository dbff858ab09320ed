//! The local Sandbox provider from outside: real git, real processes, a stand-in Harness.

// Helpers of tests may stop a test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod branches;
mod custodian;
mod harness;
mod memory;
mod provision;
mod rig;
