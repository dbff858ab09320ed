//! One scenario a rule. Each is a test and a part of the coverage run.

use super::*;
use crate::turn::Pending;
use jr2_shared::notice::Notice;
use jr2_shared::prompts;

scenarios! {
    a_fresh_turn_is_admitted_once
    d_31_admission_ids_go_on_and_a_restore_repeats_them
    p_38_a_continued_turn_asks_first
    p_51_a_refused_continued_turn_is_admitted_anew
    p_42_another_404_is_a_failed_admission
    d_24_admissions_that_fail_fault
    d_38_two_nudges_then_a_fault
    d_38_a_pick_that_moved_renews_the_nudges
    d_38_an_empty_menu_is_done
    d_05_a_wake_comes_when_a_pick_opens
    d_05_sixteen_wakes_then_a_fault
    h_32_a_fresh_runaway_is_rerolled_once
    h_32_continued_taskless_and_signalled_turns_are_not_rerolled
    p_46_a_restart_that_kept_the_conversation
    p_48_a_task_nobody_read_is_said_again
    p_47_a_restart_that_lost_the_conversation
    p_47_without_a_task_a_lost_conversation_faults
    n_73_a_refused_readmission_carries_the_task
    d_39_three_cuts_are_readmitted
    d_39_one_kernel_kill_is_readmitted
    d_39_a_kernel_kill_without_a_task_names_itself
    p_50_a_lost_conversation
    p_52_a_refused_nudge_is_a_turn_again
    p_52_refused_wakes_end
    p_26_the_epoch_is_raised_before_the_fault
    p_27_settlements_that_fault
    d_30_a_denied_wait_faults
    d_34_an_outstanding_pick_suspends
    d_34_a_cut_waits_for_the_route
    d_34_a_pick_answered_before_its_admission
    d_34_old_pick_answers_give_way
    d_34_an_answer_whose_submission_nobody_heard_of_is_said
    d_33_what_an_exit_must_abort
    answers_to_other_questions_are_ignored
    a_turn_in_a_workspace_reads_before_every_admission
}

mod run {
    use super::*;

    pub fn a_fresh_turn_is_admitted_once(recorder: &mut Recorder) {
        let mut drive = Drive::new(frame(), recorder);
        assert_eq!(drive.feed(TurnInput::Begin { held_before: true }), [TurnEffect::AwaitAborts]);
        drive.feed(TurnInput::AbortsClear);
        let sent = drive.sent();
        assert_eq!(sent.admission_id, "r/root/coder/0000000a#1");
        assert_eq!((sent.message.as_str(), sent.kept), ("fix the test", false));
        drive.taken();
        assert!(matches!(&drive.effects[..], [TurnEffect::Watch(watch)] if watch.offset == "2:0"));
    }

    pub fn d_31_admission_ids_go_on_and_a_restore_repeats_them(recorder: &mut Recorder) {
        let mut drive = Drive::new(continued(), recorder);
        drive.feed(TurnInput::Begin { held_before: false });
        drive.feed(TurnInput::Restored);
        drive.feed(TurnInput::AbortsClear);
        let first = drive.sent().clone();
        assert_eq!(first.admission_id, "r/root/coder#4");
        drive.feed(TurnInput::Restored);
        assert_eq!(drive.sent(), &first);
        drive.taken();
        drive.feed(TurnInput::Restored);
        drive.completed(&["done"]);
        assert_eq!(drive.sent().admission_id, "r/root/coder#5");
        assert_eq!(drive.turn.next_admission, 6);
    }

    pub fn p_38_a_continued_turn_asks_first(recorder: &mut Recorder) {
        for (held, kept) in [(true, true), (false, false)] {
            let mut drive = Drive::new(continued(), recorder);
            drive.feed(TurnInput::Begin { held_before: true });
            drive.feed(TurnInput::AbortsClear);
            assert!(matches!(&drive.effects[..], [TurnEffect::AskHeld { .. }]));
            drive.feed(TurnInput::Restored);
            drive.feed(TurnInput::Held(held));
            assert_eq!((drive.sent().message.as_str(), drive.sent().kept), ("fix the test", kept));
        }
    }

    pub fn p_51_a_refused_continued_turn_is_admitted_anew(recorder: &mut Recorder) {
        let mut drive = Drive::new(continued(), recorder);
        drive.feed(TurnInput::Begin { held_before: true });
        drive.feed(TurnInput::AbortsClear);
        drive.feed(TurnInput::Held(true));
        drive.refused(404, Some(false));
        let sent = drive.sent();
        assert_eq!((sent.admission_id.as_str(), sent.kept), ("r/root/coder#5", false));
        assert_eq!(sent.message, "fix the test");
        drive.refused(404, Some(false));
        assert_eq!(drive.fault(), "harness admission failed (404): coder: no");
    }

    pub fn p_42_another_404_is_a_failed_admission(recorder: &mut Recorder) {
        for (status, kept) in [(404, None), (404, Some(true)), (409, Some(false))] {
            let mut drive = Drive::new(continued(), recorder);
            drive.feed(TurnInput::Begin { held_before: true });
            drive.feed(TurnInput::AbortsClear);
            drive.feed(TurnInput::Held(true));
            drive.refused(status, kept);
            assert_eq!(drive.fault(), format!("harness admission failed ({status}): coder: no"));
        }
    }

    pub fn d_24_admissions_that_fail_fault(recorder: &mut Recorder) {
        let mut drive = Drive::new(frame(), recorder);
        drive.feed(TurnInput::Begin { held_before: false });
        drive.feed(TurnInput::AbortsClear);
        let (before, admission_id) = (drive.turn.clone(), drive.pending().admission_id.clone());
        drive.refused(400, None);
        assert_eq!(drive.fault(), "harness admission failed (400): coder: no");
        assert_eq!(drive.exit(), None);
        drive.rewind(&before);
        drive.feed(TurnInput::AdmitUnreachable { admission_id, detail: "x".repeat(9_000) });
        assert!(drive.fault().starts_with("harness admission failed: xxx"));
        assert_eq!(drive.fault().len(), faults::REASON_MAX_BYTES);
        assert!(drive.exit().is_some(), "it may have arrived");
    }

    pub fn d_38_two_nudges_then_a_fault(recorder: &mut Recorder) {
        let mut drive = Drive::waiting(frame(), recorder);
        for attempt in 1..=2 {
            drive.completed(&["a", "b"]);
            assert_eq!(drive.effects[0], TurnEffect::Say { attempt, reason: "no-signal nudge" });
            assert_eq!(drive.sent().message, prompts::nudge(&names(&["a", "b"])));
            assert!(drive.sent().kept);
            drive.taken();
        }
        drive.completed(&["a", "b"]);
        assert_eq!(drive.fault(), "agent completed its turn without calling any of: a, b");
    }

    pub fn d_38_a_pick_that_moved_renews_the_nudges(recorder: &mut Recorder) {
        let mut drive = Drive::waiting(frame(), recorder);
        for _ in 0..2 {
            drive.completed(&["a"]);
            drive.taken();
        }
        drive.pick("p1", false, false);
        assert_eq!(drive.turn.nudges, 2, "a pick that did not move is none");
        drive.pick("p2", true, false);
        drive.completed(&["a"]);
        assert_eq!(drive.effects[0], TurnEffect::Say { attempt: 1, reason: "no-signal nudge" });
    }

    pub fn d_38_an_empty_menu_is_done(recorder: &mut Recorder) {
        let mut drive = Drive::waiting(Frame { menu_empty: true, ..continued() }, recorder);
        let mut settlement = settlement(&drive.submission(), Outcome::Completed, None);
        settlement.text = Some("é".repeat(10_000));
        drive.feed(TurnInput::Settled { settlement, allowed: Vec::new() });
        assert!(matches!(&drive.effects[..], [TurnEffect::Done { text }] if text.len() == 16 << 10));
        assert!(drive.turn.is_over());
    }

    pub fn d_05_a_wake_comes_when_a_pick_opens(recorder: &mut Recorder) {
        let mut drive = Drive::waiting(frame(), recorder);
        drive.completed(&[]);
        assert_eq!((&drive.turn.phase, drive.effects.len()), (&Phase::Idle, 0));
        drive.feed(TurnInput::Allowed(Vec::new()));
        assert_eq!(drive.turn.phase, Phase::Idle);
        drive.feed(TurnInput::Allowed(names(&["a"])));
        assert_eq!((drive.sent().message.as_str(), drive.sent().kept), (prompts::WAKE, true));
        drive.taken();
        drive.completed(&["a"]);
        assert_eq!(drive.sent().message, prompts::nudge(&names(&["a"])));
    }

    pub fn d_05_sixteen_wakes_then_a_fault(recorder: &mut Recorder) {
        let mut drive = Drive::waiting(frame(), recorder);
        for _ in 0..16 {
            drive.completed(&[]);
            drive.feed(TurnInput::Allowed(names(&["a"])));
            drive.taken();
        }
        drive.completed(&[]);
        drive.feed(TurnInput::Allowed(names(&["a"])));
        assert_eq!(drive.fault(), "no pick taken after 16 wakes");
    }

    pub fn h_32_a_fresh_runaway_is_rerolled_once(recorder: &mut Recorder) {
        let mut drive = Drive::waiting(frame(), recorder);
        drive.failed("runaway", "exceeded 256 steps");
        assert_eq!(drive.effects[0], TurnEffect::Say { attempt: 1, reason: "runaway reroll" });
        assert_eq!(drive.sent().admission_id, "r/root/coder/0000000a-r1#2");
        assert_eq!((drive.sent().message.as_str(), drive.sent().kept), ("fix the test", false));
        drive.taken();
        drive.failed("runaway", "repeated an identical tool call 4 times");
        assert_eq!(drive.fault(), "submission settled failed: repeated an identical tool call 4 times");
    }

    pub fn h_32_continued_taskless_and_signalled_turns_are_not_rerolled(recorder: &mut Recorder) {
        for frame in [continued(), Frame { task: None, ..frame() }] {
            let mut drive = Drive::waiting(frame, recorder);
            drive.failed("runaway", "exceeded 256 steps");
            assert_eq!(drive.fault(), "submission settled failed: exceeded 256 steps");
        }
        let mut drive = Drive::waiting(frame(), recorder);
        drive.pick("p1", true, false);
        drive.failed("runaway", "exceeded 256 steps");
        drive.fault();
    }

    pub fn p_46_a_restart_that_kept_the_conversation(recorder: &mut Recorder) {
        let mut drive = Drive::waiting(frame(), recorder);
        drive.restarted(Some(true));
        assert_eq!(drive.effects, [TurnEffect::ReadLastEnd { since: NOW - LAST_END_SKEW_MS }]);
        assert_eq!(drive.exit(), None, "a settled Submission needs no abort");
        drive.feed(TurnInput::Restored);
        drive.feed(TurnInput::LastEnd(Some(last_end(false))));
        drive.feed(TurnInput::Held(true));
        assert_eq!((drive.sent().message.as_str(), drive.sent().kept), (prompts::READMIT_KEPT, true));
        drive.taken();
    }

    pub fn p_48_a_task_nobody_read_is_said_again(recorder: &mut Recorder) {
        let mut drive = Drive::waiting(frame(), recorder);
        let with_task = format!("{}\n\nfix the test", prompts::READMIT_KEPT);
        for _ in 0..2 {
            drive.restarted(Some(false));
            drive.feed(TurnInput::LastEnd(None));
            drive.feed(TurnInput::Held(true));
            assert_eq!(drive.sent().message, with_task);
            drive.taken();
        }
        drive.completed(&["a"]);
        drive.taken();
        drive.restarted(Some(false));
        drive.feed(TurnInput::LastEnd(None));
        drive.feed(TurnInput::Held(true));
        assert_eq!(drive.sent().message, prompts::READMIT_KEPT, "the unread nudge carried no task");
    }

    pub fn p_47_a_restart_that_lost_the_conversation(recorder: &mut Recorder) {
        let mut drive = Drive::waiting(frame(), recorder);
        drive.restarted(None);
        drive.feed(TurnInput::LastEnd(None));
        drive.feed(TurnInput::Held(false));
        assert_eq!(
            (drive.sent().message.as_str(), drive.sent().kept),
            (&*prompts::readmit_lost("fix the test"), false)
        );
    }

    pub fn p_47_without_a_task_a_lost_conversation_faults(recorder: &mut Recorder) {
        let mut drive = Drive::waiting(Frame { task: None, ..frame() }, recorder);
        drive.restarted(None);
        drive.feed(TurnInput::LastEnd(None));
        drive.feed(TurnInput::Held(false));
        assert_eq!(
            drive.fault(),
            "conversation lost: the harness holds this conversation no longer; the Turn has no task, so nothing could be \
             re-admitted"
        );
    }

    pub fn n_73_a_refused_readmission_carries_the_task(recorder: &mut Recorder) {
        let mut drive = Drive::waiting(frame(), recorder);
        drive.restarted(Some(true));
        drive.feed(TurnInput::LastEnd(None));
        drive.feed(TurnInput::Held(true));
        drive.refused(404, Some(false));
        assert_eq!(
            (drive.sent().message.as_str(), drive.sent().kept),
            (&*prompts::readmit_lost("fix the test"), false)
        );
        assert_eq!(drive.turn.readmissions, 1, "it is the same re-admission");
        let mut drive = Drive::waiting(Frame { task: None, ..frame() }, recorder);
        drive.restarted(Some(true));
        drive.feed(TurnInput::LastEnd(None));
        drive.feed(TurnInput::Held(true));
        drive.refused(404, Some(false));
        assert!(drive.fault().starts_with("conversation lost: "));
    }

    pub fn d_39_three_cuts_are_readmitted(recorder: &mut Recorder) {
        let mut drive = Drive::waiting(frame(), recorder);
        for attempt in 1..=3 {
            drive.restarted(Some(true));
            drive.feed(TurnInput::LastEnd(Some(ended(false, NOW + u64::from(attempt)))));
            assert_eq!(drive.effects[0], TurnEffect::Say { attempt, reason: "re-admission" });
            drive.feed(TurnInput::Held(true));
            drive.taken();
        }
        let before = drive.turn.clone();
        drive.restarted(Some(true));
        drive.feed(TurnInput::LastEnd(Some(ended(false, NOW + 9))));
        assert_eq!(drive.fault(), "Turn lost (Harness restarted: Error, exit 137) after 3 re-admissions");
        drive.rewind(&before);
        drive.restarted(Some(true));
        drive.feed(TurnInput::LastEnd(None));
        assert_eq!(drive.fault(), "Turn lost (Harness restarted: how it ended is unknown) after 3 re-admissions");
        drive.rewind(&before);
        drive.lost();
        drive.feed(TurnInput::LastEnd(None));
        assert!(drive.fault().ends_with("\", after 3 re-admissions"));
    }

    pub fn d_39_one_kernel_kill_is_readmitted(recorder: &mut Recorder) {
        let mut drive = Drive::waiting(frame(), recorder);
        drive.restarted(Some(true));
        drive.feed(TurnInput::LastEnd(Some(last_end(true))));
        drive.feed(TurnInput::Held(true));
        drive.taken();
        assert_eq!((drive.turn.readmissions, drive.turn.kernel_kills), (0, 1));
        drive.restarted(Some(true));
        drive.feed(TurnInput::LastEnd(Some(ended(true, NOW + 1))));
        assert_eq!(drive.fault(), faults::memory_limit(&last_end(true)));
    }

    pub fn d_39_a_kernel_kill_without_a_task_names_itself(recorder: &mut Recorder) {
        let mut drive = Drive::waiting(Frame { task: None, ..frame() }, recorder);
        drive.lost();
        drive.feed(TurnInput::LastEnd(Some(last_end(true))));
        assert_eq!(drive.fault(), faults::memory_limit(&last_end(true)));
        let mut drive = Drive::waiting(Frame { task: None, ..frame() }, recorder);
        drive.restarted(None);
        drive.feed(TurnInput::LastEnd(Some(last_end(true))));
        drive.feed(TurnInput::Held(true));
        drive.refused(404, Some(false));
        assert!(drive.fault().starts_with("memory limit"));
    }

    pub fn p_50_a_lost_conversation(recorder: &mut Recorder) {
        let mut drive = Drive::waiting(frame(), recorder);
        drive.lost();
        assert_eq!(drive.effects, [TurnEffect::ReadLastEnd { since: NOW - LAST_END_SKEW_MS }]);
        drive.feed(TurnInput::LastEnd(None));
        assert_eq!(
            (drive.sent().message.as_str(), drive.sent().kept),
            (&*prompts::readmit_lost("fix the test"), false)
        );
        let mut drive = Drive::waiting(Frame { task: None, ..frame() }, recorder);
        drive.lost();
        drive.feed(TurnInput::LastEnd(None));
        assert_eq!(
            drive.fault(),
            "conversation lost: the harness answered 404 for submission \"s-2-abcdef\"; the Turn has no task, so nothing \
             could be re-admitted"
        );
    }

    pub fn p_52_a_refused_nudge_is_a_turn_again(recorder: &mut Recorder) {
        let mut drive = Drive::waiting(frame(), recorder);
        drive.completed(&["a"]);
        drive.refused(404, Some(false));
        assert_eq!((drive.sent().message.as_str(), drive.sent().kept), ("fix the test", false));
        let mut drive = Drive::waiting(Frame { task: None, ..frame() }, recorder);
        drive.completed(&["a"]);
        drive.refused(404, Some(false));
        assert!(drive.fault().starts_with("conversation lost: "));
    }

    pub fn p_52_refused_wakes_end(recorder: &mut Recorder) {
        let mut drive = Drive::waiting(frame(), recorder);
        for _ in 0..3 {
            drive.completed(&[]);
            drive.feed(TurnInput::Allowed(names(&["a"])));
            drive.refused(404, Some(false));
            drive.taken();
        }
        drive.completed(&[]);
        drive.feed(TurnInput::Allowed(names(&["a"])));
        drive.refused(404, Some(false));
        assert!(drive.fault().ends_with(", after 3 re-admissions"));
    }

    pub fn p_26_the_epoch_is_raised_before_the_fault(recorder: &mut Recorder) {
        let mut drive = Drive::waiting(continued(), recorder);
        drive.failed("submission_failed", "the provider said no");
        let reason = "submission settled failed: the provider said no".to_owned();
        assert_eq!(drive.effects, [TurnEffect::RaiseEpoch, TurnEffect::Fault { reason }]);
    }

    pub fn p_27_settlements_that_fault(recorder: &mut Recorder) {
        for (message, reason) in [
            ("provider limit: quota", "provider limit: quota"),
            ("memory limit (x)", "memory limit (x)"),
            ("the Orchestrator never answered u: d", "submission settled failed: the Orchestrator never answered u: d"),
        ] {
            let mut drive = Drive::waiting(frame(), recorder);
            drive.failed("submission_failed", message);
            assert_eq!(drive.fault(), reason);
        }
        let mut drive = Drive::waiting(frame(), recorder);
        let settlement = settlement(&drive.submission(), Outcome::Aborted, None);
        drive.feed(TurnInput::Settled { settlement, allowed: Vec::new() });
        assert_eq!(drive.fault(), "submission settled aborted: no reason given");
    }

    pub fn d_30_a_denied_wait_faults(recorder: &mut Recorder) {
        let mut drive = Drive::waiting(frame(), recorder);
        let submission_id = drive.submission();
        drive.feed(TurnInput::Denied { submission_id, status: 401 });
        assert_eq!(drive.fault(), "submission wait denied (401) for submission \"s-2-abcdef\"");
        assert!(drive.exit().is_some(), "it may still run");
    }

    pub fn d_34_an_outstanding_pick_suspends(recorder: &mut Recorder) {
        let mut drive = Drive::waiting(frame(), recorder);
        drive.pick("p1", true, true);
        drive.completed(&["a"]);
        assert_eq!(drive.turn.phase, Phase::Idle);
        drive.feed(TurnInput::Allowed(names(&["a"])));
        assert_eq!(drive.turn.phase, Phase::Idle, "neither nudge nor wake while a pick is outstanding");
        let before = drive.turn.clone();
        drive.returned("p1", &["a"]);
        assert_eq!(drive.sent().message, prompts::nudge(&names(&["a"])));
        assert!(drive.turn.kept_answer("p1").unwrap().answered);
        drive.rewind(&before);
        drive.returned("p1", &[]);
        assert_eq!(drive.turn.phase, Phase::Idle);
        let mut drive = Drive::waiting(frame(), recorder);
        drive.pick("p1", true, true);
        drive.returned("p1", &["a"]);
        assert_eq!((&drive.turn.phase, &drive.turn.outstanding), (&Phase::Waiting, &None));
    }

    pub fn d_34_a_cut_waits_for_the_route(recorder: &mut Recorder) {
        for lost in [false, true] {
            let mut drive = Drive::waiting(frame(), recorder);
            drive.pick("p1", true, true);
            if lost {
                drive.lost();
            } else {
                drive.restarted(Some(true));
            }
            assert!(matches!(drive.turn.phase, Phase::Held { .. }));
            drive.returned("other", &["a"]);
            assert!(matches!(drive.turn.phase, Phase::Held { .. }));
            drive.returned("p1", &["a"]);
            assert_eq!(drive.effects, [TurnEffect::ReadLastEnd { since: NOW - LAST_END_SKEW_MS }]);
        }
    }

    pub fn d_34_a_pick_answered_before_its_admission(recorder: &mut Recorder) {
        let mut drive = Drive::new(frame(), recorder);
        drive.pick("stale", true, false);
        assert!(drive.turn.picks.is_empty(), "nothing of this Turn was admitted yet");
        drive.feed(TurnInput::Begin { held_before: false });
        drive.feed(TurnInput::AbortsClear);
        drive.pick("p1", true, true);
        drive.pick("p1", false, false);
        assert!(drive.turn.kept_answer("p1").unwrap().outstanding, "the first answer stands");
        drive.returned("p1", &["a"]);
        assert!(matches!(drive.turn.phase, Phase::Admitting { .. }));
        drive.taken();
    }

    pub fn d_34_an_answer_whose_submission_nobody_heard_of_is_said(recorder: &mut Recorder) {
        for (returns_first, pick, said) in [(true, "dead/c1", 1), (false, "dead/c1", 1), (true, "keyless", 0)] {
            let mut drive = Drive::new(continued(), recorder);
            drive.feed(TurnInput::Begin { held_before: false });
            drive.feed(TurnInput::AbortsClear);
            drive.pick(pick, true, true);
            if returns_first {
                drive.returned(pick, &["a"]);
            }
            // The conversation was lost with the call: the admission that was sent again is another Submission.
            drive.taken();
            if !returns_first {
                drive.returned(pick, &["a"]);
            }
            let cut = |p: &Pending| matches!(&p.notice, Notice::PickAnswer { cut, .. } if cut == "restarted");
            assert_eq!(drive.ledger.pending.iter().filter(|p| cut(p)).count(), said, "{pick} {returns_first}");
        }
        let mut drive = Drive::new(continued(), recorder);
        drive.feed(TurnInput::Begin { held_before: false });
        drive.feed(TurnInput::AbortsClear);
        let own = format!("s-{}-abcdef/c1", drive.turn.next_admission);
        drive.pick(&own, true, true);
        drive.returned(&own, &["a"]);
        drive.taken();
        assert!(drive.ledger.pending.is_empty(), "its call has the answer");
    }

    pub fn d_34_old_pick_answers_give_way(recorder: &mut Recorder) {
        let mut drive = Drive::waiting(frame(), recorder);
        drive.pick("asks", true, true);
        for n in 0..PICKS_KEPT_MAX {
            drive.pick(&format!("p{n}"), false, false);
        }
        assert_eq!(drive.turn.picks.len(), PICKS_KEPT_MAX);
        assert!(drive.turn.kept_answer("asks").is_some() && drive.turn.kept_answer("p0").is_none());
    }

    pub fn d_33_what_an_exit_must_abort(recorder: &mut Recorder) {
        let mut drive = Drive::new(frame(), recorder);
        drive.feed(TurnInput::Begin { held_before: false });
        assert_eq!(drive.exit(), None);
        drive.feed(TurnInput::AbortsClear);
        assert_eq!(drive.exit().unwrap().up_to, "r/root/coder/0000000a#1", "its POST may have left");
        drive.taken();
        assert_eq!(drive.exit().unwrap().up_to, "r/root/coder/0000000a#1");
        drive.failed("runaway", "exceeded 256 steps");
        let abort = drive.exit().unwrap();
        assert_eq!((abort.iid.as_str(), abort.agent.as_str()), ("r/root/coder/0000000a-r1", "coder"));
        drive.taken();
        drive.completed(&[]);
        assert_eq!(drive.exit(), None);
    }

    pub fn answers_to_other_questions_are_ignored(recorder: &mut Recorder) {
        let mut drive = Drive::waiting(frame(), recorder);
        let before = drive.turn.clone();
        drive.feed(TurnInput::ConversationLost { submission_id: "s-9-other".into() });
        drive.feed(TurnInput::Denied { submission_id: "s-9-other".into(), status: 403 });
        let settlement = settlement("s-9-other", Outcome::Completed, None);
        drive.feed(TurnInput::Settled { settlement, allowed: names(&["a"]) });
        drive.feed(TurnInput::AdmitUnreachable { admission_id: "x#1".into(), detail: String::new() });
        drive.feed(TurnInput::Held(false));
        drive.feed(TurnInput::LastEnd(None));
        drive.feed(TurnInput::AbortsClear);
        drive.feed(TurnInput::Allowed(names(&["a"])));
        assert_eq!((&drive.turn, drive.effects.len()), (&before, 0));
    }

    pub fn a_turn_in_a_workspace_reads_before_every_admission(recorder: &mut Recorder) {
        let read = || TurnInput::Read { kills: Some(Vec::new()), last_end: None };
        let mut drive = Drive::new(seated(), recorder);
        drive.feed(TurnInput::Begin { held_before: false });
        drive.feed(TurnInput::AbortsClear);
        assert_eq!(drive.effects, [TurnEffect::ReadKills]);
        drive.feed(TurnInput::Restored);
        drive.feed(read());
        drive.feed(TurnInput::SurfaceRead);
        drive.taken();
        drive.feed(TurnInput::SurfaceRead);
        let kill = |id: &str| TurnInput::StreamKill {
            submission_id: "s-2-abcdef".into(),
            id: Some(id.into()),
            position: jr2_shared::harness::Position { batch: 1, index: 0 },
            peak: None,
            limit: None,
        };
        drive.feed(kill("k1"));
        drive.completed(&["a"]);
        assert_eq!(drive.effects.last(), Some(&TurnEffect::ReadKills), "a nudge");
        drive.feed(read());
        drive.refused(404, Some(false));
        assert_eq!(drive.effects, [TurnEffect::ReadKills], "a refused nudge");
        drive.feed(read());
        drive.taken();
        drive.completed(&[]);
        drive.feed(TurnInput::Allowed(names(&["a"])));
        assert_eq!(drive.effects, [TurnEffect::ReadKills], "a wake");
        drive.feed(read());
        drive.taken();
        drive.feed(TurnInput::SurfaceRead);
        drive.pick("p1", true, true);
        drive.completed(&["a"]);
        drive.returned("p1", &["a"]);
        assert_eq!(drive.effects.last(), Some(&TurnEffect::ReadKills), "a nudge after a route");
        drive.feed(read());
        drive.taken();
        drive.restarted(Some(true));
        drive.feed(TurnInput::LastEnd(None));
        drive.feed(TurnInput::Held(true));
        assert_eq!(drive.effects, [TurnEffect::ReadKills], "a re-admission");
        drive.feed(read());
        drive.taken();
        drive.lost();
        drive.feed(TurnInput::LastEnd(None));
        assert_eq!(drive.effects.last(), Some(&TurnEffect::ReadKills), "a lost conversation");
    }
}
