//! The Turn protocol as a pure machine: admission, nudge, wake, re-admission, reroll, fault (spec 7).
//!
//! A [`Turn`] is plain data in its run's row. [`step`] takes what happened and answers the next Turn and what the shell
//! must do. There is no clock, no socket and no randomness in here: the shell feeds every fact in as a [`TurnInput`].
//!
//! What the shell keeps to:
//! - It saves the new Turn before it carries out the effects of that step. So an admission's id is durable before its
//!   POST leaves, and a crash re-sends the same id (decision 31).
//! - After a restore it feeds [`TurnInput::Restored`], then [`TurnInput::Allowed`] with the picks that are open now.
//! - When the state is left it calls [`exit`] and writes the answer into the same save (decision 33). It does so after
//!   [`TurnEffect::Fault`] too, because a Submission whose outcome is unknown may still run.
//! - A pick counts only while [`Turn::takes_picks`]; a pick id already answered gets [`Turn::kept_answer`].
//! - [`TurnEffect::RaiseEpoch`] and [`TurnEffect::Fault`] of one step go into one save, in that order (spec P-26).

mod admission;
mod ends;
pub mod faults;
pub mod kills;
pub mod ledger;
mod message;
mod prompt;
mod state;
mod step;

#[cfg(test)]
mod tests;

pub use ends::LAST_END_SKEW_MS;
pub use kills::{ListedKill, Mark};
pub use ledger::{Ledger, Pending, Source, To};
pub use message::{Admit, TurnEffect, TurnInput, Watch};
pub use prompt::Prompt;
pub use state::{
    Admission, CUT_LEFT, Carried, Cut, Frame, HeldQuestion, KERNEL_KILLS_MAX, KeptPick, NUDGES_MAX, PICKS_KEPT_MAX,
    PendingAbort, PendingAdmission, Phase, Plan, READMISSIONS_MAX, REROLLS_MAX, Turn, WAKES_MAX,
};
pub use step::{aborted, exit, step};
