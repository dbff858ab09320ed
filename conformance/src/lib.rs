//! What judges a jr2 build over its wires: the scripted model, and the benchmarks.
//!
//! The scripted model is a library as well as a binary: the tests of other crates start it in their own process.

pub mod bench;
pub mod model;
pub mod tls;
