//! Reading the list (spec 9.6) and the Turn's mark (spec 9.7).

use super::*;

scenarios! {
    n_40_more_kills_than_the_list_keeps_still_tell_the_newest
    n_41_every_admission_into_a_workspace_reads_first
    n_43_a_read_that_could_not_tell_raises_nothing_and_the_next_one_does
    n_45_the_first_read_sets_the_mark_once
    n_46_a_failed_first_read_leaves_the_turns_start
    n_47_a_restored_turn_still_leaves_out_what_was_before_it
    n_48_a_later_read_does_not_replace_the_start
    n_49_a_mark_that_left_the_list_stands_before_all_of_it
}

mod run {
    use super::*;

    pub fn n_40_more_kills_than_the_list_keeps_still_tell_the_newest(recorder: &mut Recorder) {
        let mut drive = Drive::new(seated(), recorder);
        drive.begin(seated(), &List::of(&(4..20).collect::<Vec<_>>()));
        assert_eq!(drive.says(), ["1.19Gi"]);
    }

    pub fn n_41_every_admission_into_a_workspace_reads_first(recorder: &mut Recorder) {
        let list = List::default();
        let mut reads = 0;
        let mut drive = Drive::new(standing(), recorder);
        let mut count = |drive: &Drive<'_>| {
            reads += drive.effects.iter().filter(|effect| **effect == TurnEffect::ReadKills).count();
            assert!(!drive.effects.iter().any(|effect| matches!(effect, TurnEffect::Admit(_))));
        };
        drive.feed(TurnInput::Begin { held_before: false });
        drive.feed(TurnInput::AbortsClear);
        count(&drive);
        drive.read(&list);
        drive.taken_and_read();
        drive.completed(&["a"]);
        count(&drive);
        drive.read(&list);
        drive.taken_and_read();
        drive.completed(&[]);
        drive.feed(TurnInput::Allowed(names(&["a"])));
        count(&drive);
        drive.read(&list);
        drive.taken_and_read();
        drive.restarted(Some(true));
        drive.feed(TurnInput::LastEnd(None));
        drive.feed(TurnInput::Held(true));
        count(&drive);
        assert_eq!(reads, 4, "a Turn, its nudge, its wake and its re-admission");
    }

    pub fn n_43_a_read_that_could_not_tell_raises_nothing_and_the_next_one_does(recorder: &mut Recorder) {
        let mut drive = Drive::new(seated(), recorder);
        drive.feed(TurnInput::Begin { held_before: false });
        drive.feed(TurnInput::AbortsClear);
        drive.feed(unreadable());
        assert!(drive.says().is_empty() && drive.ledger.is_empty());
        drive.taken_and_read();
        drive.leave();
        drive.begin(later(), &List::of(&[1]));
        assert_eq!((drive.says(), drive.ledger.raised), (vec!["1.1Gi".to_owned()], 1));
    }

    pub fn n_45_the_first_read_sets_the_mark_once(recorder: &mut Recorder) {
        let mut list = List::default();
        let mut drive = Drive::working(seated(), &list, recorder);
        assert_eq!(drive.turn.mark, Some(Mark::None));
        list.kill(1);
        drive.nudged(&list);
        assert_eq!((drive.says(), &drive.turn.mark), (vec!["1.1Gi".to_owned()], &Some(Mark::None)));
        drive.begin(later(), &list);
        assert_eq!(drive.turn.mark, Some(Mark::Kill("k1".into())));
    }

    pub fn n_46_a_failed_first_read_leaves_the_turns_start(recorder: &mut Recorder) {
        for (at, said) in [(NOW - 500, true), (NOW - 1_000, true), (NOW - 2_000, false)] {
            let mut drive = Drive::new(seated(), recorder);
            drive.feed(TurnInput::Begin { held_before: false });
            drive.feed(TurnInput::AbortsClear);
            drive.now = NOW + 60_000; // the read may take its time: the Turn began before it
            drive.feed(unreadable());
            drive.taken_and_read();
            drive.nudged(&List(vec![ListedKill { at, ..kill(1) }]));
            assert_eq!(!drive.says().is_empty(), said, "{at}");
        }
    }

    pub fn n_47_a_restored_turn_still_leaves_out_what_was_before_it(recorder: &mut Recorder) {
        let mut drive = Drive::new(seated(), recorder);
        drive.begin(seated(), &List::of(&[1]));
        drive.taken_and_read();
        let json = serde_json::to_string(&drive.turn).unwrap();
        drive.turn = serde_json::from_str(&json).unwrap();
        drive.feed(TurnInput::Restored);
        // Kill 1 is pending again, as a conversation's end would leave it: it is from before this Turn.
        drive.ledger.seen.clear();
        drive.nudged(&List::of(&[1]));
        assert_eq!((drive.says().len(), drive.waits()), (0, vec!["1.1Gi".to_owned()]));
    }

    pub fn n_48_a_later_read_does_not_replace_the_start(recorder: &mut Recorder) {
        let mut drive = Drive::new(seated(), recorder);
        drive.feed(TurnInput::Begin { held_before: false });
        drive.feed(TurnInput::AbortsClear);
        drive.feed(unreadable());
        drive.taken_and_read();
        drive.nudged(&List::of(&[1]));
        assert_eq!((drive.says(), &drive.turn.mark), (vec!["1.1Gi".to_owned()], &Some(Mark::Start(NOW - 1_000))));
        drive.taken_and_read();
        drive.completed(&["a"]);
        drive.feed(unreadable());
        assert_eq!(drive.turn.mark, Some(Mark::Start(NOW - 1_000)));
    }

    pub fn n_49_a_mark_that_left_the_list_stands_before_all_of_it(recorder: &mut Recorder) {
        let mut drive = Drive::working(seated(), &List::of(&[1]), recorder);
        let seventeen_later = List::of(&(2..18).collect::<Vec<_>>());
        drive.stream(2);
        drive.nudged(&seventeen_later);
        assert_eq!(drive.says(), ["coder 1.2Gi", "1.17Gi"]);
    }
}
