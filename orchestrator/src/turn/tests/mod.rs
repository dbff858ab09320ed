//! The Turn machine's tests: scenarios that name their rule, the table of transitions, properties.

/// Declares scenarios: a test each, and [`ALL`] for the coverage run.
macro_rules! scenarios {
    ($($name:ident)*) => {
        pub(super) const ALL: &[fn(&mut Recorder)] = &[$(run::$name),*];
        $(#[test] fn $name() { run::$name(&mut Recorder::new()); })*
    };
}

mod coverage;
mod notices;
mod properties;
mod scenarios;

use super::*;
use crate::workspace::LastEnd;
use jr2_shared::harness::{AdmitAnswer, Outcome, Settlement, SettlementError};
use jr2_shared::ids::Iid;
use jr2_shared::surface::PickAnswer;
use std::collections::BTreeSet;

/// A transition that did something: phase, input, next phase.
type Transition = (&'static str, &'static str, &'static str);
type Recorder = BTreeSet<Transition>;

fn phase_name(turn: &Turn) -> &'static str {
    match turn.phase {
        Phase::New => "new",
        Phase::AwaitingAborts { .. } => "awaiting-aborts",
        Phase::AskingHeld { .. } => "asking-held",
        Phase::Reading { .. } => "reading",
        Phase::Admitting { .. } => "admitting",
        Phase::Waiting => "waiting",
        Phase::Idle => "idle",
        Phase::Held { .. } => "held",
        Phase::ReadingLastEnd { .. } => "reading-last-end",
        Phase::Ended => "ended",
    }
}

fn input_name(input: &TurnInput) -> &'static str {
    match input {
        TurnInput::Begin { .. } => "begin",
        TurnInput::AbortsClear => "aborts-clear",
        TurnInput::Held(_) => "held",
        TurnInput::Read { .. } => "read",
        TurnInput::SurfaceRead => "surface-read",
        TurnInput::StreamKill { .. } => "stream-kill",
        TurnInput::Admitted { .. } => "admitted",
        TurnInput::AdmitRefused { .. } => "admit-refused",
        TurnInput::AdmitUnreachable { .. } => "admit-unreachable",
        TurnInput::Settled { .. } => "settled",
        TurnInput::ConversationLost { .. } => "conversation-lost",
        TurnInput::Denied { .. } => "denied",
        TurnInput::LastEnd(_) => "last-end",
        TurnInput::Pick { .. } => "pick",
        TurnInput::RouteReturned { .. } => "route-returned",
        TurnInput::Allowed(_) => "allowed",
        TurnInput::Restored => "restored",
    }
}

fn frame() -> Frame {
    Frame {
        agent: "coder".into(),
        base: Iid("r/root/coder".into()),
        iid: Iid("r/root/coder/0000000a".into()),
        continued: false,
        state: 3,
        ordinal: 1,
        task: Some("fix the test".into()),
        cwd: Some("/w/app".into()),
        workspace: None,
        model: None,
        thinking_level: None,
        menu_empty: false,
        first_admission: 1,
    }
}

/// One that works in a Workspace.
fn seated() -> Frame {
    Frame { workspace: Some("ws-1".into()), ..frame() }
}

fn continued() -> Frame {
    Frame { continued: true, iid: Iid("r/root/coder".into()), first_admission: 4, ..frame() }
}

fn names(allowed: &[&str]) -> Vec<String> {
    allowed.iter().map(|name| (*name).to_owned()).collect()
}

fn pick_answer(moved: bool, outstanding: bool) -> PickAnswer {
    PickAnswer {
        delivered: true,
        event: "done".into(),
        moved,
        turn_complete: false,
        delivery_id: "d1".into(),
        allowed: None,
        outstanding,
        reply: None,
        nothing_ran: false,
        answered: false,
    }
}

fn settlement(submission_id: &str, outcome: Outcome, error: Option<(&str, &str)>) -> Settlement {
    Settlement {
        submission_id: submission_id.to_owned(),
        outcome,
        error: error.map(|(kind, message)| SettlementError { kind: kind.into(), message: message.into() }),
        prompted: None,
        text: None,
    }
}

fn last_end(oom: bool) -> LastEnd {
    ended(oom, NOW)
}

fn ended(oom: bool, at: u64) -> LastEnd {
    let reason = if oom { "OOMKilled" } else { "Error" };
    LastEnd { exit_code: 137, oom: Some(oom), reason: reason.into(), at, limit: oom.then(|| "2Gi".to_owned()) }
}

/// The instant of every step: the scenarios that need another say so.
const NOW: u64 = 1_000_000;

/// Drives one Turn and checks at every input what holds for each: a restore from the row asks the same questions again,
/// and the row is a fixed point.
struct Drive<'a> {
    turn: Turn,
    ledger: Ledger,
    now: u64,
    effects: Vec<TurnEffect>,
    question: Option<TurnEffect>,
    recorder: &'a mut Recorder,
}

impl<'a> Drive<'a> {
    fn new(frame: Frame, recorder: &'a mut Recorder) -> Self {
        let (ledger, now) = (Ledger::default(), NOW);
        Self { turn: Turn::new(frame), ledger, now, effects: Vec::new(), question: None, recorder }
    }

    /// A Turn whose first admission runs.
    fn waiting(frame: Frame, recorder: &'a mut Recorder) -> Self {
        let mut drive = Self::new(frame, recorder);
        drive.feed(TurnInput::Begin { held_before: false });
        drive.feed(TurnInput::AbortsClear);
        drive.taken();
        drive
    }

    /// Takes the Turn back to an earlier point of the scenario.
    fn rewind(&mut self, turn: &Turn) {
        self.turn = turn.clone();
        self.question = step(turn, &self.ledger, TurnInput::Restored, self.now).2.into_iter().next();
    }

    fn feed(&mut self, input: TurnInput) -> &[TurnEffect] {
        let (from, name) = (phase_name(&self.turn), input_name(&input));
        let (next, ledger, effects) = step(&self.turn, &self.ledger, input, self.now);
        if next != self.turn || ledger != self.ledger || !effects.is_empty() {
            self.recorder.insert((from, name, phase_name(&next)));
        }
        if phase_name(&next) != from {
            self.question = None;
        }
        (self.turn, self.ledger) = (next, ledger);
        self.effects = effects;
        if let Some(question) = self.effects.iter().find(|effect| is_question(effect)) {
            self.question = Some(question.clone());
        }
        let row = serde_json::to_string(&(&self.turn, &self.ledger)).unwrap();
        let (restored, ledger): (Turn, Ledger) = serde_json::from_str(&row).unwrap();
        assert_eq!((&restored, &ledger), (&self.turn, &self.ledger), "the row is a fixed point: {row}");
        let (same, same_ledger, asked) = step(&restored, &ledger, TurnInput::Restored, self.now);
        assert_eq!((same, same_ledger), (restored, ledger), "a restore changes nothing");
        assert_eq!(asked.first(), self.question.as_ref(), "a restore asks the same again");
        &self.effects
    }

    /// What leaving the state now would abort; the scenario goes on as if it had not been left.
    fn exit(&self) -> Option<PendingAbort> {
        exit(&self.turn, &mut self.ledger.clone())
    }

    fn pending(&self) -> &PendingAdmission {
        match &self.turn.phase {
            Phase::Admitting { pending } => pending,
            other => panic!("not admitting: {other:?}"),
        }
    }

    fn sent(&self) -> &Admit {
        let admit = self.effects.iter().find_map(|effect| match effect {
            TurnEffect::Admit(admit) => Some(admit),
            _ => None,
        });
        admit.unwrap_or_else(|| panic!("nothing was sent: {:?}", self.effects))
    }

    fn submission(&self) -> String {
        self.turn.admission.as_ref().unwrap().submission_id.clone()
    }

    /// The Harness takes the pending admission.
    fn taken(&mut self) {
        let admission_id = self.pending().admission_id.clone();
        let n = self.turn.next_admission;
        let answer = AdmitAnswer {
            stream_url: "http://h/agents/coder/x".into(),
            offset: format!("{n}:0"),
            submission_id: format!("s-{n}-abcdef"),
            carried: None,
        };
        self.feed(TurnInput::Admitted { admission_id, answer });
        assert_eq!(self.turn.phase, Phase::Waiting);
    }

    fn refused(&mut self, status: u16, kept: Option<bool>) {
        let admission_id = self.pending().admission_id.clone();
        self.feed(TurnInput::AdmitRefused { admission_id, status, error: "coder: no".into(), kept });
    }

    fn completed(&mut self, allowed: &[&str]) {
        let settlement = settlement(&self.submission(), Outcome::Completed, None);
        self.feed(TurnInput::Settled { settlement, allowed: names(allowed) });
    }

    fn failed(&mut self, kind: &str, message: &str) {
        let settlement = settlement(&self.submission(), Outcome::Failed, Some((kind, message)));
        self.feed(TurnInput::Settled { settlement, allowed: names(&["done"]) });
    }

    fn restarted(&mut self, prompted: Option<bool>) {
        let mut settlement =
            settlement(&self.submission(), Outcome::Failed, Some(("harness_restarted", "the Harness restarted")));
        settlement.prompted = prompted;
        self.feed(TurnInput::Settled { settlement, allowed: names(&["done"]) });
    }

    fn lost(&mut self) {
        let submission_id = self.submission();
        self.feed(TurnInput::ConversationLost { submission_id });
    }

    fn pick(&mut self, pick_id: &str, moved: bool, outstanding: bool) {
        self.feed(TurnInput::Pick { pick_id: pick_id.into(), answer: pick_answer(moved, outstanding) });
    }

    fn returned(&mut self, pick_id: &str, allowed: &[&str]) {
        let answer = PickAnswer { answered: true, ..pick_answer(true, false) };
        self.feed(TurnInput::RouteReturned { pick_id: pick_id.into(), answer, allowed: names(allowed) });
    }

    /// The fault of the last step; the Turn must be over.
    fn fault(&self) -> String {
        assert!(self.turn.is_over());
        match self.effects.last() {
            Some(TurnEffect::Fault { reason }) => reason.clone(),
            other => panic!("no fault: {other:?}"),
        }
    }
}

fn is_question(effect: &TurnEffect) -> bool {
    matches!(
        effect,
        TurnEffect::AwaitAborts
            | TurnEffect::AskHeld { .. }
            | TurnEffect::Admit(_)
            | TurnEffect::Watch(_)
            | TurnEffect::ReadKills
            | TurnEffect::ReadLastEnd { .. }
    )
}
