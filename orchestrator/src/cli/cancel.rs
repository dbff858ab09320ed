//! `jr2 cancel`: ends a run.

use super::exit::{Done, Exit};
use super::follow::settled;
use super::reach::Reach;
use super::{Global, output};
use clap::Args;
use serde_json::json;
use std::time::Duration;

/// How long an own Orchestrator waits for the run's Sandboxes to be removed.
const SETTLE_LIMIT: Duration = Duration::from_mins(1);

const EXAMPLES: &str = "Examples:
  jr2 cancel 7qf3
  jr2 cancel 7qf3 --keep      leave its Workspaces for a look";

/// End a run: its Turns are aborted, its Workspaces removed, its branches saved.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Cancel {
    /// The run: its id or a prefix of 4 characters or more.
    #[arg(value_parser = super::run_prefix)]
    run: String,
    /// Keep its Workspaces.
    #[arg(long)]
    keep: bool,
}

impl Cancel {
    /// Runs the command.
    pub async fn run(self, global: &Global) -> Done {
        let reach = Reach::open(global).await?;
        let work = async {
            let run = reach.client.resolve(&self.run).await?;
            reach.client.event(&run, &json!({ "type": "CANCEL", "keep": self.keep }), None).await?;
            if reach.own().is_some() {
                settled(&reach.client, &run, SETTLE_LIMIT).await;
            }
            output::say(&format!("run {run} is cancelled"));
            if global.json {
                output::json(&reach.client.status(&run).await?);
            }
            Ok(Exit::Ok)
        };
        let done = work.await;
        reach.close().await;
        done
    }
}
