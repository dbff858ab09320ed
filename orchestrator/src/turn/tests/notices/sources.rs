//! Sources and `seen` (spec 9.3), and the two paths of a guard kill (spec 9.4).

use super::*;

scenarios! {
    n_17_a_read_that_was_not_saved_raises_the_kill_once
    n_18_stream_then_list_is_one_notice
    n_19_a_replayed_stream_raises_nothing
    n_20_an_event_without_an_id_is_known_by_its_place
    n_21_two_paths_of_one_kernel_kill_are_one_notice
    n_22_a_sourceless_notice_merges_into_an_equal_pending_sourceless_one_only
    n_23_seen_never_shrinks_while_it_can_be_read
    n_26_a_left_state_hears_no_stream_and_the_list_tells
    n_29_a_kill_while_nobody_worked_is_said_by_the_next_turn
    n_30_a_read_raises_the_newest_kill_and_marks_the_older_seen
    n_31_kills_on_a_stream_are_not_folded
    n_32_the_list_repeats_what_the_stream_said_and_changes_nothing
    n_33_only_a_live_stream_names_the_agent
    n_34_the_instance_harness_is_never_read
}

mod run {
    use super::*;

    fn guard(n: u8) -> Source {
        Source::Kill("ws-1".into(), format!("k{n}"))
    }

    pub fn n_17_a_read_that_was_not_saved_raises_the_kill_once(recorder: &mut Recorder) {
        let list = List::of(&[1]);
        let mut drive = Drive::new(seated(), recorder);
        drive.feed(TurnInput::Begin { held_before: false });
        drive.feed(TurnInput::AbortsClear);
        // The process dies after the read and before its save: what was stepped is gone.
        step(&drive.turn, &drive.ledger, list.read(), NOW);
        assert_eq!(drive.feed(TurnInput::Restored), [TurnEffect::ReadKills]);
        drive.read(&list);
        assert_eq!((drive.says(), drive.ledger.raised), (vec!["1.1Gi".to_owned()], 1));
    }

    pub fn n_18_stream_then_list_is_one_notice(recorder: &mut Recorder) {
        let mut drive = Drive::working(seated(), &List::default(), recorder);
        drive.stream(1);
        drive.leave();
        drive.begin(later(), &List::of(&[1]));
        assert_eq!((drive.says(), drive.ledger.raised), (vec!["coder 1.1Gi".to_owned()], 1));
    }

    pub fn n_19_a_replayed_stream_raises_nothing(recorder: &mut Recorder) {
        let mut drive = Drive::working(seated(), &List::default(), recorder);
        drive.stream(1);
        drive.nudged(&List::of(&[1]));
        assert_eq!(drive.says(), ["coder 1.1Gi"]);
        drive.taken_and_read();
        drive.feed(TurnInput::Restored);
        let before = drive.ledger.clone();
        drive.stream(1);
        assert_eq!((drive.ledger.clone(), drive.effects.len()), (before, 0));
    }

    pub fn n_20_an_event_without_an_id_is_known_by_its_place(recorder: &mut Recorder) {
        let mut drive = Drive::working(seated(), &List::default(), recorder);
        let old = stream_kill_of(&drive.submission(), None, 3, Some("1.1Gi".into()));
        drive.feed(old.clone());
        drive.feed(old);
        assert_eq!(
            drive.ledger.seen.iter().collect::<Vec<_>>(),
            [&Source::Place("r/root/coder/0000000a".into(), 1, 3)]
        );
        drive.stream(1);
        assert_eq!(drive.waits(), ["coder 1.1Gi", "coder 1.1Gi"], "the same kill in both forms is two: accepted");
    }

    pub fn n_21_two_paths_of_one_kernel_kill_are_one_notice(recorder: &mut Recorder) {
        let mut drive = Drive::working(Frame { task: None, ..seated() }, &List::default(), recorder);
        drive.lost();
        drive.feed(TurnInput::LastEnd(Some(last_end(true))));
        drive.fault();
        drive.leave();
        drive.next(later());
        drive.feed(TurnInput::Begin { held_before: false });
        drive.feed(TurnInput::AbortsClear);
        drive.feed(List::default().read_after(last_end(true)));
        assert_eq!((drive.says(), drive.ledger.raised), (vec!["coder kernel".to_owned()], 1));
    }

    pub fn n_22_a_sourceless_notice_merges_into_an_equal_pending_sourceless_one_only(_: &mut Recorder) {
        let notice = || Notice::memory_limit(None, Some("2Gi".into()), None);
        let to = || To::Workspace("ws-1".into());
        let mut ledger = Ledger::default();
        assert!(ledger.raise(notice(), to(), Some(guard(1))));
        assert!(ledger.raise(notice(), to(), None), "one of a kill does not stand for it");
        assert!(!ledger.raise(notice(), to(), None), "an equal one does");
        assert!(ledger.raise(notice(), To::Workspace("ws-2".into()), None), "for another hearer");
        assert!(ledger.raise(notice(), to(), Some(guard(2))), "a sourced one never merges");
        assert_eq!(ledger.pending.len(), 4);
        ledger.take("c#1", |_| true);
        assert!(ledger.raise(notice(), to(), None), "one on its way may be heard before this happened");
        ledger.deliver("c#1", None);
        assert_eq!(ledger.pending.len(), 1);
    }

    pub fn n_23_seen_never_shrinks_while_it_can_be_read(recorder: &mut Recorder) {
        let mut list = List::of(&[1]);
        let mut drive = Drive::working(seated(), &list, recorder);
        let mut before = drive.ledger.seen.clone();
        for n in 2..6 {
            drive.stream(n);
            list.kill(n);
            drive.nudged(&list);
            drive.taken_and_read();
            drive.pick(&format!("p{n}"), true, false);
            assert!(drive.ledger.seen.is_superset(&before) && drive.ledger.seen.contains(&guard(n)));
            before = drive.ledger.seen.clone();
        }
        drive.leave();
        assert_eq!(drive.ledger.seen, before);
        assert_eq!(drive.ledger.forget_workspace("ws-2"), 0);
        assert_eq!(drive.ledger.seen, before, "another Sandbox is gone");
        drive.ledger.forget_workspace("ws-1");
        assert!(drive.ledger.seen.is_empty(), "nothing of it can be read again (decision 10)");
    }

    pub fn n_26_a_left_state_hears_no_stream_and_the_list_tells(recorder: &mut Recorder) {
        let mut drive = Drive::working(seated(), &List::default(), recorder);
        drive.failed("submission_failed", "provider down");
        drive.leave();
        drive.stream(1);
        assert!(drive.waits().is_empty());
        drive.begin(later(), &List::of(&[1]));
        assert_eq!(drive.says(), ["1.1Gi"]);
        let other = stream_kill_of("s-9-other", Some("k2".into()), 0, None);
        drive.taken_and_read();
        drive.feed(other);
        assert!(drive.waits().is_empty(), "nor that of a Submission nobody waits for");
    }

    pub fn n_29_a_kill_while_nobody_worked_is_said_by_the_next_turn(recorder: &mut Recorder) {
        let mut drive = Drive::working(seated(), &List::default(), recorder);
        drive.leave(); // the workflow waits at a Gate, a dev server is killed
        drive.begin(later(), &List::of(&[1]));
        assert_eq!(drive.says(), ["1.1Gi"]);
    }

    pub fn n_30_a_read_raises_the_newest_kill_and_marks_the_older_seen(recorder: &mut Recorder) {
        let mut drive = Drive::new(seated(), recorder);
        drive.begin(seated(), &List::of(&[1, 2, 3]));
        assert_eq!((drive.says(), drive.ledger.seen.len()), (vec!["1.3Gi".to_owned()], 3));
        drive.taken_and_read();
        drive.leave();
        drive.begin(later(), &List::of(&[1, 2, 3]));
        assert!(drive.says().is_empty());
    }

    pub fn n_31_kills_on_a_stream_are_not_folded(recorder: &mut Recorder) {
        let mut drive = Drive::working(seated(), &List::default(), recorder);
        drive.stream(1);
        drive.stream(2);
        assert_eq!(drive.waits(), ["coder 1.1Gi", "coder 1.2Gi"]);
    }

    pub fn n_32_the_list_repeats_what_the_stream_said_and_changes_nothing(recorder: &mut Recorder) {
        let mut drive = Drive::working(seated(), &List::default(), recorder);
        drive.stream(1);
        let before = drive.ledger.clone();
        assert!(!drive.ledger.raise_listed("ws-1", &List::of(&[1]).0));
        assert_eq!(drive.ledger, before);
    }

    pub fn n_33_only_a_live_stream_names_the_agent(recorder: &mut Recorder) {
        let mut drive = Drive::working(seated(), &List::default(), recorder);
        drive.stream(1);
        drive.leave();
        drive.begin(later(), &List::of(&[1, 2]));
        assert_eq!(drive.says(), ["coder 1.1Gi", "1.2Gi"]);
        assert_eq!(
            drive.sent().notices[1].notice,
            Notice::memory_limit(None, Some("2Gi".into()), Some("1.2Gi".into()))
        );
    }

    pub fn n_34_the_instance_harness_is_never_read(recorder: &mut Recorder) {
        let mut drive = Drive::waiting(frame(), recorder);
        for _ in 0..2 {
            drive.completed(&["a"]);
            assert!(!drive.effects.contains(&TurnEffect::ReadKills));
            drive.taken();
        }
        drive.restarted(Some(true));
        drive.feed(TurnInput::LastEnd(None));
        drive.feed(TurnInput::Held(true));
        assert!(!drive.effects.contains(&TurnEffect::ReadKills));
        drive.taken();
        drive.stream(1);
        assert!(drive.waits().is_empty());
    }
}
