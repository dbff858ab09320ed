//! One Submission, from its turn in the queue to its settlement: the pure step loop and the shell that drives it.

mod ask;
pub mod calls;
pub mod printer;
mod run;
pub mod step;

pub use run::{Job, Means, run};
