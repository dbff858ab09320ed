//! What holds under any sequence of inputs.

use super::coverage::DECLARED;
use super::*;
use proptest::prelude::*;

/// Most admissions of a Turn that no pick moved: the first and its refusal, the reroll, the nudges, the wakes, and each
/// re-admission with its refusal.
const ADMISSIONS_MAX: usize = 2 + 1 + 2 + 16 + 2 * (3 + 1);

/// An input, its ids filled in from the Turn when `fits`.
#[derive(Clone, Debug)]
struct Op {
    kind: u8,
    fits: bool,
    flag: bool,
    choice: u8,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = (0_u8..23, prop::bool::weighted(0.9), any::<bool>(), 0_u8..5).prop_map(|(kind, fits, flag, choice)| Op {
        kind,
        fits,
        flag,
        choice,
    });
    prop::collection::vec(op, 0..160)
}

fn frames() -> impl Strategy<Value = Frame> {
    (any::<bool>(), any::<bool>(), any::<bool>(), prop::bool::weighted(0.2)).prop_map(
        |(rides, task, seated, menu_empty)| {
            let frame = if rides { continued() } else { frame() };
            let workspace = seated.then(|| "ws-1".to_owned());
            Frame { workspace, task: task.then(|| "fix the test".to_owned()), menu_empty, ..frame }
        },
    )
}

fn input(turn: &Turn, op: &Op) -> TurnInput {
    let admission_id = match &turn.phase {
        Phase::Admitting { pending } if op.fits => pending.admission_id.clone(),
        _ => "stale#1".to_owned(),
    };
    let submission_id = match &turn.admission {
        Some(admission) if op.fits => admission.submission_id.clone(),
        _ => "s-0-stale".to_owned(),
    };
    let allowed = if op.flag { names(&["a", "b"]) } else { Vec::new() };
    let pick_id = turn.outstanding.clone().filter(|_| op.fits).unwrap_or_else(|| format!("p{}", op.choice));
    match op.kind {
        0 => TurnInput::Begin { held_before: op.flag },
        1 => TurnInput::AbortsClear,
        2 => TurnInput::Held(op.flag),
        3..=6 => {
            let n = turn.next_admission;
            let answer = AdmitAnswer {
                stream_url: "/agents/c/i".into(),
                offset: "0:0".into(),
                submission_id: format!("s-{n}-x"),
                carried: None,
            };
            TurnInput::Admitted { admission_id, answer }
        }
        7 => {
            let status = [400, 404, 404, 404, 503][usize::from(op.choice)];
            TurnInput::AdmitRefused { admission_id, status, error: "e".into(), kept: op.flag.then_some(false) }
        }
        8 if op.choice == 0 => TurnInput::AdmitUnreachable { admission_id, detail: "d".into() },
        8 | 9 => TurnInput::Settled { settlement: settlement(&submission_id, Outcome::Completed, None), allowed },
        10 | 11 => {
            let kind = ["harness_restarted", "harness_restarted", "harness_restarted", "runaway", "submission_failed"]
                [usize::from(op.choice)];
            let mut settlement = settlement(&submission_id, Outcome::Failed, Some((kind, "m")));
            settlement.prompted = op.flag.then_some(false);
            TurnInput::Settled { settlement, allowed }
        }
        12 => TurnInput::ConversationLost { submission_id },
        13 if op.choice == 0 => TurnInput::Denied { submission_id, status: 403 },
        13 | 14 => TurnInput::LastEnd(op.flag.then(|| last_end(op.choice == 0))),
        15 => TurnInput::Pick { pick_id, answer: pick_answer(op.flag, op.choice == 0) },
        16 => TurnInput::RouteReturned { pick_id, answer: pick_answer(true, false), allowed },
        17 => TurnInput::SurfaceRead,
        18 => TurnInput::StreamKill {
            submission_id,
            id: op.flag.then(|| format!("k{}", op.choice)),
            position: jr2_shared::harness::Position { batch: 1, index: u64::from(op.choice) },
            peak: None,
            limit: Some("2Gi".into()),
        },
        19..=21 => TurnInput::Read {
            kills: op.flag.then(|| {
                let kill = |n: u8| ListedKill { id: format!("k{n}"), at: NOW, peak: None, limit: None, told: n == 2 };
                (0..op.choice).map(kill).collect()
            }),
            last_end: op.fits.then(|| last_end(op.choice == 1)),
        },
        _ if op.flag => TurnInput::Allowed(names(&["a"])),
        _ => TurnInput::Restored,
    }
}

fn answers_admission(input: &TurnInput, unanswered: &str) -> bool {
    match input {
        TurnInput::Admitted { admission_id, .. }
        | TurnInput::AdmitRefused { admission_id, .. }
        | TurnInput::AdmitUnreachable { admission_id, .. } => admission_id == unanswered,
        _ => false,
    }
}

/// Feeds the inputs and checks every step; answers how the Turn stands at the end.
fn check(frame: Frame, ops: &[Op]) -> Result<Turn, TestCaseError> {
    let mut turn = Turn::new(frame);
    let (mut ledger, mut now) = (Ledger::default(), NOW);
    let mut unanswered: Option<Admit> = None;
    let mut admissions: Vec<String> = Vec::new();
    let mut ends = 0;
    for op in ops {
        let input = input(&turn, op);
        let restored = input == TurnInput::Restored;
        let name = input_name(&input);
        if unanswered.as_ref().is_some_and(|admit| answers_admission(&input, &admit.admission_id)) {
            unanswered = None;
        }
        let row = serde_json::to_string(&(&turn, &ledger)).unwrap();
        let (reloaded, again): (Turn, Ledger) = serde_json::from_str(&row).unwrap();
        prop_assert_eq!((&reloaded, &again), (&turn, &ledger), "serde is a fixed point");
        let (next, next_ledger, effects) = step(&turn, &ledger, input.clone(), now);
        let same = step(&reloaded, &again, input, now);
        prop_assert_eq!(&(next.clone(), next_ledger.clone(), effects.clone()), &same, "same input, same result");
        now += 700;

        if turn.is_over() {
            prop_assert!(effects.is_empty() && next == turn, "an ended Turn does nothing");
        }
        if next != turn || next_ledger != ledger || !effects.is_empty() {
            let transition = (phase_name(&turn), name, phase_name(&next));
            prop_assert!(DECLARED.contains(&transition), "undeclared {transition:?}");
        }
        for (at, effect) in effects.iter().enumerate() {
            match effect {
                TurnEffect::Admit(admit) if restored => {
                    prop_assert_eq!(Some(admit), unanswered.as_ref(), "a restore repeats the unanswered admission");
                }
                TurnEffect::Admit(admit) => {
                    prop_assert!(unanswered.is_none(), "two admissions without an answer");
                    prop_assert!(!admissions.contains(&admit.admission_id), "an admission id was used twice");
                    admissions.push(admit.admission_id.clone());
                    unanswered = Some(admit.clone());
                }
                TurnEffect::Fault { reason } => {
                    ends += 1;
                    prop_assert!(!reason.is_empty() && at + 1 == effects.len(), "a fault is the last effect");
                    let raised = at > 0 && effects[at - 1] == TurnEffect::RaiseEpoch;
                    prop_assert_eq!(
                        raised,
                        turn.frame.continued,
                        "the epoch is raised first, for continued Turns only"
                    );
                }
                TurnEffect::Done { .. } => ends += 1,
                _ => {}
            }
        }
        prop_assert_eq!(ends, i32::from(next.is_over()), "it ends once, and says so");
        prop_assert!(next.nudges <= NUDGES_MAX && next.wakes <= WAKES_MAX && next.rerolls <= REROLLS_MAX);
        prop_assert!(next.readmissions <= READMISSIONS_MAX && next.kernel_kills <= KERNEL_KILLS_MAX + 1);
        prop_assert!(next.moved || admissions.len() <= ADMISSIONS_MAX, "{} admissions", admissions.len());
        if matches!(next.phase, Phase::Admitting { .. } | Phase::Waiting) {
            let abort = exit(&next, &mut next_ledger.clone()).map(|abort| abort.up_to);
            prop_assert_eq!(abort.as_ref(), admissions.last(), "what may run is what an exit aborts");
        } else if !next.is_over() {
            prop_assert_eq!(exit(&next, &mut next_ledger.clone()), None, "nothing runs, nothing is aborted");
        }
        (turn, ledger) = (next, next_ledger);
    }
    Ok(turn)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn any_inputs_keep_the_promises(frame in frames(), ops in ops()) {
        check(frame, &ops)?;
    }
}

/// The generator must reach the deep places, or the property says little.
#[test]
fn the_generator_reaches_every_phase() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let mut reached = BTreeSet::new();
    for _ in 0..600 {
        let case = (frames(), ops()).new_tree(&mut runner).unwrap().current();
        let (mut turn, mut ledger) = (Turn::new(case.0), Ledger::default());
        for op in &case.1 {
            (turn, ledger, _) = step(&turn, &ledger, input(&turn, op), NOW);
            reached.insert(phase_name(&turn));
        }
    }
    assert_eq!(reached.len(), 10, "{reached:?}");
}

/// A row as released: it must restore in every later version.
#[test]
fn a_recorded_row_restores() {
    let row = r#"{"frame":{"agent":"coder","base":"r/root/coder","iid":"r/root/coder/0000000a","continued":false,"state":3,
        "ordinal":1,"task":"fix the test","cwd":"/w/app","menuEmpty":false,"firstAdmission":1},
        "iid":"r/root/coder/0000000a","phase":{"at":"admitting","pending":{"admissionId":"r/root/coder/0000000a#2",
        "prompt":{"kind":"nudge","allowed":["a"]},"kept":true}},"nextAdmission":3,
        "admission":{"admissionId":"r/root/coder/0000000a#1","streamUrl":"/agents/coder/x","offset":"0:0",
        "submissionId":"s-1-abcdef","prompt":{"kind":"task"}},"live":"r/root/coder/0000000a#2","nudges":1,"wakes":0,
        "rerolls":0,"readmissions":0,"kernelKills":0,"moved":false}"#;
    let turn: Turn = serde_json::from_str(row).unwrap();
    let (_, _, effects) = step(&turn, &Ledger::default(), TurnInput::Restored, NOW);
    assert!(matches!(&effects[..], [TurnEffect::Admit(admit)] if admit.admission_id.ends_with("#2") && admit.kept));
}
