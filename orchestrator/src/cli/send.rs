//! `jr2 send`: answers a Gate, or sends an outside event.

use super::exit::{Done, Exit, Failure};
use super::follow::{Progress, Until};
use super::interrupt::Interrupts;
use super::reach::Reach;
use super::run::{drive_from, limited};
use super::{Global, input, output};
use clap::Args;
use serde_json::Value;
use std::time::Duration;

const EXAMPLES: &str = "Examples:
  jr2 send 7qf3 --event approve
  jr2 send 7qf3 --gate review --activation review#1 --event request_changes --field notes='say why'
  jr2 send 7qf3 --event deployed --payload '{\"version\": 3}'

Without a server it opens the store, goes on with the run to its next wait, and exits: 0, 3 at another Gate, 4 in fault.";

/// Answer a Gate of a run, or send it an outside event.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Send {
    /// The run: its id or a prefix of 4 characters or more.
    #[arg(value_parser = super::run_prefix)]
    run: String,
    /// The event.
    #[arg(long, short)]
    event: String,
    /// The Gate; needed only when several are open that take the event.
    #[arg(long, short)]
    gate: Option<String>,
    /// The payload as a JSON object.
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
    /// One field of the payload; may be repeated.
    #[arg(long, short, value_name = "NAME=VALUE")]
    field: Vec<String>,
    /// Only this activation of the Gate: an answer that comes too late changes nothing.
    #[arg(long)]
    activation: Option<String>,
    /// Idempotency key: the same key is the same answer.
    #[arg(long)]
    key: Option<String>,
    /// Stop following after this long, as in 30m. Exits 124.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    deadline: Option<Duration>,
}

impl Send {
    /// Runs the command.
    pub async fn run(self, global: &Global) -> Done {
        // What is wrong with the command line is said before any run is looked for.
        input::object(&self.texts(), None, &|_| None)?;
        let mut interrupts = Interrupts::listen()?;
        let reach = Reach::open(global).await?;
        let done = tokio::select! {
            done = limited(self.send(global, &reach), self.deadline) => done,
            () = interrupts.next() => Err(Failure::new(Exit::Interrupted, "interrupted; the run keeps its place")),
        };
        interrupts.then_at_once();
        reach.close().await;
        done
    }

    async fn send(&self, global: &Global, reach: &Reach) -> Done {
        let status = reach.client.status(&self.run).await?;
        let run = status["runId"].as_str().unwrap_or(&self.run).to_owned();
        let gate = self.gate_of(&status)?;
        let schema = gate.as_ref().and_then(|g| payload_schema(g, &self.event));
        let mut body = input::object(&self.texts(), None, &|name| input::property(schema.as_ref(), name))?;
        body["type"] = Value::String(self.event.clone());
        let key = self.key.as_deref();
        let answer = match &gate {
            Some(gate) => {
                let name = gate["gate"].as_str().unwrap_or_default();
                reach.client.answer(&run, name, &body, self.activation.as_deref(), key).await?
            }
            None => reach.client.event(&run, &body, key).await?,
        };
        output::say(&format!("run {run} took {}", self.event));
        if reach.own().is_some() {
            // What it said before was shown when it was said.
            let heard = status["rev"].as_u64().unwrap_or(0);
            return drive_from(reach, global, &run, Until::Wait, Progress::after(heard)).await;
        }
        if global.json {
            output::json(&answer);
        }
        Ok(Exit::Ok)
    }

    fn texts(&self) -> Vec<String> {
        self.payload.iter().chain(&self.field).cloned().collect()
    }

    /// The Gate that is meant: the named one, or the only open one that takes the event.
    fn gate_of(&self, status: &Value) -> Result<Option<Value>, Failure> {
        let gates: Vec<&Value> = status["gates"].as_array().into_iter().flatten().collect();
        if let Some(name) = &self.gate {
            // The server says what is wrong with a name that is not open, and knows answers it took before.
            let found = gates.into_iter().find(|g| g["gate"] == name.as_str()).cloned();
            return Ok(Some(found.unwrap_or_else(|| serde_json::json!({ "gate": name }))));
        }
        let mut takers = gates.into_iter().filter(|g| payload_event(g, &self.event).is_some());
        match (takers.next(), takers.next()) {
            (Some(first), Some(second)) => Err(Failure::usage(format!(
                "several Gates take \"{}\": {} and {}",
                self.event,
                first["gate"].as_str().unwrap_or_default(),
                second["gate"].as_str().unwrap_or_default()
            ))
            .help("name one with --gate")),
            (first, _) => Ok(first.cloned()),
        }
    }
}

fn payload_event<'g>(gate: &'g Value, event: &str) -> Option<&'g Value> {
    gate["accepts"].as_array()?.iter().find(|e| e["name"] == event)
}

fn payload_schema(gate: &Value, event: &str) -> Option<Value> {
    payload_event(gate, event)?.get("payload").cloned()
}
