//! `jr2 status`: where a run stands.

use super::exit::{Done, Exit, Failure};
use super::reach::{no_run, read_store, server};
use super::{Global, gate, isolation, output};
use crate::workspace::SavedBranch;
use clap::Args;
use serde_json::{Value, json};
use std::fmt::Write as _;

const EXAMPLES: &str = "Examples:
  jr2 status 7qf3
  jr2 status 7qf3 --json | jq .gates";

/// Show where a run stands: its states, open Gates, Turns, output and branches.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Status {
    /// The run: its id or a prefix of 4 characters or more.
    #[arg(value_parser = super::run_prefix)]
    run: String,
}

impl Status {
    /// Runs the command.
    pub async fn run(self, global: &Global) -> Done {
        let mut status = of(global, &self.run).await?;
        if let Some(client) = server(global).await? {
            isolation::add(&client, &mut status).await;
        }
        if global.json {
            output::json(&status);
        } else {
            output::data(&output::plain(&words(&status, &global.options())));
        }
        Ok(Exit::Ok)
    }
}

/// The status of a run, from the server or from the store.
pub async fn of(global: &Global, prefix: &str) -> Result<Value, Failure> {
    match server(global).await? {
        Some(client) => client.status(prefix).await,
        None => read_store(global, |stored| Ok(json!(stored.status(&stored.resolve(prefix)?)?)))?
            .ok_or_else(|| no_run(prefix)),
    }
}

/// What is not in a saved branch, for people.
pub fn left_out(branch: &Value) -> Option<String> {
    serde_json::from_value::<SavedBranch>(branch.clone()).ok()?.left_out_words()
}

/// A status for people.
pub fn words(status: &Value, options: &str) -> String {
    let text = |name: &str| status[name].as_str().unwrap_or_default();
    let mut out = format!("run {} of {}: {}", text("runId"), text("workflow"), text("status"));
    let states = output::states(&status["value"]);
    if text("status") == "live" && !states.is_empty() {
        let _ = write!(out, " in {states}");
    }
    for name in ["fault", "reason"] {
        if !text(name).is_empty() {
            let _ = write!(out, "\n  {name}: {}", text(name));
        }
    }
    for turn in status["turns"].as_array().into_iter().flatten() {
        let _ = write!(out, "\n  {} works ({})", turn["agent"].as_str().unwrap_or_default(), turn["phase"]);
    }
    for wait in status["waiting"].as_array().into_iter().flatten() {
        let _ = write!(out, "\n  {}", wait["message"].as_str().unwrap_or_default());
    }
    for open in status["gates"].as_array().into_iter().flatten() {
        let _ = write!(out, "\n{}", gate::describe(open));
        for line in gate::send_lines(text("runId"), open, options) {
            let _ = write!(out, "\n    {line}");
        }
    }
    if !status["output"].is_null() {
        let _ = write!(out, "\n  output: {}", status["output"]);
    }
    for branch in status["branches"].as_array().into_iter().flatten() {
        let field = |name: &str| branch[name].as_str().unwrap_or_default().to_owned();
        let _ = write!(
            out,
            "\n  branch {} is saved in {} (commit {:.12})",
            field("branch"),
            field("repository"),
            field("commit")
        );
        if let Some(words) = left_out(branch) {
            let _ = write!(out, "\n    {words}");
        }
    }
    for line in isolation::lines(status) {
        let _ = write!(out, "\n  {line}");
    }
    for kept in status["keptWorkspaces"].as_array().into_iter().flatten() {
        let _ = write!(out, "\n  a Workspace is kept: {}", kept.as_str().unwrap_or_default());
    }
    out
}
