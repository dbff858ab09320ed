//! `bash`: one command, its output, its end in words (spec H-26).

use super::capture::Capture;
use super::isolate::Fence;
use super::supervise::{Plan, split};
use super::{ABORTED, Surroundings, ToolLimits, ToolOutcome};
use crate::guard::{Kill, RunningCall};
use rustix::pipe::{PipeFlags, pipe_with};
use serde::Deserialize;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

/// How long the killed tree may take to go: the supervisor needs at most 10 s of it.
const KILL_GRACE: Duration = Duration::from_secs(15);
/// How long output is read after the end, in case something that cannot die holds the pipe.
const DRAIN: Duration = Duration::from_secs(2);
/// Longest command in bytes: the kernel's bound for one argument, less its end.
const COMMAND_MAX_BYTES: usize = (128 << 10) - 1;
/// Bytes of one read.
const READ_BYTES: usize = 16 << 10;

#[derive(Debug, Deserialize)]
pub(super) struct Bash {
    #[serde(alias = "cmd")]
    command: String,
    #[serde(alias = "timeoutSeconds")]
    timeout: Option<f64>,
}

/// Why the wait ended.
enum End {
    Exited(ExitStatus),
    Aborted,
    /// The memory guard took it (spec M-6).
    Killed(Kill),
    TimedOut(Duration),
    Lost(std::io::Error),
}

pub(super) async fn run(
    root: &Path,
    surroundings: &Surroundings,
    fence: &Fence,
    limits: ToolLimits,
    args: Bash,
    mut abort: watch::Receiver<bool>,
    mut call: RunningCall,
) -> Result<ToolOutcome, String> {
    if args.command.len() > COMMAND_MAX_BYTES {
        return Err("The command is longer than 128 KiB; write it to a file and run that.".to_owned());
    }
    let limit = match args.timeout {
        Some(seconds) if seconds > 0.0 => Duration::try_from_secs_f64(seconds).unwrap_or(limits.bash_max),
        _ => limits.bash_default,
    }
    .min(limits.bash_max);
    let fail = |error: &dyn std::fmt::Display| format!("The command could not be started: {error}.");

    let (output, input) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| fail(&e))?;
    let (held, lifeline) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| fail(&e))?;
    let plan = Plan { lifeline: held.as_raw_fd(), fence: fence.entry(), door: call.door() };
    let mut command = Command::new(shell(surroundings));
    command
        .arg("-c")
        .arg(&args.command)
        .current_dir(root)
        .env_clear()
        .envs(surroundings.environment.iter().map(|(name, value)| (name, value)))
        .env("HOME", surroundings.home())
        .env("TMPDIR", surroundings.temporary())
        .env("PWD", root)
        .stdin(Stdio::null())
        .stdout(input.try_clone().map_err(|e| fail(&e))?)
        .stderr(input);
    // SAFETY: `split` makes only system calls; both descriptors of the plan outlive the spawn.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(move || split(plan));
    }
    let mut child = command.spawn().map_err(|e| fail(&e))?;
    // Our copies of the write end go, or the output would never end.
    drop(command);
    drop(held);
    let mut output = Receiver::from_owned_fd(output).map_err(|e| fail(&e))?;
    let mut capture = Capture::default();
    let end = watch_over(&mut child, &mut output, &mut capture, &mut abort, &mut call, limit).await;
    // Closing the lifeline is what kills; it also happens when this future is dropped.
    drop(lifeline);
    if !matches!(end, End::Exited(_)) && timeout(KILL_GRACE, child.wait()).await.is_err() {
        tracing::error!("a command's supervisor did not end in time");
        let _ = child.start_kill();
    }
    let _ = timeout(DRAIN, async { while read_some(&mut output, &mut capture).await {} }).await;
    let kill = if let End::Killed(kill) = &end { Some(kill.id.clone()) } else { None };
    Ok(ToolOutcome { kill, ..report(end, &capture).into() })
}

/// `bash`, or `sh` in an image without it.
fn shell(surroundings: &Surroundings) -> &'static str {
    let path = surroundings.environment.iter().find(|(name, _)| name == "PATH").map_or("", |(_, value)| value);
    let has_bash = std::env::split_paths(path).any(|folder| folder.join("bash").is_file());
    if has_bash { "bash" } else { "sh" }
}

async fn watch_over(
    child: &mut Child,
    output: &mut Receiver,
    capture: &mut Capture,
    abort: &mut watch::Receiver<bool>,
    call: &mut RunningCall,
    limit: Duration,
) -> End {
    let deadline = Instant::now() + limit;
    let mut open = true;
    let ended = loop {
        tokio::select! {
            biased;
            // First: the guard's SIGKILL makes the command end too, and the verdict says why.
            kill = call.killed() => return End::Killed(kill),
            Ok(_) = abort.wait_for(|aborted| *aborted) => return End::Aborted,
            () = sleep_until(deadline) => return End::TimedOut(limit),
            ended = child.wait() => break ended,
            more = read_some(output, capture), if open => open = more,
        }
    };
    // The kernel may have killed for memory a moment before the guard saw it.
    let kill = call.last_look().await;
    kill.map_or_else(|| ended.map_or_else(End::Lost, End::Exited), End::Killed)
}

/// Reads once; `false` at the end.
async fn read_some(output: &mut Receiver, capture: &mut Capture) -> bool {
    let mut buffer = vec![0; READ_BYTES];
    match output.read(&mut buffer).await {
        Ok(0) | Err(_) => false,
        Ok(n) => {
            capture.push(&buffer[..n]);
            true
        }
    }
}

fn report(end: End, capture: &Capture) -> Result<String, String> {
    let output = capture.text();
    let with = |line: &str| match output.trim_end() {
        "" => line.to_owned(),
        text => format!("{text}\n{line}"),
    };
    match end {
        End::Exited(status) => match (status.code(), status.signal()) {
            (Some(0), _) => Ok(if output.trim().is_empty() { "(no output)".to_owned() } else { output }),
            // A shell reports the signal of what it ran as 128 and its number.
            (Some(code), _) if signal_name(code - 128).is_some() => Err(with(&killed(code - 128))),
            (Some(code), _) => Err(with(&format!("Command exited with code {code}"))),
            (None, signal) => Err(with(&killed(signal.unwrap_or(0)))),
        },
        End::Aborted => Err(with(ABORTED)),
        End::Killed(kill) => Err(with(&kill.verdict())),
        End::TimedOut(limit) => Err(with(&format!("Command timed out after {} s and was killed", limit.as_secs_f64()))),
        End::Lost(error) => Err(with(&format!("The command's end is not known: {error}"))),
    }
}

fn killed(signal: i32) -> String {
    match signal_name(signal) {
        Some(name) => format!("Command killed by signal {name} (exit {})", 128 + signal),
        None => "Command was killed by a signal before it finished".to_owned(),
    }
}

fn signal_name(signal: i32) -> Option<&'static str> {
    const NAMES: &[&str] = &[
        "SIGHUP",
        "SIGINT",
        "SIGQUIT",
        "SIGILL",
        "SIGTRAP",
        "SIGABRT",
        "SIGBUS",
        "SIGFPE",
        "SIGKILL",
        "SIGUSR1",
        "SIGSEGV",
        "SIGUSR2",
        "SIGPIPE",
        "SIGALRM",
        "SIGTERM",
        "SIGSTKFLT",
        "SIGCHLD",
        "SIGCONT",
        "SIGSTOP",
        "SIGTSTP",
        "SIGTTIN",
        "SIGTTOU",
        "SIGURG",
        "SIGXCPU",
        "SIGXFSZ",
        "SIGVTALRM",
        "SIGPROF",
        "SIGWINCH",
        "SIGIO",
        "SIGPWR",
        "SIGSYS",
    ];
    NAMES.get(usize::try_from(signal.checked_sub(1)?).ok()?).copied()
}

#[cfg(test)]
#[path = "bash_tests.rs"]
mod tests;
