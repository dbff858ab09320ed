//! What a notice is (spec 9.1) and how it is bounded.

use super::*;
use jr2_shared::notice::{NOTICES_MAX, TURN_PART_MAX_BYTES};

scenarios! {
    n_01_a_pending_notice_survives_json_with_nothing_lost
    n_02_a_delivered_notice_leaves_pending_and_stays_seen
    n_11_an_admission_takes_at_most_32_notices_and_16_kib_oldest_first
    n_16_two_kills_of_equal_sizes_keep_two_entries
}

mod run {
    use super::*;

    pub fn n_01_a_pending_notice_survives_json_with_nothing_lost(_: &mut Recorder) {
        let mut ledger = Ledger::default();
        let hearers =
            [To::Workspace("ws-1".into()), To::Conversation("r/root/coder".into()), To::Turn("r/root/coder/0a".into())];
        let sources = [
            None,
            Some(Source::Kill("ws-1".into(), "k1".into())),
            Some(Source::Place("r/root/coder".into(), 1, 2)),
            Some(Source::End("ws-1".into(), 7)),
            Some(Source::Pick("r/root/coder".into(), "d1".into())),
        ];
        for (n, to) in hearers.iter().enumerate() {
            for source in &sources {
                let source = source.clone().filter(|_| n == 0);
                ledger.raise(Notice::memory_limit(Some("c".into()), Some("2Gi".into()), None), to.clone(), source);
            }
        }
        let answer = Notice::PickAnswer { pick: "ask".into(), cut: "left".into(), answer: None, stopped: Some(true) };
        ledger.raise(answer, hearers[1].clone(), None);
        ledger.take("r/root/coder#1", |p| matches!(p.to, To::Workspace(_)));
        let json = serde_json::to_string(&ledger).unwrap();
        assert_eq!(serde_json::from_str::<Ledger>(&json).unwrap(), ledger);
        assert_eq!((ledger.pending.len(), ledger.seen.len()), (8, 4));
    }

    pub fn n_02_a_delivered_notice_leaves_pending_and_stays_seen(recorder: &mut Recorder) {
        let drive = Drive::admitted(seated(), &List::of(&[1]), recorder);
        assert!(drive.ledger.pending.is_empty());
        assert!(drive.ledger.seen.contains(&Source::Kill("ws-1".into(), "k1".into())));
    }

    pub fn n_11_an_admission_takes_at_most_32_notices_and_16_kib_oldest_first(recorder: &mut Recorder) {
        let mut drive = Drive::working(seated(), &List::default(), recorder);
        for n in 0..40 {
            drive.stream(n);
        }
        drive.leave();
        drive.begin(later(), &List::default());
        let says = drive.says();
        assert_eq!((says.len(), &*says[0], &*says[31]), (NOTICES_MAX, "coder 1.0Gi", "coder 1.31Gi"));
        assert_eq!(drive.waits().len(), 8, "the rest waits");
        let mut ledger = Ledger::default();
        for n in 0..4 {
            let reason = format!("{n}{}", "x".repeat(TURN_PART_MAX_BYTES / 3));
            ledger.raise(Notice::ConversationNew { reason }, To::Conversation("c".into()), None);
        }
        assert_eq!(ledger.take("c#1", |_| true).len(), 2);
        assert_eq!(ledger.take("c#2", |_| true).len(), 2);
    }

    pub fn n_16_two_kills_of_equal_sizes_keep_two_entries(recorder: &mut Recorder) {
        let mut drive = Drive::working(seated(), &List::default(), recorder);
        for id in ["k1", "k2"] {
            let input = stream_kill_of(&drive.submission(), Some(id.into()), 0, Some("1.9Gi".into()));
            drive.feed(input);
        }
        drive.leave();
        drive.begin(later(), &List::default());
        assert_eq!(drive.says(), ["coder 1.9Gi", "coder 1.9Gi"], "the Harness says it once");
        assert_ne!(drive.sent().notices[0].id, drive.sent().notices[1].id);
    }
}
