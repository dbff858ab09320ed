//! Runs a second: the common work, driven over HTTP and the feed as any client would.
//!
//! One run is 3 `do: {}` steps, a Gate, one more step, the end. It counts when the feed said that it is done.

use super::feed::{Board, Orchestrator};
use super::{BenchError, Times};
use serde::Serialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// The workflow of the common work.
pub const WORKFLOW: &str = include_str!("common-work.yaml");
/// Its name.
pub const WORKFLOW_NAME: &str = "common-work";
/// Its Gate, which is also the state a parked run is in.
pub const GATE: &str = "wait";
/// The event that opens the Gate.
pub const EVENT: &str = "go";
/// Longest a single wait of a run may take before the benchmark gives up.
pub(super) const PATIENCE: Duration = Duration::from_mins(2);

/// What to drive.
#[derive(Clone, Debug)]
pub struct Options {
    /// The Orchestrator.
    pub server: String,
    /// Its Instance token.
    pub token: String,
    /// The workflow: [`WORKFLOW`] or one like it.
    pub workflow: String,
    /// Runs at once.
    pub concurrency: usize,
    /// Runs in all.
    pub runs: usize,
}

/// What it gave.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Runs at once.
    pub concurrency: usize,
    /// Runs done.
    pub runs: usize,
    /// All of them, in seconds.
    pub seconds: f64,
    /// Runs done a second.
    pub runs_per_second: f64,
    /// From the start request to the feed's `done`.
    pub run: Times,
    /// Saves of one run, as its last revision says.
    pub saves_per_run: u64,
}

/// Drives runs.
pub async fn run(options: &Options) -> Result<Report, BenchError> {
    let server = Orchestrator::new(&options.server, &options.token, &options.workflow)?;
    let board = Arc::new(server.follow());
    board.joined(PATIENCE).await?;
    let probe = server.start().await?;
    through(&server, &board, &probe).await?;
    let saves_per_run = server.status(&probe).await?["rev"].as_u64().unwrap_or(0);

    let begun = Instant::now();
    let left = Arc::new(AtomicUsize::new(options.runs));
    let mut drivers = JoinSet::new();
    for _ in 0..options.concurrency.clamp(1, options.runs.max(1)) {
        drivers.spawn(drive(server.clone(), Arc::clone(&board), Arc::clone(&left)));
    }
    let mut times = Vec::with_capacity(options.runs);
    while let Some(driven) = drivers.join_next().await {
        times.extend(driven.map_err(|e| BenchError::Unexpected(e.to_string()))??);
    }
    let seconds = begun.elapsed().as_secs_f64();
    Ok(Report {
        concurrency: options.concurrency,
        runs: times.len(),
        seconds,
        runs_per_second: times.len() as f64 / seconds,
        run: Times::of(times),
        saves_per_run,
    })
}

/// One driver: a run after the other until none is left.
async fn drive(server: Orchestrator, board: Arc<Board>, left: Arc<AtomicUsize>) -> Result<Vec<Duration>, BenchError> {
    let mut times = Vec::new();
    while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
        let begun = Instant::now();
        let run = server.start().await?;
        through(&server, &board, &run).await?;
        times.push(begun.elapsed());
        board.forget(&run);
    }
    Ok(times)
}

/// Takes a started run through its Gate to its end.
async fn through(server: &Orchestrator, board: &Board, run: &str) -> Result<(), BenchError> {
    let at_gate = board.until(run, PATIENCE, |s| s.parked_at(GATE) || s.ended()).await?;
    if at_gate.ended() {
        return Err(BenchError::Unexpected(format!("run {run} ended before its Gate: {at_gate:?}")));
    }
    finish(server, board, run).await
}

/// Answers a parked run's Gate and waits for its end.
pub(super) async fn finish(server: &Orchestrator, board: &Board, run: &str) -> Result<(), BenchError> {
    server.answer(run, GATE, EVENT).await?;
    let end = board.until(run, PATIENCE, super::feed::Standing::ended).await?;
    if end.status != "done" {
        return Err(BenchError::Unexpected(format!("run {run} ended as {end:?}")));
    }
    Ok(())
}

/// Starts `count` runs, `concurrency` at once, and waits until each is parked. Their ids.
pub(super) async fn park(
    server: &Orchestrator,
    board: &Arc<Board>,
    count: usize,
    concurrency: usize,
) -> Result<Vec<String>, BenchError> {
    let left = Arc::new(AtomicUsize::new(count));
    let mut drivers = JoinSet::new();
    for _ in 0..concurrency {
        let (server, board, left) = (server.clone(), Arc::clone(board), Arc::clone(&left));
        drivers.spawn(async move {
            let mut parked = Vec::new();
            while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
                let run = server.start().await?;
                board.until(&run, PATIENCE, |s| s.parked_at(GATE)).await?;
                parked.push(run);
            }
            Ok::<_, BenchError>(parked)
        });
    }
    let mut all = Vec::with_capacity(count);
    while let Some(parked) = drivers.join_next().await {
        all.extend(parked.map_err(|e| BenchError::Unexpected(e.to_string()))??);
    }
    Ok(all)
}
