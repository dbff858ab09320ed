//! The step loop of one Submission as a pure machine (spec 6.6, 6.8; decisions 21, 32, 34, 38).
//!
//! `step(state, input)` answers the effects to carry out, in order. At most the last effect of a list is answered by an
//! input, so the shell is a plain loop: carry out, feed back, until `Finish`.

mod ends;

pub use ends::restarted;

use super::calls::{self, Plan, Watch};
use crate::briefing::{self, TurnPart};
use crate::conversation::Entry;
use crate::menu::{Menu, PickOutcome, PickRefusal, Reread, SurfaceRead, receipt, refusal};
use crate::model::{ChatMessage, Finish, ModelAnswer, ModelError, Usage};
use crate::mutation::{self, Mutation};
use crate::tools::ToolOutcome;
use ends::{close_open, complete, entries, settle, spoken, stopped};
use jr2_shared::harness::{Outcome, error_type};
use jr2_shared::notice::Notice;
use jr2_shared::surface::PickAnswer;
use serde_json::{Map, Value};
use std::collections::{BTreeSet, VecDeque};

/// Most model answers of one Submission (spec H-29).
pub const STEPS_MAX: u32 = 256;
/// Empty answers in a row after which the Submission is not asked again: one re-ask, the rest is the nudge's.
pub const EMPTY_ANSWERS_MAX: u32 = 2;
/// The settlement text of a Turn that was over before it started (spec P-14).
pub const OVER_BEFORE_START: &str =
    "the Turn was over before it started: its state exited, so the surface is gone (ADR-0026)";
/// The settlement text of a Turn that ended under a running Submission (decision 21).
pub const OVER_MEANWHILE: &str = "the Turn is over: its state exited, so the surface is gone";

/// What does not change during a Submission.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// The iid.
    pub iid: String,
    /// The Submission.
    pub submission: String,
    /// The prompt.
    pub prompt: String,
    /// Absent for access `none`.
    pub cwd: Option<String>,
    /// The answer of a pick whose call a restart cut: its receipt follows the re-admit text (decision 34).
    pub receipt: Option<PickAnswer>,
    /// What the Turn part says, in ledger order.
    pub notices: Vec<Notice>,
    /// Decision 45.
    pub shm_private: bool,
    /// Names of the Working tools in the tools block.
    pub working_tools: Vec<String>,
}

/// Why a Submission is told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The Orchestrator aborted it.
    Abort,
    /// The Harness is told to end; the Turn goes on elsewhere.
    Drain,
}

/// What happened.
#[derive(Debug)]
pub enum Input {
    /// The Submission's turn has come.
    Start,
    /// The first surface read is over.
    Surface(SurfaceRead),
    /// The entries of the last `Record` stand.
    Recorded,
    /// The model answered, or did not.
    Model(Result<ModelAnswer, ModelError>),
    /// A Working tool ended.
    Tool(ToolOutcome),
    /// A pick was posted, or its answer came.
    Pick(PickOutcome),
    /// The surface was asked again.
    Reread(Reread),
    /// Stop; comes before the input that the effect under way still answers with.
    Stop(Stop),
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Read the surface; answers `Surface`.
    ReadSurface,
    /// Append entries, durable when `sync`; answers `Recorded`.
    Record {
        /// Them.
        entries: Vec<Entry>,
        /// Must survive the loss of power before anything follows.
        sync: bool,
        /// The memory kill whose verdict is among them: once they stand, the conversation was told (spec M-10).
        told: Option<String>,
    },
    /// Ask the model over everything recorded; answers `Model`.
    AskModel,
    /// Run a Working tool; answers `Tool`.
    RunTool {
        /// Its name.
        name: String,
        /// Its arguments.
        arguments: Map<String, Value>,
    },
    /// Post a pick; answers `Pick`.
    PostPick {
        /// `<submission>/<tool call>` (decision 34).
        pick_id: String,
        /// The event.
        event: String,
        /// Its arguments.
        arguments: Map<String, Value>,
        /// The Orchestrator dedupes.
        keyed: bool,
    },
    /// Wait for the answer of an outstanding pick; answers `Pick`.
    AwaitPick {
        /// The delivery.
        delivery: String,
    },
    /// Ask the surface again; answers `Reread`.
    Reread {
        /// What was read last.
        etag: Option<String>,
    },
    /// The Submission is over.
    Finish,
}

/// Where the loop stands: what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Not started.
    New,
    /// The first surface read.
    Surface,
    /// The prompted record.
    Prompting,
    /// The model.
    Asking,
    /// The record of an answer with calls.
    Noting,
    /// A Working tool.
    Tool,
    /// A pick's post.
    Posting,
    /// A pick's answer.
    Awaiting,
    /// The record of a result.
    Result,
    /// The surface, again.
    Rereading,
    /// The record of a restatement, or of a re-ask.
    Telling,
    /// The record of the settlement.
    Settling,
    /// Over.
    Finished,
}

/// The loop's state.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    /// What does not change.
    pub frame: Frame,
    /// What is waited for.
    pub phase: Phase,
    /// The Menu of the first read; the tools block never changes after it.
    pub menu: Menu,
    etag: Option<String>,
    /// Allowed picks as last said to the model.
    said: Vec<String>,
    stop: Option<Stop>,
    prompted: bool,
    /// A pick's answer said the Turn is over.
    over: bool,
    steps: u32,
    empty: u32,
    watch: Watch,
    used_ids: BTreeSet<String>,
    plans: VecDeque<Plan>,
    current: Option<Plan>,
    last_text: String,
    /// What the server counted for an answer that is not recorded yet.
    usage: Option<Usage>,
}

impl State {
    /// A Submission that has not started.
    pub fn new(frame: Frame) -> Self {
        Self {
            frame,
            phase: Phase::New,
            menu: Menu::default(),
            etag: None,
            said: Vec::new(),
            stop: None,
            prompted: false,
            over: false,
            steps: 0,
            empty: 0,
            watch: Watch::default(),
            used_ids: BTreeSet::new(),
            plans: VecDeque::new(),
            current: None,
            last_text: String::new(),
            usage: None,
        }
    }
}

/// One step. An input that the phase does not wait for changes nothing.
pub fn step(state: &mut State, input: Input) -> Vec<Effect> {
    match (state.phase, input) {
        (Phase::Finished | Phase::Settling, Input::Stop(_)) => Vec::new(),
        (_, Input::Stop(why)) => {
            state.stop.get_or_insert(why);
            Vec::new()
        }
        (Phase::New, Input::Start) => enter(state, Phase::Surface, Effect::ReadSurface),
        (Phase::Surface, Input::Surface(read)) => surface_read(state, read),
        (Phase::Prompting, Input::Recorded) => {
            state.prompted = true;
            ask(state)
        }
        (Phase::Asking, Input::Model(Ok(answer))) => answered(state, answer),
        (Phase::Asking, Input::Model(Err(error))) => refused(state, error),
        (Phase::Noting | Phase::Result, Input::Recorded) => next_call(state),
        (Phase::Tool, Input::Tool(outcome)) => tool_result(state, outcome),
        (Phase::Posting | Phase::Awaiting, Input::Pick(outcome)) => picked(state, outcome),
        (Phase::Rereading, Input::Reread(read)) => reread(state, read),
        (Phase::Telling, Input::Recorded) => ask(state),
        (Phase::Settling, Input::Recorded) => enter(state, Phase::Finished, Effect::Finish),
        _ => Vec::new(),
    }
}

fn enter(state: &mut State, phase: Phase, effect: Effect) -> Vec<Effect> {
    state.phase = phase;
    vec![effect]
}

fn record(state: &mut State, phase: Phase, messages: Vec<ChatMessage>, sync: bool) -> Vec<Effect> {
    let entries = entries(state, messages);
    enter(state, phase, Effect::Record { entries, sync, told: None })
}

fn entry(state: &State, message: ChatMessage) -> Entry {
    Entry::Message { submission: state.frame.submission.clone(), message }
}

/// The first read: what it allows goes into the message, and the message into the record, before the model is asked.
fn surface_read(state: &mut State, read: SurfaceRead) -> Vec<Effect> {
    if state.stop.is_some() {
        return stopped(state, Vec::new());
    }
    match read {
        SurfaceRead::Found(menu, etag) => {
            state.said.clone_from(&menu.allowed);
            state.menu = menu;
            state.etag = etag;
            let part = TurnPart {
                cwd: state.frame.cwd.as_deref(),
                notices: &state.frame.notices,
                shm_private: state.frame.shm_private,
                picks: state.menu.briefings_of(&state.said),
                allowed: state.menu.tools_of(&state.said),
            };
            let prompt = with_receipt(&state.frame, &state.menu);
            let message = ChatMessage::User(briefing::user_message(&prompt, &part));
            let entries = vec![entry(state, message), Entry::Prompted { submission: state.frame.submission.clone() }];
            enter(state, Phase::Prompting, Effect::Record { entries, sync: true, told: None })
        }
        SurfaceRead::Gone if mutation::is(Mutation::GoneFails) => {
            settle(state, Vec::new(), Outcome::Failed, error_type::FAILED, OVER_BEFORE_START)
        }
        SurfaceRead::Gone => settle(state, Vec::new(), Outcome::Aborted, error_type::ABORTED, OVER_BEFORE_START),
        SurfaceRead::Failed(words) => settle(state, Vec::new(), Outcome::Failed, error_type::FAILED, &words),
        SurfaceRead::Stopped => stopped(state, Vec::new()),
    }
}

/// The prompt, and behind it the receipt of a pick whose call a restart cut. Its own Allowed picks are left out: the Turn
/// part that follows says them, and what it says is newer.
fn with_receipt(frame: &Frame, menu: &Menu) -> String {
    let Some(answer) = &frame.receipt else { return frame.prompt.clone() };
    let words = receipt(menu, &PickAnswer { allowed: None, ..answer.clone() });
    if frame.prompt.is_empty() { words } else { format!("{}\n\n{words}", frame.prompt) }
}

fn ask(state: &mut State) -> Vec<Effect> {
    if state.stop.is_some() {
        return stopped(state, Vec::new());
    }
    enter(state, Phase::Asking, Effect::AskModel)
}

fn answered(state: &mut State, answer: ModelAnswer) -> Vec<Effect> {
    state.steps += 1;
    state.usage = answer.usage;
    let blank = answer.text.trim().is_empty();
    if !blank {
        state.last_text.clone_from(&answer.text);
    }
    if state.stop.is_some() {
        // What had come stays (spec H-21); calls that never ran do not.
        let kept = if blank { Vec::new() } else { vec![spoken(&answer)] };
        return stopped(state, kept);
    }
    if !answer.tool_calls.is_empty() {
        state.empty = 0;
        return called(state, answer);
    }
    if !blank {
        return complete(state, vec![spoken(&answer)]);
    }
    if answer.finish == Finish::ContentFilter {
        let words = "the model provider's content filter stopped the answer";
        return settle(state, Vec::new(), Outcome::Failed, error_type::FAILED, words);
    }
    empty(state)
}

/// An answer with neither text nor a call. With a Menu and nothing allowed that is the stop the Briefing asks for;
/// otherwise the model is asked once more, and then the nudge or the fault decides.
fn empty(state: &mut State) -> Vec<Effect> {
    if !state.menu.picks.is_empty() && state.said.is_empty() {
        return complete(state, Vec::new());
    }
    state.empty += 1;
    if state.empty < EMPTY_ANSWERS_MAX {
        return record(state, Phase::Telling, vec![ChatMessage::User(briefing::EMPTY_ANSWER.to_owned())], false);
    }
    if state.menu.picks.is_empty() {
        let words = format!("the model gave {} empty answers in a row", state.empty);
        return settle(state, Vec::new(), Outcome::Failed, error_type::FAILED, &words);
    }
    complete(state, Vec::new())
}

fn called(state: &mut State, answer: ModelAnswer) -> Vec<Effect> {
    let planned = calls::plan(&answer, &state.frame.working_tools, &state.menu, &mut state.used_ids, state.steps);
    let sync = planned.iter().any(|(_, plan)| plan.has_effect());
    let (tool_calls, plans): (Vec<_>, Vec<_>) = planned.into_iter().unzip();
    state.plans = plans.into();
    let message = ChatMessage::Assistant { text: answer.text, reasoning: answer.reasoning, tool_calls };
    // A call stands in the record before it runs (decision 32); one that changes nothing may be lost with the power.
    record(state, Phase::Noting, vec![message], sync)
}

/// The next call of the answer, or the step's end.
fn next_call(state: &mut State) -> Vec<Effect> {
    if state.stop.is_some() {
        let closed = close_open(state, briefing::CALL_NOT_RUN_STOPPED);
        return stopped(state, closed);
    }
    if state.over {
        let closed = close_open(state, briefing::CALL_NOT_RUN_OVER);
        return complete(state, closed);
    }
    let Some(plan) = state.plans.pop_front() else { return boundary(state) };
    if state.watch.trips(&plan) {
        state.plans.push_front(plan);
        let words = format!("repeated an identical tool call {} times", calls::IDENTICAL_CALLS_MAX);
        let closed = close_open(state, briefing::CALL_NOT_RUN_RUNAWAY);
        return settle(state, closed, Outcome::Failed, error_type::RUNAWAY, &words);
    }
    state.current = Some(plan.clone());
    match plan {
        Plan::Answer { text, .. } => result(state, text),
        Plan::Tool { name, arguments, .. } => enter(state, Phase::Tool, Effect::RunTool { name, arguments }),
        Plan::Pick { call, event, arguments, .. } => {
            let pick_id = format!("{}/{call}", state.frame.submission);
            let keyed = state.menu.keyed;
            enter(state, Phase::Posting, Effect::PostPick { pick_id, event, arguments, keyed })
        }
    }
}

/// Results are written at once and made durable with the next record that something depends on.
fn result(state: &mut State, content: String) -> Vec<Effect> {
    let Some(plan) = state.current.take() else { return next_call(state) };
    record(state, Phase::Result, vec![ChatMessage::Tool { call_id: plan.call().to_owned(), content }], false)
}

/// A tool's result. One with a memory kill's verdict is durable at once, so that `told` never names a conversation that
/// lost it.
fn tool_result(state: &mut State, outcome: ToolOutcome) -> Vec<Effect> {
    let mut effects = result(state, outcome.text);
    if let (Some(kill), Some(Effect::Record { sync, told, .. })) = (outcome.kill, effects.last_mut()) {
        *sync = true;
        *told = Some(kill);
    }
    effects
}

fn picked(state: &mut State, outcome: PickOutcome) -> Vec<Effect> {
    match outcome {
        PickOutcome::Answered(answer) => {
            if answer.outstanding {
                let delivery = answer.delivery_id;
                return enter(state, Phase::Awaiting, Effect::AwaitPick { delivery });
            }
            if let Some(allowed) = &answer.allowed {
                state.said.clone_from(allowed);
            }
            state.over = answer.turn_complete;
            let text = receipt(&state.menu, &answer);
            result(state, text)
        }
        PickOutcome::Refused(why) => {
            if let PickRefusal::Invalid { allowed: Some(allowed), .. } = &why {
                state.said.clone_from(allowed);
            }
            let text = refusal(&state.menu, &state.frame.iid, &why);
            result(state, text)
        }
        PickOutcome::Stopped => result(state, briefing::PICK_STOPPED.to_owned()),
    }
}

/// Between two steps: the bound, then the surface once more (decision 21).
fn boundary(state: &mut State) -> Vec<Effect> {
    if state.steps >= STEPS_MAX {
        let words = format!("exceeded {STEPS_MAX} steps");
        return settle(state, Vec::new(), Outcome::Failed, error_type::RUNAWAY, &words);
    }
    let etag = state.etag.clone();
    enter(state, Phase::Rereading, Effect::Reread { etag })
}

fn reread(state: &mut State, read: Reread) -> Vec<Effect> {
    if state.stop.is_some() {
        return stopped(state, Vec::new());
    }
    match read {
        Reread::Unchanged | Reread::Unknown => ask(state),
        Reread::Gone => settle(state, Vec::new(), Outcome::Aborted, error_type::ABORTED, OVER_MEANWHILE),
        Reread::Changed(menu, etag) => {
            state.etag = etag;
            let (now, before) = (state.menu.tools_of(&menu.allowed), state.menu.tools_of(&state.said));
            if now == before || mutation::is(Mutation::NotRestated) {
                return ask(state);
            }
            let opened: Vec<String> =
                menu.allowed.iter().filter(|event| !state.said.contains(event)).cloned().collect();
            let block = briefing::restatement(&menu.briefings_of(&opened), &now);
            state.said.clone_from(&menu.allowed);
            record(state, Phase::Telling, vec![ChatMessage::User(block)], false)
        }
    }
}

fn refused(state: &mut State, error: ModelError) -> Vec<Effect> {
    let words = match error {
        ModelError::Aborted { partial } => {
            state.stop.get_or_insert(Stop::Abort);
            let kept = if partial.text.trim().is_empty() || mutation::is(Mutation::PartialDropped) {
                Vec::new()
            } else {
                vec![spoken(&partial)]
            };
            return stopped(state, kept);
        }
        _ if state.stop.is_some() => return stopped(state, Vec::new()),
        // Fault reasons are read by their first words (spec H-22, decision 24); the error's own text has them.
        error => error.to_string(),
    };
    settle(state, Vec::new(), Outcome::Failed, error_type::FAILED, &words)
}

#[cfg(test)]
mod tests;
