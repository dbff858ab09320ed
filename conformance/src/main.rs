//! The `jr2-conformance` command.

use clap::{Parser, Subcommand};
use jr2_conformance::model::{Options, Script, ScriptedModel};
use jr2_conformance::suite::command::{RunArguments, execute};
use jr2_conformance::{bench, cache};
use miette::IntoDiagnostic;
use serde::Serialize;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
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
    /// Does every request of a conversation begin with the one before it, so that a server's prompt cache serves it?
    ///
    /// A real Harness process goes through a conversation of many Turns; everything it asks its model is compared.
    Cache(cache::Options),
    /// Judge a Harness: run every claim of the suite and print a table.
    Run(Box<RunArguments>),
    /// Run each memory hog against a real Harness in a real cgroup and print who was first. Needs root.
    GuardTrials {
        /// How often each.
        #[arg(long, default_value_t = 100)]
        trials: usize,
        /// Only this one: `ramp-RATE` (MiB/s, 0 = no bound), `memset`, `parallel`, `many`, `shm`, `bomb`, `sockets`, `cache`.
        #[arg(long)]
        hog: Option<String>,
        /// On cgroup v2: the Harness polls its group and does not divide it.
        #[arg(long)]
        undivided: bool,
        /// The Harness binary; beside this one when not given.
        #[arg(long)]
        harness: Option<PathBuf>,
        /// An empty folder on a disk.
        #[arg(long)]
        dir: PathBuf,
    },
    /// Be a memory hog: `JR2_HOG='NAME MIB'` says which.
    #[command(hide = true)]
    Hog,
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
        /// How many of them at the same time, each a conversation of its own.
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
        at_once: u16,
    },
    /// Memory of an Instance Harness for each conversation it holds.
    Conversations {
        /// The Harness binary; beside this one when not given.
        #[arg(long)]
        harness: Option<PathBuf>,
        /// An empty folder on the disk that keeps the conversations.
        #[arg(long)]
        dir: PathBuf,
        /// How many.
        #[arg(long, default_value_t = 1_000)]
        count: usize,
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
    /// What the memory guard costs, by meter, far from the limit and near it. Needs root.
    Guard {
        /// The Harness binary; beside this one when not given.
        #[arg(long)]
        harness: Option<PathBuf>,
        /// An empty folder on a disk.
        #[arg(long)]
        dir: PathBuf,
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

fn main() -> miette::Result<ExitCode> {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match Arguments::parse().command {
        Command::Model { script, listen, record } => {
            let script = Script::load(&script).into_diagnostic()?;
            let model = ScriptedModel::start_with(script, &Options { listen, record }).into_diagnostic()?;
            print_line(&serde_json::json!({"url": model.url(), "address": model.address()}))?;
            model.wait();
            Ok(ExitCode::SUCCESS)
        }
        Command::Run(arguments) => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().into_diagnostic()?;
            Ok(runtime.block_on(execute(*arguments)))
        }
        Command::Hog if bench::guard::hog::run() => Ok(ExitCode::SUCCESS),
        Command::Hog => Err(miette::miette!("JR2_HOG names no hog")),
        Command::GuardTrials { trials, hog, undivided, harness, dir } => {
            runtime()?.block_on(guard_trials(trials, hog.as_deref(), !undivided, harness, dir))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Bench(bench) => {
            runtime()?.block_on(measure(bench))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Cache(options) => {
            runtime()?.block_on(look(&options))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn runtime() -> miette::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().into_diagnostic()
}

/// How this program is started as a hog.
fn hog_program() -> miette::Result<String> {
    Ok(format!("{} hog", std::env::current_exe().into_diagnostic()?.display()))
}

/// One line a hog, as soon as it is known.
async fn guard_trials(
    trials: usize,
    hog: Option<&str>,
    divided: bool,
    harness: Option<PathBuf>,
    dir: PathBuf,
) -> miette::Result<()> {
    use bench::guard::{Hog, run};
    let (harness, dir) = (beside(harness, "jr2-harness")?, std::path::absolute(dir).into_diagnostic()?);
    let hogs = match hog {
        Some(name) => vec![Hog::parse(name).ok_or_else(|| miette::miette!("there is no hog `{name}`"))?],
        None => Hog::SHOT.into_iter().chain([Hog::Cache]).collect(),
    };
    for hog in hogs {
        print_line(&run(&harness, &dir, &hog_program()?, hog, trials, divided).await.into_diagnostic()?)?;
    }
    Ok(())
}

/// The Sizes that the guard's cost is measured for, in MiB.
const GUARD_LIMITS_MIB: [u64; 2] = [256, 2048];

async fn guard_cost(harness: Option<PathBuf>, dir: PathBuf) -> miette::Result<()> {
    let (harness, dir) = (beside(harness, "jr2-harness")?, std::path::absolute(dir).into_diagnostic()?);
    for in_group in [true, false] {
        for limit in GUARD_LIMITS_MIB {
            let costs = bench::guard::measure(&harness, &dir, &hog_program()?, in_group, limit).await;
            for cost in costs.into_diagnostic()? {
                print_line(&cost)?;
            }
        }
    }
    Ok(())
}

/// Looks at the prompt cache; an error when a request does not begin with the one before it.
async fn look(options: &cache::Options) -> miette::Result<()> {
    let harness = cache::harness_binary(options.harness_bin.as_deref()).into_diagnostic()?;
    let folder = std::env::temp_dir().join(format!("jr2-cache-{}", std::process::id()));
    std::fs::create_dir_all(&folder).into_diagnostic()?;
    let report = match cache::run(options, &harness, &folder).await {
        Ok(report) => report,
        Err(error) => return Err(miette::miette!("{error} (the Harness's log: {}/harness.log)", folder.display())),
    };
    if options.json {
        print_line(&report)?;
    } else {
        std::io::stdout().write_all(report.table().as_bytes()).into_diagnostic()?;
    }
    std::fs::remove_dir_all(&folder).into_diagnostic()?;
    if report.is_whole() {
        return Ok(());
    }
    Err(miette::miette!("a continued request repeats only {:.2} % of the one before it", report.least_shared_percent))
}

async fn measure(bench: Bench) -> miette::Result<()> {
    match bench {
        Bench::Fdatasync { dir, seconds } => {
            print_line(&bench::fdatasync::run(&dir, Duration::from_secs(seconds)).into_diagnostic()?)
        }
        Bench::ModelStep { count } => print_line(&bench::model_step::run(count).await.into_diagnostic()?),
        Bench::HarnessStep { harness, dir, submissions, at_once } => {
            let harness = beside(harness, "jr2-harness")?;
            let report = bench::harness_step::run(&harness, &dir, submissions, at_once.into()).await;
            print_line(&report.into_diagnostic()?)
        }
        Bench::Conversations { harness, dir, count } => {
            let harness = beside(harness, "jr2-harness")?;
            print_line(&bench::conversations::run(&harness, &dir, count).await.into_diagnostic()?)
        }
        Bench::Runs { server, token, workflow, concurrency, runs } => {
            let options = bench::runs::Options { server, token, workflow, concurrency, runs };
            print_line(&bench::runs::run(&options).await.into_diagnostic()?)
        }
        Bench::Guard { harness, dir } => guard_cost(harness, dir).await,
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
