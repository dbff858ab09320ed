//! The shell of the step loop: carries out effects, feeds back what happened.

use super::printer::Printer;
use super::step::{Effect, Frame, Input, State, Stop, step};
use crate::briefing;
use crate::config::Facts;
use crate::conversation::{Conversation, Entry};
use crate::menu::Custodian;
use crate::model::{ChatMessage, ModelClient, ModelRequest, RetryBudget, ToolSpec};
use crate::tools::{ToolLimits, Toolbox};
use jr2_shared::harness::{Access, ThinkingLevel};
use serde_json::Value;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
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
    let toolbox = Toolbox::new(job.root.clone(), job.access, ToolLimits::default());
    let mut shell = Shell {
        means: &means,
        conversation: &conversation,
        job: &job,
        toolbox,
        system,
        working,
        tools: Arc::from(Vec::new()),
        budget: RetryBudget::default(),
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

struct Shell<'a> {
    means: &'a Means,
    conversation: &'a Conversation,
    job: &'a Job,
    toolbox: Toolbox,
    system: String,
    working: Vec<ToolSpec>,
    tools: Arc<[ToolSpec]>,
    budget: RetryBudget,
    stop: watch::Receiver<bool>,
}

impl Shell<'_> {
    async fn carry_out(&mut self, state: &State, effect: Effect) -> Option<Input> {
        let (custodian, iid, stop) = (&self.means.custodian, state.frame.iid.as_str(), self.stop.clone());
        Some(match effect {
            Effect::ReadSurface => Input::Surface(custodian.surface(iid, stop).await),
            Effect::Record { entries, sync } => {
                self.print(&entries);
                self.conversation.append(entries, sync).await;
                Input::Recorded
            }
            Effect::AskModel => Input::Model(self.ask(state).await),
            Effect::RunTool { name, arguments } => {
                Input::Tool(self.toolbox.run(&name, &Value::Object(arguments), stop).await)
            }
            Effect::PostPick { pick_id, event, arguments, keyed } => {
                Input::Pick(custodian.pick(iid, &pick_id, &event, &arguments, keyed, stop).await)
            }
            Effect::AwaitPick { delivery } => Input::Pick(custodian.outstanding(iid, &delivery, stop).await),
            Effect::Reread { etag } => Input::Reread(custodian.reread(iid, etag.as_deref()).await),
            Effect::Finish => return None,
        })
    }

    async fn ask(&mut self, state: &State) -> Result<crate::model::ModelAnswer, crate::model::ModelError> {
        if self.tools.is_empty() {
            // Working tools first, then the Menu: the same bytes on every Turn of a seat (spec 6.6).
            self.tools = self.working.iter().cloned().chain(state.menu.specs()).collect();
        }
        let mut messages = vec![ChatMessage::System(self.system.clone())];
        messages.extend(self.conversation.messages());
        let request = ModelRequest {
            model: self.job.model.clone(),
            messages,
            tools: Arc::clone(&self.tools),
            thinking: self.job.thinking,
            max_tokens: self.job.max_tokens,
            temperature: self.job.temperature,
        };
        self.means.model.ask(&self.job.provider, &request, &mut self.budget, self.stop.clone()).await
    }

    fn print(&self, entries: &[Entry]) {
        for entry in entries {
            if let Entry::Message { message, .. } = entry {
                self.means.printer.message(&self.conversation.agent, message);
            }
        }
    }
}
