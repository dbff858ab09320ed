//! `jr2 history`: every save of a run.

use super::exit::{Done, Exit};
use super::reach::{no_run, read_store, server};
use super::{Global, output};
use clap::Args;
use serde_json::{Value, json};

const EXAMPLES: &str = "Examples:
  jr2 history 7qf3
  jr2 history 7qf3 --from 40 --json";

/// Show every save of a run: what came in, the transitions it took, the effects that left after it.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct History {
    /// The run: its id or a prefix of 4 characters or more.
    #[arg(value_parser = super::run_prefix)]
    run: String,
    /// From this save on.
    #[arg(long, default_value_t = 0, value_name = "REV")]
    from: u64,
}

impl History {
    /// Runs the command.
    pub async fn run(self, global: &Global) -> Done {
        let entries = match server(global).await? {
            Some(client) => client.history(&client.resolve(&self.run).await?, self.from).await?["entries"].clone(),
            None => read_store(global, |stored| Ok(json!(stored.history(&stored.resolve(&self.run)?, self.from)?)))?
                .ok_or_else(|| no_run(&self.run))?,
        };
        if global.json {
            output::json(&json!({ "entries": entries }));
            return Ok(Exit::Ok);
        }
        let mut rows = vec![["REV", "AT", "INPUT", "TRANSITIONS", "EFFECTS"].map(str::to_owned).to_vec()];
        rows.extend(entries.as_array().into_iter().flatten().map(|entry| {
            let at = entry["now"].as_u64().map(crate::run::view::instant).unwrap_or_default();
            vec![
                entry["rev"].to_string(),
                at,
                input(&entry["input"]),
                list(&entry["transitions"]),
                list(&entry["effects"]),
            ]
        }));
        output::data(&output::table(&rows));
        Ok(Exit::Ok)
    }
}

/// An input in a few words.
fn input(input: &Value) -> String {
    let mut words = vec![input["t"].as_str().unwrap_or_default().to_owned()];
    for name in ["event", "gate", "sandbox"] {
        words.extend(input[name].as_str().map(str::to_owned));
    }
    words.extend(input["input"]["t"].as_str().map(str::to_owned));
    words.join(" ")
}

fn list(values: &Value) -> String {
    let all: Vec<&str> = values.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    all.join(", ")
}
