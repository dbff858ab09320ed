//! The whole set of figures of the documentation, on fresh stores, with the disk's own limit beside them.

use super::feed::Orchestrator;
use super::process::{Memory, Started, free_address, log_to};
use super::runs::{self, PATIENCE, WORKFLOW, WORKFLOW_NAME};
use super::{BenchError, Times, fdatasync};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a server may take to come up, 10,000 runs to restore included.
const UP_DEADLINE: Duration = Duration::from_mins(1);
/// How often the Harness is started.
const HARNESS_STARTS: usize = 20;
/// Bytes of entropy do not matter here: nobody else can reach the Harness under measurement.
const HARNESS_TOKEN: &str = "bench";
/// Runs at once while runs are parked.
const PARK_CONCURRENCY: usize = 200;

/// What to measure with.
#[derive(Clone, Debug)]
pub struct Options {
    /// The `jr2` binary.
    pub jr2: PathBuf,
    /// The `jr2-harness` binary.
    pub harness: PathBuf,
    /// An empty folder on the disk to measure; stores go below it.
    pub folder: PathBuf,
    /// Runs at once, and how many in all.
    pub loads: Vec<(usize, usize)>,
    /// Parked runs of the recovery.
    pub parked: usize,
    /// Parked runs of the restore.
    pub many_parked: usize,
}

/// Every figure.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The bare disk.
    pub fdatasync: fdatasync::Report,
    /// An empty store to the first run done.
    pub cold: Cold,
    /// Runs a second.
    pub loads: Vec<Load>,
    /// At one run at once: runs a second times saves of a run, by the disk's bare rate. 1 = the disk is the limit.
    pub share_of_disk_at_one: f64,
    /// `kill -9` with parked runs.
    pub recovery: Recovery,
    /// The same with many.
    pub restore: Recovery,
    /// The Harness at rest.
    pub harness: HarnessStart,
}

/// An empty store to the first run done.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cold {
    /// Process start to `/healthz`, in milliseconds.
    pub up_ms: f64,
    /// Process start to the first run done, in milliseconds.
    pub first_done_ms: f64,
    /// Then.
    pub memory: Memory,
}

/// One load and the server's memory after it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Load {
    /// The figures.
    #[serde(flatten)]
    pub runs: runs::Report,
    /// After it.
    pub memory: Memory,
}

/// `kill -9` with parked runs, and what came after, from the start of the new process, in milliseconds.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Recovery {
    /// How many.
    pub parked: usize,
    /// Memory the parked runs took, by their number, in bytes; the server's own taken off.
    pub bytes_per_parked_run: u64,
    /// Memory with all parked, before the kill.
    pub memory: Memory,
    /// `/healthz` answers.
    pub up_ms: f64,
    /// The list shows all of them live.
    pub listed_ms: f64,
    /// All of them done; absent when they were left parked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_ms: Option<f64>,
    /// Memory of the new process with all of them restored.
    pub memory_restored: Memory,
}

/// The Harness at rest.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct HarnessStart {
    /// Process start to `/healthz`.
    pub up: Times,
    /// Then.
    pub memory: Memory,
}

/// A server under measurement with a folder of its own.
struct Server {
    process: Started,
    client: Orchestrator,
    url: String,
    token: String,
    begun: Instant,
}

/// Starts `jr2 serve` in a folder; its store, token and log stay there for the next start.
async fn serve(jr2: &Path, folder: &Path) -> Result<Server, BenchError> {
    let workflow = folder.join(format!("{WORKFLOW_NAME}.yaml"));
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&workflow, WORKFLOW))
        .map_err(BenchError::io(folder.display().to_string()))?;
    let address = free_address()?;
    let mut command = Command::new(jr2);
    command.arg("serve").arg("--listen").arg(address.to_string()).arg(&workflow).current_dir(folder);
    command.env("RUST_LOG", "warn").stdout(log_to(folder, "out.log")?).stderr(log_to(folder, "err.log")?);
    let url = format!("http://{address}");
    let begun = Instant::now();
    let process = Started::wait_healthy(command, &url, UP_DEADLINE).await?;
    let path = folder.join(".jr2/token");
    let token = std::fs::read_to_string(&path).map_err(BenchError::io(path.display().to_string()))?.trim().to_owned();
    Ok(Server { client: Orchestrator::new(&url, &token, WORKFLOW_NAME)?, process, url, token, begun })
}

/// Measures everything; `say` gets a line before each part.
pub async fn run(options: &Options, say: impl Fn(&str)) -> Result<Report, BenchError> {
    let folder = |name: &str| options.folder.join(name);
    std::fs::create_dir_all(&options.folder).map_err(BenchError::io(options.folder.display().to_string()))?;
    say("bare fdatasync");
    let disk = fdatasync::run(&options.folder, Duration::from_secs(5))?;
    say("cold start");
    let cold = cold_start(&options.jr2, &folder("cold")).await?;
    let mut loads = Vec::new();
    for (concurrency, runs) in &options.loads {
        say(&format!("{runs} runs, {concurrency} at once"));
        loads.push(load(&options.jr2, &folder(&format!("load-{concurrency}")), *concurrency, *runs).await?);
    }
    let one = loads.iter().find(|load| load.runs.concurrency == 1).map(|load| load.runs);
    let share = one.map_or(0.0, |r| r.runs_per_second * r.saves_per_run as f64 / disk.per_second);
    say(&format!("recovery of {} parked runs", options.parked));
    let recovery = recover(&options.jr2, &folder("recovery"), options.parked, true).await?;
    say(&format!("restore of {} parked runs", options.many_parked));
    let restore = recover(&options.jr2, &folder("restore"), options.many_parked, false).await?;
    say("harness start");
    let harness = harness_start(&options.harness, &folder("harness")).await?;
    Ok(Report { fdatasync: disk, cold, loads, share_of_disk_at_one: share, recovery, restore, harness })
}

async fn cold_start(jr2: &Path, folder: &Path) -> Result<Cold, BenchError> {
    let server = serve(jr2, folder).await?;
    let board = Arc::new(server.client.follow());
    let parked = runs::park(&server.client, &board, 1, 1).await?;
    runs::finish(&server.client, &board, &parked[0]).await?;
    Ok(Cold {
        up_ms: ms(server.process.up),
        first_done_ms: ms(server.begun.elapsed()),
        memory: server.process.memory()?,
    })
}

async fn load(jr2: &Path, folder: &Path, concurrency: usize, runs: usize) -> Result<Load, BenchError> {
    let server = serve(jr2, folder).await?;
    let options = runs::Options {
        server: server.url.clone(),
        token: server.token.clone(),
        workflow: WORKFLOW_NAME.to_owned(),
        concurrency,
        runs,
    };
    Ok(Load { runs: runs::run(&options).await?, memory: server.process.memory()? })
}

async fn recover(jr2: &Path, folder: &Path, count: usize, finish: bool) -> Result<Recovery, BenchError> {
    let mut server = serve(jr2, folder).await?;
    let board = Arc::new(server.client.follow());
    // The first run pays for what is made once.
    let first = runs::park(&server.client, &board, 1, 1).await?;
    runs::finish(&server.client, &board, &first[0]).await?;
    let before = server.process.memory()?;
    let parked = runs::park(&server.client, &board, count, PARK_CONCURRENCY.min(count)).await?;
    let memory = server.process.memory()?;
    drop(board);
    server.process.kill();

    let server = serve(jr2, folder).await?;
    let up = server.process.up;
    let listed = until_listed(&server, count).await?;
    let memory_restored = server.process.memory()?;
    let finished = if finish { Some(finish_all(&server, &parked).await?) } else { None };
    Ok(Recovery {
        parked: count,
        bytes_per_parked_run: memory.rss_kib.saturating_sub(before.rss_kib) * 1024 / count.max(1) as u64,
        memory,
        up_ms: ms(up),
        listed_ms: ms(listed),
        finished_ms: finished.map(ms),
        memory_restored,
    })
}

async fn until_listed(server: &Server, count: usize) -> Result<Duration, BenchError> {
    loop {
        let live = server.client.list().await?.iter().filter(|run| run["status"] == "live").count();
        let elapsed = server.begun.elapsed();
        if live == count {
            return Ok(elapsed);
        }
        if elapsed > UP_DEADLINE {
            return Err(BenchError::Deadline(elapsed, format!("{live} of {count} runs are listed")));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

async fn finish_all(server: &Server, parked: &[String]) -> Result<Duration, BenchError> {
    let board = Arc::new(server.client.follow());
    board.joined(PATIENCE).await?;
    let mut answers = tokio::task::JoinSet::new();
    for run in parked {
        let (client, board, run) = (server.client.clone(), Arc::clone(&board), run.clone());
        answers.spawn(async move { runs::finish(&client, &board, &run).await });
    }
    while let Some(answer) = answers.join_next().await {
        answer.map_err(|e| BenchError::Unexpected(e.to_string()))??;
    }
    Ok(server.begun.elapsed())
}

async fn harness_start(harness: &Path, folder: &Path) -> Result<HarnessStart, BenchError> {
    std::fs::create_dir_all(folder).map_err(BenchError::io(folder.display().to_string()))?;
    let (mut times, mut memory) = (Vec::new(), Memory::default());
    for _ in 0..HARNESS_STARTS {
        let address = free_address()?;
        let mut command = Command::new(harness);
        command.current_dir(folder).env("JR2_LISTEN", address.to_string()).env("RUST_LOG", "warn");
        command.env("JR2_HARNESS_TOKEN_SHA256", jr2_shared::harness::token_digest(HARNESS_TOKEN));
        command.env("JR2_CONVERSATIONS_DIR", folder.join("conversations"));
        command.stdout(log_to(folder, "out.log")?).stderr(log_to(folder, "err.log")?);
        let started = Started::wait_healthy(command, &format!("http://{address}"), UP_DEADLINE).await?;
        times.push(started.up);
        memory = started.memory()?;
    }
    Ok(HarnessStart { up: Times::of(times), memory })
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}
