//! The `jr2-harness` command: reads its environment, rebuilds its conversations, serves.

use crate::config::Settings;
use crate::conversation::Hall;
use crate::guard::{self, Keeper};
use crate::menu::{Custodian, Ladder};
use crate::model::ModelClient;
use crate::server::{self, App};
use crate::turn::Means;
use crate::turn::printer::Printer;
use clap::Parser;
use std::process::ExitCode;
use std::sync::Arc;

/// Threads of the runtime: one Submission mostly waits, the second keeps `/healthz` quick beside it.
const WORKERS: usize = 2;

/// Runs an Agent's conversations inside its Sandbox.
#[derive(Parser)]
#[command(name = "jr2-harness", version, after_help = ENVIRONMENT)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Run one command as an Agent's would run: reads a request line, prints an end line (for Sandbox providers).
    Step,
}

const ENVIRONMENT: &str = "Without a subcommand it serves; its environment says everything:
  JR2_HARNESS_TOKEN_SHA256  digest of the bearer every route asks for (required)
  JR2_LISTEN                unix:/path or host:port (default 0.0.0.0:$PORT, PORT 8080)
  JR2_CUSTODIAN_URL         http://host:port or unix:/path (default http://127.0.0.1:8081)
  JR2_SANDBOX_TOKEN         bearer for the Custodian's control routes
  JR2_HARNESS_JSON          {\"providers\":[{\"id\":…,\"baseUrl\":…}]}
  JR2_CONVERSATIONS_DIR     where conversations persist (in memory only when unset)
  JR2_MENU_ONLY             run only Agents without Working tools
  JR2_CPUS, JR2_MEMORY      the Sandbox's Size, for the Briefing (memory default: the cgroup's limit)
  JR2_SHM                   `private` when /dev/shm is this Sandbox's own
  JR2_CGROUP                `private` when the memory cgroup is this Sandbox's own, `delegated` when it may be divided too
  JR2_SANDBOX_DIR, JR2_TOOLCHAINS, JR2_PASS_ENV, JR2_DENY_TCP_PORTS, JR2_ALLOW_TCP_PORTS
                            what the Agent's commands may see and reach
  RUST_LOG                  log filter (default info)";

/// The whole program; its exit code.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false).init();
    match arguments.command.map_or_else(run, |Command::Step| step()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("harness: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    crate::tools::limits::raise_open_files();
    crate::tools::isolate::log_support();
    let settings = Settings::read(|name| std::env::var(name).ok())?;
    crate::tls::install();
    // Dropped last: it sends what was finished.
    let _traces = jr2_telemetry::start("jr2-harness", env!("CARGO_PKG_VERSION"))
        .inspect_err(|error| tracing::error!("harness: {error}; nothing is traced"))
        .unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build()?;
    let served = runtime.block_on(start(settings));
    // A tool that would not die must not hold the exit.
    runtime.shutdown_background();
    served
}

fn step() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let end = runtime.block_on(crate::step::run())?;
    let mut line = serde_json::to_vec(&end)?;
    line.push(b'\n');
    std::io::Write::write_all(&mut std::io::stdout(), &line)?;
    runtime.shutdown_background(); // its standard input may stay open
    Ok(())
}

async fn start(settings: Settings) -> Result<(), Box<dyn std::error::Error>> {
    let calls = Arc::default();
    // The Instance Harness holds no Workspace, so it has nothing to guard and keeps no kill (spec M-20).
    let guarded = !settings.menu_only;
    let keeper = if guarded { Keeper::open(settings.conversations_dir.clone()) } else { Keeper::none() };
    let means = Arc::new(Means {
        custodian: Custodian::new(&settings.custodian_url, settings.sandbox_token.clone(), Ladder::default())?,
        model: ModelClient::new(&settings.model, &settings.custodian_url)?,
        facts: settings.facts,
        printer: Printer::start()?,
        calls: Arc::clone(&calls),
        keeper: Arc::new(keeper),
    });
    let hall = Arc::new(Hall::new(Arc::clone(&means), settings.conversations_dir.clone()));
    hall.rebuild().await?;
    let keeper = Arc::clone(&means.keeper);
    let (reports, worker) = guard::reports(calls, keeper, Arc::clone(&hall), settings.facts.shm_private);
    tokio::spawn(worker);
    let guard = if guarded { start_guard(&settings, &reports)? } else { guard::NO_GUARD };
    let app = App {
        guard,
        #[cfg(feature = "test-hooks")]
        injector: if guarded { Some(injector(&reports)?) } else { None },
        settings,
        hall,
        means,
        epoch: std::sync::atomic::AtomicU64::new(0),
        closing: tokio::sync::watch::Sender::new(false),
    };
    server::serve(Arc::new(app)).await?;
    drop(reports);
    Ok(())
}

/// Clears what an earlier life left in `/dev/shm` and starts the memory guard (spec H-18, M-3); answers which meter it has.
fn start_guard(settings: &Settings, reports: &guard::Reports) -> std::io::Result<&'static str> {
    let circumstances = settings.circumstances();
    if circumstances.shm_private {
        guard::shm::clear(std::path::Path::new(guard::shm::FOLDER));
    }
    let Some(chosen) = guard::choose(&circumstances) else {
        tracing::warn!(meter = guard::NO_GUARD, "memory guard: neither JR2_MEMORY nor a cgroup sets a limit");
        return Ok(guard::NO_GUARD);
    };
    let (name, limit) = (chosen.name(), chosen.limit());
    tracing::info!(meter = name, limit, shm_private = circumstances.shm_private, "memory guard");
    guard::start(guard::Watch::new(chosen, reports), reports.clone())?;
    Ok(name)
}

/// A guard that kills when a test says so.
#[cfg(feature = "test-hooks")]
fn injector(reports: &guard::Reports) -> std::io::Result<guard::injected::Injector> {
    let (injector, injected) = guard::injected::injected();
    guard::start(injected, reports.clone())?;
    Ok(injector)
}
