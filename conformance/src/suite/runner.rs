//! Runs claims: starts what they need, gives each its place and its deadline, collects the verdicts.

use super::case::{Case, DEADLINE, Halt, Need, Outcome};
use super::cases;
use super::harness::{Plan, Process, StartError, Wire};
use super::orchestrator::{Listen, Orchestrator};
use super::report::{Expected, Report, Verdict};
use super::stage::{House, Journal, Stage, World};
use crate::model::{self, Script, ScriptedModel};
use futures_util::FutureExt as _;
use futures_util::stream::{self, StreamExt as _};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Checks at once: they mostly wait for the Harness.
pub const JOBS: usize = 12;
/// Longest cleaning up after a check.
const CLEAR_MAX: Duration = Duration::from_secs(5);

/// The Harness to judge.
#[derive(Clone, Debug)]
pub enum Target {
    /// Start it with this command, as often as needed.
    Command(String),
    /// It runs: `http://host:port` or `unix:/path`, and the bearer it accepts.
    Url(String, String),
}

/// A run's settings.
#[derive(Clone, Debug)]
pub struct Options {
    /// The Harness.
    pub target: Target,
    /// Variables for a Harness that is started, beside the usual ones.
    pub env: Vec<(String, String)>,
    /// Only claims whose id or group begins with one of these; all when empty.
    pub filter: Vec<String>,
    /// Claims that are expected to fail.
    pub expected: Expected,
    /// Longest single check.
    pub deadline: Duration,
    /// Checks at once.
    pub jobs: usize,
    /// Leave out checks that wait for a time of the wire.
    pub quick: bool,
    /// End at the first unexpected result.
    pub stop_at_first: bool,
    /// Where the fake Orchestrator listens.
    pub custodian: Listen,
    /// Where the scripted model listens.
    pub model: SocketAddr,
    /// A folder that the Harness's working tools can see; a fresh one when absent.
    pub folder: Option<PathBuf>,
    /// Megabytes whose allocation makes the memory guard fire.
    pub memory_hog: Option<u64>,
}

impl Options {
    /// The usual settings for a target.
    pub fn new(target: Target) -> Self {
        Self {
            target,
            env: Vec::new(),
            filter: Vec::new(),
            expected: Expected::default(),
            deadline: DEADLINE,
            jobs: JOBS,
            quick: false,
            stop_at_first: false,
            custodian: Listen::Tcp("127.0.0.1:0".to_owned()),
            model: SocketAddr::from(([127, 0, 0, 1], 0)),
            folder: None,
            memory_hog: None,
        }
    }

    /// The claims that a run checks, in the order of its report.
    pub fn selected(&self) -> Vec<&'static Case> {
        let fits = |case: &&Case| {
            let named = |part: &String| case.id.starts_with(part.as_str());
            (self.filter.is_empty() || self.filter.iter().any(named)) && !(self.quick && case.slow)
        };
        cases::all().into_iter().filter(fits).collect()
    }
}

/// Why there was no run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The filter fits nothing.
    #[error("no claim fits the filter; --list shows them")]
    Nothing,
    /// The fake Orchestrator or a folder.
    #[error("the suite cannot start: {0}")]
    Io(#[from] std::io::Error),
    /// The scripted model.
    #[error("the scripted model cannot start: {0}")]
    Model(#[from] model::StartError),
    /// Its empty script.
    #[error("the scripted model has no script: {0}")]
    Script(#[from] model::ScriptError),
    /// The Harness.
    #[error("{0}")]
    Harness(#[from] StartError),
    /// No client for it.
    #[error("no client for the Harness: {0}")]
    Client(#[from] reqwest::Error),
    /// It does not answer.
    #[error("GET /healthz of {0} is not 204: is the Harness running there?")]
    NotUp(String),
}

/// Everything that a run made; gone with it.
struct Ground {
    world: Arc<World>,
    /// Of processes, and of working tools when nobody named one.
    folder: PathBuf,
    plan: Option<Plan>,
    shared: Option<House>,
}

impl Drop for Ground {
    fn drop(&mut self) {
        // A Harness that still runs would write into what is being removed.
        self.shared = None;
        // What is left of it does no harm.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Runs the selected claims. `progress` hears each verdict as it comes.
pub async fn run(options: &Options, mut progress: impl FnMut(&Verdict)) -> Result<Report, RunError> {
    let selected = options.selected();
    if selected.is_empty() {
        return Err(RunError::Nothing);
    }
    let started = Instant::now();
    let ground = prepare(options).await?;
    // Those that wait for a time of the wire go first: the others pass beside them. Then the first of every group, the second
    // of every group and so on, so that a run that ends early has seen something of everything.
    let mut order: Vec<&'static Case> = selected.clone();
    order.sort_by_key(|case| (!case.slow, case.number()));
    let serial = ground.plan.is_none();
    let (alone, beside): (Vec<_>, Vec<_>) = order.into_iter().partition(|case| serial && case.need == Need::Alone);
    let mut verdicts = Vec::with_capacity(selected.len());
    {
        let ground = &ground;
        // A loop and no closure: the compiler cannot see that a closure's future may go to another thread.
        let mut checks = Vec::with_capacity(beside.len());
        for case in beside {
            checks.push(check(options, ground, case));
        }
        let mut many = stream::iter(checks).buffer_unordered(options.jobs.max(1));
        let mut over = false;
        while let Some(verdict) = many.next().await {
            progress(&verdict);
            over = verdict.is_unexpected() && options.stop_at_first;
            verdicts.push(verdict);
            if over {
                break;
            }
        }
        for case in alone.into_iter().take_while(|_| !over) {
            let verdict = check(options, ground, case).await;
            progress(&verdict);
            verdicts.push(verdict);
        }
    }
    verdicts.sort_by_key(|verdict| selected.iter().position(|case| case.id == verdict.case.id));
    Ok(Report { verdicts, took: started.elapsed() })
}

async fn prepare(options: &Options) -> Result<Ground, RunError> {
    let tag = format!("c{:010x}", RandomState::new().build_hasher().finish() >> 24);
    let folder = std::env::temp_dir().join(format!("jr2-conformance-{tag}"));
    std::fs::create_dir_all(&folder)?;
    let tools = options.folder.clone().unwrap_or_else(|| folder.join("work"));
    std::fs::create_dir_all(&tools)?;
    let orchestrator = Orchestrator::start(&options.custodian).await?;
    let script = Script::parse(r#"{"rules": []}"#, Path::new("."))?;
    let model = ScriptedModel::start_with(script, &model::Options { listen: options.model, record: None })?;
    let (plan, shared) = match &options.target {
        Target::Url(url, bearer) => {
            let wire = Wire::new(url, bearer)?;
            if !wire.is_up().await {
                return Err(RunError::NotUp(url.clone()));
            }
            (None, House::elsewhere(wire, false))
        }
        Target::Command(command) => {
            let plan = Plan {
                command: command.clone(),
                custodian: orchestrator.url().to_owned(),
                model: model.url(),
                bearer: format!("bearer-{tag}"),
                env: options.env.clone(),
            };
            let process = Process::start(plan.clone(), &folder.join("shared")).await?;
            (Some(plan), House::of(process, false))
        }
    };
    let memory_hog = options.memory_hog;
    let world = Arc::new(World { orchestrator, model, tag, folder: tools, memory_hog });
    Ok(Ground { world, folder, plan, shared: Some(shared) })
}

/// Checks one claim.
async fn check(options: &Options, ground: &Ground, case: &'static Case) -> Verdict {
    let started = Instant::now();
    let journal = Arc::new(Journal::default());
    let outcome = match house(ground, case).await {
        Err(halt) => Err(halt),
        Ok(house) => {
            let stage = Stage::new(case.id, Arc::clone(&ground.world), house, Arc::clone(&journal));
            let outcome = within(options.deadline, case, &stage, &journal).await;
            let outcome = outcome.and_then(|()| stage.well_formed()).map_err(|halt| explained(halt, &stage, &journal));
            let _ = tokio::time::timeout(CLEAR_MAX, stage.clear()).await;
            outcome
        }
    };
    let expected = options.expected.has(case.id);
    Verdict { case, outcome, expected, took: started.elapsed() }
}

async fn within(deadline: Duration, case: &Case, stage: &Stage, journal: &Journal) -> Outcome {
    // A check that breaks on what a Harness says has seen something that does not belong there.
    let check = AssertUnwindSafe((case.run)(stage)).catch_unwind();
    match tokio::time::timeout(deadline, check).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(panic)) => {
            let words = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
            Err(Halt::Failed(format!("the check broke: {}", words.unwrap_or("it does not say how"))))
        }
        Err(_) => {
            let waiting = journal.waiting().unwrap_or_else(|| "an answer".to_owned());
            Err(Halt::Failed(format!("not over within {} s; it waited for {waiting}", deadline.as_secs())))
        }
    }
}

/// A failure with everything the check saw.
fn explained(halt: Halt, stage: &Stage, journal: &Journal) -> Halt {
    match halt {
        Halt::NotRun(why) => Halt::NotRun(why),
        Halt::Failed(words) => {
            let strays = stage.world.orchestrator.strays();
            let strays = if strays.is_empty() {
                String::new()
            } else {
                format!("requests to the Orchestrator that nobody serves (of all checks):\n  {}\n", strays.join("\n  "))
            };
            let log =
                stage.house.log_end().map(|text| format!("the Harness's log ends:\n{text}\n")).unwrap_or_default();
            Halt::Failed(format!("{words}\nwhat it did:\n{}{strays}{log}", journal.text()))
        }
    }
}

/// The Harness that the claim's check needs.
async fn house(ground: &Ground, case: &Case) -> Result<House, Halt> {
    let needs_command = || Halt::NotRun("needs --command".to_owned());
    let Some(shared) = &ground.shared else { return Err(needs_command()) };
    let own_env: &[(&str, &str)] = match (case.need, &ground.plan) {
        (Need::Shared, _) => return Ok(shared.clone()),
        (Need::Alone, None) => return Ok(House::elsewhere(shared.wire().clone(), true)),
        (Need::Process(_), None) => return Err(needs_command()),
        (Need::Alone, Some(_)) => &[],
        (Need::Process(env), Some(_)) => env,
    };
    let Some(plan) = &ground.plan else { return Err(needs_command()) };
    let mut plan = plan.clone();
    plan.env.extend(own_env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    let process = Process::start(plan, &ground.folder.join(case.id)).await;
    Ok(House::of(process.map_err(|error| Halt::Failed(error.to_string()))?, true))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking.
mod tests {
    use super::*;

    /// A place whose Harness nobody asks anything.
    async fn stage(journal: &Arc<Journal>) -> Stage {
        let script = Script::parse(r#"{"rules": []}"#, Path::new(".")).unwrap();
        let world = World {
            orchestrator: Orchestrator::start(&Listen::Tcp("127.0.0.1:0".to_owned())).await.unwrap(),
            model: ScriptedModel::start(script).unwrap(),
            tag: "t".to_owned(),
            folder: PathBuf::from("."),
            memory_hog: None,
        };
        let house = House::elsewhere(Wire::new("http://127.0.0.1:1", "b").unwrap(), true);
        Stage::new("wire.001", Arc::new(world), house, Arc::clone(journal))
    }

    fn case(run: super::super::case::Check) -> Case {
        Case { id: "wire.001", rule: "H-0", says: "nothing", need: Need::Shared, slow: false, run }
    }

    #[tokio::test]
    async fn a_check_that_breaks_or_never_ends_is_a_failure_that_says_so() {
        let journal = Arc::default();
        let stage = stage(&journal).await;
        let breaks = case(|_| Box::pin(async { panic!("index out of bounds") }));
        let outcome = within(Duration::from_secs(5), &breaks, &stage, &journal).await;
        assert_eq!(outcome, Err(Halt::Failed("the check broke: index out of bounds".to_owned())));
        let waits = case(|stage| Box::pin(stage.wait("a sign", std::future::pending())));
        let outcome = within(Duration::from_millis(20), &waits, &stage, &journal).await;
        assert_eq!(outcome, Err(Halt::Failed("not over within 0 s; it waited for a sign".to_owned())));
        let asks = case(|stage| Box::pin(async { stage.seat("a").asked(1).await.map(drop) }));
        let outcome = within(Duration::from_secs(5), &asks, &stage, &journal).await;
        assert!(matches!(outcome, Err(Halt::Failed(words)) if words.contains("every Submission is over")));
        let ends = case(|stage| Box::pin(stage.house.kill9()));
        let outcome = within(Duration::from_secs(5), &ends, &stage, &journal).await;
        assert_eq!(outcome, Err(Halt::NotRun("needs --command".to_owned())));
    }
}
