//! Conversations: the record, the queue, settlement, persistence.
//!
//! A conversation's writes go one after another; what a reader of the stream sees is durable.

mod entries;
mod files;
mod hall;
mod log;
mod queue;
mod record;

pub use entries::{closing, seating};
pub use hall::{Aborted, Admitted, Hall, HallError, Seating};
pub use log::{Batch, Entry, Log, Page};
pub use queue::{Abort, Admission, QUEUE_MAX, Queue, Seated, Waiting};
pub use record::{SEGMENT_MAX_BYTES, folder, segment};

use crate::compaction::Context;
use crate::turn::Job;
use jr2_shared::crash::{self, Point};
use jr2_shared::harness::History;
use record::Record;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

/// One conversation.
pub struct Conversation {
    /// The Agent's name.
    pub agent: String,
    /// The iid.
    pub iid: String,
    /// Held while something is appended: batches stand in the record in the order of their numbers.
    writer: tokio::sync::Mutex<Writer>,
    log: Mutex<Log>,
    desk: Mutex<Desk>,
    /// Number of batches that are durable.
    durable: watch::Sender<u64>,
}

/// Where the record goes.
#[derive(Default)]
struct Writer {
    /// Root of all conversations; in memory only without one.
    root: Option<PathBuf>,
    record: Option<Record>,
    /// Dropped from the hall: whoever still holds it must look it up again.
    freed: bool,
}

/// What waits and runs. Locked after `log` where both are held.
#[derive(Default)]
struct Desk {
    jobs: HashMap<String, Job>,
    driving: bool,
    running: Option<watch::Sender<bool>>,
}

impl Conversation {
    fn new(agent: &str, iid: &str, root: Option<PathBuf>) -> Self {
        Self::with(agent, iid, Log::default(), Writer { root, record: None, freed: false })
    }

    fn with(agent: &str, iid: &str, log: Log, writer: Writer) -> Self {
        Self {
            agent: agent.to_owned(),
            iid: iid.to_owned(),
            durable: watch::Sender::new(log.batches),
            writer: tokio::sync::Mutex::new(writer),
            log: Mutex::new(log),
            desk: Mutex::default(),
        }
    }

    /// Whether anything was ever seated.
    pub fn is_held(&self) -> bool {
        self.log().is_seated()
    }

    /// What the model is sent of it.
    pub fn context(&self) -> Context {
        self.log().context()
    }

    /// The stream from `offset`, durable entries only.
    pub fn page(&self, offset: u64) -> Page {
        let durable = *self.durable.borrow();
        self.log().page(&self.iid, offset, durable)
    }

    /// The history view.
    pub fn history(&self) -> History {
        let durable = *self.durable.borrow();
        self.log().history(&self.iid, durable)
    }

    /// Tells of each batch that becomes durable.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.durable.subscribe()
    }

    /// Appends entries; with `sync` they survive the loss of power when this returns, without it the death of the
    /// process. A record that cannot be written ends the process (spec H-15).
    pub async fn append(&self, entries: Vec<Entry>, sync: bool) {
        let mut writer = self.writer.lock().await;
        self.append_locked(&mut writer, entries, sync).await;
    }

    async fn append_locked(&self, writer: &mut Writer, entries: Vec<Entry>, sync: bool) {
        if let Some(root) = &writer.root {
            let batch = self.log().batches;
            let written = self.write(root.clone(), writer.record.clone(), batch, &entries, sync).await;
            match written {
                Ok(record) => writer.record = Some(record),
                Err(error) => record_failed(&self.iid, &error),
            }
        }
        if entries.iter().any(|entry| matches!(entry, Entry::Settled { .. })) {
            crash::point(Point::SettlementRecorded);
        }
        let batches = {
            let mut log = self.log();
            log.apply(&entries);
            log.batches
        };
        if sync || writer.root.is_none() {
            self.durable.send_replace(batches);
        }
    }

    async fn write(
        &self,
        root: PathBuf,
        record: Option<Record>,
        batch: u64,
        entries: &[Entry],
        sync: bool,
    ) -> std::io::Result<Record> {
        let line = record::line(batch, now_ms(), entries)?;
        match record {
            // A write into the page cache is over before a thread could be woken for it.
            Some(record) if !sync => record.write(&line).map(|()| record),
            record => {
                let (agent, iid) = (self.agent.clone(), self.iid.clone());
                let work = move || {
                    let record = match record {
                        Some(record) => record,
                        None => Record::create(&root, &agent, &iid)?,
                    };
                    record.write(&line)?;
                    record.sync()?;
                    Ok(record)
                };
                tokio::task::spawn_blocking(work).await.map_err(std::io::Error::other)?
            }
        }
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A Harness that cannot record is not allowed to answer (spec H-15).
fn record_failed(iid: &str, error: &std::io::Error) -> ! {
    tracing::error!("harness: the record of conversation {iid} could not be written, ending: {error}");
    std::process::exit(1)
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Shared handle of a conversation.
pub type Handle = Arc<Conversation>;
