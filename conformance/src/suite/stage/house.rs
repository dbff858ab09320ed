//! The Harness a check talks to: the one all share, or a process of its own.

use crate::suite::case::{Halt, failed};
use crate::suite::harness::{Process, Wire};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Mutex as AsyncMutex;

/// One Harness.
#[derive(Clone, Debug)]
pub struct House {
    wire: Wire,
    process: Option<Arc<AsyncMutex<Process>>>,
    /// Whether this check alone uses it.
    alone: bool,
    facts: Option<Arc<Facts>>,
}

/// What does not change while a process ends and starts.
#[derive(Debug)]
struct Facts {
    port: u16,
    conversations: PathBuf,
    last_log: Mutex<String>,
}

impl House {
    /// A Harness that somebody else started.
    pub fn elsewhere(wire: Wire, alone: bool) -> Self {
        Self { wire, process: None, alone, facts: None }
    }

    /// A process of ours.
    pub fn of(process: Process, alone: bool) -> Self {
        let facts = Facts { port: process.port(), conversations: process.conversations(), last_log: Mutex::default() };
        let wire = process.wire().clone();
        Self { wire, process: Some(Arc::new(AsyncMutex::new(process))), alone, facts: Some(Arc::new(facts)) }
    }

    /// Its client.
    pub fn wire(&self) -> &Wire {
        &self.wire
    }

    fn own(&self) -> Result<&Arc<AsyncMutex<Process>>, Halt> {
        self.process.as_ref().ok_or_else(|| Halt::NotRun("needs --command".to_owned()))
    }

    fn own_alone(&self) -> Result<&Arc<AsyncMutex<Process>>, Halt> {
        if !self.alone {
            return failed("a check that shares its Harness may not end it");
        }
        self.own()
    }

    /// `kill -9`.
    pub async fn kill9(&self) -> Result<(), Halt> {
        self.own_alone()?.lock().await.kill9();
        Ok(())
    }

    /// Starts it again.
    pub async fn boot(&self) -> Result<(), Halt> {
        self.own_alone()?.lock().await.boot().await.map_err(|error| Halt::Failed(error.to_string()))
    }

    /// `kill -9`, and a new start.
    pub async fn restart(&self) -> Result<(), Halt> {
        self.kill9().await?;
        self.boot().await
    }

    /// SIGTERM.
    pub async fn terminate(&self) -> Result<(), Halt> {
        self.own_alone()?.lock().await.terminate();
        Ok(())
    }

    /// Waits until it has ended: its exit code.
    pub async fn exit(&self) -> Result<Option<i32>, Halt> {
        let ended = self.own_alone()?.lock().await.exit().await;
        ended.map_err(|error| Halt::Failed(format!("its end cannot be seen: {error}")))
    }

    /// Its port.
    pub fn port(&self) -> Result<u16, Halt> {
        self.facts.as_ref().map(|facts| facts.port).ok_or_else(|| Halt::NotRun("needs --command".to_owned()))
    }

    /// Where its conversations persist.
    pub fn conversations(&self) -> Result<PathBuf, Halt> {
        let folder = self.facts.as_ref().map(|facts| facts.conversations.clone());
        folder.ok_or_else(|| Halt::NotRun("needs --command".to_owned()))
    }

    /// Its standard output so far.
    pub async fn stdout(&self) -> Result<String, Halt> {
        Ok(self.own()?.lock().await.stdout())
    }

    /// Its standard error so far.
    pub async fn stderr(&self) -> Result<String, Halt> {
        Ok(self.own()?.lock().await.stderr())
    }

    /// The end of its log, for a failure; nothing when it is shared, because others write there too.
    pub fn log_end(&self) -> Option<String> {
        if !self.alone {
            return None;
        }
        let process = self.process.as_ref()?;
        let facts = self.facts.as_ref()?;
        let mut last = facts.last_log.lock().unwrap_or_else(PoisonError::into_inner);
        if let Ok(process) = process.try_lock() {
            *last = process.stderr_end();
        }
        Some(last.clone()).filter(|text| !text.is_empty())
    }
}
