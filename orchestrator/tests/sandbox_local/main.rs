//! The local Sandbox provider from outside: real git, real processes, a stand-in Harness.

mod branches;
mod custodian;
mod harness;
mod provision;
mod rig;
