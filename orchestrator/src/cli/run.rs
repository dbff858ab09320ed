//! `jr2 run`: starts a run and follows it.

use super::exit::{Done, Exit, Failure};
use super::follow::{Progress, Rest, Until, exit_of, follow, settled};
use super::interrupt::Interrupts;
use super::reach::{self, Reach, settings, sizes};
use super::{Global, gate, input, output};
use crate::serve::size_bindings;
use crate::workflow::{Bindings, Catalog, Program, load_file};
use clap::Args;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long an own Orchestrator waits for Sandboxes of an ended run to be removed.
const SETTLE_LIMIT: Duration = Duration::from_mins(1);
/// How often a Gate is asked for again after a refused answer.
const ASK_MAX: usize = 100;

const EXAMPLES: &str = "Examples:
  jr2 run fix-test --input repo=$PWD
  jr2 run flows/review.yaml --input '{\"pages\": 3}' --bind agents.writer.model=openai/gpt-5-mini
  jr2 run nightly --input-file input.yaml --detach
  jr2 run fix-test --input repo=$PWD --json --deadline 30m > result.json

At a Gate it asks on a terminal; otherwise it prints the `jr2 send` line and exits 3 with the run parked.";

/// Start a run and follow it to its end or its next Gate.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Run {
    /// Name of a deployed workflow, or a workflow file.
    #[arg(value_name = "WORKFLOW|FILE")]
    workflow: String,
    /// An input field `NAME=VALUE`, or a JSON object; may be repeated.
    #[arg(long, short, value_name = "NAME=VALUE|JSON")]
    input: Vec<String>,
    /// A JSON or YAML file with the input; `-` is stdin.
    #[arg(long, value_name = "FILE")]
    input_file: Option<PathBuf>,
    /// Fills in or replaces a part of the workflow, such as `agents.NAME.model=PROVIDER/MODEL`; may be repeated.
    #[arg(long, value_name = "PATH=VALUE")]
    bind: Vec<String>,
    /// A YAML or JSON file with bindings.
    #[arg(long, value_name = "FILE")]
    bind_file: Option<PathBuf>,
    /// Only start it; needs a server.
    #[arg(long)]
    detach: bool,
    /// Idempotency key: the same key starts one run.
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Stop following after this long, as in 30m; the run keeps its place. Exits 124.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    deadline: Option<Duration>,
}

/// What is to be started.
enum Plan {
    Deployed(String),
    Program(Box<Program>),
}

impl Run {
    /// Runs the command.
    pub async fn run(self, global: &Global) -> Done {
        let mut interrupts = Interrupts::listen()?;
        let plan = self.plan(global)?;
        let reach = match (self.detach, reach::server(global).await?) {
            (true, None) => {
                return Err(Failure::usage("--detach needs a server that goes on with the run")
                    .help("start one with `jr2 serve`, or leave --detach away"));
            }
            _ => Reach::open(global).await?,
        };
        let work = async {
            let run = self.start(global, &reach, plan).await?;
            output::say(&format!("run {run} started"));
            if self.detach {
                if global.json {
                    output::json(&serde_json::json!({ "runId": run }));
                } else {
                    output::data(&run);
                }
                return Ok(Exit::Ok);
            }
            drive(&reach, global, &run, Until::Gate).await
        };
        let done = tokio::select! {
            done = limited(work, self.deadline) => done,
            () = interrupts.next() => Err(Failure::new(Exit::Interrupted, "interrupted; the run keeps its place")
                .help("`jr2 serve` goes on with it, `jr2 cancel RUN` ends it")),
        };
        interrupts.then_at_once();
        reach.close().await;
        done
    }

    fn plan(&self, global: &Global) -> Result<Plan, Failure> {
        let mut bindings = match &self.bind_file {
            Some(path) => Bindings::from_file(path)?,
            None => Bindings::default(),
        };
        bindings = bindings.merge(Bindings::from_pairs(&self.bind)?);
        let path = Path::new(&self.workflow);
        let settings = settings(global)?;
        if is_file(path) {
            let loaded = load_file(path)?;
            return program(&loaded.catalog, &loaded.workflow.name, &sizes(&settings), bindings);
        }
        if bindings.values.is_empty() {
            return Ok(Plan::Deployed(self.workflow.clone()));
        }
        let catalog = Catalog::from_dir(&settings.workflows)?;
        program(&catalog, &self.workflow, &sizes(&settings), bindings)
    }

    async fn start(&self, global: &Global, reach: &Reach, plan: Plan) -> Result<String, Failure> {
        let key = self.key.as_deref();
        match plan {
            Plan::Program(program) => {
                let schema = program.root_workflow().and_then(|w| w.input.clone());
                let input = self.input(schema.as_ref())?;
                reach.client.start_program(&program.canonical, &input, key).await
            }
            Plan::Deployed(name) => match reach.client.get(&format!("/workflows/{}", segment(&name)?)).await {
                Ok(known) => {
                    let input = self.input(known.get("input"))?;
                    reach.client.start(&name, &input, key).await
                }
                Err(failure) if failure.exit == Exit::NotFound => Err(self.not_deployed(global, failure)),
                Err(failure) => Err(failure),
            },
        }
    }

    fn input(&self, schema: Option<&Value>) -> Result<Value, Failure> {
        input::object(&self.input, self.input_file.as_deref(), &|name| input::property(schema, name))
    }

    /// Why a name is not deployed: its file may be wrong or open.
    fn not_deployed(&self, global: &Global, failure: Failure) -> Failure {
        let Ok(settings) = settings(global) else { return failure };
        let found = Catalog::from_dir(&settings.workflows).ok();
        let built = found.filter(|c| c.entries.contains_key(&self.workflow));
        match built.map(|catalog| Program::build(&catalog, &self.workflow, &Bindings::default())) {
            Some(Err(problems)) => problems.into(),
            _ => Failure::new(Exit::NotFound, format!("no workflow \"{}\"", self.workflow)).help(format!(
                "workflows are served from {}; a file is named with its path",
                settings.workflows.display()
            )),
        }
    }
}

/// A name that can stand in a path as it is; others are no workflow's.
fn segment(name: &str) -> Result<&str, Failure> {
    let plain = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    plain.then_some(name).ok_or_else(|| Failure::new(Exit::NotFound, format!("no workflow \"{name}\"")))
}

fn is_file(path: &Path) -> bool {
    path.components().count() > 1
        || path.extension().is_some_and(|e| ["yaml", "yml", "json"].iter().any(|known| e == *known))
}

fn program(catalog: &Catalog, root: &str, sizes: &crate::serve::Sizes, bindings: Bindings) -> Result<Plan, Failure> {
    if !catalog.entries.contains_key(root) {
        return Err(Failure::new(Exit::NotFound, format!("no workflow \"{root}\"")));
    }
    let all = size_bindings(catalog, root, sizes).merge(bindings);
    Ok(Plan::Program(Box::new(Program::build(catalog, root, &all)?)))
}

/// Follows a run to its end, answering Gates at the terminal; otherwise leaves it parked.
pub async fn drive(reach: &Reach, global: &Global, run: &str, until: Until) -> Done {
    drive_from(reach, global, run, until, Progress::new()).await
}

/// The same from a place of its feed on.
pub async fn drive_from(reach: &Reach, global: &Global, run: &str, until: Until, mut progress: Progress) -> Done {
    for _ in 0..ASK_MAX {
        match follow(&reach.client, run, &mut progress, until).await? {
            Rest::Ended(status) => return finish(reach, global, run, status).await,
            Rest::Idle(status) => {
                output::say(&format!("run {run} waits for an outside event or a delay"));
                print(global, &status);
                return Ok(Exit::Ok);
            }
            Rest::Gate(status) => {
                let gates = status["gates"].as_array().cloned().unwrap_or_default();
                if !output::interactive() {
                    return Ok(park(global, run, &status));
                }
                for gate in &gates {
                    output::say(&gate::describe(gate));
                    match gate::ask(&reach.client, run, gate).await {
                        Ok(true) => break,
                        Ok(false) => return Ok(park(global, run, &status)),
                        Err(failure) => output::say(&failure.text()),
                    }
                }
            }
        }
    }
    Err(Failure::failed("the Gate was asked for too often"))
}

/// Leaves a run at its Gates, with the lines that answer them.
pub fn park(global: &Global, run: &str, status: &Value) -> Exit {
    let options = global.options();
    for gate in status["gates"].as_array().into_iter().flatten() {
        output::say(&gate::describe(gate));
        output::say("Answer it with one of");
        for line in gate::send_lines(run, gate, &options) {
            output::say(&format!("  {line}"));
        }
    }
    if global.json {
        output::json(status);
    }
    Exit::NeedsPerson
}

/// The end of a run: an own Orchestrator first lets everything of it go.
pub async fn finish(reach: &Reach, global: &Global, run: &str, status: Value) -> Done {
    let mut status = status;
    if reach.own().is_some() && status["idle"] != true {
        settled(&reach.client, run, SETTLE_LIMIT).await;
        status = reach.client.status(run).await?;
    }
    print(global, &status);
    Ok(exit_of(&status))
}

/// A status as the result of a command.
pub fn print(global: &Global, status: &Value) {
    if global.json {
        output::json(status);
    } else {
        output::data(&output::plain(&super::status::words(status, &global.options())));
    }
}

/// Work with a deadline.
pub async fn limited(work: impl Future<Output = Done>, deadline: Option<Duration>) -> Done {
    match deadline {
        None => work.await,
        Some(limit) => tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
            let shown = humantime::format_duration(limit);
            Err(Failure::new(Exit::Deadline, format!("not done after {shown}; the run keeps its place")))
        }),
    }
}
