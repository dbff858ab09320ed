//! What judges a jr2 build over its wires: the suite, the scripted model, the look at the prompt cache, and the benchmarks.
//!
//! The scripted model is a library as well as a binary: the tests of other crates start it in their own process.

pub mod bench;
pub mod cache;
pub mod model;
pub mod suite;
pub mod tls;
