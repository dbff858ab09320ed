//! `jr2 version`: what this build is.

use super::exit::Exit;
use super::{Global, output};
use clap::Args;
use serde_json::json;

const EXAMPLES: &str = "Examples:
  jr2 version --json";

/// Print the version and the engine's numbers.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Version {}

impl Version {
    /// Runs the command.
    pub fn run(global: &Global) -> Exit {
        let (version, semantics, form) = (env!("CARGO_PKG_VERSION"), crate::run::SEMANTICS, crate::run::ROW_FORMAT);
        if global.json {
            output::json(&json!({ "version": version, "semantics": semantics, "rowFormat": form }));
        } else {
            output::data(&format!("jr2 {version} (semantics {semantics}, row format {form})"));
        }
        Exit::Ok
    }
}
