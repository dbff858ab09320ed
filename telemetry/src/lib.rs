//! Traces and metrics of jr2's programs: what `orchestrator` and `harness` say about themselves, to machines.
//!
//! A span is written when what it covers is over, from facts the caller kept. So a crash in between costs no half span, and a
//! run's trace goes on after a restart: its ids come from the run and the Turn (see [`context`]). Nothing here decides
//! anything: without an exporter every call is cheap and does nothing.

pub mod context;
pub mod genai;
pub mod metrics;
mod traces;

pub use traces::{Kind, Span, StartError, Traces, Value, finish, start, wanted};
