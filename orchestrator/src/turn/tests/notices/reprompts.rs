//! What a nudge and a wake take (spec 9.8): each scenario runs for both.

use super::*;

scenarios! {
    n_50_a_reprompt_takes_nothing_of_the_kind_a_turn_takes
    n_51_a_reprompt_takes_no_kernel_kill
    n_52_a_reprompt_takes_what_came_after_the_told_kill
    n_53_a_told_kill_covers_every_kill_up_to_it
    n_54_a_reprompt_takes_no_kill_from_before_its_turn
    n_55_what_a_reprompt_leaves_is_said_by_the_next_turn
    n_56_a_reprompt_that_could_not_read_takes_no_guard_kill
}

mod run {
    use super::*;

    /// A re-prompt whose read brings this.
    type Reprompt = fn(&mut Drive<'_>, TurnInput);

    const BOTH: [Reprompt; 2] = [
        |drive, read| {
            drive.completed(&["a"]);
            drive.feed(read);
        },
        |drive, read| {
            drive.completed(&[]);
            drive.feed(TurnInput::Allowed(names(&["a"])));
            drive.feed(read);
        },
    ];

    pub fn n_50_a_reprompt_takes_nothing_of_the_kind_a_turn_takes(recorder: &mut Recorder) {
        for reprompt in BOTH {
            let mut drive = Drive::working(standing(), &List::default(), recorder);
            drive.raise_for_conversation("x");
            reprompt(&mut drive, List::default().read());
            assert_eq!((drive.says().len(), drive.waits()), (0, vec!["new: x".to_owned()]));
        }
    }

    pub fn n_51_a_reprompt_takes_no_kernel_kill(recorder: &mut Recorder) {
        for reprompt in BOTH {
            let mut drive = Drive::working(standing(), &List::default(), recorder);
            reprompt(&mut drive, List::default().read_after(ended(true, NOW)));
            assert_eq!((drive.says().len(), drive.waits()), (0, vec!["kernel".to_owned()]));
            drive.taken_and_read();
            drive.leave();
            drive.begin(later(), &List::default());
            assert_eq!(drive.says(), ["kernel"], "it stays for the next Turn");
        }
    }

    pub fn n_52_a_reprompt_takes_what_came_after_the_told_kill(recorder: &mut Recorder) {
        for reprompt in BOTH {
            let mut drive = Drive::working(seated(), &List::default(), recorder);
            drive.stream(1);
            drive.stream(2);
            reprompt(&mut drive, List::of(&[1, 2]).told(1).read());
            assert_eq!(drive.says(), ["coder 1.2Gi"]);
            let mut drive = Drive::working(seated(), &List::default(), recorder);
            drive.stream(1);
            drive.stream(2);
            reprompt(&mut drive, List::of(&[1, 2]).told(1).told(2).read());
            assert!(drive.says().is_empty());
            // A kill without an id, or one that the list has lost, has no place in that order.
            let mut drive = Drive::working(seated(), &List::default(), recorder);
            let old = stream_kill_of(&drive.submission(), None, 3, None);
            drive.feed(old);
            drive.stream(9);
            reprompt(&mut drive, List::of(&[1]).read());
            assert_eq!((drive.says(), drive.waits().len()), (vec!["1.1Gi".to_owned()], 2));
        }
    }

    pub fn n_53_a_told_kill_covers_every_kill_up_to_it(recorder: &mut Recorder) {
        for reprompt in BOTH {
            let mut drive = Drive::working(seated(), &List::default(), recorder);
            drive.stream(1);
            drive.stream(2);
            reprompt(&mut drive, List::of(&[1, 2]).told(2).read());
            assert_eq!((drive.says().len(), drive.waits()), (0, vec!["coder 1.1Gi".to_owned(), "coder 1.2Gi".into()]));
        }
    }

    pub fn n_54_a_reprompt_takes_no_kill_from_before_its_turn(recorder: &mut Recorder) {
        for reprompt in BOTH {
            let mut drive = Drive::working(seated(), &List::default(), recorder);
            drive.stream(1);
            // Another Turn of the Workspace begins; its first admission fails to take it only because it is reserved.
            drive.ledger.take("r/root/reviewer/0000000b#1", |_| true);
            drive.begin(later(), &List::of(&[1]));
            drive.ledger.release("r/root/reviewer/0000000b#1");
            drive.taken_and_read();
            reprompt(&mut drive, List::of(&[1, 2]).read());
            assert_eq!((drive.says(), drive.waits()), (vec!["1.2Gi".to_owned()], vec!["coder 1.1Gi".to_owned()]));
        }
    }

    pub fn n_55_what_a_reprompt_leaves_is_said_by_the_next_turn(recorder: &mut Recorder) {
        for reprompt in BOTH {
            let list = List::of(&[1]).told(1);
            let mut drive = Drive::working(seated(), &List::default(), recorder);
            drive.stream(1);
            reprompt(&mut drive, list.read());
            assert!(drive.says().is_empty());
            drive.taken_and_read();
            drive.leave();
            drive.begin(reviewer(), &List::of(&[1]));
            assert_eq!(drive.says(), ["coder 1.1Gi"]);
        }
    }

    pub fn n_56_a_reprompt_that_could_not_read_takes_no_guard_kill(recorder: &mut Recorder) {
        for reprompt in BOTH {
            let mut drive = Drive::working(seated(), &List::default(), recorder);
            drive.stream(1);
            reprompt(&mut drive, unreadable());
            assert!(drive.says().is_empty());
            drive.taken_and_read();
            drive.leave();
            drive.begin(later(), &List::of(&[1]));
            assert_eq!(drive.says(), ["coder 1.1Gi"]);
        }
    }
}
