//! A Harness that holds no such conversation (spec 9.10, N-72 to N-77).

use super::*;
use jr2_shared::prompts;

scenarios! {
    n_72_another_404_is_a_failed_admission
    n_73_a_refused_readmission_is_admitted_as_a_turn_or_faults
    n_74_a_refused_continued_turn_is_told_and_admitted_again
    n_75_a_refused_nudge_or_wake_is_admitted_as_a_turn_with_its_task_alone
    n_76_what_the_turn_carried_is_said_again_after_a_refusal
    n_77_a_menu_only_agent_learns_of_a_restart_by_the_refusal
}

mod run {
    use super::*;

    pub fn n_72_another_404_is_a_failed_admission(recorder: &mut Recorder) {
        for kept in [None, Some(true)] {
            let mut drive = Drive::working(seated(), &List::default(), recorder);
            drive.nudged(&List::of(&[1]));
            drive.refused(404, kept);
            assert!(drive.fault().starts_with("harness admission failed (404)"));
            drive.leave();
            assert_eq!(drive.waits(), ["1.1Gi"]);
        }
        // A conversation that was not taken as kept cannot be refused as one.
        let mut drive = Drive::new(seated(), recorder);
        drive.begin(seated(), &List::default());
        drive.refused(404, Some(false));
        assert!(drive.fault().starts_with("harness admission failed (404)"));
    }

    pub fn n_73_a_refused_readmission_is_admitted_as_a_turn_or_faults(recorder: &mut Recorder) {
        for frame in [seated(), standing()] {
            let mut drive = Drive::working(frame.clone(), &List::of(&[1]), recorder);
            drive.cut(Some(true), true, &List::of(&[1]));
            assert!(drive.says().is_empty());
            drive.refused(404, Some(false));
            drive.read(&List::of(&[1]));
            assert_eq!(drive.says(), ["1.1Gi", GONE]);
            assert_eq!(drive.sent().message, prompts::readmit_lost("fix the test"));
            let mut drive = Drive::working(Frame { task: None, ..frame }, &List::default(), recorder);
            drive.cut(Some(true), true, &List::default());
            drive.refused(404, Some(false));
            assert!(drive.fault().starts_with("conversation lost"));
        }
    }

    pub fn n_74_a_refused_continued_turn_is_told_and_admitted_again(recorder: &mut Recorder) {
        let list = List::of(&[1]);
        let mut drive = Drive::new(standing(), recorder);
        drive.begin_held(true, &list);
        assert_eq!(drive.says(), ["1.1Gi"]);
        drive.refused(404, Some(false));
        drive.read(&list);
        assert_eq!(drive.says(), ["1.1Gi", GONE]);
        assert_eq!((drive.sent().message.as_str(), drive.sent().kept), ("fix the test", false));
    }

    pub fn n_75_a_refused_nudge_or_wake_is_admitted_as_a_turn_with_its_task_alone(recorder: &mut Recorder) {
        let list = List::default();
        let reprompts: [fn(&mut Drive<'_>, &List); 2] =
            [|drive, list| drive.nudged(list), |drive, list| drive.woken(list)];
        for reprompt in reprompts {
            let mut drive = Drive::working(standing(), &list, recorder);
            drive.raise_for_conversation("x");
            reprompt(&mut drive, &list);
            drive.refused(404, Some(false));
            drive.read(&list);
            assert_eq!((drive.sent().message.as_str(), drive.sent().kept), ("fix the test", false));
            assert_eq!(drive.says(), ["new: x"], "every notice in scope, and new once");
            let mut drive = Drive::working(Frame { task: None, ..standing() }, &list, recorder);
            reprompt(&mut drive, &list);
            drive.refused(404, Some(false));
            assert!(drive.fault().starts_with("conversation lost"));
        }
    }

    pub fn n_76_what_the_turn_carried_is_said_again_after_a_refusal(recorder: &mut Recorder) {
        let list = List::of(&[1]).told(1);
        let mut drive = Drive::working(seated(), &list, recorder);
        drive.nudged(&list);
        drive.refused(404, Some(false));
        drive.read(&list);
        assert_eq!(drive.says(), ["1.1Gi", GONE]);
    }

    pub fn n_77_a_menu_only_agent_learns_of_a_restart_by_the_refusal(recorder: &mut Recorder) {
        let mut drive = Drive::waiting(frame(), recorder);
        drive.surface_read();
        drive.completed(&["a"]); // the Instance Harness restarts here, and no watch says so
        drive.refused(404, Some(false));
        assert_eq!((drive.sent().message.as_str(), drive.says()), ("fix the test", vec![GONE.to_owned()]));
    }
}
