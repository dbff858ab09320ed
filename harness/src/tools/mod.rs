//! Stand-in for the Working tools: the contract's types and a bare `bash`.

use crate::model::ToolSpec;
use jr2_shared::harness::Access;
use serde_json::{Value, json};
use std::path::PathBuf;
use tokio::sync::watch;

/// Bounds.
#[derive(Clone, Debug, Default)]
pub struct ToolLimits;

/// The tools.
pub struct Toolbox {
    root: PathBuf,
    access: Access,
}

/// A result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolOutcome {
    /// What the model reads.
    pub text: String,
    /// Whether it failed.
    pub is_error: bool,
}

impl Toolbox {
    /// Rooted at the Frame's `cwd`.
    pub fn new(root: PathBuf, access: Access, _limits: ToolLimits) -> Self {
        Self { root, access }
    }

    /// The tools an Agent with this access has.
    pub fn specs(access: Access) -> Vec<ToolSpec> {
        let names: &[&str] = match access {
            Access::Write => &["read", "write", "edit", "bash", "grep", "glob"],
            Access::Read => &["read", "bash", "grep", "glob"],
            Access::None => &[],
        };
        names
            .iter()
            .map(|n| ToolSpec {
                name: (*n).to_owned(),
                description: (*n).to_owned(),
                parameters: json!({"type": "object"}),
            })
            .collect()
    }

    /// Runs one call.
    pub async fn run(&self, name: &str, arguments: &Value, mut abort: watch::Receiver<bool>) -> ToolOutcome {
        if name != "bash" || self.access == Access::None {
            return ToolOutcome { text: "not here".into(), is_error: true };
        }
        let command = arguments["command"].as_str().unwrap_or_default();
        let child = tokio::process::Command::new("sh")
            .arg("-c")
            .arg(command)
            .current_dir(&self.root)
            .kill_on_drop(true)
            .output();
        tokio::select! {
            out = child => match out {
                Ok(out) => ToolOutcome {
                    text: String::from_utf8_lossy(&out.stdout).into_owned(),
                    is_error: !out.status.success(),
                },
                Err(e) => ToolOutcome { text: e.to_string(), is_error: true },
            },
            _ = abort.wait_for(|stop| *stop) => ToolOutcome { text: "aborted".into(), is_error: true },
        }
    }
}
