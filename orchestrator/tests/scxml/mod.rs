//! Turns SCXML documents of the public test corpus into charts and drives them with their event scripts. Test-only.

mod convert;
mod drive;
mod ecmascript;

pub use convert::{Converted, convert};
pub use drive::drive;
