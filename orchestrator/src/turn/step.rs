//! The step function: one input in, the next Turn and its effects out.

use super::faults;
use super::message::{Admit, TurnEffect, TurnInput, Watch};
use super::prompt::Prompt;
use super::state::{
    Admission, Cut, HeldQuestion, KERNEL_KILLS_MAX, KeptPick, NUDGES_MAX, PICKS_KEPT_MAX, PendingAbort,
    PendingAdmission, Phase, READMISSIONS_MAX, REROLLS_MAX, Turn, WAKES_MAX,
};
use crate::workspace::LastEnd;
use jr2_shared::harness::{AdmitAnswer, DONE_TEXT_MAX_BYTES, Outcome, Settlement, error_type};
use jr2_shared::ids::admission_id;
use jr2_shared::surface::PickAnswer;

/// Takes one input. Total: what does not fit the phase changes nothing and asks for nothing.
pub fn step(turn: &Turn, input: TurnInput) -> (Turn, Vec<TurnEffect>) {
    let mut step = Step { turn: turn.clone(), effects: Vec::new() };
    if !turn.is_over() {
        step.take(input);
    }
    (step.turn, step.effects)
}

/// What must be aborted when the state is left, or after a fault (decision 33). `None` = nothing can be running.
pub fn exit(turn: &Turn) -> Option<PendingAbort> {
    let up_to = turn.live.clone()?;
    Some(PendingAbort { agent: turn.frame.agent.clone(), iid: turn.iid.clone(), up_to })
}

struct Step {
    turn: Turn,
    effects: Vec<TurnEffect>,
}

impl Step {
    fn take(&mut self, input: TurnInput) {
        match (self.turn.phase.clone(), input) {
            (_, TurnInput::Pick { pick_id, answer }) if self.turn.takes_picks() => self.pick(pick_id, answer),
            (_, TurnInput::RouteReturned { pick_id, answer, allowed }) => {
                self.route_returned(pick_id, answer, &allowed);
            }
            (phase, TurnInput::Restored) => self.repeat(&phase),
            (Phase::New, TurnInput::Begin { held_before }) => {
                self.turn.phase = Phase::AwaitingAborts { held_before };
                self.effects.push(TurnEffect::AwaitAborts);
            }
            (Phase::AwaitingAborts { held_before }, TurnInput::AbortsClear) => {
                if self.turn.frame.continued && held_before {
                    self.ask_held(HeldQuestion::Begin);
                } else {
                    self.admit(Prompt::Task, false);
                }
            }
            (Phase::AskingHeld { question }, TurnInput::Held(held)) => self.held(question, held),
            (Phase::Admitting { pending }, TurnInput::Admitted { admission_id, answer })
                if admission_id == pending.admission_id =>
            {
                self.admitted(pending, answer);
            }
            (Phase::Admitting { pending }, TurnInput::AdmitRefused { admission_id, status, error, kept })
                if admission_id == pending.admission_id =>
            {
                self.refused(pending, status, &error, kept);
            }
            (Phase::Admitting { pending }, TurnInput::AdmitUnreachable { admission_id, detail })
                if admission_id == pending.admission_id =>
            {
                self.fault(faults::admission_unreachable(&detail));
            }
            (Phase::Waiting, TurnInput::Settled { settlement, allowed })
                if self.waits_for(&settlement.submission_id) =>
            {
                self.settled(settlement, &allowed);
            }
            (Phase::Waiting, TurnInput::ConversationLost { submission_id }) if self.waits_for(&submission_id) => {
                self.turn.live = None;
                self.cut(Cut::Lost { submission_id });
            }
            (Phase::Waiting, TurnInput::Denied { submission_id, status }) if self.waits_for(&submission_id) => {
                self.fault(faults::wait_denied(status, &submission_id));
            }
            (Phase::ReadingLastEnd { cut }, TurnInput::LastEnd(last_end)) => self.readmit(cut, last_end.as_ref()),
            (Phase::Idle, TurnInput::Allowed(allowed)) if !allowed.is_empty() && self.turn.outstanding.is_none() => {
                self.wake();
            }
            _ => {}
        }
    }

    fn waits_for(&self, submission_id: &str) -> bool {
        self.turn.admission.as_ref().is_some_and(|admission| admission.submission_id == submission_id)
    }

    /// After a restore: ask again for whatever the phase still waits for (spec 4.6, decision 31).
    fn repeat(&mut self, phase: &Phase) {
        match phase {
            Phase::AwaitingAborts { .. } => self.effects.push(TurnEffect::AwaitAborts),
            Phase::AskingHeld { .. } => self.effects.push(TurnEffect::AskHeld { iid: self.turn.iid.clone() }),
            Phase::Admitting { pending } => self.effects.push(TurnEffect::Admit(Admit::of(&self.turn, pending))),
            Phase::Waiting => self.watch(),
            Phase::ReadingLastEnd { .. } => self.effects.push(TurnEffect::ReadLastEnd),
            Phase::New | Phase::Idle | Phase::Held { .. } | Phase::Ended => {}
        }
    }

    fn ask_held(&mut self, question: HeldQuestion) {
        self.turn.phase = Phase::AskingHeld { question };
        self.effects.push(TurnEffect::AskHeld { iid: self.turn.iid.clone() });
    }

    fn held(&mut self, question: HeldQuestion, held: bool) {
        match question {
            HeldQuestion::Begin => self.admit(Prompt::Task, held),
            HeldQuestion::Readmit { task_unread } if held => {
                let with_task = task_unread && self.turn.frame.task.is_some();
                self.admit(Prompt::ReadmitKept { with_task }, true);
            }
            HeldQuestion::Readmit { .. } => self.admit_lost(&faults::conversation_not_held()),
        }
    }

    fn admit(&mut self, prompt: Prompt, kept: bool) {
        let admission_id = admission_id(&self.turn.iid, self.turn.next_admission);
        self.turn.next_admission += 1;
        self.turn.live = Some(admission_id.clone());
        let pending = PendingAdmission { admission_id, prompt, kept };
        self.effects.push(TurnEffect::Admit(Admit::of(&self.turn, &pending)));
        self.turn.phase = Phase::Admitting { pending };
    }

    fn admitted(&mut self, pending: PendingAdmission, answer: AdmitAnswer) {
        self.turn.admission = Some(Admission {
            admission_id: pending.admission_id,
            stream_url: answer.stream_url,
            offset: answer.offset,
            submission_id: answer.submission_id,
            prompt: pending.prompt,
        });
        self.turn.kernel_kill = None;
        self.turn.phase = Phase::Waiting;
        self.watch();
    }

    fn watch(&mut self) {
        if let Some(admission) = &self.turn.admission {
            self.effects.push(TurnEffect::Watch(Watch {
                iid: self.turn.iid.clone(),
                stream_url: admission.stream_url.clone(),
                offset: admission.offset.clone(),
                submission_id: admission.submission_id.clone(),
            }));
        }
    }

    /// Only `kept: false` under `kept: true` says that the conversation is gone; all else is a failed admission (P-42).
    fn refused(&mut self, pending: PendingAdmission, status: u16, error: &str, kept: Option<bool>) {
        // An answer below 500 seated nothing; above, the record may have been made before it failed.
        if status < 500 {
            self.turn.live = None;
        }
        if !(pending.kept && status == 404 && kept == Some(false)) {
            return self.fault(faults::admission_refused(status, error));
        }
        match pending.prompt {
            // A continued Turn's first admission: nothing was cut, its prompt goes out again (spec P-51).
            Prompt::Task => self.admit(Prompt::Task, false),
            Prompt::ReadmitKept { .. } | Prompt::ReadmitLost => {
                self.admit_lost(&faults::conversation_not_held());
            }
            Prompt::Nudge { .. } | Prompt::Wake => self.admit_again_as_turn(),
        }
    }

    /// A nudge or wake found no conversation: nothing was cut, so the task goes out alone (spec P-52).
    fn admit_again_as_turn(&mut self) {
        let what = faults::conversation_not_held();
        if self.turn.frame.task.is_none() {
            self.fault(faults::conversation_lost_without_task(&what));
        } else if self.turn.readmissions >= READMISSIONS_MAX {
            self.fault(faults::lost_too_often(&what));
        } else {
            self.turn.readmissions += 1;
            self.admit(Prompt::Task, false);
        }
    }

    /// The conversation is lost after a cut: the task follows the re-admit text, or the Turn faults (spec P-47).
    fn admit_lost(&mut self, what: &str) {
        if self.turn.frame.task.is_some() {
            self.admit(Prompt::ReadmitLost, false);
        } else {
            let reason = self.turn.kernel_kill.take().unwrap_or_else(|| faults::conversation_lost_without_task(what));
            self.fault(reason);
        }
    }

    fn settled(&mut self, settlement: Settlement, allowed: &[String]) {
        self.turn.live = None;
        let kind = settlement.error.as_ref().map(|error| error.kind.as_str());
        match (settlement.outcome, kind) {
            (Outcome::Completed, _) if self.turn.frame.menu_empty => {
                let text = faults::bounded(settlement.text.unwrap_or_default(), DONE_TEXT_MAX_BYTES);
                self.effects.push(TurnEffect::Done { text });
                self.turn.phase = Phase::Ended;
            }
            (Outcome::Completed, _) => self.completed(allowed),
            (Outcome::Failed, Some(error_type::RUNAWAY)) if self.may_reroll() => self.reroll(),
            (Outcome::Failed, Some(error_type::HARNESS_RESTARTED)) => {
                let carried = self.turn.admission.as_ref().is_some_and(|admission| admission.prompt.carries_task());
                self.cut(Cut::Restart { task_unread: carried && settlement.prompted == Some(false) });
            }
            (Outcome::Failed, _) => self.fault(faults::settled_failed(settlement.error.as_ref())),
            (Outcome::Aborted, _) => self.fault(faults::settled_aborted(settlement.error.as_ref())),
        }
    }

    /// The model stopped and the Turn is still registered (decision 38).
    fn completed(&mut self, allowed: &[String]) {
        if allowed.is_empty() || self.turn.outstanding.is_some() {
            self.turn.phase = Phase::Idle;
        } else if self.turn.nudges >= NUDGES_MAX {
            self.fault(faults::no_pick(allowed));
        } else {
            self.turn.nudges += 1;
            self.effects.push(TurnEffect::Say { attempt: self.turn.nudges, reason: faults::RETRY_NUDGE });
            self.admit(Prompt::Nudge { allowed: allowed.to_vec() }, true);
        }
    }

    fn wake(&mut self) {
        if self.turn.wakes >= WAKES_MAX {
            self.fault(faults::wakes_exhausted());
        } else {
            self.turn.wakes += 1;
            self.admit(Prompt::Wake, true);
        }
    }

    fn may_reroll(&self) -> bool {
        let turn = &self.turn;
        !turn.frame.continued && turn.frame.task.is_some() && !turn.moved && turn.rerolls < REROLLS_MAX
    }

    fn reroll(&mut self) {
        self.turn.rerolls += 1;
        self.turn.iid = self.turn.frame.iid.reroll(self.turn.rerolls);
        self.effects.push(TurnEffect::Say { attempt: self.turn.rerolls, reason: faults::RETRY_REROLL });
        self.admit(Prompt::Task, false);
    }

    /// A cut waits for an outstanding pick's route, then for the Sandbox's word (decisions 34 and 39).
    fn cut(&mut self, cut: Cut) {
        if self.turn.outstanding.is_some() {
            self.turn.phase = Phase::Held { cut };
        } else {
            self.turn.phase = Phase::ReadingLastEnd { cut };
            self.effects.push(TurnEffect::ReadLastEnd);
        }
    }

    /// Decision 39: the first kernel kill and three other cuts are re-admitted.
    fn readmit(&mut self, cut: Cut, last_end: Option<&LastEnd>) {
        if let Some(end) = last_end.filter(|end| end.oom == Some(true)) {
            let reason = faults::memory_limit(end);
            self.turn.kernel_kills += 1;
            if self.turn.kernel_kills > KERNEL_KILLS_MAX {
                return self.fault(reason);
            }
            self.turn.kernel_kill = Some(reason);
        } else {
            if self.turn.readmissions >= READMISSIONS_MAX {
                return self.fault(match cut {
                    Cut::Restart { .. } => faults::turn_lost(last_end),
                    Cut::Lost { submission_id } => faults::lost_too_often(&faults::conversation_lost(&submission_id)),
                });
            }
            self.turn.readmissions += 1;
        }
        let attempt = self.turn.readmissions + self.turn.kernel_kills;
        self.effects.push(TurnEffect::Say { attempt, reason: faults::RETRY_READMIT });
        match cut {
            Cut::Restart { task_unread } => self.ask_held(HeldQuestion::Readmit { task_unread }),
            Cut::Lost { submission_id } => self.admit_lost(&faults::conversation_lost(&submission_id)),
        }
    }

    fn pick(&mut self, pick_id: String, answer: PickAnswer) {
        if self.turn.kept_answer(&pick_id).is_some() {
            return;
        }
        if answer.moved || answer.outstanding {
            self.turn.moved = true;
            self.turn.nudges = 0;
        }
        if answer.outstanding {
            self.turn.outstanding = Some(pick_id.clone());
        }
        self.turn.picks.push(KeptPick { pick_id, answer });
        if self.turn.picks.len() > PICKS_KEPT_MAX {
            let outstanding = self.turn.outstanding.as_deref();
            let oldest = self.turn.picks.iter().position(|kept| Some(kept.pick_id.as_str()) != outstanding);
            if let Some(oldest) = oldest {
                self.turn.picks.remove(oldest);
            }
        }
    }

    fn route_returned(&mut self, pick_id: String, answer: PickAnswer, allowed: &[String]) {
        if self.turn.outstanding.as_deref() != Some(&*pick_id) {
            return;
        }
        self.turn.outstanding = None;
        if let Some(kept) = self.turn.picks.iter_mut().find(|kept| kept.pick_id == pick_id) {
            kept.answer = answer;
        }
        match self.turn.phase.clone() {
            Phase::Held { cut } => self.cut(cut),
            Phase::Idle => self.completed(allowed),
            _ => {}
        }
    }

    fn fault(&mut self, reason: String) {
        if self.turn.frame.continued {
            self.effects.push(TurnEffect::RaiseEpoch);
        }
        let reason = faults::bounded(reason, faults::REASON_MAX_BYTES);
        self.effects.push(TurnEffect::Fault { reason });
        self.turn.phase = Phase::Ended;
    }
}
