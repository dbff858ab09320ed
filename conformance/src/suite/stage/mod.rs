//! Where a check stands: its Harness, its conversations, and the journal of what it saw.

mod house;
mod journal;
mod say;
mod seat;

pub use house::House;
pub use journal::Journal;
pub use say::{RequestExt, bash, call, calls, events, raw, reasoning, refusal, text};
pub use seat::{Seat, encoded, surface};

use super::case::{Halt, Outcome, failed};
use super::harness::Wire;
use super::orchestrator::{Desk, Orchestrator};
use crate::model::{Lane, ScriptedModel};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// What all checks of a run share.
#[derive(Debug)]
pub struct World {
    /// The fake Orchestrator.
    pub orchestrator: Orchestrator,
    /// The scripted model.
    pub model: ScriptedModel,
    /// Tells this run's conversations from another's.
    pub tag: String,
    /// A folder that the Harness's working tools can see.
    pub folder: PathBuf,
    /// Megabytes whose allocation makes the Harness's memory guard fire, when its owner says so.
    pub memory_hog: Option<u64>,
}

/// A check's place.
#[derive(Debug)]
pub struct Stage {
    /// The check.
    pub id: &'static str,
    /// What all share.
    pub world: Arc<World>,
    /// The Harness it talks to.
    pub house: House,
    journal: Arc<Journal>,
    wire: Wire,
    opened: Mutex<Vec<Opened>>,
}

#[derive(Debug)]
struct Opened {
    path: String,
    lane: Arc<Lane>,
    desk: Arc<Desk>,
}

impl Stage {
    /// A place for this check.
    pub fn new(id: &'static str, world: Arc<World>, house: House, journal: Arc<Journal>) -> Self {
        let wire = house.wire().told_to(&journal);
        Self { id, world, house, journal, wire, opened: Mutex::default() }
    }

    /// The Harness's routes.
    pub fn wire(&self) -> &Wire {
        &self.wire
    }

    /// A conversation of the Agent `coder`, its surface live: `done` and `more` on the Menu, `done` allowed.
    pub fn seat(&self, name: &str) -> Seat<'_> {
        self.seat_of("coder", name)
    }

    /// The same of another Agent.
    pub fn seat_of(&self, agent: &str, name: &str) -> Seat<'_> {
        let key = self.id.replace('.', "-");
        let iid = format!("{}/root/{agent}/{key}-{name}", self.world.tag);
        self.seat_at(agent, &iid)
    }

    /// The conversation with this name, whatever it looks like.
    pub fn seat_at(&self, agent: &str, iid: &str) -> Seat<'_> {
        let model = iid.replace('/', ".");
        let lane = self.world.model.lane(&model);
        let desk = self.world.orchestrator.desk(iid);
        let seat = Seat::new(self, agent, iid, &model, lane, desk);
        seat.desk.set(surface(iid, &["done", "more"], &["done"]));
        let opened = Opened { path: seat.path(), lane: Arc::clone(&seat.lane), desk: Arc::clone(&seat.desk) };
        self.opened.lock().unwrap_or_else(PoisonError::into_inner).push(opened);
        seat
    }

    /// A folder of the check's own for working tools.
    pub fn folder(&self) -> Result<PathBuf, Halt> {
        let folder = self.world.folder.join(self.id);
        match std::fs::create_dir_all(&folder) {
            Ok(()) => Ok(folder),
            Err(error) => failed(format!("{} cannot be made: {error}", folder.display())),
        }
    }

    /// Says in the journal what is waited for, so that a check that runs out of time tells it.
    pub async fn wait<T>(&self, what: &str, event: impl Future<Output = T>) -> T {
        self.journal.wait_for(what);
        let value = event.await;
        self.journal.waited();
        value
    }

    /// What holds for every check that passed: the model was asked nothing malformed.
    pub fn well_formed(&self) -> Outcome {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        for request in opened.iter().flat_map(|opened| opened.lane.requests()) {
            if !request.problems.is_empty() {
                let body: String = request.body_text.chars().take(2_000).collect();
                return failed(format!(
                    "the model was sent a malformed request: {}\n{body}",
                    request.problems.join("; ")
                ));
            }
        }
        Ok(())
    }

    /// Ends what the check left running, so that the Harness is free of it.
    pub async fn clear(&self) {
        let opened = std::mem::take(&mut *self.opened.lock().unwrap_or_else(PoisonError::into_inner));
        for one in opened {
            one.desk.leave();
            one.lane.close();
            // A Harness that is gone has nothing left to end.
            let _ = self.wire.call("POST", &format!("{}/abort", one.path), None).await;
        }
    }
}
