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
            // Before and after: a shared disk drifts.
            let before = Bare::measure(dir.path(), time / 4);
            let store = dir.path().join(format!("{durability:?}-{savers}"));
            let options = StoreOptions { durability, ..StoreOptions::new(store) };
            let measured = runtime.block_on(measure(options, savers, time));
            let bare = before.mean(&Bare::measure(dir.path(), time / 4));
            let (rate, p50, p99, disk) = measured;
            series.push(serde_json::json!({
                "durability": durability, "savers": savers, "savesPerSecond": rate.round(),
                "p50Micros": p50, "p99Micros": p99, "diskBytes": disk,
                "bareOverwritePerSecond": bare.overwrite.round(), "bareAppendPerSecond": bare.append.round(),
                "ratioToOverwrite": round(rate / bare.overwrite), "ratioToAppend": round(rate / bare.append),
            }));
        }
    }
    let parts = sled_parts(&dir.path().join("parts"), time);
    let report = serde_json::json!({ "rowBytes": ROW_BYTES, "series": series, "parts": parts, "rssKiB": rss() });
    println!("{}", serde_json::to_string_pretty(&report).unwrap());
}

fn round(ratio: f64) -> f64 {
    (ratio * 100.0).round() / 100.0
}

/// The bare rates of a directory: a write of one row, then `fdatasync`.
struct Bare {
    overwrite: f64,
    append: f64,
}

impl Bare {
    fn measure(dir: &Path, time: Duration) -> Self {
        let bytes = [b'x'; ROW_BYTES];
        let path = dir.join("bare");
        let mut file = File::create(&path).unwrap();
        let append = rate(time, || {
            file.write_all(&bytes).unwrap();
            file.sync_data().unwrap();
        });
        let overwrite = rate(time, || {
            file.write_all_at(&bytes, 0).unwrap();
            file.sync_data().unwrap();
        });
        std::fs::remove_file(path).unwrap();
        Self { overwrite, append }
    }

    fn mean(&self, other: &Self) -> Self {
        let mean = |a: f64, b: f64| f64::midpoint(a, b);
        Self { overwrite: mean(self.overwrite, other.overwrite), append: mean(self.append, other.append) }
    }
}

fn rate(time: Duration, mut step: impl FnMut()) -> f64 {
    let (since, mut count) = (Instant::now(), 0u32);
    while since.elapsed() < time {
        step();
        count += 1;
    }
    f64::from(count) / since.elapsed().as_secs_f64()
}

/// Saves a second, p50 and p99 of one save in microseconds, bytes on disk.
async fn measure(options: StoreOptions, savers: usize, time: Duration) -> (f64, u128, u128, u64) {
    let store = Arc::new(SledStore::open(options).unwrap());
    let since = Instant::now();
    let tasks: Vec<_> = (0..savers)
        .map(|saver| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                let run = RunId(format!("run{saver:023}"));
                let mut took = Vec::new();
                for rev in 1.. {
                    let save = Save {
                        run: Some(run.clone()),
                        row: Some(vec![b'1'; ROW_BYTES]),
                        history: Some((rev, vec![b'1'; HISTORY_BYTES])),
                        history_from: rev.checked_sub(1000),
                        ..Save::default()
                    };
                    let begun = Instant::now();
                    store.save(save).await.unwrap();
                    took.push(begun.elapsed().as_micros());
                    if since.elapsed() >= time {
                        break;
                    }
                }
                took
            })
        })
        .collect();
    let mut took = Vec::new();
    for task in tasks {
        took.extend(task.await.unwrap());
    }
    let rate = took.len() as f64 / since.elapsed().as_secs_f64();
    took.sort_unstable();
    (rate, took[took.len() / 2], took[took.len() * 99 / 100], store.disk_bytes().unwrap())
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
