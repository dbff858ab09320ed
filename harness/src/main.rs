//! `jr2-harness`: reads its environment, rebuilds its conversations, serves.

use clap::Parser;
use jr2_harness::config::Settings;
use jr2_harness::conversation::Hall;
use jr2_harness::menu::{Custodian, Ladder};
use jr2_harness::model::ModelClient;
use jr2_harness::server::{self, App};
use jr2_harness::turn::Means;
use jr2_harness::turn::printer::Printer;
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
  JR2_SANDBOX_DIR, JR2_TOOLCHAINS, JR2_PASS_ENV, JR2_DENY_TCP_PORTS, JR2_ALLOW_TCP_PORTS
                            what the Agent's commands may see and reach
  RUST_LOG                  log filter (default info)";

fn main() -> ExitCode {
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
    jr2_harness::tools::isolate::log_support();
    let settings = Settings::read(|name| std::env::var(name).ok())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build()?;
    let served = runtime.block_on(start(settings));
    // A tool that would not die must not hold the exit.
    runtime.shutdown_background();
    served
}

fn step() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let end = runtime.block_on(jr2_harness::step::run())?;
    let mut line = serde_json::to_vec(&end)?;
    line.push(b'\n');
    std::io::Write::write_all(&mut std::io::stdout(), &line)?;
    runtime.shutdown_background(); // its standard input may stay open
    Ok(())
}

async fn start(settings: Settings) -> Result<(), Box<dyn std::error::Error>> {
    let means = Arc::new(Means {
        custodian: Custodian::new(&settings.custodian_url, settings.sandbox_token.clone(), Ladder::default())?,
        model: ModelClient::new(&settings.model, &settings.custodian_url)?,
        facts: settings.facts,
        printer: Printer::start()?,
    });
    let hall = Arc::new(Hall::new(Arc::clone(&means), settings.conversations_dir.clone()));
    hall.rebuild().await?;
    let app = App {
        settings,
        hall,
        means,
        epoch: std::sync::atomic::AtomicU64::new(0),
        closing: tokio::sync::watch::Sender::new(false),
    };
    server::serve(Arc::new(app)).await?;
    Ok(())
}
