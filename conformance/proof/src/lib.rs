//! The proof: the shipped pure cores of the Orchestrator and the Harness, put into one small world and driven through
//! every order of events, losses and crashes that the bounds allow.
//!
//! This is the only crate that links both sides (decision 50). Nothing here decides anything about a Turn, a notice or a
//! conversation: [`world`] only carries effects to the other side and inputs back, and breaks things on the way.
//! [`ghost`] watches and says which promise was broken. [`explore`] visits every state once; [`sim`] walks at random.

pub mod explore;
pub mod fuzz;
pub mod ghost;
pub mod mutant;
pub mod plan;
pub mod scene;
pub mod sim;
pub mod witness;
pub mod world;
