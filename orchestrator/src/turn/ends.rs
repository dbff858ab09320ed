//! Ends of a Submission: done, nudge, wake, reroll, cut and re-admission (spec 7.5, 7.9, decisions 38 and 39).

use super::faults;
use super::ledger::{Source, To};
use super::message::TurnEffect;
use super::prompt::Prompt;
use super::state::{Cut, HeldQuestion, KERNEL_KILLS_MAX, NUDGES_MAX, Phase, READMISSIONS_MAX, REROLLS_MAX, WAKES_MAX};
use super::step::Step;
use crate::workspace::LastEnd;
use jr2_shared::harness::{DONE_TEXT_MAX_BYTES, Outcome, Settlement, error_type};
use jr2_shared::notice::Notice;

/// How much earlier than the admission a Harness's end may be stamped and still count as the cut's, in milliseconds: two
/// clocks are compared (spec N-84).
pub const LAST_END_SKEW_MS: u64 = 10_000;

impl Step {
    pub(super) fn settled(&mut self, settlement: Settlement, allowed: &[String]) {
        self.turn.live = None;
        self.judge_prompted(&settlement);
        let kind = settlement.error.as_ref().map(|error| error.kind.as_str());
        match (settlement.outcome, kind) {
            (Outcome::Completed, _) if self.turn.frame.menu_empty => {
                let text = faults::bounded(settlement.text.unwrap_or_default(), DONE_TEXT_MAX_BYTES);
                self.effects.push(TurnEffect::Done { text });
                self.turn.phase = Phase::Ended;
            }
            (Outcome::Completed, _) => self.completed(allowed),
            (Outcome::Failed, Some(error_type::RUNAWAY)) if self.may_reroll() => self.reroll(),
            (Outcome::Failed, Some(error_type::HARNESS_RESTARTED)) => self.cut(Cut::Restart),
            (Outcome::Failed, _) => self.fault(faults::settled_failed(settlement.error.as_ref())),
            (Outcome::Aborted, _) => self.fault(faults::settled_aborted(settlement.error.as_ref())),
        }
    }

    /// The settlement knows better than the surface read whether a model was asked (decision 32).
    fn judge_prompted(&mut self, settlement: &Settlement) {
        let Some(newest) = self.turn.carried.last_mut() else { return };
        if settlement.outcome == Outcome::Completed {
            newest.read = true;
        } else if let Some(prompted) = settlement.prompted {
            newest.read = prompted;
        }
        if newest.read {
            self.turn.receipt_due = None; // it was said with this admission, if it was due
        }
    }

    /// The model stopped and the Turn is still registered (decision 38).
    pub(super) fn completed(&mut self, allowed: &[String]) {
        if allowed.is_empty() || self.turn.outstanding.is_some() {
            self.turn.phase = Phase::Idle;
        } else if self.turn.nudges >= NUDGES_MAX {
            self.fault(faults::no_pick(allowed));
        } else {
            self.turn.nudges += 1;
            self.effects.push(TurnEffect::Say { attempt: self.turn.nudges, reason: faults::RETRY_NUDGE });
            self.plan(Prompt::Nudge { allowed: allowed.to_vec() }, true);
        }
    }

    pub(super) fn wake(&mut self) {
        if self.turn.wakes >= WAKES_MAX {
            self.fault(faults::wakes_exhausted());
        } else {
            self.turn.wakes += 1;
            self.plan(Prompt::Wake, true);
        }
    }

    fn may_reroll(&self) -> bool {
        let turn = &self.turn;
        !turn.frame.continued && turn.frame.task.is_some() && !turn.moved && turn.rerolls < REROLLS_MAX
    }

    /// The same Turn in a conversation of its own: what was said to the first one is said again.
    fn reroll(&mut self) {
        self.turn.rerolls += 1;
        self.turn.iid = self.turn.frame.iid.reroll(self.turn.rerolls);
        self.effects.push(TurnEffect::Say { attempt: self.turn.rerolls, reason: faults::RETRY_REROLL });
        self.pend_all();
        self.plan(Prompt::Task, false);
    }

    /// A cut waits for an outstanding pick's route, then for the Sandbox's word (decisions 34 and 39).
    pub(super) fn cut(&mut self, cut: Cut) {
        if self.turn.outstanding.is_some() {
            self.turn.phase = Phase::Held { cut };
        } else {
            self.receipt_of_the_cut();

            self.turn.phase = Phase::ReadingLastEnd { cut };
            self.read_last_end();
        }
    }

    /// An answer that came just before the cut may not have reached its call: its receipt is said again (decision 34).
    fn receipt_of_the_cut(&mut self) {
        let Some(admission) = &self.turn.admission else { return };
        let last = self.turn.picks.last();
        if let Some(last) = last.filter(|last| last.answer.answered && admission.made(&last.pick_id)) {
            self.turn.receipt_due = Some(last.pick_id.clone());
        }
    }

    pub(super) fn read_last_end(&mut self) {
        self.effects.push(TurnEffect::ReadLastEnd { since: self.cut_since() });
    }

    /// An end before this was another Submission's: one known before the admission, or one far too early.
    fn cut_since(&self) -> u64 {
        let admitted = self.turn.admission.as_ref().map_or(0, |admission| admission.at);
        admitted.saturating_sub(LAST_END_SKEW_MS).max(self.turn.known_end + 1)
    }

    /// Decision 39: the first kernel kill and three other cuts are re-admitted.
    pub(super) fn readmit(&mut self, cut: Cut, last_end: Option<&LastEnd>) {
        let last_end = last_end.filter(|end| end.at >= self.cut_since());
        self.turn.kernel_end = None;
        self.turn.known_end = last_end.map_or(0, |end| end.at).max(self.turn.known_end);
        if let Some(end) = last_end.filter(|end| end.oom == Some(true)) {
            let reason = faults::memory_limit(end);
            self.turn.kernel_kills += 1;
            self.turn.kernel_end = Some(end.clone());
            if self.turn.kernel_kills > KERNEL_KILLS_MAX {
                self.raise_kernel_kill_of_fault();
                return self.fault(reason);
            }
            self.turn.kernel_kill = Some(reason);
        } else {
            if self.turn.readmissions >= READMISSIONS_MAX {
                return self.fault(match cut {
                    Cut::Restart => faults::turn_lost(last_end),
                    Cut::Lost { submission_id } => faults::lost_too_often(&faults::conversation_lost(&submission_id)),
                });
            }
            self.turn.readmissions += 1;
        }
        let attempt = self.turn.readmissions + self.turn.kernel_kills;
        self.effects.push(TurnEffect::Say { attempt, reason: faults::RETRY_READMIT });
        match cut {
            Cut::Restart => self.ask_held(HeldQuestion::Readmit),
            Cut::Lost { submission_id } => self.admit_lost(&faults::conversation_lost(&submission_id)),
        }
    }

    /// The kernel kill that a fault follows names the Turn's Agent (spec N-81).
    pub(super) fn raise_kernel_kill_of_fault(&mut self) {
        let (Some(end), Some(workspace)) = (self.turn.kernel_end.take(), self.turn.frame.workspace.clone()) else {
            return;
        };
        let notice = Notice::memory_limit(Some(self.turn.frame.agent.clone()), end.limit, None);
        let source = Source::End(workspace.clone(), end.at);
        self.ledger.raise_fault(notice, To::Workspace(workspace), source);
    }
}
