//! Kernel kills (spec 9.11), pick answers (spec 9.12) and a Turn that hears its own kill again (spec 9.13).

use super::*;

scenarios! {
    n_79_a_kernel_kill_while_nobody_worked_is_said_by_the_next_turn
    n_80_a_restart_that_faults_the_turn_gives_the_faults_notice_alone
    n_81_the_notice_of_a_fault_names_the_turns_agent
    n_82_a_watch_that_has_not_listed_loses_nothing
    n_83_the_readmission_after_the_cut_says_the_kernel_kill
    n_84_an_end_up_to_ten_seconds_early_is_the_cuts
    n_85_a_cut_picks_answer_goes_to_the_conversation_or_stays_with_its_fresh_turn
    n_88_a_continued_turn_hears_its_own_kill_again
}

mod run {
    use super::*;

    fn begin_after(drive: &mut Drive<'_>, frame: Frame, end: Option<LastEnd>) {
        drive.next(frame);
        drive.feed(TurnInput::Begin { held_before: false });
        drive.feed(TurnInput::AbortsClear);
        drive.feed(TurnInput::Read { kills: Some(Vec::new()), last_end: end });
    }

    pub fn n_79_a_kernel_kill_while_nobody_worked_is_said_by_the_next_turn(recorder: &mut Recorder) {
        let mut drive = Drive::new(seated(), recorder);
        begin_after(&mut drive, seated(), Some(last_end(true)));
        assert_eq!(drive.says(), ["kernel"]);
        drive.taken_and_read();
        drive.leave();
        begin_after(&mut drive, reviewer(), Some(last_end(true)));
        assert!(drive.says().is_empty(), "the end stays in the record and is said once");
        drive.taken_and_read();
        drive.leave();
        begin_after(&mut drive, later(), Some(ended(true, NOW + 1)));
        assert_eq!(drive.says(), ["kernel"], "a later end is another kill");
    }

    pub fn n_80_a_restart_that_faults_the_turn_gives_the_faults_notice_alone(recorder: &mut Recorder) {
        let mut drive = Drive::working(seated(), &List::default(), recorder);
        for at in [NOW, NOW + 1] {
            drive.restarted(Some(true));
            drive.feed(TurnInput::LastEnd(Some(ended(true, at))));
            if drive.turn.is_over() {
                break;
            }
            drive.feed(TurnInput::Held(true));
            drive.feed(List::default().read_after(ended(true, at)));
            drive.taken_and_read();
        }
        assert!(drive.fault().starts_with("memory limit"));
        drive.leave();
        assert_eq!(drive.waits(), ["coder kernel"]);
        begin_after(&mut drive, later(), Some(ended(true, NOW + 1)));
        assert_eq!(drive.says(), ["coder kernel"]);
    }

    pub fn n_81_the_notice_of_a_fault_names_the_turns_agent(recorder: &mut Recorder) {
        let mut drive = Drive::working(Frame { task: None, ..seated() }, &List::default(), recorder);
        drive.lost();
        drive.feed(TurnInput::LastEnd(Some(last_end(true))));
        drive.fault();
        drive.leave();
        assert_eq!(drive.waits(), ["coder kernel"]);
        // The read before a re-admission raised it first, without an Agent; then the re-admission fails.
        let mut drive = Drive::working(Frame { task: None, ..seated() }, &List::default(), recorder);
        drive.restarted(Some(true));
        drive.feed(TurnInput::LastEnd(Some(last_end(true))));
        drive.feed(TurnInput::Held(true));
        drive.feed(List::default().read_after(last_end(true)));
        assert_eq!(drive.says(), ["kernel"]);
        drive.refused(404, Some(false));
        assert!(drive.fault().starts_with("memory limit"));
        drive.leave();
        assert_eq!((drive.waits(), drive.ledger.raised), (vec!["coder kernel".to_owned()], 1));
        assert!(drive.ledger.seen.contains(&Drive::kernel_source(NOW)));
    }

    pub fn n_82_a_watch_that_has_not_listed_loses_nothing(recorder: &mut Recorder) {
        let mut drive = Drive::new(seated(), recorder);
        begin_after(&mut drive, seated(), None);
        assert!(drive.says().is_empty());
        drive.taken_and_read();
        drive.leave();
        begin_after(&mut drive, later(), Some(last_end(true)));
        assert_eq!(drive.says(), ["kernel"]);
    }

    pub fn n_83_the_readmission_after_the_cut_says_the_kernel_kill(recorder: &mut Recorder) {
        let mut drive = Drive::working(seated(), &List::default(), recorder);
        drive.restarted(Some(true));
        drive.feed(TurnInput::LastEnd(Some(last_end(true))));
        drive.feed(TurnInput::Held(true));
        drive.feed(List::default().read_after(last_end(true)));
        assert_eq!((drive.says(), drive.sent().kept), (vec!["kernel".to_owned()], true));
    }

    pub fn n_84_an_end_up_to_ten_seconds_early_is_the_cuts(recorder: &mut Recorder) {
        for (early, is_cuts) in [(8_000, true), (10_000, true), (12_000, false)] {
            let mut drive = Drive::working(seated(), &List::default(), recorder);
            drive.restarted(Some(true));
            drive.feed(TurnInput::LastEnd(Some(ended(true, NOW - early))));
            assert_eq!(drive.turn.kernel_kills == 1, is_cuts, "{early}");
        }
        // One that was known before the admission ended another Submission.
        let mut drive = Drive::new(seated(), recorder);
        begin_after(&mut drive, seated(), Some(last_end(true)));
        drive.taken_and_read();
        drive.restarted(Some(true));
        drive.feed(TurnInput::LastEnd(Some(last_end(true))));
        assert_eq!(drive.turn.kernel_kills, 0);
    }

    /// Here: the call was cut by a restart (decision 34). A route that leaves the state, or is stopped, is the run's.
    pub fn n_85_a_cut_picks_answer_goes_to_the_conversation_or_stays_with_its_fresh_turn(recorder: &mut Recorder) {
        for frame in [standing(), seated()] {
            let mut drive = Drive::working(frame.clone(), &List::default(), recorder);
            drive.pick("p1", true, true);
            drive.restarted(Some(true));
            drive.returned("p1", &["a"]);
            drive.feed(TurnInput::LastEnd(None));
            drive.feed(TurnInput::Held(false));
            drive.read(&List::default());
            assert_eq!(drive.says(), [GONE, "done restarted"], "no receipt has a call to return to");
            assert!(drive.sent().receipt.is_none());
            drive.taken();
            drive.leave();
            drive.begin(Frame { ordinal: 2, ..standing() }, &List::default());
            assert_eq!(drive.says().is_empty(), !frame.continued, "a fresh Turn's answer is nobody else's");
        }
        // Kept: the receipt follows the re-admit text, and there is no notice.
        let mut drive = Drive::working(standing(), &List::default(), recorder);
        drive.pick("p1", true, true);
        drive.restarted(Some(true));
        drive.returned("p1", &["a"]);
        drive.feed(TurnInput::LastEnd(None));
        drive.feed(TurnInput::Held(true));
        drive.read(&List::default());
        assert!(drive.says().is_empty() && drive.sent().receipt.is_some());
    }

    /// It is true and costs little; leaving it out would need the conversation in the ledger's scope.
    pub fn n_88_a_continued_turn_hears_its_own_kill_again(recorder: &mut Recorder) {
        let told = List::of(&[1]).told(1);
        let mut drive = Drive::working(standing(), &List::default(), recorder);
        drive.stream(1);
        drive.nudged(&told);
        assert!(drive.says().is_empty(), "its bash call said so");
        drive.taken_and_read();
        drive.leave();
        drive.begin_held(true, &told);
        assert_eq!(drive.says(), ["coder 1.1Gi"]);
    }
}
