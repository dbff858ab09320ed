//! `jr2-conformance bench guard`: what the guard's thread costs, as the kernel counts it.

use super::super::BenchError;
use super::{Hog, MIB, Options, Rig};
use serde::Serialize;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long one figure is measured.
const SPAN: Duration = Duration::from_secs(2);
/// Figures of which the median is given.
const ROUNDS: usize = 5;
/// Pause between two looks at a hog that fills up.
const LOOK: Duration = Duration::from_millis(20);
/// How long a hog may take to fill up.
const PATIENCE: Duration = Duration::from_mins(1);
/// The guard's thread.
const THREAD: &str = "memory-guard";
/// A hog near the limit holds this share of it: not enough to fire.
const NEAR_PERCENT: u64 = 80;

/// One line of the table.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cost {
    /// The guard's meter.
    pub meter: String,
    /// The Size's memory in MiB.
    pub limit_mib: u64,
    /// What a command of the Agent holds in MiB.
    pub held_mib: u64,
    /// Median, in percent of a core.
    pub percent_of_a_core: f64,
    /// How often the thread was on a CPU in a second: once a look.
    pub looks_per_second: u64,
}

/// Measures one meter, far from the limit and near it.
pub async fn measure(
    harness: &Path,
    folder: &Path,
    program: &str,
    in_group: bool,
    limit_mib: u64,
) -> Result<Vec<Cost>, BenchError> {
    let name = format!("cost-{limit_mib}-{in_group}");
    let options = Options {
        harness: harness.to_owned(),
        folder: folder.join(&name),
        limit: limit_mib * MIB,
        pids_max: None,
        in_group,
        shm_private: false,
        divided: true,
        program: program.to_owned(),
    };
    let mut rig = Rig::start(&name, options).await?;
    let meter = rig.meter().await?;
    let begun = Instant::now();
    // A thread gives itself its name after it has begun.
    while spent(rig.pid()).is_err() && begun.elapsed() < PATIENCE {
        tokio::time::sleep(LOOK).await;
    }
    let far = one(&rig, &meter, limit_mib, 0).await?;
    let held = limit_mib * NEAR_PERCENT / 100;
    rig.begin(&Hog::Hold.command(program, held)).await?;
    let begun = Instant::now();
    while descendants_kib(rig.pid()) < held * 1024 {
        if begun.elapsed() > PATIENCE {
            return Err(BenchError::Deadline(begun.elapsed(), "the hog never filled up".to_owned()));
        }
        tokio::time::sleep(LOOK).await;
    }
    let near = one(&rig, &meter, limit_mib, held).await?;
    Ok(vec![far, near])
}

async fn one(rig: &Rig, meter: &str, limit_mib: u64, held_mib: u64) -> Result<Cost, BenchError> {
    let mut shares = Vec::new();
    let mut looks = 0;
    for _ in 0..ROUNDS {
        let (before, begun) = (spent(rig.pid())?, Instant::now());
        tokio::time::sleep(SPAN).await;
        let (after, span) = (spent(rig.pid())?, begun.elapsed());
        shares.push((after.0 - before.0) as f64 / span.as_nanos() as f64 * 100.0);
        looks = (after.1 - before.1) / SPAN.as_secs();
    }
    shares.sort_by(f64::total_cmp);
    let percent = (shares[ROUNDS / 2] * 1000.0).round() / 1000.0;
    Ok(Cost { meter: meter.to_owned(), limit_mib, held_mib, percent_of_a_core: percent, looks_per_second: looks })
}

/// Nanoseconds that the guard's thread spent on a CPU, and how often it was put on one.
fn spent(pid: u32) -> Result<(u64, u64), BenchError> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).map_err(BenchError::io("the Harness's threads"))?;
    for task in tasks.flatten() {
        let read = |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        if read("comm").trim() == THREAD {
            let text = read("schedstat");
            let mut fields = text.split_whitespace().filter_map(|field| field.parse().ok());
            if let (Some(time), Some(count)) = (fields.next(), fields.nth(1)) {
                return Ok((time, count));
            }
        }
    }
    Err(BenchError::Unexpected(format!("process {pid} has no thread {THREAD}")))
}

/// Resident KiB of a process's children and theirs, without the process itself.
fn descendants_kib(pid: u32) -> u64 {
    let mut pids = vec![pid];
    let mut at = 0;
    while let Some(pid) = pids.get(at).copied() {
        for task in std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let text = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
            pids.extend(text.split_whitespace().filter_map(|word| word.parse::<u32>().ok()));
        }
        at += 1;
    }
    let resident = |pid: &u32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap_or_default().to_owned();
        line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0)
    };
    pids.iter().skip(1).map(resident).sum()
}
