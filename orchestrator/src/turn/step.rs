//! The step function: one input in, the next Turn, the next ledger and their effects out.

use super::faults;
use super::ledger::{Ledger, Source, To};
use super::message::{Admit, TurnEffect, TurnInput};
use super::prompt::Prompt;
use super::state::{CUT_LEFT, Carried, HeldQuestion, KeptPick, PICKS_KEPT_MAX, PendingAbort, Phase, Turn};
use jr2_shared::notice::Notice;
use jr2_shared::surface::PickAnswer;

/// Takes one input at `now` (wall milliseconds). Total: what does not fit the phase changes nothing and asks for nothing.
pub fn step(turn: &Turn, ledger: &Ledger, input: TurnInput, now: u64) -> (Turn, Ledger, Vec<TurnEffect>) {
    let mut step = Step { turn: turn.clone(), ledger: ledger.clone(), now, effects: Vec::new() };
    if !turn.is_over() {
        step.take(input);
    }
    (step.turn, step.ledger, step.effects)
}

/// The state is left, or the Turn faulted: what nobody heard is pending again (spec N-57), and what may still run is
/// aborted (decision 33). `None` = nothing can be running.
pub fn exit(turn: &Turn, ledger: &mut Ledger) -> Option<PendingAbort> {
    let mut turn = turn.clone();
    close_admission(&mut turn, ledger);
    pass_receipt_on(&mut turn, ledger);
    let mut running = None;
    for mut carried in std::mem::take(&mut turn.carried) {
        if !carried.read {
            ledger.raise_again(std::mem::take(&mut carried.notices));
        } else if turn.live.as_ref() == Some(&carried.admission_id) && !carried.notices.is_empty() {
            running = Some(carried);
        }
    }
    ledger.forget_turn(turn.frame.iid.as_str());
    let up_to = turn.live.clone()?;
    Some(PendingAbort { agent: turn.frame.agent.clone(), iid: turn.iid.clone(), up_to, carried: running })
}

/// The state is left while the answer of a cut pick is still to be said: the next Turn of the conversation hears it
/// (decision 34). It takes the place of the receipt, so that an abort's answer can free it (decision 32).
fn pass_receipt_on(turn: &mut Turn, ledger: &mut Ledger) {
    if turn.is_over() || !turn.frame.continued {
        return; // no later Turn of that conversation will listen
    }
    let Some((notice, to, source)) = turn.receipt_notice(CUT_LEFT) else { return };
    if ledger.raise(notice, to, Some(source))
        && let Some(newest) = turn.carried.last_mut().filter(|c| turn.live.as_ref() == Some(&c.admission_id))
    {
        newest.notices.extend(ledger.pending.pop());
    }
}

/// The Harness answered an abort: notices of an admission that it never prompted are pending again (decision 32).
pub fn aborted(abort: &PendingAbort, unprompted: &[String], ledger: &mut Ledger) {
    let Some(carried) = &abort.carried else { return };
    if unprompted.contains(&carried.admission_id) {
        let for_others = carried.notices.iter().filter(|p| !matches!(p.to, To::Turn(_)));
        ledger.raise_again(for_others.cloned().collect());
    }
}

/// An admission without an answer: if its surface was read it arrived, and its notices with it; else they are free.
pub(super) fn close_admission(turn: &mut Turn, ledger: &mut Ledger) {
    let Phase::Admitting { pending } = &turn.phase else { return };
    if !pending.read {
        return ledger.release(&pending.admission_id);
    }
    turn.carried.push(Carried {
        admission_id: pending.admission_id.clone(),
        with_task: pending.prompt.carries_task(),
        read: true,
        notices: ledger.deliver(&pending.admission_id, None),
    });
}

/// One step under way.
pub(super) struct Step {
    pub turn: Turn,
    pub ledger: Ledger,
    pub now: u64,
    pub effects: Vec<TurnEffect>,
}

impl Step {
    fn take(&mut self, input: TurnInput) {
        match (self.turn.phase.clone(), input) {
            (_, TurnInput::Pick { pick_id, answer }) if self.turn.takes_picks() => self.pick(pick_id, answer),
            (_, TurnInput::RouteReturned { pick_id, answer, allowed }) => {
                self.route_returned(pick_id, answer, &allowed);
            }
            (phase, TurnInput::Restored) => self.repeat(&phase),
            (_, TurnInput::SurfaceRead) => self.surface_read(),
            (Phase::New, TurnInput::Begin { held_before }) => {
                self.turn.started = self.now;
                self.turn.phase = Phase::AwaitingAborts { held_before };
                self.effects.push(TurnEffect::AwaitAborts);
            }
            (Phase::AwaitingAborts { held_before }, TurnInput::AbortsClear) => {
                if self.turn.frame.continued && held_before {
                    self.ask_held(HeldQuestion::Begin);
                } else {
                    self.plan(Prompt::Task, false);
                }
            }
            (Phase::AskingHeld { question }, TurnInput::Held(held)) => self.held(question, held),
            (Phase::Reading { plan }, TurnInput::Read { kills, last_end }) => {
                self.read(plan, kills.as_deref(), last_end.as_ref());
            }
            (Phase::Admitting { pending }, input) => self.answered(pending, input),
            (Phase::Waiting, input) => self.heard(input),
            (Phase::ReadingLastEnd { cut }, TurnInput::LastEnd(last_end)) => self.readmit(cut, last_end.as_ref()),
            (Phase::Idle, TurnInput::Allowed(allowed)) if !allowed.is_empty() && self.turn.outstanding.is_none() => {
                self.wake();
            }
            _ => {}
        }
    }

    /// What the Submission that is waited for says.
    fn heard(&mut self, input: TurnInput) {
        match input {
            TurnInput::Settled { settlement, allowed } if self.waits_for(&settlement.submission_id) => {
                self.settled(settlement, &allowed);
            }
            TurnInput::ConversationLost { submission_id } if self.waits_for(&submission_id) => {
                self.turn.live = None;
                // Nobody can tell any more whether a model was asked with it (decision 32).
                if let Some(newest) = self.turn.carried.last_mut() {
                    newest.read = false;
                }
                self.cut(super::state::Cut::Lost { submission_id });
            }
            TurnInput::Denied { submission_id, status } if self.waits_for(&submission_id) => {
                self.fault(faults::wait_denied(status, &submission_id));
            }
            TurnInput::StreamKill { submission_id, id, position, peak, limit } if self.waits_for(&submission_id) => {
                let Some(workspace) = self.turn.frame.workspace.clone() else { return };
                let source = match id {
                    Some(id) => Source::Kill(workspace.clone(), id),
                    None => Source::Place(self.turn.iid.as_str().to_owned(), position.batch, position.index),
                };
                let notice = Notice::memory_limit(Some(self.turn.frame.agent.clone()), limit, peak);
                self.ledger.raise(notice, To::Workspace(workspace), Some(source));
            }
            _ => {}
        }
    }

    fn waits_for(&self, submission_id: &str) -> bool {
        self.turn.admission.as_ref().is_some_and(|admission| admission.submission_id == submission_id)
    }

    /// Only the read after the newest admission can be meant: the conversation's earlier Submissions have ended.
    fn surface_read(&mut self) {
        match &mut self.turn.phase {
            Phase::Admitting { pending } => pending.read = true,
            Phase::Waiting => {
                if let Some(carried) = self.turn.carried.last_mut() {
                    carried.read = true;
                }
            }
            _ => {}
        }
    }

    /// After a restore: ask again for whatever the phase still waits for (spec 4.6, decision 31).
    fn repeat(&mut self, phase: &Phase) {
        match phase {
            Phase::AwaitingAborts { .. } => self.effects.push(TurnEffect::AwaitAborts),
            Phase::AskingHeld { .. } => self.effects.push(TurnEffect::AskHeld { iid: self.turn.iid.clone() }),
            Phase::Reading { .. } => self.effects.push(TurnEffect::ReadKills),
            Phase::Admitting { pending } => {
                let notices = self.ledger.reserved(&pending.admission_id);
                self.effects.push(TurnEffect::Admit(Admit::of(&self.turn, pending, notices)));
            }
            Phase::Waiting => self.watch(),
            Phase::ReadingLastEnd { .. } => self.read_last_end(),
            Phase::New | Phase::Idle | Phase::Held { .. } | Phase::Ended => {}
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
            if let Phase::Admitting { pending } = &mut self.turn.phase {
                pending.asked = Some(pick_id.clone());
            }
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
            Phase::Held { cut } => {
                self.turn.receipt_due = Some(pick_id);
                self.cut(cut);
            }
            Phase::Idle => {
                self.turn.receipt_due = Some(pick_id); // its call ended without it
                self.completed(allowed);
            }
            Phase::Waiting => self.answer_without_call(pick_id),
            _ => {}
        }
    }

    /// The Turn is over in fault. A continued Turn's conversation ends with it, and its next Turn is told (spec P-26).
    pub fn fault(&mut self, reason: String) {
        let reason = faults::bounded(reason, faults::REASON_MAX_BYTES);
        close_admission(&mut self.turn, &mut self.ledger);
        if self.turn.frame.continued {
            self.effects.push(TurnEffect::RaiseEpoch);
            self.raise_new(&reason);
        }
        self.effects.push(TurnEffect::Fault { reason });
        self.turn.phase = Phase::Ended;
    }

    /// "This conversation is new": for the conversation's next admission, or for this fresh Turn alone (spec N-78).
    pub fn raise_new(&mut self, reason: &str) {
        let frame = &self.turn.frame;
        let to = if frame.continued {
            To::Conversation(frame.base.as_str().to_owned())
        } else {
            To::Turn(frame.iid.as_str().to_owned())
        };
        self.ledger.raise_new(faults::bounded(reason.to_owned(), faults::NEW_REASON_MAX_BYTES), to);
    }
}
