//! How a command ends: exit codes (decision 17) and failures that say what to do.

use crate::run::HostError;
use crate::serve::StartError;
use crate::store::StoreError;
use std::process::ExitCode;

/// Exit codes of `jr2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It worked.
    Ok = 0,
    /// It failed.
    Failed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// A person's answer is needed.
    NeedsPerson = 3,
    /// The run ended in fault.
    Fault = 4,
    /// No such thing.
    NotFound = 5,
    /// Another process owns the store.
    Busy = 75,
    /// Too late.
    Deadline = 124,
    /// Interrupted.
    Interrupted = 130,
    /// Nobody reads the results any more: what a program ended by SIGPIPE has.
    ClosedPipe = 141,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// A command that did not do what it was asked.
#[derive(Clone, Debug)]
pub struct Failure {
    /// With which code.
    pub exit: Exit,
    /// What went wrong.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
}

/// How every command ends.
pub type Done = Result<Exit, Failure>;

impl Failure {
    /// Of a code.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), help: None }
    }

    /// The usual one.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(Exit::Failed, message)
    }

    /// The command line is wrong.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// With a line that helps.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// For stderr.
    pub fn text(&self) -> String {
        match &self.help {
            Some(help) => format!("jr2: {}\n  help: {help}", self.message.trim_end()),
            None => format!("jr2: {}", self.message.trim_end()),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let exit = if matches!(error, StoreError::Busy { .. }) { Exit::Busy } else { Exit::Failed };
        let failure = Self::new(exit, error.to_string());
        match exit {
            Exit::Busy => failure.help("wait until it ends, or speak to it with `--server URL`"),
            _ => failure,
        }
    }
}

impl From<HostError> for Failure {
    fn from(error: HostError) -> Self {
        match error {
            HostError::Store(error) => error.into(),
            HostError::KeyTaken(message) => Self::failed(message),
            HostError::NotFound(message) => Self::new(Exit::NotFound, message),
            other => Self::failed(other.to_string()),
        }
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Store(error) => error.into(),
            StartError::Host(error) => error.into(),
            StartError::Listen { .. } => {
                Self::failed(error.to_string()).help("name another address with `--listen 127.0.0.1:PORT`")
            }
            other => Self::failed(other.to_string()),
        }
    }
}

impl From<crate::workflow::Diagnostics> for Failure {
    fn from(found: crate::workflow::Diagnostics) -> Self {
        let errors = found.errors();
        let noun = if errors == 1 { "problem" } else { "problems" };
        let report = if super::output::fancy() { found.report(true) } else { found.plain() };
        Self::failed(format!("{errors} {noun}\n{report}"))
    }
}
