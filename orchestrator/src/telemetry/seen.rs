//! What one save brought, from the rows before and after it. Pure.

use crate::run::core::Input;
use crate::run::{Actor, FeedEntry, FeedKind, InvokedKind, Row, Status};
use crate::turn::{Turn, TurnInput};
use jr2_shared::harness::{Outcome, Settlement, error_type};
use jr2_shared::notice::Notice;
use serde_json::Value;
use std::collections::BTreeMap;

/// Where a notice went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NoticeState {
    /// It waits for an admission.
    Raised,
    /// An answered admission carried it.
    Delivered,
    /// It was carried and not read: it waits again.
    Returned,
    /// Nobody can hear it any more.
    Dropped,
}

/// One thing worth counting.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen {
    /// A run began.
    RunBegan {
        /// Its workflow.
        workflow: String,
    },
    /// A run ended.
    RunEnded {
        /// Its workflow.
        workflow: String,
        /// How.
        status: Status,
        /// From when, in wall milliseconds.
        began: u64,
        /// To when.
        ended: u64,
        /// Why, when it did not end well.
        reason: Option<String>,
    },
    /// A Turn began.
    TurnBegan,
    /// A Turn ended.
    TurnEnded {
        /// Its invocation.
        serial: u64,
        /// Its Agent.
        agent: String,
        /// Its conversation.
        iid: String,
        /// From when, in wall milliseconds.
        began: u64,
        /// To when.
        ended: u64,
        /// It faulted, or its state was left under it, or it is done.
        outcome: &'static str,
    },
    /// A Submission settled.
    Settled {
        /// How.
        outcome: &'static str,
        /// One of the wire's error types, or `none` or `other`.
        error: &'static str,
    },
    /// A Turn was nudged.
    Nudge,
    /// A Turn was woken.
    Wake,
    /// A Turn was rerolled.
    Reroll,
    /// A Turn was admitted again after a cut.
    Readmission,
    /// The kernel killed the Harness under a Turn.
    KernelKill,
    /// An Agent's pick was taken: `moved`, `stays`, `asks` or, later, `answered`.
    Pick(&'static str),
    /// Notices of a kind changed their state.
    Notices {
        /// The kind, as on the wire.
        kind: &'static str,
        /// Where they are now.
        state: NoticeState,
        /// How many.
        count: u64,
    },
    /// So many more notices wait, or fewer.
    Pending(i64),
}

/// What a save brought.
pub fn seen(before: &Row, after: &Row, input: &Input, feed: &[FeedEntry]) -> Vec<Seen> {
    let mut all = Vec::new();
    if matches!(input, Input::Start) {
        all.push(Seen::RunBegan { workflow: after.workflow.clone() });
    }
    turns(before, after, matches!(input, Input::Pick { .. }), &mut all);
    if let Input::Turn { input: TurnInput::Settled { settlement, .. }, .. } = input {
        all.push(settled(settlement));
    }
    all.extend(feed.iter().filter(|entry| entry.kind == FeedKind::Pick).map(|entry| Seen::Pick(pick(&entry.data))));
    notices(before, after, input, &mut all);
    if !before.status.is_ended() && after.status.is_ended() {
        let reason = if after.status == Status::Done { None } else { after.reason.clone() };
        all.push(Seen::RunEnded {
            workflow: after.workflow.clone(),
            status: after.status,
            began: after.started,
            ended: after.ended.unwrap_or(after.clock),
            reason,
        });
    }
    all
}

/// What became of a pick, by its feed entry.
fn pick(data: &Value) -> &'static str {
    let is = |name: &str| data[name] == true;
    match (is("answered"), is("outstanding"), is("moved")) {
        (true, ..) => "answered",
        (_, true, _) => "asks",
        (.., true) => "moved",
        _ => "stays",
    }
}

fn settled(settlement: &Settlement) -> Seen {
    let outcome = match settlement.outcome {
        Outcome::Completed => "completed",
        Outcome::Failed => "failed",
        Outcome::Aborted => "aborted",
    };
    let known = [error_type::ABORTED, error_type::FAILED, error_type::RUNAWAY, error_type::HARNESS_RESTARTED];
    let error = match &settlement.error {
        None => "none",
        // A Harness's own words would make as many series as it likes.
        Some(error) => known.into_iter().find(|kind| *kind == error.kind).unwrap_or("other"),
    };
    Seen::Settled { outcome, error }
}

fn turns(before: &Row, after: &Row, picked: bool, all: &mut Vec<Seen>) {
    let (old, new) = (turns_of(&before.root), turns_of(&after.root));
    for (serial, turn) in &new {
        match old.get(serial) {
            None => all.push(Seen::TurnBegan),
            Some(earlier) => changes(earlier, turn, all),
        }
    }
    let over = |turn: Option<&&Turn>| turn.is_none_or(|turn| turn.is_over());
    for (serial, turn) in old.iter().filter(|(serial, turn)| !turn.is_over() && over(new.get(serial))) {
        // Gone with its state, or still there and over by itself.
        let outcome = if new.contains_key(serial) {
            "ended"
        } else if turn.moved || picked {
            "left"
        } else {
            "cut"
        };
        let now = new.get(serial).unwrap_or(turn);
        all.push(Seen::TurnEnded {
            serial: *serial,
            agent: turn.frame.agent.clone(),
            iid: now.iid.0.clone(),
            began: turn.started,
            ended: after.clock,
            outcome,
        });
    }
}

fn changes(old: &Turn, new: &Turn, all: &mut Vec<Seen>) {
    let counters = [
        (old.nudges, new.nudges, Seen::Nudge),
        (old.wakes, new.wakes, Seen::Wake),
        (old.rerolls, new.rerolls, Seen::Reroll),
        (old.readmissions, new.readmissions, Seen::Readmission),
        (old.kernel_kills, new.kernel_kills, Seen::KernelKill),
    ];
    for (was, is, what) in counters {
        all.extend((was..is).map(|_| what.clone()));
    }
}

/// Every Turn of a run by its invocation's number.
fn turns_of(actor: &Actor) -> BTreeMap<u64, &Turn> {
    let mut found = BTreeMap::new();
    let mut actors = vec![actor];
    while let Some(actor) = actors.pop() {
        for invoked in actor.invoked.values() {
            match &invoked.kind {
                InvokedKind::Agent(turn) => {
                    found.insert(invoked.serial, &**turn);
                }
                InvokedKind::Run(child) => actors.push(child),
                _ => {}
            }
        }
    }
    found
}

fn notices(before: &Row, after: &Row, input: &Input, all: &mut Vec<Seen>) {
    let by_number = |row: &Row| -> BTreeMap<u64, &'static str> {
        row.ledger.pending.iter().map(|p| (p.n, kind(&p.notice))).collect()
    };
    let (old, new) = (by_number(before), by_number(after));
    let mut counts: BTreeMap<(&'static str, u8), u64> = BTreeMap::new();
    for (n, kind) in new.iter().filter(|(n, _)| !old.contains_key(n)) {
        *counts.entry((kind, u8::from(*n <= before.ledger.raised))).or_default() += 1;
    }
    let delivering = matches!(input, Input::Turn { input: TurnInput::Admitted { .. }, .. });
    for (_, kind) in old.iter().filter(|(n, _)| !new.contains_key(n)) {
        *counts.entry((kind, if delivering { 2 } else { 3 })).or_default() += 1;
    }
    let states = [NoticeState::Raised, NoticeState::Returned, NoticeState::Delivered, NoticeState::Dropped];
    for ((kind, state), count) in counts {
        all.push(Seen::Notices { kind, state: states[usize::from(state)], count });
    }
    if new.len() != old.len() {
        all.push(Seen::Pending(new.len() as i64 - old.len() as i64));
    }
}

fn kind(notice: &Notice) -> &'static str {
    match notice {
        Notice::MemoryLimit { .. } => "memory-limit",
        Notice::ConversationNew { .. } => "conversation-new",
        Notice::PickAnswer { .. } => "pick-answer",
    }
}
