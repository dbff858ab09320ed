//! Answers of asked picks that have no call to return to (decision 34, spec 9.12).

use super::*;

scenarios! {
    n_85_an_answer_that_is_still_due_when_the_state_is_left_goes_to_the_next_turn
    n_85_a_receipt_that_may_have_been_read_is_freed_by_the_aborts_answer
    d_34_a_model_that_stopped_while_its_pick_was_outstanding_hears_the_answer_with_what_follows
    d_34_a_refused_nudge_or_wake_says_its_receipt_as_a_notice
}

mod run {
    use super::*;

    /// A Turn whose call was cut while its pick was outstanding; then the answer came.
    fn answered_after_a_cut(frame: Frame, recorder: &mut Recorder) -> Drive<'_> {
        let mut drive = Drive::working(frame, &List::default(), recorder);
        drive.pick("p1", true, true);
        drive.restarted(Some(true));
        drive.returned("p1", &["a"]);
        drive
    }

    fn feed(drive: &mut Drive<'_>, input: TurnInput) {
        drive.feed(input);
    }

    pub fn n_85_an_answer_that_is_still_due_when_the_state_is_left_goes_to_the_next_turn(recorder: &mut Recorder) {
        let steps: [fn(&mut Drive<'_>); 5] = [
            |_| {},
            |drive| feed(drive, TurnInput::LastEnd(None)),
            |drive| feed(drive, TurnInput::Held(true)),
            |drive| drive.read(&List::default()),
            |drive| drive.taken(),
        ];
        for frame in [standing(), seated()] {
            for taken in 1..=steps.len() {
                let mut drive = answered_after_a_cut(frame.clone(), recorder);
                steps[..taken].iter().for_each(|step| step(&mut drive));
                let abort = drive.leave();
                assert!(abort.is_none_or(|abort| abort.carried.is_none()));
                let expected: &[&str] = if frame.continued { &["done left"] } else { &[] };
                assert_eq!(drive.waits(), expected, "after {taken} steps");
                drive.begin_held(true, &List::default());
                assert_eq!(drive.says(), expected);
                drive.taken_and_read();
                drive.leave();
                assert!(drive.waits().is_empty(), "once");
            }
        }
        // What a prompt said is said.
        let mut drive = answered_after_a_cut(standing(), recorder);
        steps[1..].iter().for_each(|step| step(&mut drive));
        drive.surface_read();
        drive.restarted(Some(true));
        drive.leave();
        assert!(drive.waits().is_empty());
    }

    pub fn n_85_a_receipt_that_may_have_been_read_is_freed_by_the_aborts_answer(recorder: &mut Recorder) {
        for unprompted in [false, true] {
            let mut drive = answered_after_a_cut(standing(), recorder);
            drive.feed(TurnInput::LastEnd(None));
            drive.feed(TurnInput::Held(true));
            drive.read(&List::default());
            drive.taken_and_read();
            let abort = drive.leave().unwrap();
            assert!(drive.waits().is_empty());
            let never: Vec<String> = if unprompted { vec![abort.up_to.clone()] } else { Vec::new() };
            aborted(&abort, &never, &mut drive.ledger);
            assert_eq!(drive.waits() == ["done left"], unprompted);
        }
    }

    pub fn d_34_a_model_that_stopped_while_its_pick_was_outstanding_hears_the_answer_with_what_follows(
        recorder: &mut Recorder,
    ) {
        for allowed in [&["a"][..], &[]] {
            let mut drive = Drive::working(standing(), &List::default(), recorder);
            drive.pick("p1", true, true);
            drive.completed(&["a"]);
            drive.returned("p1", allowed);
            drive.feed(TurnInput::Allowed(names(&["a"])));
            drive.read(&List::default());
            assert!(drive.sent().receipt.as_ref().is_some_and(|answer| answer.answered));
            drive.taken_and_read();
            drive.nudged(&List::default());
            assert!(drive.sent().receipt.is_none(), "once");
        }
    }

    pub fn d_34_a_refused_nudge_or_wake_says_its_receipt_as_a_notice(recorder: &mut Recorder) {
        let mut drive = Drive::working(standing(), &List::default(), recorder);
        drive.pick("p1", true, true);
        drive.completed(&["a"]);
        drive.returned("p1", &["a"]);
        drive.read(&List::default());
        drive.refused(404, Some(false));
        drive.read(&List::default());
        assert_eq!(drive.says(), [GONE, "done restarted"]);
        assert!(drive.sent().receipt.is_none());
    }
}
