//! The `jr2-conformance` command.

use clap::{Parser, Subcommand};
use jr2_conformance::bench;
use jr2_conformance::model::{Options, Script, ScriptedModel};
use miette::IntoDiagnostic;
use serde::Serialize;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Judges jr2 builds over their wires.
#[derive(Parser)]
#[command(version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serve a scripted model: an OpenAI-compatible server that follows a script file.
    ///
    /// Prints one JSON line with its address on stdout, then serves until it is ended.
    Model {
        /// The script (JSON).
        #[arg(long)]
        script: PathBuf,
        /// Where to listen; port 0 takes a free one.
        #[arg(long, default_value = "127.0.0.1:0")]
        listen: SocketAddr,
        /// Append one JSON line per request here, synced before the answer leaves.
        #[arg(long)]
        record: Option<PathBuf>,
    },
    /// Measure something and print it as JSON.
    #[command(subcommand)]
    Bench(Bench),
}

#[derive(Subcommand)]
enum Bench {
    /// How often a disk makes an appended 4 KiB block durable.
    Fdatasync {
        /// A folder on that disk.
        #[arg(long, default_value = ".")]
        dir: PathBuf,
        /// How long.
        #[arg(long, default_value_t = 5)]
        seconds: u64,
    },
    /// The scripted model's own answer time.
    ModelStep {
        /// How many answers.
        #[arg(long, default_value_t = 2_000)]
        count: usize,
    },
    /// What a Harness adds to one model step.
    HarnessStep {
        /// The Harness binary; beside this one when not given.
        #[arg(long)]
        harness: Option<PathBuf>,
        /// An empty folder on the disk that keeps the conversations.
        #[arg(long)]
        dir: PathBuf,
        /// Submissions of 200 steps each.
        #[arg(long, default_value_t = 3)]
        submissions: usize,
    },
    /// Runs a second of an Orchestrator that serves the common work (`bench common-work`).
    Runs {
        /// Its URL.
        #[arg(long)]
        server: String,
        /// Its Instance token.
        #[arg(long, env = "JR2_TOKEN")]
        token: String,
        /// The workflow.
        #[arg(long, default_value = bench::runs::WORKFLOW_NAME)]
        workflow: String,
        /// Runs at once.
        #[arg(long, default_value_t = 1)]
        concurrency: usize,
        /// Runs in all.
        #[arg(long, default_value_t = 500)]
        runs: usize,
    },
    /// Print the workflow of the common work.
    CommonWork,
    /// Every figure of the documentation: starts servers of its own on fresh stores.
    Suite {
        /// An empty folder on the disk to measure.
        #[arg(long)]
        dir: PathBuf,
        /// The `jr2` binary; the one beside this binary when absent.
        #[arg(long)]
        jr2: Option<PathBuf>,
        /// The `jr2-harness` binary; the one beside this binary when absent.
        #[arg(long)]
        harness: Option<PathBuf>,
        /// Divides the numbers of runs, for a quick look.
        #[arg(long, default_value_t = 1)]
        divide: usize,
    },
}

/// Runs at once, and how many in all, of the suite.
const SUITE_LOADS: [(usize, usize); 3] = [(1, 500), (100, 5_000), (1_000, 10_000)];
/// Parked runs of the suite's recovery and of its restore.
const SUITE_PARKED: (usize, usize) = (1_000, 10_000);

fn main() -> miette::Result<()> {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match Arguments::parse().command {
        Command::Model { script, listen, record } => {
            let script = Script::load(&script).into_diagnostic()?;
            let model = ScriptedModel::start_with(script, &Options { listen, record }).into_diagnostic()?;
            print_line(&serde_json::json!({"url": model.url(), "address": model.address()}))?;
            model.wait();
            Ok(())
        }
        Command::Bench(bench) => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().into_diagnostic()?;
            runtime.block_on(measure(bench))
        }
    }
}

async fn measure(bench: Bench) -> miette::Result<()> {
    match bench {
        Bench::Fdatasync { dir, seconds } => {
            print_line(&bench::fdatasync::run(&dir, Duration::from_secs(seconds)).into_diagnostic()?)
        }
        Bench::ModelStep { count } => print_line(&bench::model_step::run(count).await.into_diagnostic()?),
        Bench::HarnessStep { harness, dir, submissions } => {
            let harness = beside(harness, "jr2-harness")?;
            print_line(&bench::harness_step::run(&harness, &dir, submissions).await.into_diagnostic()?)
        }
        Bench::Runs { server, token, workflow, concurrency, runs } => {
            let options = bench::runs::Options { server, token, workflow, concurrency, runs };
            print_line(&bench::runs::run(&options).await.into_diagnostic()?)
        }
        Bench::CommonWork => std::io::stdout().write_all(bench::runs::WORKFLOW.as_bytes()).into_diagnostic(),
        Bench::Suite { dir, jr2, harness, divide } => {
            let part = |n: usize| (n / divide.max(1)).max(1);
            let options = bench::suite::Options {
                jr2: beside(jr2, "jr2")?,
                harness: beside(harness, "jr2-harness")?,
                folder: dir,
                loads: SUITE_LOADS.iter().map(|(at_once, runs)| (*at_once, part(*runs))).collect(),
                parked: part(SUITE_PARKED.0),
                many_parked: part(SUITE_PARKED.1),
            };
            print_line(&bench::suite::run(&options, |part| tracing::info!("{part}")).await.into_diagnostic()?)
        }
    }
}

/// A binary as named, or the one beside this one.
fn beside(named: Option<PathBuf>, name: &str) -> miette::Result<PathBuf> {
    match named {
        // It is started in another folder.
        Some(path) => std::path::absolute(path).into_diagnostic(),
        None => Ok(std::env::current_exe().into_diagnostic()?.with_file_name(name)),
    }
}

/// One JSON line on stdout, flushed: whoever started this waits for it.
fn print_line(value: &impl Serialize) -> miette::Result<()> {
    let mut out = std::io::stdout().lock();
    let line = serde_json::to_string(value).into_diagnostic()?;
    writeln!(out, "{line}").into_diagnostic()?;
    out.flush().into_diagnostic()
}
