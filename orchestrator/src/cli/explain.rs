//! `jr2 explain`: what an error code means.

use super::exit::{Done, Exit, Failure};
use super::{Global, output};
use crate::workflow::{CODES, codes, explain};
use clap::Args;
use serde_json::json;

const EXAMPLES: &str = "Examples:
  jr2 explain JR0101
  jr2 explain              every code with its title";

/// Explain an error code, and how to fix it.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Explain {
    /// The code, such as JR0001.
    code: Option<String>,
}

impl Explain {
    /// Runs the command.
    pub fn run(self, global: &Global) -> Done {
        let Some(code) = self.code else {
            let rows: Vec<Vec<String>> = CODES.iter().map(|c| vec![c.code.to_owned(), c.title.to_owned()]).collect();
            output::data(&output::table(&rows));
            return Ok(Exit::Ok);
        };
        let Some(info) = explain(&code) else {
            let failure = Failure::new(Exit::NotFound, format!("there is no code `{code}`"));
            return Err(failure.help("`jr2 explain` lists all of them"));
        };
        if global.json {
            output::json(&json!({
                "code": info.code, "severity": info.severity, "title": info.title,
                "explanation": info.explanation, "fix": info.fix,
            }));
        } else {
            output::data(&codes::page(info));
        }
        Ok(Exit::Ok)
    }
}
