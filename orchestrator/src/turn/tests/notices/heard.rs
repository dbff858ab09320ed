//! Delivered is not heard (spec 9.9).

use super::*;

scenarios! {
    n_57_unread_is_raised_again
    n_57_an_admission_whose_surface_was_read_before_its_answer_is_heard
    n_57_an_abort_that_ended_it_unprompted_raises_it_again
    n_58_a_nudge_and_a_wake_need_a_surface_read_of_their_own
    n_58_a_settlement_knows_better_than_the_surface_read
    n_59_a_failed_nudge_leaves_earlier_notices_heard
    n_60_a_restart_before_the_surface_read_loses_nothing
    n_61_what_is_raised_again_keeps_its_source_and_its_place
}

mod run {
    use super::*;

    pub fn n_57_unread_is_raised_again(recorder: &mut Recorder) {
        let list = List::of(&[1]);
        let mut drive = Drive::admitted(seated(), &list, recorder);
        assert!(drive.leave().is_some());
        drive.begin(later(), &list);
        assert_eq!(drive.says(), ["1.1Gi"]);
        drive.taken_and_read();
        drive.leave();
        drive.begin(reviewer(), &list);
        assert!(drive.says().is_empty(), "that one was read");
    }

    pub fn n_57_an_admission_whose_surface_was_read_before_its_answer_is_heard(recorder: &mut Recorder) {
        let list = List::of(&[1]);
        let mut drive = Drive::new(seated(), recorder);
        drive.begin(seated(), &list);
        drive.surface_read();
        drive.leave();
        drive.begin(later(), &list);
        assert!(drive.says().is_empty(), "it arrived and was read, though its answer never came");
        let mut drive = Drive::new(seated(), recorder);
        drive.begin(seated(), &list);
        drive.leave();
        drive.begin(later(), &list);
        assert_eq!(drive.says(), ["1.1Gi"]);
    }

    /// Decision 32: read, but no model was asked.
    pub fn n_57_an_abort_that_ended_it_unprompted_raises_it_again(recorder: &mut Recorder) {
        let list = List::of(&[1]);
        for prompted in [false, true] {
            let mut drive = Drive::working(seated(), &list, recorder);
            let abort = drive.leave().unwrap();
            let unprompted = if prompted { Vec::new() } else { vec![abort.up_to.clone()] };
            aborted(&abort, &unprompted, &mut drive.ledger);
            drive.begin(later(), &list);
            assert_eq!(drive.says().is_empty(), prompted);
        }
    }

    pub fn n_58_a_nudge_and_a_wake_need_a_surface_read_of_their_own(recorder: &mut Recorder) {
        let list = List::of(&[1]);
        let reprompts: [fn(&mut Drive<'_>, &List); 2] =
            [|drive, list| drive.nudged(list), |drive, list| drive.woken(list)];
        for reprompt in reprompts {
            for read in [false, true] {
                let mut drive = Drive::working(seated(), &List::default(), recorder);
                reprompt(&mut drive, &list);
                assert_eq!(drive.says(), ["1.1Gi"]);
                drive.taken();
                if read {
                    drive.surface_read();
                }
                drive.leave();
                assert_eq!(drive.waits().is_empty(), read);
            }
        }
    }

    pub fn n_58_a_settlement_knows_better_than_the_surface_read(recorder: &mut Recorder) {
        let list = List::of(&[1]);
        // It completed, so it was prompted, though its surface read was not seen here.
        let mut drive = Drive::admitted(seated(), &list, recorder);
        drive.completed(&[]);
        drive.leave();
        assert!(drive.waits().is_empty());
        // Its surface was read and it was never prompted.
        let mut drive = Drive::working(seated(), &list, recorder);
        drive.restarted(Some(false));
        drive.leave();
        assert_eq!(drive.waits(), ["1.1Gi"]);
    }

    pub fn n_59_a_failed_nudge_leaves_earlier_notices_heard(recorder: &mut Recorder) {
        let mut drive = Drive::working(seated(), &List::of(&[1]), recorder);
        drive.nudged(&List::of(&[1, 2]));
        assert_eq!(drive.says(), ["1.2Gi"]);
        drive.refused(400, None);
        drive.fault();
        drive.leave();
        assert_eq!(drive.waits(), ["1.2Gi"]);
    }

    /// Where the rule loses a notice (its memory is gone), the row keeps what was carried and whether it was read
    /// (`docs/decisions/notices-over-restarts.md`).
    pub fn n_60_a_restart_before_the_surface_read_loses_nothing(recorder: &mut Recorder) {
        for read in [false, true] {
            let mut drive = Drive::admitted(seated(), &List::of(&[1]), recorder);
            if read {
                drive.surface_read();
            }
            let row = serde_json::to_string(&(&drive.turn, &drive.ledger)).unwrap();
            (drive.turn, drive.ledger) = serde_json::from_str(&row).unwrap();
            drive.feed(TurnInput::Restored);
            drive.leave();
            assert_eq!(drive.waits().is_empty(), read);
        }
    }

    pub fn n_61_what_is_raised_again_keeps_its_source_and_its_place(recorder: &mut Recorder) {
        let mut drive = Drive::admitted(seated(), &List::of(&[1]), recorder);
        drive.stream(2);
        drive.leave();
        assert_eq!(drive.waits(), ["1.1Gi", "coder 1.2Gi"], "the older one first");
        assert!(drive.ledger.pending[0].source.is_some());
        drive.begin(later(), &List::of(&[1, 2]));
        assert_eq!(drive.says(), ["1.1Gi", "coder 1.2Gi"], "the read that follows raises neither again");
    }
}
