//! The `jr2` command line: one file a subcommand.
//!
//! stdout is data, stderr is the rest. Commands that act speak HTTP: to the server that answers, else to an Orchestrator
//! of their own for as long as they run. Commands that read look into the store when no server answers, and start nothing.

mod adopt;
mod attempt;
mod cancel;
mod check;
mod client;
mod completions;
mod exit;
mod explain;
mod follow;
mod gate;
mod graph;
mod history;
mod init;
mod input;
mod interrupt;
mod isolation;
mod logs;
mod output;
mod programs;
mod reach;
mod replay;
mod run;
mod runs;
mod schema;
mod send;
mod serve;
mod sse;
mod status;
mod store;
mod version;

use clap::{Args, Parser, Subcommand};
use exit::{Done, Exit, Failure};
use jr2_shared::ids::{RUN_ID_LEN, RUN_PREFIX_MIN};
use std::path::PathBuf;
use std::process::ExitCode;

/// Threads of the runtime: runs mostly wait; the second keeps the API quick beside a large restore.
const WORKERS: usize = 2;

const EXAMPLES: &str = "Examples:
  jr2 try --yes                          the whole thing on a sample, no account needed
  jr2 init && jr2 check workflows/*.yaml start a folder of your own
  jr2 serve                              keep runs going
  jr2 run fix-test --input repo=$PWD     start one and follow it
  jr2 send 7qf3 --event approve          answer its Gate

Exit codes: 0 ok, 1 failed, 2 usage, 3 a person's answer is needed, 4 the run ended in fault, 5 not found,
75 another process owns the store, 124 deadline, 130 interrupted, 141 nobody reads the results.

Environment: JR2_SERVER is --server; JR2_TOKEN is the Instance token of a named server (else .jr2/token).";

/// Runs agent workflows: state machines that a person can read before they run.
#[derive(Parser)]
#[command(name = "jr2", version, after_help = EXAMPLES, propagate_version = true, max_term_width = 110)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// What every command takes.
#[derive(Args, Clone, Debug)]
struct Global {
    /// The Instance's folder, with jr2.yaml and .jr2.
    #[arg(long, global = true, value_name = "DIR", help_heading = "Global options")]
    dir: Option<PathBuf>,
    /// URL of the server to speak to [default: the one of the folder].
    #[arg(long, global = true, env = "JR2_SERVER", value_name = "URL", help_heading = "Global options")]
    server: Option<String>,
    /// Print the result as JSON on stdout.
    #[arg(long, global = true, help_heading = "Global options")]
    json: bool,
}

impl Global {
    fn dir(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(|| PathBuf::from("."))
    }

    /// How a line that is printed for later names the same folder.
    fn options(&self) -> String {
        self.dir.as_ref().map(|d| format!(" --dir {}", d.display())).unwrap_or_default()
    }
}

#[derive(Subcommand)]
enum Command {
    Try(attempt::Try),
    Init(init::Init),
    Check(check::Check),
    Run(run::Run),
    Send(send::Send),
    Cancel(cancel::Cancel),
    Runs(runs::Runs),
    Status(status::Status),
    Logs(logs::Logs),
    Serve(serve::Serve),
    History(history::History),
    Replay(replay::Replay),
    Adopt(adopt::Adopt),
    Store(store::Store),
    Schema(schema::Schema),
    Graph(graph::Graph),
    Explain(explain::Explain),
    Completions(completions::Completions),
    Version(version::Version),
}

/// Runs the command line and answers the process's exit code (decision 17).
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    crate::tls::install();
    start_log(matches!(cli.command, Command::Serve(_)));
    let traces = start_traces(&cli.command);
    let done = written(dispatch(cli));
    drop(traces); // sends what was finished
    match done {
        Ok(exit) => exit.into(),
        Err(failure) => {
            output::say(&failure.text());
            failure.exit.into()
        }
    }
}

/// A command that worked but whose results were lost did not work. Another exit code says more and stays.
fn written(done: Done) -> Done {
    match (&done, output::unwritten()) {
        (Ok(Exit::Ok), Some(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(Exit::ClosedPipe),
        (Ok(_), Some(error)) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::failed(format!("the result could not be written to stdout: {error}")))
        }
        _ => done,
    }
}

fn start_log(serving: bool) {
    let usual = if serving { "info" } else { "error" };
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(usual));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).init();
}

/// Commands that may run runs of their own say what they did to a collector, where one is named.
fn start_traces(command: &Command) -> jr2_telemetry::Traces {
    if !matches!(command, Command::Serve(_) | Command::Run(_) | Command::Send(_) | Command::Try(_)) {
        return jr2_telemetry::Traces::default();
    }
    crate::tls::install();
    jr2_telemetry::start("jr2-orchestrator", env!("CARGO_PKG_VERSION")).unwrap_or_else(|error| {
        output::say(&format!("{error}; nothing is traced"));
        jr2_telemetry::Traces::default()
    })
}

fn dispatch(cli: Cli) -> Done {
    let Cli { global, command } = cli;
    match command {
        Command::Try(it) => it.run(&global),
        Command::Init(it) => it.run(&global),
        Command::Check(it) => it.run(&global),
        Command::Run(it) => in_runtime(it.run(&global)),
        Command::Send(it) => in_runtime(it.run(&global)),
        Command::Cancel(it) => in_runtime(it.run(&global)),
        Command::Runs(it) => in_runtime(it.run(&global)),
        Command::Status(it) => in_runtime(it.run(&global)),
        Command::Logs(it) => in_runtime(it.run(&global)),
        Command::Serve(it) => in_runtime(it.run(&global)),
        Command::History(it) => in_runtime(it.run(&global)),
        Command::Replay(it) => in_runtime(it.run(&global)),
        Command::Adopt(it) => in_runtime(it.run(&global)),
        Command::Store(it) => it.run(&global),
        Command::Schema(it) => Ok(it.run()),
        Command::Graph(it) => it.run(),
        Command::Explain(it) => it.run(&global),
        Command::Completions(it) => Ok(it.run::<Cli>()),
        Command::Version(_) => Ok(version::Version::run(&global)),
    }
}

/// A run as a person names it: 4 to 26 characters of an id.
fn run_prefix(text: &str) -> Result<String, String> {
    let known = text.bytes().all(|b| b.is_ascii_lowercase() || (b'2'..=b'7').contains(&b));
    match text.len() {
        0..RUN_PREFIX_MIN => Err(format!("too short: a run is named by {RUN_PREFIX_MIN} characters or more")),
        RUN_PREFIX_MIN..=RUN_ID_LEN if known => Ok(text.to_owned()),
        _ => Err(format!("no run id: it has {RUN_ID_LEN} characters at most, `a` to `z` and `2` to `7`")),
    }
}

/// Runs a command's future; what it leaves behind, such as a prompt that still reads, does not hold the exit.
fn in_runtime(work: impl Future<Output = Done>) -> Done {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()
        .map_err(|e| Failure::failed(format!("the runtime did not start: {e}")))?;
    let done = runtime.block_on(work);
    runtime.shutdown_background();
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed_and_every_command_has_examples() {
        Cli::command().debug_assert();
        for command in Cli::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.starts_with("Examples:\n"), "`jr2 {}` has no examples", command.get_name());
        }
    }
}
