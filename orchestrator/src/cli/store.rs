//! `jr2 store`: looks after the store's directory.

use super::exit::{Done, Exit, Failure};
use super::reach::settings;
use super::{Global, output};
use crate::store::{export, import, verify};
use clap::{Args, Subcommand};
use serde::Serialize;
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

const EXAMPLES: &str = "Examples:
  jr2 store verify
  jr2 store export backup.jsonl
  jr2 store import backup.jsonl      into an empty store

All three need the store for themselves: stop `jr2 serve` first.";

/// Check, export or import the store.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Store {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Clone, Debug)]
enum Action {
    /// Walk every key and say what is wrong; exits 1 when something is.
    Verify,
    /// Write every row, history entry and pinned text into a file, one JSON line each.
    Export {
        /// The file; it must not be there yet.
        file: PathBuf,
    },
    /// Fill an empty store from a file that `export` wrote.
    Import {
        /// The file.
        file: PathBuf,
    },
}

impl Store {
    /// Runs the command.
    pub fn run(self, global: &Global) -> Done {
        let dir = settings(global)?.store;
        let exists = dir.is_dir();
        if !exists && !matches!(self.action, Action::Import { .. }) {
            return Err(Failure::new(Exit::NotFound, format!("there is no store at {}", dir.display())));
        }
        match self.action {
            Action::Verify => {
                let report = verify(&dir)?;
                show(global, &report, &format!("{} rows, {} history entries", report.rows, report.history));
                for problem in &report.problems {
                    output::say(&format!("  {problem}"));
                }
                Ok(if report.is_sound() { Exit::Ok } else { Exit::Failed })
            }
            Action::Export { file } => {
                let failed = |e: std::io::Error| Failure::failed(format!("{}: {e}", file.display()));
                // Runs hold inputs and prompts: nobody else's business.
                let opened = File::options().write(true).create_new(true).mode(0o600).open(&file).map_err(failed)?;
                let mut out = BufWriter::new(opened);
                let report = export(&dir, &mut out)?;
                out.flush().and_then(|()| out.get_ref().sync_all()).map_err(failed)?;
                show(global, &report, &format!("{} rows exported to {}", report.rows, file.display()));
                Ok(Exit::Ok)
            }
            Action::Import { file } => {
                let opened =
                    File::open(&file).map_err(|e| Failure::new(Exit::NotFound, format!("{}: {e}", file.display())))?;
                let report = import(&mut BufReader::new(opened), &dir)?;
                show(global, &report, &format!("{} rows imported into {}", report.rows, dir.display()));
                Ok(Exit::Ok)
            }
        }
    }
}

fn show(global: &Global, report: &impl Serialize, words: &str) {
    if global.json {
        output::json(report);
    } else {
        output::data(words);
    }
}
