//! `jr2 logs`: a run's feed.

use super::exit::{Done, Exit, Failure};
use super::follow::{Progress, Rest, Until, exit_of, follow};
use super::interrupt::Interrupts;
use super::reach::{no_run, read_store, server};
use super::run::limited;
use super::{Global, output};
use clap::Args;
use serde_json::json;
use std::time::Duration;

const EXAMPLES: &str = "Examples:
  jr2 logs 7qf3
  jr2 logs 7qf3 -f                  until it ends
  jr2 logs 7qf3 --json              one JSON line an entry";

/// Show what a run said so far: its feed.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Logs {
    /// The run: its id or a prefix of 4 characters or more.
    #[arg(value_parser = super::run_prefix)]
    run: String,
    /// Go on until the run ends; needs a server.
    #[arg(long, short)]
    follow: bool,
    /// Stop following after this long, as in 30m. Exits 124.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    deadline: Option<Duration>,
}

impl Logs {
    /// Runs the command.
    pub async fn run(self, global: &Global) -> Done {
        let client = server(global).await?;
        if self.follow {
            let client = client.ok_or_else(|| {
                Failure::failed("no server answers, so nothing more will be said").help("start one with `jr2 serve`")
            })?;
            let run = client.resolve(&self.run).await?;
            let mut interrupts = Interrupts::listen()?;
            let work = async {
                let mut progress = Progress::new();
                loop {
                    if let Rest::Ended(status) = follow(&client, &run, &mut progress, Until::End).await? {
                        return Ok(exit_of(&status));
                    }
                }
            };
            return tokio::select! {
                done = limited(work, self.deadline) => done,
                () = interrupts.next() => Ok(Exit::Interrupted),
            };
        }
        let entries = match client {
            Some(client) => client.history(&client.resolve(&self.run).await?, 0).await?["entries"].clone(),
            None => read_store(global, |stored| Ok(json!(stored.history(&stored.resolve(&self.run)?, 0)?)))?
                .ok_or_else(|| no_run(&self.run))?,
        };
        let mut progress = Progress::onto_stdout();
        for entry in entries.as_array().into_iter().flatten() {
            for (index, said) in entry["feed"].as_array().into_iter().flatten().enumerate() {
                let id = format!("{}.{index}", entry["rev"]);
                if global.json {
                    let line = json!({ "id": id, "at": entry["now"], "kind": said["kind"], "data": said["data"] });
                    output::data(&line.to_string());
                } else {
                    progress.entry(said["kind"].as_str().unwrap_or_default(), &said["data"]);
                }
            }
        }
        Ok(Exit::Ok)
    }
}
