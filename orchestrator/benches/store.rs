//! `cargo bench -p jr2-orchestrator --bench store [-- SECONDS [DIR]]`: durable saves a second by number of savers, beside
//! the bare `fdatasync` rate of the same directory in the same run. Prints one JSON object on stdout.
//!
//! One save is a row of 1 KiB and one history entry of 128 bytes, as a macrostep writes them.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use jr2_orchestrator::store::{Durability, RunStore, Save, SledStore, StoreOptions};
use jr2_shared::ids::RunId;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of one row.
const ROW_BYTES: usize = 1024;
/// Bytes of one history entry.
const HISTORY_BYTES: usize = 128;
/// History entries kept (decision 44).
const HISTORY_KEPT: u64 = 1000;
/// Turns that the bare writes and the saves take.
const SLICES: u32 = 6;
/// How many savers at once.
const SAVERS: [usize; 4] = [1, 10, 100, 1000];

fn main() {
    let mut args = std::env::args().skip(1).filter(|arg| !arg.starts_with("--"));
    let time = Duration::from_secs_f64(args.next().map_or(3.0, |seconds| seconds.parse().unwrap()));
    let base = args.next().unwrap_or_else(|| ".".into());
    let dir = tempfile::tempdir_in(base).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let mut series = Vec::new();
    for durability in [Durability::Power, Durability::Process] {
        for savers in SAVERS {
            let store = dir.path().join(format!("{durability:?}-{savers}"));
            let store = Arc::new(SledStore::open(StoreOptions { durability, ..StoreOptions::new(store) }).unwrap());
            let (mut bare, mut saves) = (Bare::default(), Saves::default());
            // In turns: a shared disk drifts, and both must feel it.
            for _ in 0..SLICES {
                bare.measure(dir.path(), time / SLICES / 2);
                saves.measure(&runtime, &store, savers, time / SLICES);
            }
            let rate = saves.took.len() as f64 / saves.time.as_secs_f64();
            saves.took.sort_unstable();
            let at = |percent| saves.took[saves.took.len() * percent / 100];
            series.push(serde_json::json!({
                "durability": durability, "savers": savers, "savesPerSecond": rate.round(),
                "p50Micros": at(50), "p99Micros": at(99), "diskBytes": store.disk_bytes().unwrap(), "rssKiB": rss(),
                "bareOverwritePerSecond": bare.overwrite.rate().round(),
                "bareAppendPerSecond": bare.append.rate().round(),
                "ratioToOverwrite": round(rate / bare.overwrite.rate()),
                "ratioToAppend": round(rate / bare.append.rate()),
            }));
        }
    }
    let parts = sled_parts(&dir.path().join("parts"), time);
    let report = serde_json::json!({ "rowBytes": ROW_BYTES, "series": series, "parts": parts });
    println!("{}", serde_json::to_string_pretty(&report).unwrap());
}

fn round(ratio: f64) -> f64 {
    (ratio * 100.0).round() / 100.0
}

/// How often something was done, and in what time.
#[derive(Default)]
struct Counted {
    count: u32,
    time: Duration,
}

impl Counted {
    fn run(&mut self, time: Duration, mut step: impl FnMut()) {
        let since = Instant::now();
        while since.elapsed() < time {
            step();
            self.count += 1;
        }
        self.time += since.elapsed();
    }

    fn rate(&self) -> f64 {
        f64::from(self.count) / self.time.as_secs_f64()
    }
}

/// The bare rates of a directory: a write of one row, then `fdatasync`.
#[derive(Default)]
struct Bare {
    overwrite: Counted,
    append: Counted,
}

impl Bare {
    fn measure(&mut self, dir: &Path, time: Duration) {
        let bytes = [b'x'; ROW_BYTES];
        let path = dir.join("bare");
        let mut file = File::create(&path).unwrap();
        self.append.run(time, || {
            file.write_all(&bytes).unwrap();
            file.sync_data().unwrap();
        });
        self.overwrite.run(time, || {
            file.write_all_at(&bytes, 0).unwrap();
            file.sync_data().unwrap();
        });
        std::fs::remove_file(path).unwrap();
    }
}

/// How long each save took, in microseconds, and all of them together.
#[derive(Default)]
struct Saves {
    took: Vec<u32>,
    time: Duration,
    revision: u64,
}

impl Saves {
    fn measure(&mut self, runtime: &tokio::runtime::Runtime, store: &Arc<SledStore>, savers: usize, time: Duration) {
        let (since, first) = (Instant::now(), self.revision);
        let saver = |saver: usize| {
            let store = Arc::clone(store);
            runtime.spawn(async move {
                let mut took = Vec::new();
                while since.elapsed() < time {
                    let begun = Instant::now();
                    store.save(save(saver, first + took.len() as u64)).await.unwrap();
                    took.push(begun.elapsed().as_micros() as u32);
                }
                took
            })
        };
        let tasks: Vec<_> = (0..savers).map(saver).collect();
        for task in tasks {
            let took = runtime.block_on(task).unwrap();
            self.revision = self.revision.max(first + took.len() as u64);
            self.took.extend(took);
        }
        self.time += since.elapsed();
    }
}

fn save(saver: usize, rev: u64) -> Save {
    Save {
        run: Some(RunId(format!("run{saver:023}"))),
        row: Some(vec![b'1'; ROW_BYTES]),
        history: Some((rev, vec![b'1'; HISTORY_BYTES])),
        history_from: rev.checked_sub(HISTORY_KEPT),
        ..Save::default()
    }
}

/// Where the time of one commit goes, in microseconds each: sled's batch, sled's flush, `fdatasync` after it.
fn sled_parts(dir: &Path, time: Duration) -> serde_json::Value {
    let config = sled::Config::new().path(dir).mode(sled::Mode::LowSpace).cache_capacity(4 << 20);
    let db = config.flush_every_ms(None).open().unwrap();
    let log = File::options().write(true).open(dir.join("db")).unwrap();
    let (mut apply, mut flush, mut sync, mut count) = (Duration::ZERO, Duration::ZERO, Duration::ZERO, 0u32);
    let since = Instant::now();
    while since.elapsed() < time {
        let mut batch = sled::Batch::default();
        batch.insert(b"r/a", vec![b'1'; ROW_BYTES]);
        batch.insert(format!("h/a/{count:08}").as_bytes(), vec![b'1'; HISTORY_BYTES]);
        let begun = Instant::now();
        db.apply_batch(batch).unwrap();
        apply += begun.elapsed();
        let begun = Instant::now();
        db.flush().unwrap();
        flush += begun.elapsed();
        let begun = Instant::now();
        log.sync_data().unwrap();
        sync += begun.elapsed();
        count += 1;
    }
    let micros = |total: Duration| (total / count.max(1)).as_micros();
    serde_json::json!({ "applyBatch": micros(apply), "flush": micros(flush), "syncData": micros(sync), "commits": count })
}

/// Resident memory of this process, in KiB.
fn rss() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
