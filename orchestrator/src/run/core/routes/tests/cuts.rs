//! Routes whose state is left.

use super::*;

#[test]
fn p_34_a_route_that_leaves_the_state_leaves_its_answer_for_later() {
    let mut drive = asking();
    let iid = drive.turn("lead").iid.as_str().to_owned();
    let asked = drive.ask("ask");
    drive.desk("review", "reject", json!({"why": "no"}));
    assert_eq!(drive.notices(), [("left", Some(&party("Gate review", "reject", json!({"why": "no"}))), None)]);
    assert!(drive.invoked("lead").is_none());
    assert_eq!(delivery(&drive.row, &iid, &asked.delivery_id), Delivery::Gone);
    let Notice::PickAnswer { pick, .. } = &drive.row.ledger.pending[0].notice else { unreachable!() };
    assert_eq!(pick, "ask");
}

#[test]
fn p_34_a_later_link_leaves_too() {
    let mut drive = asking();
    drive.ask("chain");
    drive.desk("first", "approve", json!({}));
    drive.desk("second", "reject", json!({}));
    assert_eq!(drive.notices(), [("left", Some(&party("Gate second", "reject", json!({}))), None)]);
}

#[test]
fn p_34_a_links_own_delay_belongs_to_the_route() {
    let mut drive = asking();
    drive.ask("ask");
    drive.after_ms(3_600_000);
    assert!(drive.invoked("lead").is_none());
    assert_eq!(drive.notices(), [("left", None, None)]);
}

#[test]
fn p_34_the_delay_of_what_the_route_entered_belongs_to_it() {
    let mut drive = asking();
    drive.ask("convene");
    drive.after_ms(1_800_000);
    assert_eq!(drive.notices(), [("left", None, None)]);
}

#[test]
fn p_34_an_outside_event_that_the_routes_gate_takes_leaves_as_its_answer() {
    let mut drive = asking();
    drive.ask("ask");
    drive.outside("reject");
    assert_eq!(drive.notices(), [("left", Some(&party("Gate review", "reject", json!({}))), None)]);
}

#[test]
fn p_34_a_link_that_fails_leaves() {
    let mut drive = asking();
    drive.ask("consult");
    drive.admitted("reviewer");
    let admission = drive.turn("reviewer").admission.clone().unwrap();
    drive.turn_input("reviewer", TurnInput::Denied { submission_id: admission.submission_id, status: 401 });
    assert_eq!(drive.notices(), [("left", None, None)]);
}

#[test]
fn p_34_a_gate_that_is_named_speaks_for_the_route_whatever_transition_it_enables() {
    let mut drive = asking();
    drive.ask("ask");
    drive.desk("review", "abort", json!({}));
    assert_eq!(drive.notices(), [("left", Some(&party("Gate review", "abort", json!({}))), None)]);
}

#[test]
fn p_35_an_outside_event_stops_the_pick_and_an_earlier_reply_is_said() {
    let mut drive = asking();
    drive.ask("chain");
    drive.desk("first", "approve", json!({"note": "1"}));
    drive.outside("abort");
    assert_eq!(drive.notices(), [("stopped", Some(&party("Gate first", "approve", json!({"note": "1"}))), Some(true))]);
}

#[test]
fn p_35_the_invoking_states_own_delay_stops_the_pick() {
    let mut drive = asking();
    drive.ask("build");
    drive.after_ms(7_200_000);
    assert!(drive.invoked("lead").is_none());
    assert_eq!(drive.notices(), [("stopped", None, Some(true))]);
}

#[test]
fn p_35_another_regions_transition_stops_the_pick() {
    let mut drive = asking();
    drive.outside("poke");
    drive.ask("ask");
    drive.gate("working.room.side.open", "storm", json!({}));
    assert_eq!(drive.notices(), [("stopped", None, Some(true))]);
}

#[test]
fn p_36_a_fresh_turns_answer_is_no_notice() {
    for event in ["reject", "abort"] {
        let mut drive = fresh();
        drive.ask("ask");
        drive.desk("review", event, json!({}));
        assert!(drive.invoked("lead").is_none() && drive.row.ledger.pending.is_empty(), "{event}");
    }
    let mut drive = fresh();
    drive.ask("ask");
    drive.outside("abort");
    assert!(drive.row.ledger.pending.is_empty());
}

#[test]
fn p_35_a_turn_that_faults_waits_for_no_answer() {
    let mut drive = asking();
    let iid = drive.turn("lead").iid.as_str().to_owned();
    let asked = drive.ask("ask");
    drive.settled(Ended::Failed, Some("provider"));
    assert!(drive.notices().is_empty(), "its conversation is over with it");
    assert_eq!(delivery(&drive.row, &iid, &asked.delivery_id), Delivery::Gone);
    assert!(drive.row.root.invoked.values().all(|i| i.route.is_none()));
}

#[test]
fn p_35_a_faulted_turn_that_is_tried_again_has_no_route_though_its_gate_is_open() {
    let again = "    continue: true\n    retry: { max: 1, backoff: 10s..10s }\n";
    let mut drive = Drive::new(&ASKING.replace("    continue: true\n", again));
    drive.ask("ask");
    drive.settled(Ended::Failed, Some("provider"));
    drive.after_ms(10_000);
    assert!(drive.route().is_none() && drive.turn("lead").outstanding.is_none());
    drive.desk("review", "approve", json!({}));
    assert!(drive.notices().is_empty());
}

#[test]
fn p_35_the_end_of_the_run_drops_what_nobody_will_hear() {
    let mut drive = asking();
    drive.ask("ask");
    drive.desk("review", "reject", json!({}));
    assert_eq!(drive.row.ledger.pending.len(), 1);
    drive.gate("outside", "settle", json!({}));
    assert_eq!((drive.row.status, drive.row.ledger.pending.len()), (Status::Done, 0));
    let mut drive = asking();
    drive.ask("ask");
    drive.apply(Input::Cancel { keep: false });
    assert_eq!((drive.row.status, drive.row.ledger.pending.len()), (Status::Cancelled, 0));
}

const PARENT: &str = "
workflow: asking
events: { halt: { from: external }, again: { from: external } }
initial: below
states:
  below: { run: child, on: { halt: paused, done.run: over, error.run: over } }
  paused: { gate: {}, on: { again: below } }
  over: { final: true }
";
const ASKING_CHILD: &str = "
workflow: child
agents: { lead: { model: a/b, instructions: Lead., workspace: none } }
events: { ask: { from: lead }, finish: { from: lead }, approve: { from: external } }
initial: working
states:
  working:
    agent: lead
    continue: true
    prompt: Work.
    initial: idle
    states:
      idle: { on: { ask: review } }
      review: { gate: {}, on: { approve: idle } }
    on: { finish: done, agent.fault: done }
  done: { final: true }
";

#[test]
fn p_35_a_child_run_that_is_stopped_stops_the_picks_in_it() {
    let mut drive = Drive::of(program(&[("asking", PARENT), ("child", ASKING_CHILD)]));
    let asked = drive.ask("ask");
    drive.gate("below.working.review", "approve", json!({}));
    drive.came_back(&asked, Some(party("Gate review", "approve", json!({}))));
    drive.ask("ask");
    drive.outside("halt");
    assert_eq!(drive.row.ledger.pending.len(), 1);
    let pending = &drive.row.ledger.pending[0];
    assert_eq!(conversation(pending), format!("{}/below/lead", drive.row.id));
    assert!(matches!(&pending.notice, Notice::PickAnswer { cut, .. } if cut == "stopped"));
}

#[test]
fn p_35_a_workspace_that_is_lost_stops_the_pick() {
    let text = ASKING_CHILD
        .replace("workspace: none", "workspace: read")
        .replace("workflow: child", "workflow: asking\nworkspace: { repos: { target: /nowhere }, branch: b }")
        .replace(
            "agent.fault: done }",
            "agent.fault: done, workspace.lost: lost }\n  lost: { gate: {}, on: { approve: done } }",
        );
    let program = program(&[("asking", &text)]);
    let row = crate::run::birth::new_row(&program, "asking", json!({}), 1_000);
    let last = apply(&program, &row, &Input::Start, Facts { now: 1_000, seed: 7 });
    let mut drive = Drive { program, row: last.row.clone(), last, now: 1_000, picks: 0 };
    let sandbox = drive.row.root.workspace.as_ref().unwrap().spec.name.clone();
    let provisioned = crate::workspace::Provisioned {
        uid: "u".into(),
        repos: vec![("target".into(), "/w/target".into())],
        branch: "b".into(),
    };
    drive.apply(Input::Provisioned { sandbox: sandbox.clone(), provisioned });
    drive.admitted("lead");
    drive.ask("ask");
    drive.apply(Input::SandboxLost { sandbox, reason: "gone".into(), message: "gone".into() });
    assert_eq!(drive.notices(), [("stopped", None, Some(true))]);
}
