//! One rule taken away at a time: each must turn the checker red, or the checker does not look at that rule.

use jr2_orchestrator::run::{Actor, InvokedKind, Row};
use jr2_orchestrator::turn::{Phase, Source, Turn};

/// A rule that is broken on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Mutant {
    /// The ledger forgets what was seen (spec N-19).
    NoSeen,
    /// An admission reserves nothing (spec N-11).
    NoReserve,
    /// What was not heard is not raised again (spec N-57).
    NoRaiseAgain,
    /// A delivered notice stays pending (spec N-13).
    NoDelivery,
    /// A surface read is not remembered: everything counts as unread (spec N-57).
    NoHeard,
    /// Everything counts as read the moment it is admitted (spec N-58).
    AlwaysHeard,
    /// A settlement's `prompted: false` is not believed (decision 32).
    NoPrompted,
    /// An abort's answer does not say what was never prompted (decision 32).
    NoUnprompted,
    /// The Harness seats an admission that it holds already (decision 31).
    NoAdmissionIds,
    /// A re-prompt does not look at `told` (spec N-52).
    NoTold,
    /// A re-prompt does not look at the Turn's mark (spec N-54).
    NoMark,
    /// A lost conversation's notices are not raised again (spec N-66).
    NoRaiseAfterLoss,
    /// The refusal of `kept: true` is not made: a new conversation is seated (spec N-72).
    NoKept,
    /// The answer of a pick whose call was cut is dropped at the cut (decision 34).
    AnswerDropped,
    /// An answer that was said with a re-admission stays due (decision 34).
    AnswerTwice,
    /// The Harness leaves out the receipt that an admission carries (decision 34).
    NoReceipt,
    /// A pick that asks is outstanding no more (decision 34): other picks, nudges and re-admissions go on beside it.
    NoOutstanding,
    /// A state that is left leaves no pick's answer for later (spec P-34, P-35).
    NoPickAnswer,
}

impl Mutant {
    /// Changes the row after an input was taken.
    pub fn change(self, before: &Row, row: &mut Row) {
        match self {
            Self::NoSeen => row.ledger.seen.clear(),
            Self::NoReserve => row.ledger.pending.iter_mut().for_each(|p| p.reserved = None),
            Self::NoRaiseAgain | Self::NoRaiseAfterLoss => {
                let known = |n: u64| before.ledger.pending.iter().any(|p| p.n == n) || n > before.ledger.raised;
                let loss = turns(&row.root).iter().any(|t| lost(t));
                if self == Self::NoRaiseAgain || loss {
                    row.ledger.pending.retain(|p| known(p.n));
                }
            }
            Self::NoDelivery => {
                let gone = before.ledger.pending.iter().filter(|p| p.reserved.is_some());
                let mut back: Vec<_> =
                    gone.filter(|p| row.ledger.pending.iter().all(|now| now.n != p.n)).cloned().collect();
                for pending in &mut back {
                    pending.reserved = None;
                }
                row.ledger.raise_again(back);
            }
            Self::NoHeard => each_turn(&mut row.root, &mut |turn| turn.carried.iter_mut().for_each(|c| c.read = false)),
            Self::AlwaysHeard => {
                each_turn(&mut row.root, &mut |turn| turn.carried.iter_mut().for_each(|c| c.read = true));
            }
            Self::NoMark => each_turn(&mut row.root, &mut |turn| {
                if turn.mark.is_some() {
                    turn.mark = Some(jr2_orchestrator::turn::Mark::None);
                }
            }),
            Self::AnswerDropped => each_turn(&mut row.root, &mut |turn| turn.receipt_due = None),
            Self::AnswerTwice => {
                let due: Vec<_> =
                    turns(&before.root).into_iter().map(|t| (t.iid.clone(), t.receipt_due.clone())).collect();
                each_turn(&mut row.root, &mut |turn| {
                    let was = due.iter().find(|(iid, _)| *iid == turn.iid).and_then(|(_, due)| due.clone());
                    if turn.receipt_due.is_none() && was.is_some() {
                        turn.receipt_due = was;
                    }
                });
            }
            Self::NoOutstanding => each_turn(&mut row.root, &mut |turn| turn.outstanding = None),
            Self::NoPickAnswer => {
                let picks = |p: &jr2_orchestrator::turn::Pending| matches!(p.source, Some(Source::Pick(..)));
                row.ledger.pending.retain(|p| !picks(p) || p.n <= before.ledger.raised);
            }
            Self::NoReceipt
            | Self::NoPrompted
            | Self::NoUnprompted
            | Self::NoAdmissionIds
            | Self::NoTold
            | Self::NoKept => {}
        }
    }
}

fn lost(turn: &Turn) -> bool {
    use jr2_orchestrator::turn::Prompt;
    match &turn.phase {
        Phase::Reading { plan } => plan.prompt == Prompt::ReadmitLost,
        Phase::Admitting { pending } => pending.prompt == Prompt::ReadmitLost,
        _ => false,
    }
}

/// Every Turn of a machine and its children.
pub fn turns(actor: &Actor) -> Vec<&Turn> {
    let mut found = Vec::new();
    for invoked in actor.invoked.values() {
        match &invoked.kind {
            InvokedKind::Agent(turn) => found.push(&**turn),
            InvokedKind::Run(child) => found.extend(turns(child)),
            _ => {}
        }
    }
    found
}

fn each_turn(actor: &mut Actor, change: &mut dyn FnMut(&mut Turn)) {
    for invoked in actor.invoked.values_mut() {
        match &mut invoked.kind {
            InvokedKind::Agent(turn) => change(turn),
            InvokedKind::Run(child) => each_turn(child, change),
            _ => {}
        }
    }
}
