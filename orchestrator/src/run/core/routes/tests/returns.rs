//! Routes that come back.

use super::*;

#[test]
fn p_31_a_pick_into_a_gate_is_outstanding_until_the_gate_is_answered() {
    let mut drive = asking();
    let asked = drive.ask("ask");
    assert!(drive.is_outstanding(&asked));
    assert_eq!(drive.route().unwrap().links.len(), 1);
    // the same pick again is the same answer, another one is refused
    assert_eq!(drive.pick_as("lead", "pick-1", "ask", json!({})), Reply::Pick(asked.clone()));
    let other = drive.pick_as("lead", "pick-x", "note", json!({}));
    assert!(
        matches!(&other, Reply::Refused { status: 400, error, .. } if error == "a pick is outstanding"),
        "{other:?}"
    );
    drive.desk("review", "approve", json!({"note": "fine"}));
    drive.came_back(&asked, Some(party("Gate review", "approve", json!({"note": "fine"}))));
    let said = drive.last.feed.iter().filter(|e| e.kind == FeedKind::Pick).map(|e| e.data["answered"].clone());
    assert_eq!(said.collect::<Vec<_>>(), [json!(true)]);
    // and from now on the same pick gets the answer
    let kept = drive.answer(&asked);
    assert_eq!(drive.pick_as("lead", "pick-1", "ask", json!({})), Reply::Pick(kept));
    assert!(drive.pick("lead", "note").moved);
    assert_eq!(delivery(&drive.row, drive.turn("lead").iid.as_str(), "d-0"), Delivery::Unknown);
}

#[test]
fn p_32_the_answer_is_the_reply_of_the_last_link() {
    let mut drive = asking();
    let asked = drive.ask("chain");
    drive.desk("first", "approve", json!({"note": "1"}));
    assert!(drive.is_outstanding(&asked));
    assert_eq!(drive.route().unwrap().last_reply, Some(party("Gate first", "approve", json!({"note": "1"}))));
    drive.desk("second", "approve", json!({"note": "2"}));
    // what the first link's answer raised opened a Gate beside: it follows from the pick too
    assert!(drive.is_outstanding(&asked));
    drive.gate("working.room.side.open", "hush", json!({}));
    drive.came_back(&asked, Some(party("Gate open", "hush", json!({}))));
}

#[test]
fn p_32_a_childs_output_is_an_answer() {
    let mut drive = asking();
    let asked = drive.ask("build");
    drive.gate("working.room.desk.building.wait", "go", json!({}));
    drive.came_back(&asked, Some(PickReply::Child { child: "child".into(), output: json!({"built": "yes"}) }));
}

#[test]
fn p_33_what_has_ended_runs_no_more_though_its_state_stays() {
    let mut drive = asking();
    let asked = drive.ask("count");
    drive.gate("working.room.desk.counting.wait", "go", json!({}));
    drive.came_back(&asked, Some(PickReply::Child { child: "child".into(), output: json!({"built": "yes"}) }));
    // its late delay is nobody's
    drive.after_ms(1_800_000);
    assert!(drive.ask("ask").outstanding);
}

#[test]
fn p_33_a_link_that_could_not_begin_is_waited_for_until_its_failure_is_heard() {
    let mut drive = asking();
    let iid = drive.turn("lead").iid.as_str().to_owned();
    let pick = Input::Pick { iid, pick: Some("p".into()), event: "spoil".into(), payload: json!({}) };
    let Reply::Pick(asked) = drive.once(&pick) else { panic!("{:?}", drive.last.reply) };
    assert!(asked.outstanding && drive.is_outstanding(&asked));
    let failure = drive.row.queue.front().cloned().unwrap();
    drive.apply(failure);
    drive.came_back(&asked, None);
}

#[test]
fn p_32_a_nested_agents_pick_is_an_answer_and_what_it_asks_is_its_own() {
    let mut drive = asking();
    let asked = drive.ask("consult");
    drive.admitted("reviewer");
    // the reviewer asks a Gate of its own: that answer is for the reviewer
    assert!(drive.pick("reviewer", "doubt").outstanding);
    drive.gate("working.room.desk.reviewing.doubting", "approve", json!({"note": "sure"}));
    assert!(drive.invoked("reviewer").unwrap().route.is_none());
    assert!(drive.is_outstanding(&asked));
    assert_eq!(drive.route().unwrap().last_reply, Some(party("reviewer", "doubt", json!({}))));
    let verdict = drive.pick_as("reviewer", "v", "verdict", json!({"ok": true}));
    assert!(matches!(&verdict, Reply::Pick(answer) if answer.turn_complete), "{verdict:?}");
    drive.came_back(&asked, Some(party("reviewer", "verdict", json!({"ok": true}))));
}

#[test]
fn p_32_an_agent_without_picks_answers_with_its_last_text() {
    let mut drive = asking();
    let asked = drive.ask("draft");
    drive.admitted("writer");
    let submission_id = drive.turn("writer").admission.clone().unwrap().submission_id;
    let settlement = Settlement {
        submission_id,
        outcome: Ended::Completed,
        text: Some("Lorem.".into()),
        error: None,
        prompted: None,
    };
    drive.turn_input("writer", TurnInput::Settled { settlement, allowed: Vec::new() });
    drive.came_back(&asked, Some(party("writer", "agent.done", json!({"text": "Lorem."}))));
}

#[test]
fn p_33_a_nested_agents_fault_comes_back_without_a_reply() {
    let mut drive = asking();
    let asked = drive.ask("draft");
    drive.admitted("writer");
    let admission = drive.turn("writer").admission.clone().unwrap();
    let input = TurnInput::Denied { submission_id: admission.submission_id, status: 401 };
    drive.turn_input("writer", input);
    drive.came_back(&asked, None);
}

#[test]
fn p_33_a_step_is_a_link_and_says_nothing() {
    let mut drive = asking();
    let asked = drive.pick("lead", "compute");
    assert!(asked.outstanding);
    drive.came_back(&asked, None);
}

#[test]
fn p_33_a_link_that_waits_for_its_next_attempt_still_runs() {
    let mut drive = asking();
    let asked = drive.ask("request");
    let failed = DoResult::Failed { reason: "refused".into(), detail: json!({}) };
    let serial = |drive: &Drive| {
        let root = &drive.row.root;
        root.invoked.values().find(|i| matches!(i.kind, InvokedKind::Do(_) | InvokedKind::Ended)).unwrap().serial
    };
    let first = serial(&drive);
    drive.apply(Input::Done { serial: first, result: failed.clone() });
    assert!(drive.is_outstanding(&asked), "its pause is not its end");
    drive.after_ms(10_000);
    let second = serial(&drive);
    assert_ne!(first, second);
    drive.apply(Input::Done { serial: second, result: failed });
    drive.came_back(&asked, None);
}

#[test]
fn p_31_two_links_at_once_both_have_to_end() {
    let mut drive = asking();
    let asked = drive.ask("both");
    assert_eq!(drive.route().unwrap().links.len(), 2);
    drive.gate("working.room.many.two.right.r", "approve", json!({"note": "r"}));
    assert!(drive.is_outstanding(&asked));
    drive.gate("working.room.many.two.left.l", "approve", json!({"note": "l"}));
    drive.came_back(&asked, Some(party("Gate l", "approve", json!({"note": "l"}))));
}

#[test]
fn p_31_a_gate_in_another_region_is_no_link() {
    let mut drive = asking();
    drive.outside("poke"); // open before the pick
    let asked = drive.ask("ask");
    assert_eq!(drive.route().unwrap().links.len(), 1);
    drive.gate("working.room.side.open", "hush", json!({}));
    assert!(drive.is_outstanding(&asked));
    assert_eq!(drive.route().unwrap().last_reply, None);
    drive.outside("poke"); // opened while it is outstanding
    assert_eq!(drive.route().unwrap().links.len(), 1);
    drive.desk("review", "approve", json!({}));
    drive.came_back(&asked, Some(party("Gate review", "approve", json!({}))));
}

#[test]
fn p_31_what_takes_a_links_place_is_a_link_whoever_moved_the_machine() {
    let mut drive = asking();
    let asked = drive.ask("chain");
    drive.outside("skip"); // handled by the desk, not by the Gate
    assert!(drive.is_outstanding(&asked));
    assert_eq!(drive.route().unwrap().last_reply, None);
    drive.desk("second", "approve", json!({"note": "boss"}));
    drive.came_back(&asked, Some(party("Gate second", "approve", json!({"note": "boss"}))));
}

#[test]
fn p_32_an_outside_event_that_the_routes_gate_takes_is_its_answer() {
    let mut drive = asking();
    let asked = drive.ask("ask");
    drive.outside("approve");
    drive.came_back(&asked, Some(party("Gate review", "approve", json!({}))));
}

#[test]
fn p_37_straight_back_says_that_nothing_ran() {
    let mut drive = asking();
    let answer = drive.pick("lead", "skim");
    assert!(answer.nothing_ran && answer.moved && !answer.outstanding && !answer.answered);
    assert!(drive.route().is_none());
    // a pick that stays where it is on purpose went nowhere
    let note = drive.pick("lead", "note");
    assert!(!note.nothing_ran && note.moved && !note.outstanding);
}

#[test]
fn n_87_a_reply_has_a_bound_and_old_ones_go() {
    let mut drive = asking();
    let mut all = Vec::new();
    for n in 0..REPLIES_KEPT + 2 {
        all.push(drive.ask("ask"));
        drive.desk("review", "approve", json!({"note": format!("{n}{}", "x".repeat(70_000))}));
    }
    let replies: Vec<bool> = all.iter().map(|asked| drive.answer(asked).reply.is_some()).collect();
    assert_eq!(replies.iter().filter(|kept| **kept).count(), REPLIES_KEPT);
    assert!(!replies[1] && replies[2]);
    let last = drive.answer(all.last().unwrap());
    let Some(PickReply::Party { payload: Value::String(cut), .. }) = last.reply else { panic!("{last:?}") };
    assert_eq!(cut.len(), REPLY_MAX_BYTES);
}

#[test]
fn p_33_a_model_that_stopped_is_asked_again_when_the_route_came_back() {
    let mut drive = asking();
    let asked = drive.ask("ask");
    drive.settled(Ended::Completed, None);
    assert_eq!(drive.turn("lead").phase, Phase::Idle, "no nudge while a pick is outstanding");
    drive.outside("poke");
    assert_eq!(drive.turn("lead").phase, Phase::Idle, "and no wake");
    drive.desk("review", "approve", json!({}));
    assert!(drive.last.effects.iter().any(|e| matches!(e, Effect::Admit(_))));
    drive.came_back(&asked, Some(party("Gate review", "approve", json!({}))));
}

#[test]
fn p_33_a_cut_waits_for_the_route_and_the_receipt_is_kept() {
    let mut drive = asking();
    let asked = drive.ask("ask");
    drive.settled(Ended::Failed, Some("harness_restarted"));
    assert!(matches!(drive.turn("lead").phase, Phase::Held { .. }));
    drive.desk("review", "approve", json!({}));
    assert!(drive.last.effects.iter().any(|e| matches!(e, Effect::ReadLastEnd { .. })));
    drive.came_back(&asked, Some(party("Gate review", "approve", json!({}))));
}

#[test]
fn p_31_a_restart_in_the_middle_changes_nothing() {
    let mut drive = asking();
    let asked = drive.ask("chain");
    drive.desk("first", "approve", json!({}));
    let before = drive.row.clone();
    let again = reattach(&drive.program, &drive.row);
    assert_eq!(again.inputs.len(), 1);
    for input in again.inputs {
        drive.apply(input);
    }
    assert!(drive.last.effects.iter().all(|e| matches!(e, Effect::Watch { .. })), "{:?}", drive.last.effects);
    assert_eq!((&drive.row.root, drive.row.rev), (&before.root, before.rev));
    drive.desk("second", "approve", json!({"note": "2"}));
    drive.gate("working.room.side.open", "hush", json!({}));
    drive.came_back(&asked, Some(party("Gate open", "hush", json!({}))));
}

#[test]
fn a_run_of_an_older_engine_steps_as_it_began() {
    let mut drive = asking();
    drive.row.semantics = 1;
    let answer = drive.pick("lead", "ask");
    assert!(answer.moved && !answer.outstanding && drive.route().is_none());
    drive.desk("review", "approve", json!({}));
    assert!(!drive.pick("lead", "skim").nothing_ran);
}

#[test]
fn a_row_without_routes_reads_as_before() {
    let drive = asking();
    let text = serde_json::to_string(&drive.row).unwrap();
    assert!(!text.contains("route") && !text.contains("pickAnswers"), "nothing of it is written where there is none");
    assert_eq!(serde_json::from_str::<Row>(&text).unwrap(), drive.row);
}

#[test]
fn p_31_a_run_that_moves_to_another_text_takes_its_route_along() {
    let mut drive = asking();
    let asked = drive.ask("ask");
    let text = ASKING.replace("states:\n  working:", "states:\n  before: { always: working }\n  working:");
    let new = program(&[("asking", &text), ("child", CHILD)]);
    let facts = Facts { now: drive.now, seed: 7 };
    drive.row = crate::run::core::adopt(&drive.program, &new, &drive.row, facts).unwrap().row;
    drive.program = new;
    assert!(drive.is_outstanding(&asked));
    drive.desk("review", "approve", json!({}));
    drive.came_back(&asked, Some(party("Gate review", "approve", json!({}))));
}
