//! The suite: numbered claims about any Harness build, checked over its wire and nowhere else.
//!
//! A run starts a scripted model and a fake Orchestrator, then the Harness (or takes one that runs), and gives each claim its
//! own conversations, so that claims run beside each other. A claim that needs a Harness for itself gets a process of its own.

pub mod case;
pub mod cases;
pub mod command;
pub mod harness;
pub mod orchestrator;
pub mod report;
pub mod runner;
pub mod stage;
pub mod texts;

pub use case::{Case, Halt, Need, Outcome};
pub use report::{Expected, Report, Verdict};
pub use runner::{Options, RunError, Target, run};
