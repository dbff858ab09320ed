//! Black-box tests: the real binary over real sockets, a fake Orchestrator behind a Custodian's socket, a scripted model.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test that cannot go on fails.

mod aborts;
mod briefing;
mod compaction;
mod crashes;
mod disk;
mod drain;
mod kills;
mod many;
mod models;
mod picks;
mod prefix;
mod submissions;
mod wire;
mod world;
