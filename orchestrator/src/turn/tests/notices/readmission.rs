//! The re-admission after a Harness restart (spec 9.10, N-62 to N-71 and N-78).

use super::*;
use jr2_shared::prompts;

scenarios! {
    n_62_a_readmission_takes_all_in_scope_but_told_guard_kills
    n_63_a_readmission_that_could_not_read_takes_no_guard_kill
    n_64_what_was_unread_rides_whatever_the_scope_leaves_out
    n_64_only_what_came_since_the_last_surface_read_rides_again
    n_65_an_unread_task_follows_the_readmit_text
    n_66_a_lost_conversation_is_told_everything_again
    n_67_a_lost_conversation_is_called_new_once
    n_68_after_a_restore_the_task_is_still_there
    n_69_an_answer_that_held_may_be_wrong_so_it_says_kept
    n_70_a_continued_turn_asks_the_same_way
    n_71_every_admission_to_a_conversation_taken_as_kept_says_so
    n_78_a_fresh_turns_own_news_rides_again_when_unread
}

mod run {
    use super::*;

    pub fn n_62_a_readmission_takes_all_in_scope_but_told_guard_kills(recorder: &mut Recorder) {
        let mut drive = Drive::working(standing(), &List::default(), recorder);
        drive.stream(1);
        drive.stream(2);
        drive.raise_for_conversation("x");
        drive.cut(Some(true), true, &List::of(&[1, 2]).told(1));
        assert_eq!(drive.says(), ["coder 1.2Gi", "new: x"]);
        assert_eq!((drive.sent().message.as_str(), drive.sent().kept), (prompts::READMIT_KEPT, true));
        assert_eq!(drive.waits(), ["coder 1.1Gi"]);
    }

    pub fn n_63_a_readmission_that_could_not_read_takes_no_guard_kill(recorder: &mut Recorder) {
        let mut drive = Drive::working(standing(), &List::default(), recorder);
        drive.stream(1);
        drive.raise_for_conversation("x");
        drive.restarted(Some(true));
        drive.feed(TurnInput::LastEnd(None));
        drive.feed(TurnInput::Held(true));
        drive.feed(unreadable());
        assert_eq!((drive.says(), drive.waits()), (vec!["new: x".to_owned()], vec!["coder 1.1Gi".to_owned()]));
    }

    pub fn n_64_what_was_unread_rides_whatever_the_scope_leaves_out(recorder: &mut Recorder) {
        let list = List::of(&[1]);
        for unreadable_list in [false, true] {
            let mut drive = Drive::admitted(seated(), &list, recorder);
            drive.restarted(Some(false));
            drive.feed(TurnInput::LastEnd(None));
            drive.feed(TurnInput::Held(true));
            assert!(drive.ledger.pending[0].source.is_some(), "pending again with its own source");
            // Kill 1 is from before the Turn, so the guard-kill rule alone would leave it out.
            drive.feed(if unreadable_list { unreadable() } else { list.read() });
            assert_eq!(drive.says(), ["1.1Gi"]);
        }
    }

    pub fn n_64_only_what_came_since_the_last_surface_read_rides_again(recorder: &mut Recorder) {
        let mut drive = Drive::working(seated(), &List::of(&[1]), recorder);
        drive.nudged(&List::of(&[1, 2]));
        drive.taken();
        drive.cut(Some(false), true, &List::of(&[1, 2]));
        assert_eq!(drive.says(), ["1.2Gi"], "the first admission's kill was heard");
    }

    pub fn n_65_an_unread_task_follows_the_readmit_text(recorder: &mut Recorder) {
        let with_task = format!("{}\n\nfix the test", prompts::READMIT_KEPT);
        let mut drive = Drive::admitted(seated(), &List::default(), recorder);
        drive.cut(None, true, &List::default());
        assert_eq!(drive.sent().message, with_task);
        let mut drive = Drive::working(seated(), &List::default(), recorder);
        drive.cut(None, true, &List::default());
        assert_eq!(drive.sent().message, prompts::READMIT_KEPT);
    }

    pub fn n_66_a_lost_conversation_is_told_everything_again(recorder: &mut Recorder) {
        let mut drive = Drive::new(seated(), recorder);
        drive.raise_for_conversation("x");
        drive.begin(standing(), &List::of(&[1]));
        assert_eq!(drive.says(), ["new: x", "1.1Gi"]);
        drive.taken_and_read();
        drive.nudged(&List::of(&[1, 2]));
        drive.taken_and_read();
        drive.cut(Some(true), false, &List::of(&[1, 2]).told(2));
        assert_eq!(
            drive.says(),
            ["new: x", "1.1Gi", "1.2Gi"],
            "whatever was read or told: nothing of the Turn is left"
        );
        assert_eq!((drive.sent().message.clone(), drive.sent().kept), (prompts::readmit_lost("fix the test"), false));
    }

    pub fn n_67_a_lost_conversation_is_called_new_once(recorder: &mut Recorder) {
        for frame in [seated(), standing()] {
            let mut drive = Drive::working(frame, &List::default(), recorder);
            for _ in 0..2 {
                drive.cut(Some(true), false, &List::default());
                assert_eq!(drive.says(), [GONE], "also when the re-admission before it said so");
                drive.taken_and_read();
            }
            drive.restarted(Some(true));
            drive.feed(TurnInput::LastEnd(Some(ended(true, NOW))));
            drive.feed(TurnInput::Held(false));
            drive.feed(List::default().read_after(ended(true, NOW)));
            assert_eq!(
                drive.says(),
                ["new: memory limit (OOMKilled, limit 2Gi)", "kernel"],
                "the reason that tells more"
            );
        }
    }

    pub fn n_68_after_a_restore_the_task_is_still_there(recorder: &mut Recorder) {
        let mut drive = Drive::working(seated(), &List::default(), recorder);
        let json = serde_json::to_string(&drive.turn).unwrap();
        drive.turn = serde_json::from_str(&json).unwrap();
        drive.feed(TurnInput::Restored);
        drive.cut(None, false, &List::default());
        assert_eq!(drive.sent().message, prompts::readmit_lost("fix the test"));
        let mut drive = Drive::working(Frame { task: None, ..seated() }, &List::default(), recorder);
        drive.restarted(None);
        drive.feed(TurnInput::LastEnd(None));
        drive.feed(TurnInput::Held(false));
        assert!(drive.fault().starts_with("conversation lost"));
    }

    /// The 30 s are the client's; here: what "held" leads to.
    pub fn n_69_an_answer_that_held_may_be_wrong_so_it_says_kept(recorder: &mut Recorder) {
        let mut drive = Drive::working(seated(), &List::default(), recorder);
        drive.cut(Some(true), true, &List::default());
        assert!(drive.sent().kept);
        drive.refused(404, Some(false));
        drive.read(&List::default());
        assert_eq!((drive.sent().kept, drive.says()), (false, vec![GONE.to_owned()]));
    }

    pub fn n_70_a_continued_turn_asks_the_same_way(recorder: &mut Recorder) {
        let mut drive = Drive::new(standing(), recorder);
        drive.feed(TurnInput::Begin { held_before: true });
        let begins = drive.feed(TurnInput::AbortsClear).to_vec();
        let mut drive = Drive::working(standing(), &List::default(), recorder);
        drive.restarted(Some(true));
        drive.feed(TurnInput::LastEnd(None));
        let asks = TurnEffect::AskHeld { iid: standing().iid };
        assert_eq!((&begins[..], drive.effects.last()), (&[asks.clone()][..], Some(&asks)));
    }

    pub fn n_71_every_admission_to_a_conversation_taken_as_kept_says_so(recorder: &mut Recorder) {
        let list = List::default();
        let mut drive = Drive::working(standing(), &list, recorder);
        assert!(drive.turn.carried.len() == 1);
        drive.leave();
        drive.begin_held(true, &list);
        assert!(drive.sent().kept, "a continued Turn");
        drive.taken_and_read();
        drive.nudged(&list);
        assert!(drive.sent().kept, "a nudge");
        drive.taken_and_read();
        drive.woken(&list);
        assert!(drive.sent().kept, "a wake");
        drive.taken_and_read();
        drive.cut(Some(true), true, &list);
        assert!(drive.sent().kept, "a re-admission");
        drive.leave();
        drive.begin(seated(), &list);
        assert!(!drive.sent().kept, "a fresh Turn never");
        drive.leave();
        drive.begin_held(false, &list);
        assert!(!drive.sent().kept, "nor one whose conversation is known to be gone");
    }

    pub fn n_78_a_fresh_turns_own_news_rides_again_when_unread(recorder: &mut Recorder) {
        for read in [false, true] {
            let mut drive = Drive::working(seated(), &List::default(), recorder);
            drive.cut(Some(true), false, &List::default());
            assert_eq!(drive.says(), [GONE]);
            drive.taken();
            if read {
                drive.surface_read();
            }
            drive.cut(None, true, &List::default());
            assert_eq!(drive.says().is_empty(), read);
            drive.leave();
            assert!(drive.waits().is_empty(), "it is for this Turn alone");
        }
    }
}
