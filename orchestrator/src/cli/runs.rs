//! `jr2 runs`: the run list.

use super::exit::{Done, Exit};
use super::reach::{read_store, server};
use super::{Global, output};
use clap::Args;
use serde_json::{Value, json};

const EXAMPLES: &str = "Examples:
  jr2 runs
  jr2 runs --workflow fix-test --json | jq -r '.runs[] | select(.status == \"live\").runId'";

/// List runs: live ones, and ended ones of the last week.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Runs {
    /// Only runs of this workflow.
    #[arg(long, short)]
    workflow: Option<String>,
}

impl Runs {
    /// Runs the command.
    pub async fn run(self, global: &Global) -> Done {
        let found = match server(global).await? {
            Some(client) => client.get("/runs").await?["runs"].clone(),
            None => read_store(global, |stored| Ok(json!(stored.list(None)?)))?.unwrap_or_else(|| json!([])),
        };
        let mut runs: Vec<Value> = found.as_array().cloned().unwrap_or_default();
        runs.retain(|run| self.workflow.as_deref().is_none_or(|name| run["workflow"] == name));
        runs.sort_by_key(|run| std::cmp::Reverse(text(run, "started")));
        if global.json {
            output::json(&json!({ "runs": runs }));
            return Ok(Exit::Ok);
        }
        if runs.is_empty() {
            output::say("There are no runs.");
            return Ok(Exit::Ok);
        }
        let mut rows = vec![["RUN", "WORKFLOW", "STATUS", "STATE", "STARTED"].map(str::to_owned).to_vec()];
        rows.extend(runs.iter().map(|run| {
            let states = output::states(&run["value"]);
            vec![text(run, "runId"), text(run, "workflow"), text(run, "status"), states, text(run, "started")]
        }));
        output::data(&output::table(&rows));
        Ok(Exit::Ok)
    }
}

fn text(run: &Value, name: &str) -> String {
    run[name].as_str().unwrap_or_default().to_owned()
}
