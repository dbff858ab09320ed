//! Admissions: what is read before one, which notices it takes, and what its answer does (spec 7.4, 9.6 to 9.10).

use super::faults;
use super::kills::{ListedKill, Mark, Sayable};
use super::ledger::{Pending, Source, To};
use super::message::{Admit, TurnEffect, TurnInput, Watch};
use super::prompt::Prompt;
use super::state::{
    Admission, CUT_RESTARTED, Carried, Frame, HeldQuestion, PendingAdmission, Phase, Plan, READMISSIONS_MAX,
};
use super::step::Step;
use crate::workspace::LastEnd;
use jr2_shared::harness::AdmitAnswer;
use jr2_shared::ids::admission_id;
use jr2_shared::notice::Notice;

impl Step {
    pub(super) fn ask_held(&mut self, question: HeldQuestion) {
        self.turn.phase = Phase::AskingHeld { question };
        self.effects.push(TurnEffect::AskHeld { iid: self.turn.iid.clone() });
    }

    pub(super) fn held(&mut self, question: HeldQuestion, held: bool) {
        match question {
            HeldQuestion::Begin => {
                if !held {
                    self.raise_new(faults::HOLDS_NO_LONGER);
                }
                self.plan(Prompt::Task, held);
            }
            HeldQuestion::Readmit if held => {
                let with_task = self.unread().any(|c| c.with_task) && self.turn.frame.task.is_some();
                let unread = self.pend_unread();
                self.send(Plan { prompt: Prompt::ReadmitKept { with_task }, kept: true, unread });
            }
            HeldQuestion::Readmit => self.admit_lost(&faults::conversation_not_held()),
        }
    }

    /// What the admissions carried since the Harness last read the Turn's surface (spec N-64).
    fn unread(&self) -> impl Iterator<Item = &Carried> {
        self.turn.carried.iter().rev().take_while(|c| !c.read)
    }

    /// Their notices are pending again, each with its own source; answers which (spec N-64).
    fn pend_unread(&mut self) -> Vec<u64> {
        let mut numbers = Vec::new();
        for carried in self.turn.carried.iter_mut().rev().take_while(|c| !c.read) {
            let notices = std::mem::take(&mut carried.notices);
            numbers.extend(notices.iter().map(|p| p.n));
            self.ledger.raise_again(notices);
        }
        numbers
    }

    /// The conversation is gone, and with it whatever was said in it: everything the Turn carried is pending again,
    /// whatever the surface reads said (spec N-66, N-76).
    pub(super) fn pend_all(&mut self) {
        for carried in &mut self.turn.carried {
            self.ledger.raise_again(std::mem::take(&mut carried.notices));
        }
    }

    pub(super) fn plan(&mut self, prompt: Prompt, kept: bool) {
        self.send(Plan { prompt, kept, unread: Vec::new() });
    }

    /// An admission into a Workspace reads first (spec N-41); the Instance Harness holds no kill (spec N-34).
    fn send(&mut self, plan: Plan) {
        if self.turn.frame.workspace.is_some() {
            self.turn.phase = Phase::Reading { plan };
            self.effects.push(TurnEffect::ReadKills);
        } else {
            self.admit(plan, &Sayable::default());
        }
    }

    /// What was read becomes notices, and the Turn's mark; then the admission goes out.
    pub(super) fn read(&mut self, plan: Plan, kills: Option<&[ListedKill]>, last_end: Option<&LastEnd>) {
        let Some(workspace) = self.turn.frame.workspace.clone() else { return };
        let started = self.turn.started;
        let mark = self.turn.mark.get_or_insert_with(|| Mark::first(kills, started)).clone();
        self.turn.known_end = last_end.map_or(0, |end| end.at).max(self.turn.known_end);
        if let Some(kills) = kills {
            self.ledger.raise_listed(&workspace, kills);
        }
        if let Some(end) = last_end.filter(|end| end.oom == Some(true)) {
            let notice = Notice::memory_limit(None, end.limit.clone(), None);
            let source = Source::End(workspace.clone(), end.at);
            self.ledger.raise(notice, To::Workspace(workspace), Some(source));
        }
        self.admit(plan, &Sayable::of(kills, Some(&mark)));
    }

    fn admit(&mut self, plan: Plan, sayable: &Sayable) {
        let admission_id = admission_id(&self.turn.iid, self.turn.next_admission);
        self.turn.next_admission += 1;
        self.turn.live = Some(admission_id.clone());
        let frame = &self.turn.frame;
        let notices = self.ledger.take(&admission_id, |pending| wants(frame, &plan, sayable, pending));
        let pending = PendingAdmission { admission_id, prompt: plan.prompt, kept: plan.kept, read: false, asked: None };
        self.effects.push(TurnEffect::Admit(Admit::of(&self.turn, &pending, notices)));
        self.turn.phase = Phase::Admitting { pending };
    }

    /// The answer of the pending admission; another one's says nothing.
    pub(super) fn answered(&mut self, pending: PendingAdmission, input: TurnInput) {
        match input {
            TurnInput::Admitted { admission_id, answer } if admission_id == pending.admission_id => {
                self.admitted(pending, answer);
            }
            TurnInput::AdmitRefused { admission_id, status, error, kept } if admission_id == pending.admission_id => {
                self.refused(pending, status, &error, kept);
            }
            TurnInput::AdmitUnreachable { admission_id, detail } if admission_id == pending.admission_id => {
                self.fault(faults::admission_unreachable(&detail));
            }
            _ => {}
        }
    }

    /// The admission and the notices it delivered are saved in one save (spec N-13).
    fn admitted(&mut self, pending: PendingAdmission, answer: AdmitAnswer) {
        let notices = self.ledger.deliver(&pending.admission_id, answer.carried.as_deref());
        self.turn.carried.push(Carried {
            admission_id: pending.admission_id.clone(),
            with_task: pending.prompt.carries_task(),
            read: pending.read,
            notices,
        });
        self.turn.admission = Some(Admission {
            admission_id: pending.admission_id,
            stream_url: answer.stream_url,
            offset: answer.offset,
            submission_id: answer.submission_id,
            at: self.now,
            prompt: pending.prompt,
        });
        self.turn.kernel_kill = None;
        self.turn.phase = Phase::Waiting;
        self.watch();
        if let Some(pick_id) = pending.asked {
            self.answer_without_call(pick_id);
        }
    }

    /// An answer whose Submission was lost before anybody heard of it: its admission was seated once more, as another one.
    pub(super) fn answer_without_call(&mut self, pick_id: String) {
        // A pick without a key names no Submission: nothing can be told of it.
        let keyed = pick_id.contains('/');
        let lost = keyed && self.turn.admission.as_ref().is_some_and(|admission| !admission.made(&pick_id));
        if lost && self.turn.kept_answer(&pick_id).is_some_and(|answer| answer.answered) {
            self.turn.receipt_due = Some(pick_id);
            self.raise_receipt();
        }
    }

    pub(super) fn watch(&mut self) {
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
            self.ledger.release(&pending.admission_id);
        }
        if !(pending.kept && status == 404 && kept == Some(false)) {
            return self.fault(faults::admission_refused(status, error));
        }
        match pending.prompt {
            // A continued Turn's first admission: nothing was cut, its prompt goes out again (spec N-74).
            Prompt::Task => {
                self.raise_new(faults::HOLDS_NO_LONGER);
                self.plan(Prompt::Task, false);
            }
            Prompt::ReadmitKept { .. } | Prompt::ReadmitLost => self.admit_lost(&faults::conversation_not_held()),
            Prompt::Nudge { .. } | Prompt::Wake => self.admit_again_as_turn(),
        }
    }

    /// A nudge or wake found no conversation: nothing was cut, so the task goes out alone (spec N-75).
    fn admit_again_as_turn(&mut self) {
        let what = faults::conversation_not_held();
        if self.turn.frame.task.is_none() {
            self.fault(faults::conversation_lost_without_task(&what));
        } else if self.turn.readmissions >= READMISSIONS_MAX {
            self.fault(faults::lost_too_often(&what));
        } else {
            self.turn.readmissions += 1;
            self.pend_all();
            self.raise_new(faults::HOLDS_NO_LONGER);
            self.raise_receipt();
            self.plan(Prompt::Task, false);
        }
    }

    /// The conversation is lost after a cut: the task follows the re-admit text, or the Turn faults (spec N-66 to N-68).
    pub(super) fn admit_lost(&mut self, what: &str) {
        if self.turn.frame.task.is_none() {
            let reason = self.turn.kernel_kill.take().unwrap_or_else(|| faults::conversation_lost_without_task(what));
            self.raise_kernel_kill_of_fault();
            return self.fault(reason);
        }
        self.pend_all();
        let reason = self.turn.kernel_kill.clone().unwrap_or_else(|| faults::HOLDS_NO_LONGER.to_owned());
        self.raise_new(&reason);
        self.raise_receipt();
        self.plan(Prompt::ReadmitLost, false);
    }

    /// The answer of a cut pick has no call to return to: it rides as a notice (decision 34).
    fn raise_receipt(&mut self) {
        if let Some((notice, to, source)) = self.turn.receipt_notice(CUT_RESTARTED) {
            self.ledger.raise(notice, to, Some(source));
        }
        self.turn.receipt_due = None;
    }
}

/// What an admission takes (spec 9.2, 9.8, 9.10): a Turn everything in its scope; a re-prompt within the Turn only guard
/// kills that it may say; a re-admission everything in its scope but the guard kills it may not say.
fn wants(frame: &Frame, plan: &Plan, sayable: &Sayable, pending: &Pending) -> bool {
    let in_scope = match &pending.to {
        To::Workspace(to) => frame.workspace.as_ref() == Some(to),
        To::Conversation(to) => frame.continued && frame.base.as_str() == to,
        To::Turn(to) => frame.iid.as_str() == to,
    };
    let may_say = frame.workspace.as_ref().is_some_and(|workspace| sayable.holds(pending, workspace));
    in_scope
        && match &plan.prompt {
            Prompt::Task | Prompt::ReadmitLost => true,
            Prompt::Nudge { .. } | Prompt::Wake => may_say,
            Prompt::ReadmitKept { .. } => {
                let guard_kill = pending.source.as_ref().is_some_and(Source::is_guard_kill);
                !guard_kill || may_say || plan.unread.contains(&pending.n)
            }
        }
}
