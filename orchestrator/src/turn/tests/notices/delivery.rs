//! Who hears a notice, and when (spec 9.2).

use super::*;

scenarios! {
    n_05_a_notice_is_said_by_the_first_of_two_turns
    n_06_a_nudge_and_a_wake_say_a_kill_that_came_after_the_model_stopped
    n_07_a_fresh_turn_does_not_hear_what_is_for_the_conversation
    n_08_a_kill_is_said_in_another_agents_turn
    n_09_a_menu_only_agent_hears_of_its_conversation_only
    n_10_a_fault_is_delivered_and_the_next_turn_hears_why
    n_11_two_admissions_at_once_one_carries_it
    n_12_a_reservation_is_in_the_row_and_the_same_admission_repeats_it
    n_13_after_the_save_of_the_admission_nothing_repeats_it
    n_13_an_admission_the_harness_held_delivers_what_it_says_it_carried
    n_14_a_failed_admission_releases_what_it_took
}

mod run {
    use super::*;

    pub fn n_05_a_notice_is_said_by_the_first_of_two_turns(recorder: &mut Recorder) {
        let list = List::of(&[1]);
        let mut drive = Drive::new(seated(), recorder);
        drive.begin(seated(), &list);
        assert_eq!(drive.says(), ["1.1Gi"]);
        drive.taken_and_read();
        drive.leave();
        drive.begin(reviewer(), &list);
        assert!(drive.says().is_empty());
    }

    pub fn n_06_a_nudge_and_a_wake_say_a_kill_that_came_after_the_model_stopped(recorder: &mut Recorder) {
        let mut list = List::default();
        let mut drive = Drive::working(seated(), &list, recorder);
        list.kill(1);
        drive.nudged(&list);
        assert_eq!(drive.says(), ["1.1Gi"]);
        drive.taken_and_read();
        list.kill(2);
        drive.woken(&list);
        assert_eq!(drive.says(), ["1.2Gi"]);
    }

    pub fn n_07_a_fresh_turn_does_not_hear_what_is_for_the_conversation(recorder: &mut Recorder) {
        let mut drive = Drive::new(seated(), recorder);
        drive.raise_for_conversation("x");
        for frame in [
            seated(),
            reviewer(),
            Frame { agent: "reviewer".into(), base: Iid("r/root/reviewer".into()), ..standing() },
        ] {
            drive.begin(frame, &List::default());
            assert!(drive.says().is_empty());
            drive.taken_and_read();
            drive.leave();
        }
        drive.begin(standing(), &List::default());
        assert_eq!(drive.says(), ["new: x"]);
    }

    pub fn n_08_a_kill_is_said_in_another_agents_turn(recorder: &mut Recorder) {
        let mut drive = Drive::working(seated(), &List::default(), recorder);
        drive.stream(1);
        drive.leave();
        drive.begin(Frame { workspace: Some("ws-2".into()), ..reviewer() }, &List::default());
        assert!(drive.says().is_empty(), "another Workspace");
        drive.taken_and_read();
        drive.leave();
        drive.begin(reviewer(), &List::of(&[1]));
        assert_eq!(drive.says(), ["coder 1.1Gi"]);
    }

    pub fn n_09_a_menu_only_agent_hears_of_its_conversation_only(recorder: &mut Recorder) {
        let mut drive = Drive::working(seated(), &List::default(), recorder);
        drive.stream(1);
        drive.raise_for_conversation("x");
        drive.leave();
        drive.begin(continued(), &List::default());
        assert_eq!(drive.says(), ["new: x"]);
    }

    pub fn n_10_a_fault_is_delivered_and_the_next_turn_hears_why(recorder: &mut Recorder) {
        let mut drive = Drive::working(Frame { task: None, ..standing() }, &List::default(), recorder);
        drive.lost();
        drive.feed(TurnInput::LastEnd(Some(last_end(true))));
        assert!(drive.fault().starts_with("memory limit"));
        drive.leave();
        drive.begin(standing(), &List::default());
        assert_eq!(drive.says(), ["coder kernel", "new: memory limit (OOMKilled, limit 2Gi)"]);
    }

    pub fn n_11_two_admissions_at_once_one_carries_it(recorder: &mut Recorder) {
        let list = List::of(&[1]);
        let mut drive = Drive::new(seated(), recorder);
        drive.begin(seated(), &list);
        assert_eq!(drive.says(), ["1.1Gi"]);
        let first = drive.turn.clone();
        drive.begin(reviewer(), &list);
        assert!(drive.says().is_empty());
        drive.rewind(&first);
        drive.refused(400, None);
        assert_eq!(drive.waits(), ["1.1Gi"], "it failed: it waits again");
    }

    /// Where the rule says "memory only", our reservation is in the row: a restored Turn sends the same admission again,
    /// under the same id, with the same notices (`docs/decisions/notices-over-restarts.md`).
    pub fn n_12_a_reservation_is_in_the_row_and_the_same_admission_repeats_it(recorder: &mut Recorder) {
        let mut drive = Drive::new(seated(), recorder);
        drive.begin(seated(), &List::of(&[1]));
        let sent = drive.sent().clone();
        let row = serde_json::to_string(&(&drive.turn, &drive.ledger)).unwrap();
        (drive.turn, drive.ledger) = serde_json::from_str(&row).unwrap();
        drive.feed(TurnInput::Restored);
        assert_eq!((drive.sent(), drive.says()), (&sent, vec!["1.1Gi".to_owned()]));
        drive.taken();
        assert!(drive.waits().is_empty());
    }

    pub fn n_13_after_the_save_of_the_admission_nothing_repeats_it(recorder: &mut Recorder) {
        let list = List::of(&[1]);
        let mut drive = Drive::admitted(seated(), &list, recorder);
        drive.feed(TurnInput::Restored);
        assert!(matches!(&drive.effects[..], [TurnEffect::Watch(_)]));
        drive.surface_read();
        drive.nudged(&list);
        assert!(drive.says().is_empty());
    }

    pub fn n_13_an_admission_the_harness_held_delivers_what_it_says_it_carried(recorder: &mut Recorder) {
        let mut drive = Drive::working(seated(), &List::default(), recorder);
        drive.stream(1);
        drive.stream(2);
        drive.leave();
        drive.begin(later(), &List::default());
        let admission_id = drive.pending().admission_id.clone();
        let answer = AdmitAnswer {
            stream_url: "/agents/coder/x".into(),
            offset: "0:0".into(),
            submission_id: "s-9-abcdef".into(),
            carried: Some(vec![drive.sent().notices[0].id.clone().unwrap()]),
        };
        drive.feed(TurnInput::Admitted { admission_id, answer });
        assert_eq!(drive.waits(), ["coder 1.2Gi"], "what is not on the answer's list stays pending");
    }

    pub fn n_14_a_failed_admission_releases_what_it_took(recorder: &mut Recorder) {
        for status in [400, 500] {
            let mut drive = Drive::new(seated(), recorder);
            drive.begin(seated(), &List::of(&[1]));
            drive.refused(status, None);
            assert!(drive.fault().starts_with("harness admission failed"));
            drive.leave();
            drive.begin(later(), &List::of(&[1]));
            assert_eq!(drive.says(), ["1.1Gi"], "{status}");
        }
        let mut drive = Drive::new(seated(), recorder);
        drive.begin(seated(), &List::of(&[1]));
        let admission_id = drive.pending().admission_id.clone();
        drive.feed(TurnInput::AdmitUnreachable { admission_id, detail: "connect".into() });
        drive.leave();
        drive.begin(later(), &List::of(&[1]));
        assert_eq!(drive.says(), ["1.1Gi"]);
    }
}
