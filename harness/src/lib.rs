//! The Harness: runs an Agent's conversations next to the files it works on, and speaks to nobody but its Custodian.
//!
//! What is decided lives in pure rooms (`turn::step`, `conversation::queue`, `conversation::log`, `briefing`,
//! `compaction`, the words of `menu`); what touches the world lives in thin shells around them (`server`, `turn::run`, `menu::custodian`, `model`,
//! `tools`).

pub mod briefing;
pub mod command;
pub mod compaction;
pub mod config;
pub mod conversation;
pub mod guard;
pub mod menu;
pub mod model;
pub mod mutation;
pub mod server;
pub mod step;
pub mod telemetry;
pub mod tls;
pub mod tools;
pub mod turn;
