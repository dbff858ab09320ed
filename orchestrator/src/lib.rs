//! The Orchestrator: workflow files, the statechart, runs, the Turn protocol, the store, Sandbox providers, the HTTP API
//! and the `jr2` command. It depends on `jr2-shared` and `jr2-telemetry` alone and meets the Harness over its wire.

pub mod api;
pub mod chart;
pub mod cli;
pub mod config;
pub mod expression;
pub mod harness_client;
pub mod run;
pub mod serve;
pub mod store;
pub mod telemetry;
pub mod tls;
pub mod turn;
pub mod workflow;
pub mod workspace;
