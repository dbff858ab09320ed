//! The statechart: SCXML's interpretation algorithm as a pure step function over a serialisable configuration
//! (workflow format "Semantics", decisions 36 and 37). No clock, no I/O: the run host starts timers and invocations.

mod configuration;
mod definition;
#[cfg(test)]
mod draft;
mod microstep;
#[cfg(test)]
mod properties;
mod select;
mod step;
#[cfg(test)]
mod tests;

pub use configuration::*;
pub use definition::*;
pub use select::{matches, may_fire};
pub use step::*;
