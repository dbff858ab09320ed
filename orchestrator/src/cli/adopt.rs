//! `jr2 adopt`: moves a run to the present text of its workflow.

use super::exit::{Done, Exit};
use super::reach::Reach;
use super::{Global, output};
use clap::Args;

const EXAMPLES: &str = "Examples:
  jr2 adopt 7qf3      refused when the run stands in a state that the new text does not have";

/// Move a live run to the present text of its workflow.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Adopt {
    /// The run: its id or a prefix of 4 characters or more.
    #[arg(value_parser = super::run_prefix)]
    run: String,
}

impl Adopt {
    /// Runs the command.
    pub async fn run(self, global: &Global) -> Done {
        let reach = Reach::open(global).await?;
        let work = async {
            let run = reach.client.resolve(&self.run).await?;
            let answer = reach.client.adopt(&run).await?;
            output::say(&format!("run {run} goes on under the present text"));
            if global.json {
                output::json(&answer);
            }
            Ok(Exit::Ok)
        };
        let done = work.await;
        reach.close().await;
        done
    }
}
