//! The statechart: SCXML's interpretation algorithm as a pure step function over a serialisable configuration
//! (workflow format "Semantics", decisions 36 and 37). No clock, no I/O: the run host starts timers and invocations.

mod definition;
mod step;

pub use definition::*;
pub use step::*;
