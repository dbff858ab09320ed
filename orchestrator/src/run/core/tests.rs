//! Notices through `apply`: what one save holds, what a crash before or after it leaves (spec 9.2, 9.9).

use super::*;
use crate::run::{InvokedKind, Status, birth::new_row};
use crate::turn::{ListedKill, Phase, Turn};
use crate::workflow::{Bindings, Catalog, Program};
use crate::workspace::LastEnd;
use jr2_shared::harness::{AdmitAnswer, Outcome as Ended, Position, Settlement, SettlementError};
use jr2_shared::notice::Notice;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A coder that writes, and a planner without Working tools, in one Workspace.
const SHOP: &str = "
workflow: shop
agents:
  coder: { model: a/b, instructions: Code., workspace: write }
  planner: { model: a/b, instructions: Plan., workspace: none }
events:
  finish: { from: agent }
  halt: { from: external }
  code: { from: external }
  plan: { from: external }
workspace:
  repos: { app: /srv/app }
  branch: jr2/shop
initial: coding
states:
  coding:
    agent: coder
    continue: true
    prompt: Fix it.
    on: { finish: paused, halt: paused, agent.fault: paused, workspace.lost: end }
  planning:
    agent: planner
    prompt: Plan it.
    on: { finish: paused, agent.fault: paused, workspace.lost: end }
  paused:
    gate: {}
    on: { code: coding, plan: planning, workspace.lost: end }
  end: { final: true, output: { ok: true } }
";

const NOW: u64 = 1_000_000;

/// A run that is driven; the row is the saved one.
struct Drive {
    program: Arc<Program>,
    row: Row,
    last: Outcome,
}

impl Drive {
    /// Its Workspace runs; the coder's Turn stands before its first read.
    fn new() -> Self {
        let text = BTreeMap::from([("shop".to_owned(), Arc::from(SHOP))]);
        let catalog = Catalog::from_texts(&text).unwrap_or_else(|e| panic!("{}", e.plain()));
        let program =
            Program::build(&catalog, "shop", &Bindings::default()).unwrap_or_else(|e| panic!("{}", e.plain()));
        let row = new_row(&program, "shop", json!({}), NOW);
        let last = apply(&program, &row, &Input::Start, Facts { now: NOW, seed: 7 });
        let mut drive = Self { program: Arc::new(program), row: last.row.clone(), last };
        let sandbox = drive.sandbox();
        let repos = vec![("app".to_owned(), "/w/app".to_owned())];
        let provisioned = Provisioned { uid: "u1".into(), repos, branch: "jr2/shop".into() };
        drive.apply(&Input::Provisioned { sandbox, provisioned });
        drive
    }

    fn sandbox(&self) -> String {
        self.row.root.workspace.as_ref().unwrap().spec.name.clone()
    }

    /// One application that is not saved: the process dies before that.
    fn lost(&self, input: &Input) -> Outcome {
        apply(&self.program, &self.row, input, Facts { now: NOW, seed: 7 })
    }

    /// One application, saved, and read back as a restart would.
    fn apply(&mut self, input: &Input) {
        self.last = self.lost(input);
        let saved = serde_json::to_string(&self.last.row).unwrap();
        self.row = serde_json::from_str(&saved).unwrap();
        assert_eq!(serde_json::to_string(&self.row).unwrap(), saved);
    }

    fn turn(&self) -> (u64, &Turn) {
        let live = self.row.root.invoked.values().find_map(|invoked| match &invoked.kind {
            InvokedKind::Agent(turn) if !turn.is_over() => Some((invoked.serial, &**turn)),
            _ => None,
        });
        live.expect("a live Turn")
    }

    fn input(&self, input: TurnInput) -> Input {
        Input::Turn { serial: self.turn().0, input }
    }

    fn feed(&mut self, input: TurnInput) {
        let input = self.input(input);
        self.apply(&input);
    }

    fn admission(&self) -> TurnInput {
        let Phase::Admitting { pending } = &self.turn().1.phase else { panic!("{:?}", self.turn().1.phase) };
        let admission_id = pending.admission_id.clone();
        let submission_id = format!("s-{admission_id}");
        let answer = AdmitAnswer { stream_url: "/s".into(), offset: "0".into(), submission_id, carried: None };
        TurnInput::Admitted { admission_id, answer }
    }

    fn admitted(&mut self) {
        self.feed(self.admission());
    }

    fn surface_read(&mut self) {
        let iid = self.turn().1.iid.as_str().to_owned();
        self.apply(&Input::SurfaceRead { iid });
    }

    fn outside(&mut self, event: &str) {
        self.apply(&Input::External { event: event.into(), payload: json!({}), key: None });
    }

    fn restarted(&mut self) {
        let submission_id = self.turn().1.admission.as_ref().unwrap().submission_id.clone();
        let error = Some(SettlementError { kind: "harness_restarted".into(), message: "m".into() });
        let settlement = Settlement { submission_id, outcome: Ended::Failed, error, prompted: Some(true), text: None };
        self.feed(TurnInput::Settled { settlement, allowed: Vec::new() });
    }

    fn kill(&self) -> TurnInput {
        TurnInput::StreamKill {
            submission_id: self.turn().1.admission.as_ref().unwrap().submission_id.clone(),
            id: Some("k1".into()),
            position: Position { batch: 1, index: 0 },
            peak: None,
            limit: Some("2Gi".into()),
        }
    }

    fn pending(&self) -> usize {
        self.row.ledger.pending.iter().filter(|p| p.reserved.is_none()).count()
    }
}

fn read(kills: &[&str], last_end: Option<LastEnd>) -> TurnInput {
    let kill = |id: &&str| ListedKill { id: (*id).into(), at: NOW, peak: None, limit: Some("2Gi".into()), told: false };
    TurnInput::Read { kills: Some(kills.iter().map(kill).collect()), last_end }
}

fn oom(at: u64) -> LastEnd {
    LastEnd { exit_code: 137, oom: Some(true), reason: "OOMKilled".into(), at, limit: Some("2Gi".into()) }
}

fn admit(effects: &[Effect]) -> &AdmitEffect {
    let admit = effects.iter().find_map(|effect| match effect {
        Effect::Admit(admit) => Some(&**admit),
        _ => None,
    });
    admit.unwrap_or_else(|| panic!("{effects:?}"))
}

#[test]
fn n_12_a_crash_between_take_and_save_carries_it_all_the_same() {
    let mut drive = Drive::new();
    let before_the_save = drive.lost(&drive.input(read(&["k1"], None)));
    assert_eq!(admit(&before_the_save.effects).notices.len(), 1);
    drive.feed(TurnInput::Restored);
    assert!(matches!(&drive.last.effects[..], [Effect::ReadKills { .. }]), "it left nothing behind: read again");
    drive.feed(read(&["k1"], None));
    let sent = admit(&drive.last.effects).clone();
    assert_eq!(sent.notices.len(), 1);
    // Dead after the save and before the answer's: the same admission again, to the byte.
    let Reattached { inputs, .. } = reattach(&drive.program, &drive.row);
    drive.apply(&inputs[0]);
    assert_eq!(admit(&drive.last.effects), &sent);
    assert!(!drive.last.changed, "and nothing to save");
}

#[test]
fn n_13_the_admission_and_its_notices_are_one_save() {
    let mut drive = Drive::new();
    drive.feed(read(&["k1"], None));
    assert!(drive.turn().1.admission.is_none() && drive.row.ledger.pending.len() == 1);
    let rev = drive.row.rev;
    drive.admitted();
    assert_eq!(drive.row.rev, rev + 1);
    assert!(drive.turn().1.admission.is_some() && drive.row.ledger.pending.is_empty());
    let Reattached { inputs, .. } = reattach(&drive.program, &drive.row);
    drive.apply(&inputs[0]);
    assert!(matches!(&drive.last.effects[..], [Effect::Watch { .. }]), "the restored Turn does not repeat it");
}

#[test]
fn n_15_only_a_raise_that_changes_the_ledger_saves() {
    let mut drive = Drive::new();
    drive.feed(read(&[], None));
    drive.admitted();
    drive.feed(drive.kill());
    assert!(drive.last.changed && drive.pending() == 1);
    let rev = drive.row.rev;
    drive.feed(drive.kill());
    assert!(!drive.last.changed && drive.last.effects.is_empty() && drive.row.rev == rev);
    drive.surface_read();
    assert!(drive.last.changed, "what was read is durable before its answer leaves");
    drive.surface_read();
    assert!(!drive.last.changed);
}

#[test]
fn n_09_a_menu_only_agent_of_a_run_with_a_workspace_is_not_told_of_its_kills() {
    let mut drive = Drive::new();
    drive.feed(read(&[], None));
    drive.admitted();
    drive.surface_read();
    drive.feed(drive.kill());
    drive.outside("halt");
    drive.apply(&Input::Aborted { iid: drive.row.aborts[0].abort.iid.0.clone(), up_to: None, unprompted: Vec::new() });
    drive.outside("plan");
    assert!(admit(&drive.last.effects).notices.is_empty(), "and it reads no list");
    drive.admitted();
    let iid = drive.turn().1.iid.as_str().to_owned();
    drive.apply(&Input::Pick { iid, pick: None, event: "finish".into(), payload: json!({}) });
    drive.outside("code");
    let Phase::AskingHeld { .. } = drive.turn().1.phase else { panic!("{:?}", drive.turn().1.phase) };
    drive.feed(TurnInput::Held(true));
    drive.feed(read(&["k1"], None));
    assert_eq!(admit(&drive.last.effects).notices.len(), 1);
}

#[test]
fn n_10_a_fault_its_event_and_its_notices_are_one_save() {
    let mut drive = Drive::new();
    drive.feed(read(&[], None));
    drive.admitted();
    drive.surface_read();
    for at in [NOW, NOW + 1] {
        drive.restarted();
        drive.feed(TurnInput::LastEnd(Some(oom(at))));
        if at == NOW {
            drive.feed(TurnInput::Held(true));
            drive.feed(read(&[], Some(oom(at))));
            drive.admitted();
            drive.surface_read();
        }
    }
    assert_eq!(drive.last.taken, [":coding[2]"], "the machine heard `agent.fault`");
    assert_eq!(drive.row.epochs.values().copied().collect::<Vec<_>>(), [1]);
    let said: Vec<&Notice> = drive.row.ledger.pending.iter().map(|p| &p.notice).collect();
    let kill = Notice::memory_limit(Some("coder".into()), Some("2Gi".into()), None);
    assert!(matches!(&said[..], [first, Notice::ConversationNew { .. }] if **first == kill), "{said:?}");
    drive.outside("code");
    drive.feed(read(&[], Some(oom(NOW + 1))));
    assert_eq!(admit(&drive.last.effects).notices.len(), 2);
}

#[test]
fn n_57_leaving_the_state_raises_the_unread_again_in_the_same_save() {
    let mut drive = Drive::new();
    drive.feed(read(&["k1"], None));
    drive.admitted();
    let rev = drive.row.rev;
    drive.outside("halt");
    assert_eq!((drive.pending(), drive.row.aborts.len(), drive.row.rev), (1, 1, rev + 1));
}

#[test]
fn n_57_the_answer_of_an_abort_says_what_was_never_prompted() {
    for unprompted in [false, true] {
        let mut drive = Drive::new();
        drive.feed(read(&["k1"], None));
        drive.admitted();
        drive.surface_read();
        drive.outside("halt");
        assert_eq!(drive.pending(), 0, "read, so it may be heard");
        let abort = drive.row.aborts[0].abort.clone();
        let unheard = if unprompted { vec![abort.up_to.clone()] } else { Vec::new() };
        drive.apply(&Input::Aborted { iid: abort.iid.0, up_to: Some(abort.up_to), unprompted: unheard });
        assert_eq!(drive.pending(), usize::from(unprompted));
    }
}

#[test]
fn d_10_a_lost_sandbox_takes_its_notices_along_and_they_are_counted() {
    let mut drive = Drive::new();
    drive.feed(read(&[], None));
    drive.admitted();
    drive.surface_read();
    drive.feed(drive.kill());
    let sandbox = drive.sandbox();
    drive.apply(&Input::SandboxLost { sandbox, reason: "gone".into(), message: "gone".into() });
    assert!(drive.row.ledger.pending.is_empty() && drive.row.ledger.seen.is_empty());
    assert_eq!((drive.row.dropped_notices, drive.row.status), (1, Status::Done));
}
