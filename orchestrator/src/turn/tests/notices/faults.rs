//! Faults that users of such systems reported in public, as far as the Turn and the ledger exclude them. Each names the
//! report it came from; `docs/notices.md` says where the others are excluded.

use super::*;
use jr2_shared::prompts;

scenarios! {
    a01_the_cause_of_a_memory_kill_is_in_the_row
    a03_an_end_whose_cause_is_not_known_is_neither_claimed_nor_denied
    a04_a_memory_fault_says_what_to_do
    a05_the_next_model_call_hears_that_processes_died
    a08_a_memory_kill_is_a_fault_and_not_a_wait
    a10_cuts_are_bounded_and_each_is_said
    a17_one_notice_a_kill_and_not_one_a_poll
    b01_a_restart_leaves_no_submission_in_flight_for_ever
    b02_a_replaced_sandbox_is_told_and_given_its_task
    b03_an_idle_conversation_that_was_dropped_is_called_new
    b06_a_conversation_that_was_reserved_and_never_stored_begins_anew
    c01_a_crash_between_sending_and_saving_says_it_once
    c02_thirteen_reports_of_one_kill_are_one_notice
    c03_what_an_admission_claims_is_durable_before_it_leaves
    c05_two_paths_carry_one_id
    c06_a_notice_keeps_its_id_when_it_is_sent_again
    c08_a_repeat_is_a_quiet_nothing
}

mod run {
    use super::*;

    fn killed_once(drive: &mut Drive<'_>, at: u64, held: bool) {
        drive.restarted(Some(true));
        drive.feed(TurnInput::LastEnd(Some(ended(true, at))));
        if !drive.turn.is_over() {
            drive.feed(TurnInput::Held(held));
            drive.feed(List::default().read_after(ended(true, at)));
        }
    }

    /// paradigmxyz/centaur#1454, OpenHands/OpenHands#5956: killed for memory, shown as any other death.
    pub fn a01_the_cause_of_a_memory_kill_is_in_the_row(recorder: &mut Recorder) {
        let mut drive = Drive::working(seated(), &List::default(), recorder);
        for at in [NOW, NOW + 1] {
            killed_once(&mut drive, at, true);
            if !drive.turn.is_over() {
                drive.taken_and_read();
            }
        }
        assert!(drive.fault().starts_with("memory limit (OOMKilled, limit 2Gi)"));
        drive.leave();
        let row = serde_json::to_string(&drive.ledger).unwrap();
        assert!(row.contains(r#""kind":"memory-limit","agent":"coder","limit":"2Gi""#), "{row}");
    }

    /// decocms/studio#6059, kata-containers/kata-containers#8821: "not known" was shown as "not memory".
    pub fn a03_an_end_whose_cause_is_not_known_is_neither_claimed_nor_denied(recorder: &mut Recorder) {
        let unknown =
            |at| LastEnd { oom: None, reason: "the Harness was ended by signal 9".into(), ..ended(false, at) };
        let mut drive = Drive::working(seated(), &List::default(), recorder);
        for n in 0..4 {
            drive.restarted(Some(true));
            drive.feed(TurnInput::LastEnd(Some(unknown(NOW + n))));
            if drive.turn.is_over() {
                break;
            }
            drive.feed(TurnInput::Held(true));
            drive.feed(List::default().read_after(unknown(NOW + n)));
            assert!(drive.says().is_empty());
            drive.taken_and_read();
        }
        let reason = drive.fault();
        assert!(
            reason.contains("signal 9, exit 137") && !reason.contains("memory") && !reason.contains("OOM"),
            "{reason}"
        );
    }

    /// dam-agents/dam#327: agents restarted silently and nobody was told a way out.
    pub fn a04_a_memory_fault_says_what_to_do(recorder: &mut Recorder) {
        let mut drive = Drive::working(Frame { task: None, ..seated() }, &List::default(), recorder);
        drive.lost();
        drive.feed(TurnInput::LastEnd(Some(last_end(true))));
        assert!(drive.fault().contains("Use fewer workers, or give the Workspace a larger Size"));
    }

    /// METR/inspect-action#248: the run went on in a half-reset box and the model was not told.
    pub fn a05_the_next_model_call_hears_that_processes_died(recorder: &mut Recorder) {
        for held in [true, false] {
            let mut drive = Drive::working(seated(), &List::default(), recorder);
            killed_once(&mut drive, NOW, held);
            assert!(drive.says().contains(&"kernel".to_owned()));
        }
    }

    /// OpenHands/OpenHands-Cloud#159: after a memory kill the agent was "awaiting user input".
    pub fn a08_a_memory_kill_is_a_fault_and_not_a_wait(recorder: &mut Recorder) {
        let mut drive = Drive::working(seated(), &List::default(), recorder);
        killed_once(&mut drive, NOW, true);
        drive.taken_and_read();
        assert_eq!(drive.turn.phase, Phase::Waiting);
        killed_once(&mut drive, NOW + 1, true);
        assert!(drive.fault().starts_with("memory limit"));
    }

    /// OpenHands/OpenHands#7306: endless retries, the agent not told. Ours are bounded for the Turn, good steps or not.
    pub fn a10_cuts_are_bounded_and_each_is_said(recorder: &mut Recorder) {
        let mut drive = Drive::working(seated(), &List::default(), recorder);
        for _ in 0..READMISSIONS_MAX {
            drive.cut(Some(true), true, &List::default());
            assert_eq!(drive.sent().message, prompts::READMIT_KEPT);
            drive.taken_and_read();
        }
        drive.restarted(Some(true));
        drive.feed(TurnInput::LastEnd(None));
        assert!(drive.fault().starts_with("Turn lost"));
    }

    /// kubernetes/kubernetes#98157: a container that loops; one notice for each end, however often it is read.
    pub fn a17_one_notice_a_kill_and_not_one_a_poll(recorder: &mut Recorder) {
        let mut drive = Drive::working(seated(), &List::default(), recorder);
        for n in 0..21 {
            drive.completed(&[]);
            drive.feed(TurnInput::Allowed(names(&["a"])));
            drive.feed(List::default().read_after(ended(true, NOW + n / 7)));
            if n == 15 {
                break; // the Turn's wakes are over
            }
            drive.taken_and_read();
        }
        assert_eq!((drive.waits().len(), drive.ledger.raised), (3, 3));
    }

    /// kagent-dev/kagent#2600: after a restart "already being processed, reconnecting" for ever.
    pub fn b01_a_restart_leaves_no_submission_in_flight_for_ever(recorder: &mut Recorder) {
        let mut drive = Drive::new(seated(), recorder);
        drive.begin(seated(), &List::default());
        let sent = drive.sent().clone();
        drive.feed(TurnInput::Restored);
        assert_eq!(drive.sent(), &sent);
        drive.taken();
        drive.feed(TurnInput::Restored);
        assert!(matches!(&drive.effects[..], [TurnEffect::Watch(_)]));
        // What it waited for is known nowhere any more: the task goes out again.
        drive.lost();
        drive.feed(TurnInput::LastEnd(None));
        drive.read(&List::default());
        assert_eq!(drive.sent().message, prompts::readmit_lost("fix the test"));
    }

    /// ColeMurray/background-agents#997: the people saw the whole history, the model had none and was not told.
    pub fn b02_a_replaced_sandbox_is_told_and_given_its_task(recorder: &mut Recorder) {
        let mut drive = Drive::working(standing(), &List::default(), recorder);
        drive.lost();
        drive.feed(TurnInput::LastEnd(None));
        drive.read(&List::default());
        assert_eq!((drive.says(), drive.sent().kept), (vec![GONE.to_owned()], false));
        assert!(drive.sent().message.ends_with("fix the test"));
    }

    /// langwatch/tasks#342: an idle conversation was reaped, the next answer was amnesia.
    pub fn b03_an_idle_conversation_that_was_dropped_is_called_new(recorder: &mut Recorder) {
        let mut drive = Drive::working(standing(), &List::default(), recorder);
        drive.leave();
        drive.begin_held(false, &List::default());
        assert_eq!((drive.says(), drive.sent().message.as_str()), (vec![GONE.to_owned()], "fix the test"));
    }

    /// Untrivial-ai/agent-orchestrator#3902: an id was reserved, nothing was stored, every resume failed for ever.
    pub fn b06_a_conversation_that_was_reserved_and_never_stored_begins_anew(recorder: &mut Recorder) {
        let mut drive = Drive::new(standing(), recorder);
        drive.begin(standing(), &List::default());
        drive.leave(); // its POST never arrived
        for held in [false, true] {
            drive.begin_held(held, &List::default());
            if held {
                drive.refused(404, Some(false)); // "held" was a guess: the Harness did not answer in time
                drive.read(&List::default());
            }
            assert_eq!((drive.sent().message.as_str(), drive.sent().kept), ("fix the test", false));
            drive.leave();
        }
    }

    /// bastani-inc/atomic#2722: visible before its receipt was durable, so a crash sent it again.
    pub fn c01_a_crash_between_sending_and_saving_says_it_once(recorder: &mut Recorder) {
        let mut drive = Drive::new(seated(), recorder);
        drive.begin(seated(), &List::of(&[1]));
        let first = drive.sent().clone();
        // The Harness has it; the process dies before the answer is saved, and sends again.
        drive.feed(TurnInput::Restored);
        assert_eq!(drive.sent(), &first, "the same id, so the Harness seats nothing");
        let answer = AdmitAnswer {
            stream_url: "/agents/coder/x".into(),
            offset: "0:0".into(),
            submission_id: "s-1-abcdef".into(),
            carried: Some(first.notices.iter().filter_map(|one| one.id.clone()).collect()),
        };
        drive.feed(TurnInput::Admitted { admission_id: first.admission_id, answer });
        drive.surface_read();
        drive.leave();
        drive.begin(later(), &List::of(&[1]));
        assert!(drive.says().is_empty());
    }

    /// asheshgoplani/agent-deck#824: thirteen identical lines in the inbox.
    pub fn c02_thirteen_reports_of_one_kill_are_one_notice(recorder: &mut Recorder) {
        let mut drive = Drive::working(seated(), &List::default(), recorder);
        for _ in 0..13 {
            drive.stream(1);
        }
        for _ in 0..13 {
            drive.leave();
            drive.begin(later(), &List::of(&[1]));
        }
        assert_eq!(drive.ledger.raised, 1);
    }

    /// MervinPraison/PraisonAI#4208: the dedupe set lived in memory.
    pub fn c03_what_an_admission_claims_is_durable_before_it_leaves(recorder: &mut Recorder) {
        let mut drive = Drive::new(seated(), recorder);
        drive.begin(seated(), &List::of(&[1]));
        // What is saved before the effect leaves names the admission, what it reserves and what was seen.
        let row = serde_json::to_string(&(&drive.turn, &drive.ledger)).unwrap();
        let (turn, ledger): (Turn, Ledger) = serde_json::from_str(&row).unwrap();
        assert!(
            matches!(&turn.phase, Phase::Admitting { pending } if pending.admission_id == drive.sent().admission_id)
        );
        assert_eq!(ledger.reserved(&drive.sent().admission_id), drive.sent().notices);
        assert_eq!(ledger.seen.len(), 1);
    }

    /// aasc77/multi-agent-system-shell#34: pushed and pulled without an id, delivered twice.
    pub fn c05_two_paths_carry_one_id(recorder: &mut Recorder) {
        let mut drive = Drive::working(seated(), &List::default(), recorder);
        drive.stream(1);
        drive.nudged(&List::of(&[1]));
        assert_eq!(drive.says(), ["coder 1.1Gi"]);
        drive.taken_and_read();
        drive.stream(1);
        assert!(drive.waits().is_empty());
    }

    /// garamsh/gagent#493: a redelivery got a new id and could not be recognised.
    pub fn c06_a_notice_keeps_its_id_when_it_is_sent_again(recorder: &mut Recorder) {
        let mut drive = Drive::new(seated(), recorder);
        drive.begin(seated(), &List::of(&[1]));
        let id = drive.sent().notices[0].id.clone();
        drive.taken();
        drive.leave();
        drive.begin(later(), &List::of(&[1]));
        assert_eq!((drive.sent().notices[0].id.clone(), id), (Some("n1".into()), Some("n1".into())));
    }

    /// eclipse-dirigible/dirigible#6852: a normal redelivery was an error in the log.
    pub fn c08_a_repeat_is_a_quiet_nothing(recorder: &mut Recorder) {
        let mut drive = Drive::working(seated(), &List::default(), recorder);
        drive.stream(1);
        let before = (drive.turn.clone(), drive.ledger.clone());
        drive.stream(1);
        drive.surface_read();
        assert_eq!((&drive.turn, &drive.ledger, drive.effects.len()), (&before.0, &before.1, 0));
    }
}
