//! The memory guard with real hogs in real cgroups (spec 10.5). Needs root and a writable cgroup hierarchy; where none can
//! be made each test says `skipped: …`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test that cannot go on fails.
#![allow(clippy::print_stdout)] // A skip says why.

mod calls;
mod hogs;
mod tree;

use jr2_conformance::bench::guard::{Groups, Options, Rig, hog};
use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The Size's memory in MiB.
const LIMIT_MIB: u64 = 192;
/// What a hog wants.
const WANTED_MIB: u64 = 512;

/// One hog at a time: two would share a machine's CPUs, and a test waits for either.
static ONE: LazyLock<tokio::sync::Mutex<()>> = LazyLock::new(tokio::sync::Mutex::default);

/// This program as a hog: the tests start it again.
#[test]
fn hog_entry() {
    hog::run();
}

/// A running Harness and what it stands on.
struct Bench {
    rig: Rig,
    dir: TempDir,
    _one: tokio::sync::MutexGuard<'static, ()>,
}

impl Bench {
    /// The kill list once it holds so many, or what it holds in the end: a call has its verdict before its kill is kept.
    async fn kept(&self, count: usize) -> Vec<serde_json::Value> {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let kills = self.rig.kills().await.unwrap();
            if kills.len() >= count || Instant::now() > deadline {
                return kills;
            }
            // Poll: until it is kept.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// How a bench differs from the usual one: a cgroup of its own, this machine's `/dev/shm`.
#[derive(Clone, Copy, Default)]
struct Wanted {
    tree: bool,
    shm_private: bool,
    pids_max: Option<u64>,
}

/// Starts a Harness; `None` where this machine lets nobody make a cgroup.
async fn bench(name: &str, wanted: Wanted) -> Option<Bench> {
    let one = ONE.lock().await;
    if let Err(why) = Groups::make("probe", LIMIT_MIB << 20, wanted.pids_max)
        && !wanted.tree
    {
        println!("skipped: no cgroup can be made ({why})");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        harness: Path::new(env!("CARGO_BIN_EXE_jr2-harness")).to_owned(),
        folder: dir.path().join("rig"),
        limit: LIMIT_MIB << 20,
        pids_max: wanted.pids_max,
        in_group: !wanted.tree,
        shm_private: wanted.shm_private,
        divided: true,
        program: format!("{} hog_entry --exact --nocapture", std::env::current_exe().unwrap().display()),
    };
    let rig = Rig::start(name, options).await.unwrap();
    Some(Bench { rig, dir, _one: one })
}
