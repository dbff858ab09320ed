//! `jr2-harness step`: one Agent-less command, fenced like an Agent's own commands, for the provider that starts it.
//! The end of standard input ends the command and everything it started, so a provider that dies leaves nothing running.

use crate::tools::{Surroundings, ToolLimits, Toolbox};
use jr2_shared::harness::Access;
use jr2_shared::step::{StepEnd, StepRequest};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::sync::watch;

/// Longest request line in bytes.
const REQUEST_MAX_BYTES: u64 = 1 << 20;

/// Reads the request, runs it, answers how it ended.
pub async fn run() -> Result<StepEnd, String> {
    let mut input = BufReader::new(tokio::io::stdin().take(REQUEST_MAX_BYTES));
    let mut line = String::new();
    input.read_line(&mut line).await.map_err(|e| e.to_string())?;
    let request: StepRequest = serde_json::from_str(&line).map_err(|e| format!("the request is not one: {e}"))?;
    let (abort, aborted) = watch::channel(false);
    let command = execute(request, aborted);
    tokio::pin!(command);
    let mut rest = Vec::new();
    tokio::select! {
        end = &mut command => return Ok(end),
        _ = input.read_to_end(&mut rest) => abort.send_replace(true),
    };
    Ok(command.await)
}

async fn execute(request: StepRequest, abort: watch::Receiver<bool>) -> StepEnd {
    let root = PathBuf::from(&request.cwd);
    let mut surroundings = Surroundings::from_env(&root, |name| std::env::var(name).ok());
    surroundings.environment.extend(request.env);
    let limit = Duration::from_millis(request.timeout_ms);
    let limits = ToolLimits { bash_default: limit, bash_max: limit };
    let tools = Toolbox::within(root, Access::Write, limits, surroundings);
    let outcome = tools.run("bash", &json!({ "command": request.command }), abort).await;
    let reason = if outcome.is_error { reason(&outcome.text) } else { String::new() };
    StepEnd { ok: !outcome.is_error, reason, output: outcome.text }
}

/// The short word of a failure, from the line that ends its text.
fn reason(text: &str) -> String {
    let last = text.lines().last().unwrap_or_default();
    if let Some(code) = last.strip_prefix("Command exited with code ") {
        return format!("exit {code}");
    }
    if last.starts_with("Command timed out") {
        return "timeout".to_owned();
    }
    if let Some(rest) = last.strip_prefix("Command killed by signal ") {
        return format!("killed {}", rest.split(' ').next().unwrap_or_default());
    }
    last.to_owned()
}

#[cfg(test)]
mod tests {
    use super::reason;

    #[test]
    fn reasons_are_short_words_that_retry_can_name() {
        assert_eq!(reason("out\nCommand exited with code 3"), "exit 3");
        assert_eq!(reason("Command timed out after 2 s and was killed"), "timeout");
        assert_eq!(reason("x\nCommand killed by signal SIGKILL (exit 137)"), "killed SIGKILL");
    }
}
