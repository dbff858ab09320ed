//! What can happen next, and making it happen.

mod submissions;
mod tasks;

use super::pod::{Pod, Running};
use super::{INSTANCE, World};
use jr2_harness::menu::Menu;
use jr2_harness::turn::step::Effect as Wants;
use jr2_orchestrator::run::core::{self, Delivery, Effect, Input};
use jr2_orchestrator::workspace::LastEnd;
use serde_json::json;

/// A person's answer that sends a route back to its state.
const APPROVE: &str = "approve";
/// A person's answer with which a route leaves its state.
pub const LEAVE: &str = "leave";
/// How far apart in time two deaths are, in milliseconds: further than the skew that two clocks are allowed.
const DEATH_MS: u64 = 20_000;

/// One thing that can happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// A task's request goes out.
    Do(usize, Fate),
    /// A running Submission goes on.
    Submission(String, String, Choice),
    /// A guard kills; `false` = its Harness dies before any stream has it.
    GuardKill(String, bool),
    /// A Harness ends: its conversations lost, the kernel's doing.
    HarnessEnds(String, bool, bool),
    /// The Orchestrator ends.
    OrchestratorEnds,
    /// A person ends the state under the Turn.
    Exit,
    /// A person answers a Gate with an event.
    Answer(String, &'static str),
}

/// How a request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is answered.
    Answered,
    /// It arrived; its answer is lost, and it is sent again.
    AnswerLost,
    /// It arrived; the Orchestrator ends before it hears the answer.
    Orphaned,
    /// Nothing could be told.
    Blind,
}

/// What the model, or the wire under the Submission, does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The one thing there is to do.
    On,
    /// The request arrived; its answer is lost, and it is sent again.
    AnswerLost,
    /// The request arrived; no answer comes for so long that the Harness gives it up.
    GivenUp,
    /// The model picks what ends its Turn.
    Pick,
    /// The model picks what asks.
    Ask,
    /// The model stops without a pick.
    Silence,
    /// The model runs a command.
    Bash,
}

impl World {
    /// Everything that can happen now.
    pub fn enabled(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        self.of_tasks(&mut actions);
        self.of_submissions(&mut actions);
        if !self.row.status.is_ended() {
            self.of_faults(&mut actions);
            self.of_people(&mut actions);
            if self.left.exits > 0 && !crate::mutant::turns(&self.row.root).is_empty() {
                actions.push(Action::Exit);
            }
        }
        actions
    }

    fn of_tasks(&self, actions: &mut Vec<Action>) {
        let faults = self.left.faults > 0;
        for (at, task) in self.tasks.iter().enumerate() {
            let ready = match &task.effect {
                Effect::Watch { place, submission, .. } => {
                    let pod = self.pod(place.sandbox.as_deref());
                    pod.is_none_or(|pod| match pod.conversations.get(&place.iid) {
                        Some(c) => c.has_news(submission, task.cursor),
                        None => true,
                    })
                }
                Effect::Abort(abort) => {
                    task.cursor == 0 || self.is_settled(abort.sandbox.as_deref(), abort.abort.iid.as_str())
                }
                _ => true,
            };
            if !ready {
                continue;
            }
            actions.push(Action::Do(at, Fate::Answered));
            match &task.effect {
                Effect::Admit(_) | Effect::Abort(_) | Effect::Watch { .. } if faults && self.left.wire > 0 => {
                    actions.push(Action::Do(at, Fate::AnswerLost));
                    if self.left.orchestrator_crashes > 0 && !matches!(task.effect, Effect::Watch { .. }) {
                        actions.push(Action::Do(at, Fate::Orphaned));
                    }
                }
                Effect::ReadKills { .. } | Effect::AskHeld { .. } | Effect::ReadLastEnd { .. }
                    if faults && self.left.blind_reads > 0 =>
                {
                    actions.push(Action::Do(at, Fate::Blind));
                }
                _ => {}
            }
        }
    }

    fn is_settled(&self, sandbox: Option<&str>, iid: &str) -> bool {
        let conversation = self.pod(sandbox).and_then(|pod| pod.conversations.get(iid));
        conversation.is_none_or(|c| !c.log.queue.waiting().any(|w| w.stopped))
    }

    fn of_submissions(&self, actions: &mut Vec<Action>) {
        let wire = self.left.faults > 0 && self.left.wire > 0;
        for (name, pod) in &self.pods {
            for (iid, conversation) in &pod.conversations {
                let Some(Running { effect, state, .. }) = &conversation.running else { continue };
                let mut push = |choice| actions.push(Action::Submission(name.clone(), iid.clone(), choice));
                match effect {
                    Wants::AskModel => {
                        if allowed(&state.menu, false).is_some() {
                            push(Choice::Pick);
                        }
                        if self.left.asks > 0 && allowed(&state.menu, true).is_some() {
                            push(Choice::Ask);
                        }
                        if self.left.silences > 0 || state.menu.allowed.is_empty() {
                            push(Choice::Silence);
                        }
                        if self.left.tools > 0 && name != INSTANCE {
                            push(Choice::Bash);
                        }
                    }
                    Wants::ReadSurface | Wants::PostPick { .. } => {
                        push(Choice::On);
                        if wire {
                            push(Choice::AnswerLost);
                        }
                        if wire && matches!(effect, Wants::PostPick { event, .. } if is_asking(event)) {
                            push(Choice::GivenUp);
                        }
                    }
                    Wants::AwaitPick { delivery } => {
                        let waits = core::delivery(&self.row, iid, delivery) == Delivery::Outstanding;
                        if !waits || conversation.is_stopped() {
                            push(Choice::On);
                        }
                    }
                    _ => push(Choice::On),
                }
            }
        }
    }

    /// Somebody answers sooner or later; that a route leaves its state is as rare as any other exit.
    fn of_people(&self, actions: &mut Vec<Action>) {
        for open in core::gates_of(&self.program, &self.row) {
            actions.push(Action::Answer(open.gate.clone(), APPROVE));
            if self.left.exits > 0 {
                actions.push(Action::Answer(open.gate, LEAVE));
            }
        }
    }

    fn of_faults(&self, actions: &mut Vec<Action>) {
        let left = &self.left;
        if left.faults == 0 {
            return;
        }
        for name in self.pods.keys() {
            let workspace = name != INSTANCE;
            if workspace && left.guard_kills > 0 {
                actions.push(Action::GuardKill(name.clone(), true));
                if left.harness_crashes > 0 && left.faults > 1 {
                    actions.push(Action::GuardKill(name.clone(), false));
                }
            }
            if self.pods[name].conversations.is_empty() && !workspace {
                continue;
            }
            if left.harness_crashes > 0 {
                actions.push(Action::HarnessEnds(name.clone(), false, false));
            }
            if left.losses > 0 {
                actions.push(Action::HarnessEnds(name.clone(), true, false));
            }
            if workspace && left.kernel_kills > 0 {
                actions.push(Action::HarnessEnds(name.clone(), false, true));
                if left.losses > 0 {
                    actions.push(Action::HarnessEnds(name.clone(), true, true));
                }
            }
        }
        if left.orchestrator_crashes > 0 {
            actions.push(Action::OrchestratorEnds);
        }
    }

    /// Makes it happen.
    pub fn act(&mut self, action: &Action) {
        match action {
            Action::Do(at, fate) => {
                self.do_task(*at, *fate);
                self.settle();
            }
            Action::Submission(pod, iid, choice) => {
                self.go_on(pod, iid, *choice);
                self.settle();
            }
            Action::GuardKill(pod, streams) => {
                self.spend();
                self.left.guard_kills -= 1;
                self.now += DEATH_MS;
                let now = self.now;
                let Some(found) = self.pods.get_mut(pod) else { return };
                let id = found.kill(now, *streams);
                self.ghost.guard_killed(pod, &id);
                if !streams {
                    self.spend();
                    self.left.harness_crashes -= 1;
                    self.end_harness(pod, false, false);
                }
            }
            Action::HarnessEnds(pod, lose, kernel) => {
                self.spend();
                match (lose, kernel) {
                    (_, true) => self.left.kernel_kills -= 1,
                    (true, false) => {}
                    (false, false) => self.left.harness_crashes -= 1,
                }
                if *lose {
                    self.left.losses -= 1;
                }
                self.end_harness(pod, *lose, *kernel);
            }
            Action::OrchestratorEnds => {
                self.spend();
                self.left.orchestrator_crashes -= 1;
                self.restart_orchestrator();
            }
            Action::Exit => {
                self.left.exits -= 1;
                self.apply(&Input::External { event: "skip".to_owned(), payload: json!({}), key: None });
                self.settle();
            }
            Action::Answer(gate, event) => {
                self.left.exits -= u8::from(*event == LEAVE);
                let (gate, event) = (gate.clone(), (*event).to_owned());
                self.apply(&Input::Gate { gate, event, payload: json!({}), activation: None, key: None });
                self.settle();
            }
        }
    }

    fn spend(&mut self) {
        self.left.faults -= 1;
    }

    fn end_harness(&mut self, name: &str, lose: bool, kernel: bool) {
        self.now += DEATH_MS;
        let end = LastEnd {
            exit_code: 137,
            oom: kernel.then_some(true),
            reason: "killed".to_owned(),
            at: self.now,
            limit: kernel.then(|| "2Gi".to_owned()),
        };
        let Some(pod) = self.pods.get_mut(name) else { return };
        self.ghost.harness_ended(name, pod, &end, lose);
        pod.crash(end, lose);
    }

    fn pod(&self, sandbox: Option<&str>) -> Option<&Pod> {
        self.pods.get(sandbox.unwrap_or(INSTANCE))
    }
}

/// Does a pick of this event ask, in the scenes that have one?
fn is_asking(event: &str) -> bool {
    ["ask", "consult"].contains(&event)
}

/// An allowed pick that asks, or one that does not.
fn allowed(menu: &Menu, asking: bool) -> Option<&str> {
    menu.allowed.iter().map(String::as_str).find(|event| is_asking(event) == asking)
}
