//! The Harness side of the world: the shipped queue, log, step loop and kill list, without disk, clock or model.

use crate::mutant::Mutant;
use jr2_harness::conversation::{Admission, Entry, Log, Seated, closing, seating};
use jr2_harness::guard::kills::KillList;
use jr2_harness::turn::step::{self, Effect, Frame, Input, State, Stop};
use jr2_orchestrator::run::core::AdmitEffect;
use jr2_orchestrator::workspace::LastEnd;
use jr2_shared::memory_kills::{MemoryKill, Told};
use std::collections::BTreeMap;

/// One Harness and what it keeps.
#[derive(Clone, Debug, Default)]
pub struct Pod {
    /// Its conversations by iid.
    pub conversations: BTreeMap<String, Conversation>,
    /// Aborts of conversations it does not hold, as `(iid, admission)`.
    pub ahead: Vec<(String, String)>,
    /// The kept kills.
    pub kills: KillList,
    /// How it last ended.
    pub last_end: Option<LastEnd>,
    /// Kills ever.
    pub killed: u32,
    /// Times its conversations were lost.
    pub losses: u32,
}

/// One conversation.
#[derive(Clone, Debug, Default)]
pub struct Conversation {
    /// The Agent.
    pub agent: String,
    /// What is durable, batch by batch; `log` is its fold.
    pub record: Vec<Vec<Entry>>,
    /// Its fold.
    pub log: Log,
    /// What the waiting Submissions are to run.
    pub jobs: BTreeMap<String, Frame>,
    /// The Submission that runs.
    pub running: Option<Running>,
}

/// A Submission that runs.
#[derive(Clone, Debug)]
pub struct Running {
    /// The loop.
    pub state: State,
    /// What it waits for.
    pub effect: Effect,
    /// A kill struck the tool that runs: its verdict is the tool's answer.
    pub verdict: Option<String>,
    /// It was told to stop.
    pub told_to_stop: bool,
}

/// What an admission came to.
#[derive(Clone, Debug)]
pub enum Seat {
    /// The answer.
    Answer {
        /// The Submission.
        submission: String,
        /// Where to wait from.
        batch: u64,
        /// Set when it was held already.
        carried: Option<Vec<String>>,
    },
    /// `kept: false`.
    NotHeld,
    /// Too many wait.
    Full,
}

impl Conversation {
    fn append(&mut self, entries: Vec<Entry>) {
        self.log.apply(&entries);
        self.record.push(entries);
    }

    /// Starts the next Submission when none runs.
    fn drive(&mut self) {
        if self.running.is_some() {
            return;
        }
        let Some(first) = self.log.queue.first().map(|w| w.submission.clone()) else { return };
        let Some(frame) = self.jobs.remove(&first) else { return };
        let mut state = State::new(frame);
        let effect = step::step(&mut state, Input::Start).pop();
        if let Some(effect) = effect {
            self.running = Some(Running { state, effect, verdict: None, told_to_stop: false });
        }
    }

    /// Its Submission was told to stop.
    pub fn is_stopped(&self) -> bool {
        self.log.queue.first().is_some_and(|first| first.stopped)
    }

    /// Feeds the loop and takes what it asks for next. Answers the entries that became durable on the way.
    pub fn feed(&mut self, input: Input) {
        let stopped = self.is_stopped();
        let Some(running) = &mut self.running else { return };
        if stopped && !running.told_to_stop {
            running.told_to_stop = true;
            step::step(&mut running.state, Input::Stop(Stop::Abort));
        }
        match step::step(&mut running.state, input).pop() {
            Some(Effect::Finish) => {
                self.running = None;
                self.drive();
            }
            Some(effect @ Effect::Record { sync: false, .. }) => {
                // Messages alone: nothing that is promised depends on when they are written.
                running.effect = effect;
                self.write();
            }
            Some(effect) => running.effect = effect,
            None => {}
        }
    }

    /// Something at or after a batch is for whoever waits for the Submission.
    pub fn has_news(&self, submission: &str, from: u64) -> bool {
        self.record.iter().skip(from as usize).flatten().any(|entry| match entry {
            Entry::Settled { settlement } => settlement.submission_id == submission,
            Entry::MemoryLimit { .. } => true,
            _ => false,
        })
    }

    /// Writes what the loop wants written; answers it.
    pub fn write(&mut self) -> Vec<Entry> {
        let Some(Running { effect: Effect::Record { entries, .. }, .. }) = &self.running else { return Vec::new() };
        let entries = entries.clone();
        self.append(entries.clone());
        self.feed(Input::Recorded);
        entries
    }

    /// Ids of the notices that this Submission's admission carried.
    pub fn carried_by(&self, submission: &str) -> Option<(Option<String>, Vec<String>)> {
        self.record.iter().flatten().find_map(|entry| match entry {
            Entry::Admitted { submission: of, admission, carried } if of == submission => {
                Some((admission.clone(), carried.clone()))
            }
            _ => None,
        })
    }
}

impl Pod {
    /// Seats an admission as the Hall does.
    pub fn admit(&mut self, admit: &AdmitEffect, mutant: Option<Mutant>) -> Seat {
        let iid = admit.place.iid.clone();
        let held = self.conversations.get(&iid).is_some_and(|c| c.log.is_seated());
        if admit.kept && !held && mutant != Some(Mutant::NoKept) {
            return Seat::NotHeld;
        }
        let ahead: Vec<String> = self.ahead.iter().filter(|(of, _)| *of == iid).map(|(_, id)| id.clone()).collect();
        let conversation = self.conversations.entry(iid.clone()).or_default();
        conversation.agent.clone_from(&admit.place.agent);
        let id = (mutant != Some(Mutant::NoAdmissionIds)).then_some(admit.admission_id.as_str());
        let batch = conversation.log.batches;
        let (ordinal, aborted) = match conversation.log.queue.admit(id, &ahead) {
            Admission::Held(Seated { submission, batch, carried }) => {
                return Seat::Answer { submission, batch, carried: Some(carried) };
            }
            Admission::Full => return Seat::Full,
            Admission::Seat(ordinal) => (ordinal, false),
            Admission::SeatAborted(ordinal) => (ordinal, true),
        };
        let submission = format!("s-{ordinal}-{}", self.losses);
        let carried: Vec<String> = admit.notices.iter().filter_map(|n| n.id.clone()).collect();
        if !aborted {
            let mut job = frame(admit, &submission);
            if mutant == Some(Mutant::NoReceipt) {
                job.receipt = None;
            }
            conversation.jobs.insert(submission.clone(), job);
        }
        let entries = seating(&submission, Some(admit.admission_id.clone()), carried, aborted);
        conversation.append(entries);
        conversation.drive();
        Seat::Answer { submission, batch, carried: None }
    }

    /// Ends Submissions; `None` = they have not settled yet. Answers the admissions that no model was asked with.
    pub fn abort(&mut self, iid: &str, up_to: &str, mutant: Option<Mutant>) -> Option<Vec<String>> {
        let unprompted =
            |yes: bool| if yes && mutant != Some(Mutant::NoUnprompted) { vec![up_to.to_owned()] } else { Vec::new() };
        let Some(conversation) = self.conversations.get_mut(iid).filter(|c| c.log.is_seated()) else {
            let ahead = (iid.to_owned(), up_to.to_owned());
            if !self.ahead.contains(&ahead) {
                self.ahead.push(ahead);
            }
            return Some(unprompted(true));
        };
        let abort = conversation.log.queue.abort(Some(up_to));
        if abort.remember {
            conversation.append(vec![Entry::AbortedAhead { up_to: up_to.to_owned() }]);
        }
        let open = conversation.log.queue.waiting().any(|w| abort.ends.contains(&w.submission));
        (!open).then(|| unprompted(!conversation.log.queue.was_prompted(up_to)))
    }

    /// The guard fires: the kill is in the list before it is on any stream, and every tool that runs dies of it.
    pub fn kill(&mut self, now: u64, streams: bool) -> String {
        self.killed += 1;
        let kill = MemoryKill {
            id: format!("k{}", self.killed),
            at: instant(now),
            peak: Some("1.9Gi".to_owned()),
            limit: Some("2Gi".to_owned()),
            told: Vec::new(),
        };
        self.kills.add(kill.clone());
        if streams {
            for conversation in self.conversations.values_mut() {
                if conversation.log.queue.first().is_some() {
                    let (id, at) = (kill.id.clone(), kill.at.clone());
                    let (peak, limit) = ("1.9Gi".to_owned(), "2Gi".to_owned());
                    conversation.append(vec![Entry::MemoryLimit { id, at, peak, limit }]);
                }
                if let Some(running) = &mut conversation.running
                    && matches!(running.effect, Effect::RunTool { .. })
                {
                    running.verdict.get_or_insert_with(|| kill.id.clone());
                }
            }
        }
        kill.id
    }

    /// A bash answer with a kill's verdict returned to its conversation.
    pub fn told(&mut self, kill: &str, agent: &str, iid: &str) {
        self.kills.told(kill, Told { agent: agent.to_owned(), instance_id: iid.to_owned() });
    }

    /// The process ends and another one starts over what it kept.
    pub fn crash(&mut self, end: LastEnd, lose: bool) {
        self.last_end = Some(end);
        self.ahead.clear();
        if lose {
            self.losses += 1;
            self.conversations.clear();
            return;
        }
        for conversation in self.conversations.values_mut() {
            conversation.running = None;
            conversation.jobs.clear();
            let entries = closing(&conversation.log);
            if !entries.is_empty() {
                conversation.append(entries);
            }
        }
    }
}

fn frame(admit: &AdmitEffect, submission: &str) -> Frame {
    Frame {
        iid: admit.place.iid.clone(),
        submission: submission.to_owned(),
        prompt: admit.message.clone(),
        cwd: admit.cwd.clone(),
        notices: admit.notices.iter().map(|n| n.notice.clone()).collect(),
        shm_private: true,
        working_tools: vec!["bash".to_owned()],
        receipt: admit.receipt.clone(),
    }
}

/// Wall milliseconds as the guard writes them.
pub fn instant(ms: u64) -> String {
    let (seconds, millis) = (ms / 1_000, ms % 1_000);
    format!("1970-01-01T{:02}:{:02}:{:02}.{millis:03}Z", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}
