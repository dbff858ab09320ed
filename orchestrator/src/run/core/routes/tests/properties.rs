//! What always holds, whatever happens in which order.

use super::*;
use crate::run::core::gates_of;
use proptest::prelude::*;

const PICKS: [&str; 9] = ["ask", "chain", "build", "consult", "compute", "skim", "note", "both", "finish"];
const OUTSIDE: [&str; 5] = ["poke", "skip", "abort", "resume", "approve"];
const ANSWERS: [&str; 6] = ["approve", "reject", "hush", "storm", "go", "resume"];

#[derive(Clone, Debug)]
enum Step {
    Pick(&'static str),
    Outside(&'static str),
    Answer(&'static str, usize),
    Nested(&'static str),
    Later,
    Restart,
    Stops,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => prop::sample::select(PICKS.to_vec()).prop_map(Step::Pick),
        2 => prop::sample::select(OUTSIDE.to_vec()).prop_map(Step::Outside),
        6 => (prop::sample::select(ANSWERS.to_vec()), 0usize..4).prop_map(|(event, at)| Step::Answer(event, at)),
        2 => prop::sample::select(vec!["verdict", "doubt"]).prop_map(Step::Nested),
        1 => Just(Step::Later),
        1 => Just(Step::Restart),
        1 => Just(Step::Stops),
    ];
    prop::collection::vec(step, 1..40)
}

fn take(drive: &mut Drive, step: &Step, at: usize) {
    match step {
        Step::Pick(event) if drive.invoked("lead").is_some() => {
            drive.pick_as("lead", &format!("p{at}"), event, json!({}));
        }
        Step::Nested(event) if drive.invoked("reviewer").is_some() => {
            drive.pick_as("reviewer", &format!("r{at}"), event, json!({}));
        }
        Step::Outside(event) => {
            drive.apply(Input::External { event: (*event).to_owned(), payload: json!({}), key: None });
        }
        Step::Answer(event, which) => {
            let gates = gates_of(&drive.program, &drive.row);
            if let Some(gate) = gates.get(which % gates.len().max(1)) {
                let (gate, event) = (gate.gate.clone(), (*event).to_owned());
                drive.apply(Input::Gate { gate, event, payload: json!({}), activation: None, key: None });
            }
        }
        Step::Later => drive.after_ms(3_600_000),
        Step::Restart => {
            for input in reattach(&drive.program, &drive.row).inputs {
                drive.apply(input);
            }
        }
        Step::Stops if drive.invoked("lead").is_some() && drive.turn("lead").phase == Phase::Waiting => {
            drive.settled(Ended::Completed, None);
        }
        _ => {}
    }
    for agent in ["lead", "reviewer"] {
        if drive.invoked(agent).is_some() && matches!(drive.turn(agent).phase, Phase::Admitting { .. }) {
            drive.admitted(agent);
        }
    }
}

fn holds(drive: &Drive) {
    let chart = &drive.program.workflows["asking"].chart;
    for (state, invoked) in &drive.row.root.invoked {
        let InvokedKind::Agent(turn) = &invoked.kind else {
            assert!(invoked.route.is_none(), "{state}");
            continue;
        };
        // a Turn has a route exactly while a pick of it is outstanding, and the kept answers say the same
        let route = invoked.route.as_deref();
        assert_eq!(turn.outstanding.as_deref(), route.map(|r| r.pick_id.as_str()));
        let kept = turn.picks.iter().filter(|k| k.answer.outstanding).map(|k| k.pick_id.as_str());
        assert!(kept.eq(turn.outstanding.as_deref()));
        // it waits for something that stands below its state
        for link in route.into_iter().flat_map(|r| &r.links) {
            assert!(is_asked_by(chart, *state, link.state));
            assert_eq!(drive.row.root.invoked.get(&link.state).map(|i| i.ordinal), Some(link.ordinal));
        }
        assert!(route.is_none_or(|r| !r.links.is_empty()));
    }
    assert!(!drive.row.status.is_ended() || drive.row.ledger.pending.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn p_31_a_turn_waits_exactly_while_something_of_its_route_runs(steps in steps()) {
        let mut drive = asking();
        for (at, step) in steps.iter().enumerate() {
            take(&mut drive, step, at);
            holds(&drive);
        }
    }
}
