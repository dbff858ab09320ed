//! The shell of the step loop: carries out effects, feeds back what happened.

use super::printer::Printer;
use super::step::{Effect, Frame, Input, State, Stop, step};
use crate::briefing;
use crate::compaction::Guide;
use crate::config::Facts;
use crate::conversation::{Conversation, Entry};
use crate::guard::{Calls, Keeper};
use crate::menu::{Custodian, PickOutcome};
use crate::model::{ModelClient, RetryBudget, ToolSpec};
use crate::mutation::{self, Mutation};
use crate::telemetry::{self, Called};
use crate::tools::{ToolLimits, Toolbox};
use jr2_shared::crash::{self, Point};
use jr2_shared::harness::{Access, ThinkingLevel};
use jr2_shared::memory_kills::Told;
use jr2_telemetry::context::TraceParent;
use serde_json::Value;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::watch;

/// What every Submission of this Harness works with.
pub struct Means {
    /// The control routes.
    pub custodian: Custodian,
    /// The model client.
    pub model: ModelClient,
    /// What the Briefing may state.
    pub facts: Facts,
    /// The pod log's lines.
    pub printer: Printer,
    /// The `bash` calls that run now.
    pub calls: Arc<Calls>,
    /// The memory kills.
    pub keeper: Arc<Keeper>,
}

/// One admitted Submission.
#[derive(Clone, Debug)]
pub struct Job {
    /// The loop's frame; its `submission` is filled in when it is seated.
    pub frame: Frame,
    /// First part of the system prompt.
    pub instructions: String,
    /// Working tools.
    pub access: Access,
    /// Where the Working tools are rooted.
    pub root: PathBuf,
    /// What stands before the model's first slash.
    pub provider: String,
    /// What stands after it.
    pub model: String,
    /// How hard to think.
    pub thinking: Option<ThinkingLevel>,
    /// Most tokens of an answer.
    pub max_tokens: Option<u64>,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// The Turn's place in its trace, as the admission said it.
    pub trace: Option<TraceParent>,
}

/// Runs one Submission to its settlement. `stop` turning true ends it early; `why` says for what reason.
pub async fn run(
    means: Arc<Means>,
    conversation: Arc<Conversation>,
    job: Job,
    stop: watch::Receiver<bool>,
    why: impl Fn() -> Stop + Send,
) {
    let working = Toolbox::specs(job.access);
    let mut frame = job.frame.clone();
    frame.working_tools = working.iter().map(|spec| spec.name.clone()).collect();
    let system = briefing::system_prompt(&job.instructions, job.access, means.facts);
    let toolbox = Toolbox::new(job.root.clone(), job.access, ToolLimits::default()).guarded(Arc::clone(&means.calls));
    let mut shell = Shell {
        means: &means,
        conversation: &conversation,
        job: &job,
        toolbox,
        system,
        working,
        tools: Arc::from(Vec::new()),
        retries: RetryBudget::default(),
        guide: Guide::default(),
        uncounted_said: false,
        stop: stop.clone(),
    };
    let mut state = State::new(frame);
    let mut told = false;
    let mut effects: VecDeque<Effect> = step(&mut state, Input::Start).into();
    while let Some(effect) = effects.pop_front() {
        let Some(input) = shell.carry_out(&state, effect).await else { continue };
        if *stop.borrow() && !told {
            told = true;
            effects.extend(step(&mut state, Input::Stop(why())));
        }
        effects.extend(step(&mut state, input));
    }
}

/// What carries out the effects of one Submission.
pub(super) struct Shell<'a> {
    pub(super) means: &'a Means,
    pub(super) conversation: &'a Conversation,
    pub(super) job: &'a Job,
    toolbox: Toolbox,
    pub(super) system: String,
    pub(super) working: Vec<ToolSpec>,
    pub(super) tools: Arc<[ToolSpec]>,
    pub(super) retries: RetryBudget,
    pub(super) guide: Guide,
    /// The log says once a Submission that the server counts no tokens (F34).
    pub(super) uncounted_said: bool,
    pub(super) stop: watch::Receiver<bool>,
}

impl Shell<'_> {
    async fn carry_out(&mut self, state: &State, effect: Effect) -> Option<Input> {
        let (custodian, iid, stop) = (&self.means.custodian, state.frame.iid.as_str(), self.stop.clone());
        Some(match effect {
            Effect::ReadSurface => Input::Surface(custodian.surface(iid, stop).await),
            Effect::Record { entries, sync, told } => {
                self.print(&entries);
                let prompts = entries.iter().any(|entry| matches!(entry, Entry::Prompted { .. }));
                if prompts {
                    crash::point(Point::PromptRendered);
                }
                telemetry::recorded(&entries);
                let began = Instant::now();
                self.conversation.append(entries, sync).await;
                telemetry::metrics().record.observe(began.elapsed().as_secs_f64());
                if prompts {
                    crash::point(Point::PromptRecorded);
                }
                if let Some(kill) = told.filter(|_| !mutation::is(Mutation::ToldNotWritten)) {
                    crash::point(Point::VerdictRecorded);
                    let (agent, iid) = (self.conversation.agent.clone(), self.conversation.iid.clone());
                    self.means.keeper.told(&kill, Told { agent, instance_id: iid }).await;
                    crash::point(Point::ToldKept);
                }
                Input::Recorded
            }
            Effect::AskModel => {
                let answer = self.ask(state).await;
                crash::point(Point::ModelAnswered);
                Input::Model(answer)
            }
            Effect::RunTool { name, arguments } => {
                crash::point(Point::CallRecorded);
                let called = Called::now(&name, "", self.job.trace);
                let outcome = self.toolbox.run(&name, &Value::Object(arguments), stop).await;
                let failed =
                    if outcome.kill.is_some() { Some("memory-limit") } else { outcome.is_error.then_some("failed") };
                called.over(&name, failed);
                crash::point(Point::ToolRan);
                Input::Tool(outcome)
            }
            Effect::PostPick { pick_id, event, arguments, keyed } => {
                let called = Called::now(&event, &pick_id, self.job.trace);
                let outcome = custodian.pick(iid, &pick_id, &event, &arguments, keyed, stop).await;
                called.over("pick", matches!(outcome, PickOutcome::Refused(_)).then_some("refused"));
                crash::point(Point::PickAnswered);
                Input::Pick(outcome)
            }
            Effect::AwaitPick { delivery } => Input::Pick(custodian.outstanding(iid, &delivery, stop).await),
            Effect::Reread { etag } => Input::Reread(custodian.reread(iid, etag.as_deref()).await),
            Effect::Finish => return None,
        })
    }

    fn print(&self, entries: &[Entry]) {
        for entry in entries {
            if let Entry::Message { message, .. } = entry {
                self.means.printer.message(&self.conversation.agent, message);
            }
        }
    }
}
