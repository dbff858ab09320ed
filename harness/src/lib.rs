//! The Harness runs an Agent's conversations inside its Sandbox.

pub mod model;
pub mod tools;
