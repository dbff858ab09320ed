//! `jr2 try`: the whole of jr2 on a sample, with no account: a repository with a failing test, a model that repairs it, and
//! a Gate for a person. Everything lies in one folder, so a try that was killed is gone on with.

mod model;
mod plan;
mod sample;
mod tail;

pub use model::Model;
pub use tail::Tail;

use super::exit::{Done, Exit, Failure};
use super::follow::{Progress, Rest, Until, exit_of, follow, settled};
use super::interrupt::Interrupts;
use super::reach::{Reach, own};
use super::run::park;
use super::{Global, gate, output};
use crate::config::{Settings, StateDir};
use crate::run::Row;
use crate::workflow::{Bindings, Catalog, Program};
use clap::Args;
use jr2_shared::ids::RunId;
use plan::Plan;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The workflow of the example.
pub const WORKFLOW: &str = include_str!("../../../../examples/fix-test/workflow.yaml");
/// Its name.
const WORKFLOW_NAME: &str = "fix-test";
/// How long the Workspace's removal may take.
const SETTLE_LIMIT: Duration = Duration::from_mins(1);
/// Most lines of the diff that are shown.
const DIFF_MAX_LINES: usize = 200;

const EXAMPLES: &str = "Examples:
  jr2 try                     asks at the Gate
  jr2 try --yes               approves it
  jr2 try --repo ~/code/app --test 'make test' --model-url http://127.0.0.1:8080/v1
  OPENAI_BASE_URL=https://api.openai.com/v1 OPENAI_API_KEY=… jr2 try --model gpt-5-mini

Without a model of yours a scripted one answers: it really reads, edits, runs the test, commits and picks.
Kill it at any moment and start it again: the same run goes on.";

/// Watch a failing test be repaired: a sample repository, an Agent, a Gate. No account needed.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Try {
    /// Approve the change at the Gate.
    #[arg(long, short)]
    yes: bool,
    /// A repository of your own instead of the sample; needs a real model.
    #[arg(long, requires = "test", value_name = "PATH")]
    repo: Option<PathBuf>,
    /// The command that fails there and must pass.
    #[arg(long, requires = "repo", value_name = "COMMAND")]
    test: Option<String>,
    /// Base URL of an OpenAI-compatible server; its key comes from OPENAI_API_KEY when that is set.
    #[arg(long, value_name = "URL")]
    model_url: Option<String>,
    /// The model's name there [default: the first one it lists].
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Keep the sample repositories of earlier tries.
    #[arg(long)]
    keep: bool,
}

impl Try {
    /// Runs the command.
    pub fn run(self, global: &Global) -> Done {
        let dir = folder(global)?;
        StateDir::make(&dir).map_err(|e| Failure::failed(e.to_string()))?;
        let dir = dir.canonicalize().unwrap_or(dir);
        let global = Global { dir: Some(dir.clone()), ..global.clone() };
        super::in_runtime(self.run_in(&dir, &global))
    }

    async fn run_in(self, dir: &Path, global: &Global) -> Done {
        let mut interrupts = Interrupts::listen()?;
        let work = self.attempt(dir, global);
        tokio::select! {
            done = work => done,
            () = interrupts.next() => {
                interrupts.then_at_once();
                Err(Failure::new(Exit::Interrupted, "interrupted; the run keeps its place")
                    .help("`jr2 try` goes on with it"))
            }
        }
    }

    async fn attempt(&self, dir: &Path, global: &Global) -> Done {
        // Held to the end: a second try must not remove the sample that this one works on.
        let _alone = alone(dir)?;
        let earlier = Plan::load(dir)?;
        let again = earlier.is_some();
        let plan = match earlier {
            Some(plan) => self.go_on(dir, plan)?,
            None => self.begin(dir).await?,
        };
        let model = Model::start(&plan.model, dir)?;
        let orchestrator = own(Settings::of(dir), vec![model.binding()]).await?;
        // The store is ours from here on: nobody else can take the same plan.
        plan.save(dir)?;
        introduce(&plan, &model, dir, again);
        let reach = Reach::of(orchestrator, Some(model))?;
        let done = self.drive(&reach, global, dir, &plan, again).await;
        reach.close().await;
        done
    }

    /// A new try: its repository first, then the plan that names it.
    async fn begin(&self, dir: &Path) -> Result<Plan, Failure> {
        let model = model::choose(self.model_url.as_deref(), self.model.as_deref()).await?;
        let key = plan::new_key()?;
        let (repo, test) = match (&self.repo, &self.test) {
            (Some(_), _) if model.is_scripted() => {
                return Err(Failure::usage("the scripted model only knows the sample: --repo needs a real one")
                    .help("name one with --model-url, or OPENAI_BASE_URL and OPENAI_API_KEY"));
            }
            (Some(repo), Some(test)) => (sample::own(repo)?, test.clone()),
            _ => (sample::make(dir, &key, self.keep)?, sample::TEST.to_owned()),
        };
        let base = sample::head(&repo)?;
        Ok(Plan { v: plan::VERSION, key, repo, test, base, model })
    }

    fn go_on(&self, dir: &Path, plan: Plan) -> Result<Plan, Failure> {
        let other = self.repo.as_ref().is_some_and(|repo| repo.canonicalize().ok().as_ref() != Some(&plan.repo));
        if other {
            let message = format!("an earlier try on {} is not finished", plan.repo.display());
            return Err(Failure::failed(message).help(format!(
                "finish it with `jr2 try`, end it with `jr2 cancel RUN --dir {}`, or name another folder with --dir",
                dir.display()
            )));
        }
        Ok(plan)
    }

    async fn drive(&self, reach: &Reach, global: &Global, dir: &Path, plan: &Plan, again: bool) -> Done {
        let program = program(&plan.model.bound())?;
        let input = json!({ "repo": plan.repo, "test": plan.test });
        let run = match reach.client.start_program(&program.canonical, &input, Some(&plan.key)).await {
            Ok(run) => run,
            Err(failure) => {
                // Nothing was started: the next try must not meet this plan again.
                Plan::remove(dir);
                return Err(failure);
            }
        };
        output::say(&if again { format!("an earlier try goes on: run {run}") } else { format!("run {run} started") });
        let mut progress = Progress::new().with_tail(Tail::of(&dir.join(crate::config::STATE_DIR).join("logs"), again));
        loop {
            let status = match follow(&reach.client, &run, &mut progress, Until::Gate).await? {
                Rest::Ended(status) => return ended(reach, global, dir, plan, &run, status).await,
                Rest::Gate(status) | Rest::Idle(status) => status,
            };
            let Some(open) = status["gates"].get(0).cloned() else { continue };
            show_diff(reach, &run, plan, &mut progress).await;
            output::say(&gate::describe(&open));
            if self.yes {
                if let Some(reason) = open["meta"]["reason"].as_str().filter(|r| !r.is_empty()) {
                    reach.client.event(&run, &json!({ "type": "CANCEL" }), None).await?;
                    let failure = Failure::new(Exit::Fault, format!("the Agent did not get there: {reason}"));
                    settled(&reach.client, &run, SETTLE_LIMIT).await;
                    drop_empty_branches(plan, &run, &mut reach.client.status(&run).await?);
                    Plan::remove(dir);
                    return Err(failure);
                }
                gate::answer(&reach.client, &run, &open, &json!({ "type": "approve" })).await?;
                output::say("approved (--yes)");
            } else if output::interactive() {
                match gate::ask(&reach.client, &run, &open).await {
                    Ok(true) => {}
                    Ok(false) => return Ok(parked(global, &run, &status)),
                    Err(failure) => output::say(&failure.text()),
                }
            } else {
                return Ok(parked(global, &run, &status));
            }
        }
    }
}

fn parked(global: &Global, run: &str, status: &Value) -> Exit {
    let exit = park(global, run, status);
    output::say("Or start `jr2 try` again: it goes on from here.");
    exit
}

/// The scripted or real model of the try that a folder holds, when it holds one.
pub fn model_of(dir: &Path) -> Result<Option<Model>, Failure> {
    Plan::load(dir)?.map(|plan| Model::start(&plan.model, dir)).transpose()
}

/// Where tries live: one place, so that the next call finds the last one.
fn folder(global: &Global) -> Result<PathBuf, Failure> {
    if let Some(dir) = &global.dir {
        return Ok(dir.clone());
    }
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let state = set("XDG_STATE_HOME").filter(|p| p.is_absolute()).or_else(|| Some(set("HOME")?.join(".local/state")));
    let state = state
        .ok_or_else(|| Failure::usage("neither HOME nor XDG_STATE_HOME is set").help("name a folder with --dir"))?;
    Ok(state.join("jr2/try"))
}

fn program(model: &str) -> Result<Program, Failure> {
    let texts = BTreeMap::from([(WORKFLOW_NAME.to_owned(), WORKFLOW.into())]);
    let catalog = Catalog::from_texts(&texts)?;
    let bindings = Bindings::from_pairs(&[format!("agents.coder.model={model}")])?;
    Ok(Program::build(&catalog, WORKFLOW_NAME, &bindings)?)
}

fn introduce(plan: &Plan, model: &Model, dir: &Path, again: bool) {
    output::say(if again { "jr2 try, once more" } else { "jr2 try: an Agent repairs a failing test, and asks you" });
    output::say(&format!("  repository  {}", plan.repo.display()));
    output::say(&format!("  test        {}", plan.test));
    output::say(&format!("  model       {}", model.about()));
    output::say(&format!("  kept in     {}", dir.display()));
}

/// The Workspace's branch against where it began.
async fn show_diff(reach: &Reach, run: &str, plan: &Plan, progress: &mut Progress) {
    progress.clear();
    let Some(orchestrator) = reach.own() else { return };
    let spec =
        orchestrator.host.row(&RunId(run.to_owned())).ok().and_then(|row: Row| row.root.workspace).map(|w| w.spec);
    let Some(spec) = spec else { return };
    match orchestrator.provider.diff(&spec, "target", &plan.base).await {
        Ok(diff) if diff.trim().is_empty() => output::say("The branch has no change."),
        Ok(diff) => {
            let lines: Vec<&str> = diff.lines().collect();
            for line in lines.iter().take(DIFF_MAX_LINES) {
                output::say(&coloured(line));
            }
            if lines.len() > DIFF_MAX_LINES {
                output::say(&format!("… {} more lines", lines.len() - DIFF_MAX_LINES));
            }
        }
        Err(error) => output::say(&format!("jr2: the diff cannot be shown: {error}")),
    }
}

/// The folder's own lock, free again when this process ends, however it ends.
fn alone(dir: &Path) -> Result<std::fs::File, Failure> {
    let path = dir.join("try.lock");
    let failed = |e: &dyn std::fmt::Display| Failure::failed(format!("{}: {e}", path.display()));
    let file = std::fs::File::options().create(true).append(true).open(&path).map_err(|e| failed(&e))?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            Err(Failure::new(Exit::Busy, format!("another `jr2 try` works in {}", dir.display()))
                .help("wait until it ends, or name another folder with `--dir`"))
        }
        Err(error) => Err(failed(&error)),
    }
}

/// A try that was given up leaves no branch without a change in the user's repository. The branch is named after the run, so
/// it is nobody else's.
fn drop_empty_branches(plan: &Plan, run: &str, status: &mut Value) {
    let Some(branches) = status["branches"].as_array_mut() else { return };
    branches.retain(|branch| {
        let field = |name: &str| branch[name].as_str().unwrap_or_default();
        let empty = field("commit") == plan.base && field("branch").contains(run);
        !(empty && sample::drop_branch(&plan.repo, field("branch"), &plan.base).is_ok())
    });
}

fn coloured(line: &str) -> String {
    // What an Agent wrote must not steer the terminal.
    let plain = output::plain(line);
    let colour = match (output::fancy(), plain.as_bytes().first()) {
        (true, Some(b'+')) => "32",
        (true, Some(b'-')) => "31",
        (true, Some(b'@')) => "36",
        _ => return format!("  {plain}"),
    };
    format!("  \x1b[{colour}m{plain}\x1b[0m")
}

async fn ended(reach: &Reach, global: &Global, dir: &Path, plan: &Plan, run: &str, status: Value) -> Done {
    settled(&reach.client, run, SETTLE_LIMIT).await;
    let mut status = reach.client.status(run).await.unwrap_or(status);
    if status["output"]["outcome"] != "approved" {
        drop_empty_branches(plan, run, &mut status);
    }
    Plan::remove(dir);
    if global.json {
        output::json(&status);
    }
    let approved = status["output"]["outcome"] == "approved";
    if !approved {
        output::say(&output::plain(&super::status::words(&status, &global.options())));
        let exit = exit_of(&status);
        return Ok(if exit == Exit::Ok { Exit::Failed } else { exit });
    }
    for branch in status["branches"].as_array().into_iter().flatten() {
        let field = |name: &str| branch[name].as_str().unwrap_or_default();
        output::say(&format!("Done: branch {} is saved in {}", field("branch"), field("repository")));
        output::say(&format!("  git -C {} log -p {:.12}..{}", field("repository"), plan.base, field("branch")));
    }
    Ok(Exit::Ok)
}
