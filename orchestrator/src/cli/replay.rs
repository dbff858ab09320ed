//! `jr2 replay`: re-steps a run and compares.

use super::exit::{Done, Exit};
use super::reach::{no_run, read_store, server};
use super::{Global, output};
use clap::Args;
use serde_json::{Value, json};

const EXAMPLES: &str = "Examples:
  jr2 replay 7qf3       exits 1 when this engine would have stepped it differently";

/// Re-step a run from its recorded inputs and compare with what was saved. Nothing is changed.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Replay {
    /// The run: its id or a prefix of 4 characters or more.
    #[arg(value_parser = super::run_prefix)]
    run: String,
}

impl Replay {
    /// Runs the command.
    pub async fn run(self, global: &Global) -> Done {
        let found: Value = match server(global).await? {
            Some(client) => client.replay(&client.resolve(&self.run).await?).await?,
            None => read_store(global, |stored| Ok(json!(stored.replay(&stored.resolve(&self.run)?)?)))?
                .ok_or_else(|| no_run(&self.run))?,
        };
        let difference = &found["difference"];
        if global.json {
            output::json(&found);
        } else if difference.is_null() {
            output::data(&format!("{} saves re-stepped; no difference", found["steps"]));
        } else {
            output::data(&format!(
                "save {} differs in {}\n  recorded: {}\n  replayed: {}",
                difference["rev"],
                difference["part"].as_str().unwrap_or_default(),
                difference["recorded"].as_str().unwrap_or_default(),
                difference["replayed"].as_str().unwrap_or_default()
            ));
        }
        Ok(if difference.is_null() { Exit::Ok } else { Exit::Failed })
    }
}
