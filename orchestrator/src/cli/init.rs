//! `jr2 init`: begins a folder.

use super::exit::{Done, Exit, Failure};
use super::{Global, attempt, output};
use crate::config::CONFIG_FILE;
use clap::Args;
use serde_json::json;
use std::io::Write;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "Examples:
  jr2 init
  jr2 init ~/flows && cd ~/flows && jr2 check workflows/*.yaml";

const SETTINGS: &str = "\
# Settings of this jr2 folder. `jr2 schema --config` prints every key.
listen: 127.0.0.1:4000
workflows: workflows

# Where models answer: any OpenAI-compatible URL. The file names the variable that holds a key, never the key.
providers:
  openai:
    baseUrl: https://api.openai.com/v1
    quirk: openai
    key: { env: OPENAI_API_KEY }
#  local:
#    baseUrl: http://127.0.0.1:8080/v1
#    quirk: llama.cpp
#    contextWindow: 32768
";

/// The smallest workflow with an Agent and a Gate.
const HELLO: &str = include_str!("../../../examples/hello/workflow.yaml");

/// What git must not keep.
const IGNORED: &str = ".jr2/";

/// Begin a folder: settings, a first workflow, and what git ignores. Nothing that is there is overwritten.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Init {
    /// The folder [default: the present one].
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

impl Init {
    /// Runs the command.
    pub fn run(self, global: &Global) -> Done {
        let dir = self.folder.unwrap_or_else(|| global.dir());
        let settings = dir.join(CONFIG_FILE);
        let workflow = dir.join("workflows/fix-test.yaml");
        let hello = dir.join("workflows/hello.yaml");
        if let Some(there) = [&settings, &workflow, &hello].into_iter().find(|path| path.exists()) {
            return Err(Failure::failed(format!("{} is there already; nothing was written", there.display())));
        }
        std::fs::create_dir_all(dir.join("workflows")).map_err(|e| failed(&dir, &e))?;
        create(&workflow, attempt::WORKFLOW)?;
        create(&hello, HELLO)?;
        create(&settings, SETTINGS)?;
        ignore(&dir.join(".gitignore"))?;
        let written = [&settings, &workflow, &hello].map(|path| path.display().to_string());
        if global.json {
            output::json(&json!({ "written": written }));
        } else {
            output::say(&format!("wrote {}", written.join(", ")));
            output::say(
                "next: `jr2 check workflows/fix-test.yaml`, then `jr2 run fix-test --input repo=/path/to/repo`",
            );
        }
        Ok(Exit::Ok)
    }
}

fn failed(path: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!("{}: {error}", path.display()))
}

fn create(path: &Path, text: &str) -> Result<(), Failure> {
    let mut file = std::fs::File::options().write(true).create_new(true).open(path).map_err(|e| failed(path, &e))?;
    file.write_all(text.as_bytes()).map_err(|e| failed(path, &e))
}

/// Adds our line to a `.gitignore` that may be there.
fn ignore(path: &Path) -> Result<(), Failure> {
    let before = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(failed(path, &error)),
    };
    if before.lines().any(|line| line.trim() == IGNORED) {
        return Ok(());
    }
    let gap = if before.is_empty() || before.ends_with('\n') { "" } else { "\n" };
    let mut file = std::fs::File::options().append(true).create(true).open(path).map_err(|e| failed(path, &e))?;
    writeln!(file, "{gap}{IGNORED}").map_err(|e| failed(path, &e))
}
