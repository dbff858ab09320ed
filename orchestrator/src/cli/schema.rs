//! `jr2 schema`: the JSON Schema of workflow files and settings.

use super::exit::Exit;
use super::output;
use clap::Args;

const EXAMPLES: &str = "Examples:
  jr2 schema > workflow.schema.json
  jr2 schema --config > jr2.schema.json

In an editor: `# yaml-language-server: $schema=workflow.schema.json` on the first line of a workflow.";

/// Print the JSON Schema of workflow files, or of jr2.yaml.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Schema {
    /// Of jr2.yaml.
    #[arg(long)]
    config: bool,
}

impl Schema {
    /// Runs the command.
    pub fn run(self) -> Exit {
        output::json(&if self.config { crate::config::schema() } else { crate::workflow::json_schema() });
        Exit::Ok
    }
}
