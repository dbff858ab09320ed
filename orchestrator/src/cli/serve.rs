//! `jr2 serve`: the Orchestrator of a folder.

use super::exit::{Done, Exit, Failure};
use super::interrupt::Interrupts;
use super::reach::{settings, sizes, store_failed};
use super::{Global, output, programs};
use crate::run::Host;
use crate::serve::{Deployment, Options, Orchestrator, Sizes, deploy, deploy_files, redeploy};
use clap::Args;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::signal::unix::{SignalKind, signal};

const EXAMPLES: &str = "Examples:
  jr2 serve
  jr2 serve --listen 127.0.0.1:0 --workflows flows
  jr2 serve flows/nightly.yaml
  kill -HUP PID       read the workflows folder again; runs under way keep their text

SIGTERM or SIGINT stops it: runs and their Harnesses keep their place. A second SIGINT ends it at once (130).";

/// Restore every run, then serve the API until told to stop.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Serve {
    /// Workflow files to serve instead of a folder; a wrong one is refused.
    files: Vec<PathBuf>,
    /// Where to listen; port 0 takes a free one [default: the settings', 127.0.0.1:4000].
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// The folder of workflow files [default: the settings', workflows].
    #[arg(long, value_name = "FOLDER", conflicts_with = "files")]
    workflows: Option<PathBuf>,
}

impl Serve {
    /// Runs the command.
    pub async fn run(self, global: &Global) -> Done {
        let mut interrupts = Interrupts::listen()?;
        let mut reload =
            signal(SignalKind::hangup()).map_err(|e| Failure::failed(format!("signals cannot be heard: {e}")))?;
        let mut settings = settings(global)?;
        if let Some(folder) = &self.workflows {
            settings.workflows = std::path::absolute(folder).unwrap_or_else(|_| folder.clone());
        }
        let sizes = sizes(&settings);
        let folder = settings.workflows.clone();
        let deployment =
            if self.files.is_empty() { deploy(&folder, &sizes) } else { deploy_files(&self.files, &sizes) };
        if !self.files.is_empty() && deployment.problems.has_errors() {
            return Err(deployment.problems.into());
        }
        report(&deployment);
        let options = Options {
            listen: self.listen.unwrap_or(settings.listen),
            programs: deployment.programs,
            harness: programs::harness(),
            fatal: Arc::new(store_failed),
            settings,
        };
        let orchestrator = Orchestrator::start(options).await?;
        let found = &orchestrator.report;
        tracing::info!(
            reattached = found.reattached.len(),
            ended = found.ended,
            lost = found.lost.len(),
            drifted = found.drifted.len(),
            failed = found.failed.len(),
            "serve.restored"
        );
        output::say(&format!("jr2 serves at {}", orchestrator.url));
        loop {
            tokio::select! {
                () = interrupts.next() => break,
                _ = reload.recv() => read_again(&orchestrator.host, &folder, &self.files, &sizes),
            }
        }
        interrupts.then_at_once();
        orchestrator.stop().await;
        Ok(Exit::Ok)
    }
}

fn report(deployment: &Deployment) {
    if !deployment.problems.is_empty() {
        output::say(&deployment.problems.plain());
    }
    if deployment.problems.has_errors() {
        output::say("jr2: these files are not served; the others are");
    }
    for name in &deployment.unbound {
        tracing::info!(workflow = %name, "serve.needs_bindings_or_a_parent");
    }
}

fn read_again(host: &Host, folder: &std::path::Path, files: &[PathBuf], sizes: &Sizes) {
    let before = host.programs();
    let deployment = if files.is_empty() {
        redeploy(folder, sizes, &before)
    } else {
        let mut read = deploy_files(files, sizes);
        for (name, program) in &before {
            read.programs.entry(name.clone()).or_insert_with(|| program.clone());
        }
        read
    };
    if !deployment.problems.is_empty() {
        output::say(&deployment.problems.plain());
    }
    if deployment.problems.has_errors() {
        output::say("jr2: files with errors keep what they were before");
    }
    output::say(&format!("jr2 serves {} workflows now", deployment.programs.len()));
    host.deploy(deployment.programs);
}
