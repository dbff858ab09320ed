//! `jr2 check`: reads workflow files and reports everything that is wrong at once.

use super::exit::{Done, Exit, Failure};
use super::{Global, output};
use crate::workflow::check_files;
use clap::Args;
use std::io::IsTerminal;
use std::path::PathBuf;

const EXAMPLES: &str = "Examples:
  jr2 check workflows/*.yaml
  jr2 check flow.yaml --json | jq '.items[].code'
  jr2 explain JR0101       what a code means";

/// Check workflow files and everything they run; all problems at once, with line and column.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Check {
    /// Workflow files.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

impl Check {
    /// Runs the command.
    pub fn run(self, global: &Global) -> Done {
        if let Some(missing) = self.files.iter().find(|file| !file.exists()) {
            return Err(Failure::new(Exit::NotFound, format!("there is no file {}", missing.display())));
        }
        if let Some(odd) = self.files.iter().find(|file| !file.is_file()) {
            // A pipe would be waited for, and read once only; a workflow is read again with what it runs.
            return Err(Failure::usage(format!("{} is no regular file", odd.display())));
        }
        let report = check_files(&self.files);
        let found = &report.diagnostics;
        if global.json {
            output::json(&report);
        } else if !found.is_empty() {
            // What is wrong is the result of this command.
            let terminal = std::io::stdout().is_terminal();
            output::data(&if terminal { found.report(std::env::var_os("NO_COLOR").is_none()) } else { found.plain() });
        }
        let words = |n: usize, noun: &str| format!("{n} {noun}{}", if n == 1 { "" } else { "s" });
        output::say(&format!(
            "{} checked: {}, {}",
            words(report.workflows.len(), "workflow"),
            words(found.errors(), "error"),
            words(found.warnings(), "warning")
        ));
        Ok(if found.has_errors() { Exit::Failed } else { Exit::Ok })
    }
}
