//! Agent-less commands in a Sandbox: run by `jr2-harness step`, fenced like the Agent's own, ended with this process.

use super::LocalProvider;
use super::cgroup::Who;
use super::environment::of_a_step;
use super::record::Record;
use crate::run::core::{DoRequest, DoResult};
use jr2_shared::step::{STEP_ATTEMPT_VARIABLE, STEP_KEY_VARIABLE, STEP_OUTPUT_MAX_BYTES, StepEnd, StepRequest};
use serde_json::json;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::Command;

/// How much longer than the command's own limit its runner may take.
const RUNNER_SLACK: Duration = Duration::from_secs(15);
/// Largest answer of the runner in bytes.
const ANSWER_MAX_BYTES: u64 = 1 << 20;

impl LocalProvider {
    /// Runs one command. Dropping the future closes the runner's input, which ends the command.
    pub(super) async fn run_step(&self, name: &str, key: &str, attempt: u32, request: &DoRequest) -> DoResult {
        let DoRequest::Command { command, cwd, env, timeout_ms } = request else {
            return failed("not a command");
        };
        let place = self.layout.place(name);
        let record = match Record::load(&place.record) {
            Ok(Some(record)) => record,
            Ok(None) => return failed("the Sandbox is gone"),
            Err(error) => return failed(&error.to_string()),
        };
        let variables = self.variables(&record, &place, false);
        let mut env = env.clone();
        env.push((STEP_KEY_VARIABLE.to_owned(), key.to_owned()));
        env.push((STEP_ATTEMPT_VARIABLE.to_owned(), attempt.to_string()));
        let cwd = cwd.clone().unwrap_or_else(|| place.work.display().to_string());
        let step = StepRequest { cwd, command: command.clone(), env, timeout_ms: *timeout_ms };
        let mut runner = Command::new(&self.options.harness_bin);
        runner.arg("step").env_clear().envs(of_a_step(variables)).current_dir(&place.dir);
        runner.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        if let Some(cgroup) = &record.cgroup {
            match cgroup.prepare(record.spec.size.memory_bytes, Who::Command) {
                Ok(door) => door.enter_first(runner.as_std_mut()),
                Err(error) => return failed(&format!("the memory cgroup {}: {error}", cgroup.path.display())),
            }
        }
        let limit = Duration::from_millis(*timeout_ms) + RUNNER_SLACK;
        match tokio::time::timeout(limit, answer_of(runner, &step)).await {
            Ok(Ok(end)) => result_of(end),
            Ok(Err(error)) => failed(&format!("the step's runner failed: {error}")),
            Err(_) => failed("timeout"),
        }
    }
}

async fn answer_of(mut runner: Command, step: &StepRequest) -> std::io::Result<StepEnd> {
    let mut child = runner.spawn()?;
    let mut line = serde_json::to_vec(step)?;
    line.push(b'\n');
    let mut input = child.stdin.take().ok_or(std::io::ErrorKind::BrokenPipe)?;
    input.write_all(&line).await?;
    input.flush().await?;
    let output = child.stdout.take().ok_or(std::io::ErrorKind::BrokenPipe)?;
    let mut text = Vec::new();
    output.take(ANSWER_MAX_BYTES).read_to_end(&mut text).await?;
    drop(input); // held open until here: its end would have ended the command
    child.wait().await?;
    Ok(serde_json::from_slice(&text)?)
}

fn result_of(end: StepEnd) -> DoResult {
    let output = middle_cut(&end.output, STEP_OUTPUT_MAX_BYTES);
    if end.ok {
        return DoResult::Ok(json!({ "output": output }));
    }
    DoResult::Failed { reason: end.reason, detail: json!({ "output": output }) }
}

fn failed(reason: &str) -> DoResult {
    DoResult::Failed { reason: reason.to_owned(), detail: json!({ "output": "" }) }
}

/// Keeps head and tail of a long text.
fn middle_cut(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let head = text.floor_char_boundary(max / 2);
    let tail = text.ceil_char_boundary(text.len() - max / 2);
    format!("{}\n… {} bytes left out …\n{}", &text[..head], tail - head, &text[tail..])
}
