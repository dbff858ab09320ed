//! The world: one run's row and its tasks on one side, Harnesses on the other, and a wire between them that loses and
//! repeats. Every decision in it is the shipped code's.

mod act;
pub mod pod;

pub use act::{Action, Choice, Fate, LEAVE};

use crate::ghost::Ghost;
use crate::mutant::Mutant;
use crate::scene::{Budget, Scene};
use jr2_orchestrator::run::core::{self, Effect, Facts, Input, Reply};
use jr2_orchestrator::run::{Row, first_row};
use jr2_orchestrator::workflow::Program;
use jr2_shared::ids::RunId;
use pod::Pod;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::sync::Arc;

/// The key of the Instance Harness among the pods.
pub const INSTANCE: &str = "";
/// When the world begins, in wall milliseconds.
const BEGIN_MS: u64 = 100_000;

/// Something the Orchestrator's shell is doing.
#[derive(Clone, Debug)]
pub struct Task {
    /// What.
    pub effect: Effect,
    /// A watch's place on its stream; for an abort, whether it was sent.
    pub cursor: u64,
}

/// Everything there is.
#[derive(Clone)]
pub struct World {
    /// The program.
    pub program: Arc<Program>,
    /// What is durable of the run.
    pub row: Row,
    /// What the Orchestrator's shell is doing.
    pub tasks: Vec<Task>,
    /// What came back and was not applied yet.
    pub inbox: VecDeque<Input>,
    /// Harnesses by Sandbox.
    pub pods: BTreeMap<String, Pod>,
    /// Wall milliseconds; moves only when something ends or dies, so that equal states stay equal.
    pub now: u64,
    /// What may still go wrong.
    pub left: Budget,
    /// The rule that is broken on purpose.
    pub mutant: Option<Mutant>,
    /// Who watches.
    pub ghost: Ghost,
}

impl World {
    /// The run has started; nothing has happened yet.
    pub fn new(scene: &Scene, left: Budget, mutant: Option<Mutant>) -> Self {
        let id = RunId::from_random([7; 16]);
        let row = first_row(&scene.program, scene.name, json!({}), BEGIN_MS, id);
        let mut world = Self {
            program: scene.program.clone(),
            row,
            tasks: Vec::new(),
            inbox: VecDeque::new(),
            pods: BTreeMap::from([(INSTANCE.to_owned(), Pod::default())]),
            now: BEGIN_MS,
            left,
            mutant,
            ghost: Ghost::default(),
        };
        world.apply(&Input::Start);
        world.settle();
        world
    }

    /// Applies one input as a run's task does: save, then effects.
    pub fn apply(&mut self, input: &Input) -> Reply {
        let facts = Facts { now: self.now, seed: self.row.next_serial };
        let outcome = core::apply(&self.program, &self.row, input, facts);
        let (mut row, effects, reply) = (outcome.row, outcome.effects, outcome.reply);
        if !outcome.changed {
            self.perform(effects);
            return reply;
        }
        if let Some(mutant) = self.mutant {
            mutant.change(&self.row, &mut row);
        }
        self.ghost.saved(&self.row, &row);
        self.row = row;
        self.perform(effects);
        reply
    }

    fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            if let Effect::Forget { serial } = effect {
                self.tasks.retain(|task| task.effect.serial() != Some(serial));
                continue;
            }
            let serial = effect.serial();
            if serial.is_some() {
                self.tasks.retain(|task| task.effect.serial() != serial);
            }
            let cursor = match &effect {
                Effect::Watch { offset, .. } => offset.parse().unwrap_or(0),
                _ => 0,
            };
            self.tasks.push(Task { effect, cursor });
        }
        if self.row.aborts.is_empty() {
            self.tasks.retain(|task| !matches!(task.effect, Effect::Abort(_)));
        }
    }

    /// The Orchestrator dies and comes back from its row.
    pub fn restart_orchestrator(&mut self) {
        self.tasks.clear();
        self.inbox.clear();
        let again = core::reattach(&self.program, &self.row);
        self.perform(again.effects);
        self.inbox.extend(again.inputs);
        self.settle();
    }

    /// Takes what came back, and what follows from each save. A crash in between is a crash after the request arrived.
    pub fn settle(&mut self) {
        loop {
            if let Some(input) = self.row.queue.front().cloned() {
                let rev = self.row.rev;
                self.apply(&input);
                if self.row.rev == rev {
                    self.row.queue.pop_front(); // nothing came of it
                }
            } else if let Some(input) = self.inbox.pop_front() {
                self.ghost.applies(&self.row, &input);
                self.apply(&input);
            } else {
                return;
            }
        }
    }

    /// Makes one thing happen and looks whether what is kept is still kept; only a save can change that.
    pub fn take_step(&mut self, action: &Action) {
        let rev = self.row.rev;
        self.act(action);
        if self.row.rev != rev {
            let mut ghost = std::mem::take(&mut self.ghost);
            ghost.check(self);
            self.ghost = ghost;
        }
    }

    /// The run is over and nothing is under way.
    pub fn is_over(&self) -> bool {
        self.row.status.is_ended() && self.tasks.is_empty() && self.inbox.is_empty() && self.row.queue.is_empty()
    }

    /// Two worlds with one fingerprint go on alike.
    pub fn fingerprint(&self) -> u128 {
        let mut text = String::with_capacity(8 << 10);
        let row = &self.row;
        // The revision only counts how one came here; what it would change (ids) is in the texts below.
        let parts: [&dyn std::fmt::Debug; 9] = [
            &row.root,
            &row.ledger,
            &row.aborts,
            &row.epochs,
            &row.conversations,
            &row.queue,
            &row.status,
            &self.left_parts(),
            &self.inbox,
        ];
        for part in parts {
            let _ = write!(text, "{part:?}|"); // writing to a String cannot fail
        }
        let mut tasks: Vec<String> = self.tasks.iter().map(|task| format!("{task:?}|")).collect();
        tasks.sort_unstable();
        text.extend(tasks);
        for (name, pod) in &self.pods {
            let _ = write!(text, "{name}:{:?}{:?}{:?}{}|", pod.ahead, pod.kills, pod.last_end, pod.losses);
            for (iid, one) in &pod.conversations {
                let _ = write!(text, "{iid}{:?}{:?}{:?}", one.record, one.jobs, one.running);
                let stopped: Vec<bool> = one.log.queue.waiting().map(|w| w.stopped).collect();
                let _ = write!(text, "{stopped:?}|");
            }
        }
        self.ghost.write(&mut text);
        let digest = Sha256::digest(text.as_bytes());
        let mut first = [0; 16];
        first.copy_from_slice(&digest[..16]);
        u128::from_le_bytes(first)
    }

    fn left_parts(&self) -> (Budget, u64) {
        (self.left, self.now)
    }
}
