//! The real `jr2`, from outside: every test starts the binary in a folder of its own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test fails by panicking.

mod codes;
mod help;
mod rig;
mod serving;
mod trying;
