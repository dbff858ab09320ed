//! `jr2-conformance run`: arguments in, exit code out.

use super::orchestrator::Listen;
use super::report::{Expected, json, junit, line, list, table};
use super::runner::{JOBS, Options, Target, run};
use clap::Args;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Exit code of a run with an unexpected result.
const UNEXPECTED: u8 = 1;
/// Exit code of a call that asks for something impossible.
const USAGE: u8 = 2;

/// Examples under `--help`.
pub const EXAMPLES: &str = "Examples:
  jr2-conformance run --list
  jr2-conformance run --command target/debug/jr2-harness
  jr2-conformance run --command 'node harness/main.js' --filter wire --filter auth.00
  jr2-conformance run --command ./harness --expected-failures known.txt --junit out.xml --json out.json
  jr2-conformance run --harness http://127.0.0.1:8080 --bearer SECRET \\
      --custodian 127.0.0.1:8081 --model 127.0.0.1:8082 --folder /work

Exit codes: 0 every result was expected, 1 one was not, 2 the call is wrong or nothing could start.
docs/conformance.md says what a Harness must offer and how to read a failure.";

/// What can be asked.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct RunArguments {
    /// A Harness that runs: http://host:port or unix:/path.
    #[arg(long, conflicts_with = "command", required_unless_present_any = ["command", "list"])]
    harness: Option<String>,
    /// How to start the Harness, as a shell reads it; it gets its settings by environment and serves on $PORT.
    #[arg(long)]
    command: Option<String>,
    /// The bearer that --harness accepts.
    #[arg(long, env = "JR2_CONFORMANCE_BEARER", requires = "harness", hide_env_values = true)]
    bearer: Option<String>,
    /// NAME=VALUE for a Harness that is started; may be given again.
    #[arg(long = "env", value_name = "NAME=VALUE")]
    variables: Vec<String>,
    /// Where the fake Orchestrator listens: host:port or unix:/path.
    #[arg(long, default_value = "127.0.0.1:0")]
    custodian: String,
    /// Where the scripted model listens.
    #[arg(long, default_value = "127.0.0.1:0")]
    model: SocketAddr,
    /// A folder that the Harness's working tools can use; a fresh temporary one when absent.
    #[arg(long)]
    folder: Option<PathBuf>,
    /// The Harness runs under a memory limit: allocating this many megabytes makes its guard fire.
    #[arg(long, value_name = "MB")]
    memory_hog: Option<u64>,
    /// Only claims whose id begins so; may be given again.
    #[arg(long)]
    filter: Vec<String>,
    /// Leave out claims whose check waits for a time of the wire.
    #[arg(long)]
    quick: bool,
    /// Print the claims and check nothing.
    #[arg(long)]
    list: bool,
    /// A file of ids that are expected to fail, one a line, `#` begins a comment.
    #[arg(long, value_name = "FILE")]
    expected_failures: Option<PathBuf>,
    /// Write a JUnit report here.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write a JSON report here.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Seconds a single check may take.
    #[arg(long, default_value_t = 45)]
    deadline: u64,
    /// Checks at once.
    #[arg(long, default_value_t = JOBS)]
    jobs: usize,
}

/// Runs it.
pub async fn execute(arguments: RunArguments) -> ExitCode {
    match judge(arguments).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(UNEXPECTED),
        Err(words) => {
            say(&mut std::io::stderr(), &format!("jr2-conformance run: {words}\n"));
            ExitCode::from(USAGE)
        }
    }
}

async fn judge(arguments: RunArguments) -> Result<bool, String> {
    let options = options(&arguments)?;
    if arguments.list {
        say(&mut std::io::stdout(), &list(&options.selected()));
        return Ok(true);
    }
    let heard = |verdict: &_| say(&mut std::io::stderr(), &format!("{}\n", line(verdict)));
    let report = run(&options, heard).await.map_err(|error| error.to_string())?;
    if let Some(path) = &arguments.junit {
        write(path, &junit(&report))?;
    }
    if let Some(path) = &arguments.json {
        write(path, &format!("{:#}\n", json(&report)))?;
    }
    say(&mut std::io::stdout(), &table(&report));
    Ok(report.is_as_expected())
}

fn options(arguments: &RunArguments) -> Result<Options, String> {
    let target = match (&arguments.harness, &arguments.command) {
        (Some(url), _) => {
            let bearer = arguments.bearer.clone().ok_or("--harness needs --bearer")?;
            Target::Url(url.clone(), bearer)
        }
        (None, Some(command)) => Target::Command(command.clone()),
        (None, None) => Target::Command(String::new()),
    };
    let pair = |text: &String| {
        let (name, value) = text.split_once('=').ok_or_else(|| format!("--env {text}: write NAME=VALUE"))?;
        Ok((name.to_owned(), value.to_owned()))
    };
    let expected = match &arguments.expected_failures {
        None => Expected::default(),
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
            Expected::parse(&text).map_err(|error| format!("{}: {error}", path.display()))?
        }
    };
    let custodian = match arguments.custodian.strip_prefix("unix:") {
        Some(path) => Listen::Unix(PathBuf::from(path)),
        None => Listen::Tcp(arguments.custodian.clone()),
    };
    Ok(Options {
        env: arguments.variables.iter().map(pair).collect::<Result<_, String>>()?,
        filter: arguments.filter.clone(),
        expected,
        deadline: Duration::from_secs(arguments.deadline.max(1)),
        jobs: arguments.jobs,
        quick: arguments.quick,
        custodian,
        model: arguments.model,
        folder: arguments.folder.clone().map(|path| std::path::absolute(&path).unwrap_or(path)),
        memory_hog: arguments.memory_hog,
        ..Options::new(target)
    })
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// A reader that is gone is no reason to end a run.
fn say(out: &mut impl std::io::Write, text: &str) {
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
