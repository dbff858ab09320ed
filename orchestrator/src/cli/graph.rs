//! `jr2 graph`: a picture of a workflow.

use super::exit::{Done, Exit, Failure};
use super::output;
use crate::workflow::{graph, load_file};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

const EXAMPLES: &str = "Examples:
  jr2 graph workflows/fix-test.yaml
  jr2 graph workflows/fix-test.yaml --format dot | dot -Tsvg > fix-test.svg";

/// Print a workflow as a diagram.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Graph {
    /// The workflow file.
    file: PathBuf,
    /// The diagram's language.
    #[arg(long, value_enum, default_value_t = Format::Mermaid)]
    format: Format,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// A Mermaid state diagram.
    Mermaid,
    /// A Graphviz digraph.
    Dot,
}

impl Graph {
    /// Runs the command.
    pub fn run(self) -> Done {
        if !self.file.exists() {
            return Err(Failure::new(Exit::NotFound, format!("there is no file {}", self.file.display())));
        }
        let loaded = load_file(&self.file)?;
        output::data(&match self.format {
            Format::Mermaid => graph::mermaid(&loaded.workflow),
            Format::Dot => graph::dot(&loaded.workflow),
        });
        Ok(Exit::Ok)
    }
}
