//! What the Orchestrator's shell does: one request goes out, and what comes back.

use super::Fate;
use crate::mutant::Mutant;
use crate::world::World;
use crate::world::pod::{Pod, Seat};
use jr2_harness::conversation::Entry;
use jr2_orchestrator::run::core::{Effect, Input};
use jr2_orchestrator::turn::{ListedKill, TurnInput};
use jr2_orchestrator::workspace::Provisioned;
use jr2_shared::harness::{AdmitAnswer, Position};

impl World {
    pub(super) fn do_task(&mut self, at: usize, fate: Fate) {
        let task = self.tasks[at].clone();
        let again = fate == Fate::AnswerLost;
        match fate {
            Fate::Answered => {}
            Fate::AnswerLost => {
                self.spend();
                self.left.wire -= 1;
            }
            Fate::Orphaned => {
                self.spend();
                self.left.orchestrator_crashes -= 1;
            }
            Fate::Blind => {
                self.spend();
                self.left.blind_reads -= 1;
            }
        }
        let blind = fate == Fate::Blind;
        let answers: Vec<Input> = match &task.effect {
            Effect::Provision(spec) => {
                self.pods.insert(spec.name.clone(), Pod::default());
                let provisioned = Provisioned {
                    uid: "u".to_owned(),
                    repos: vec![("target".to_owned(), "/w/target".to_owned())],
                    branch: "b".to_owned(),
                };
                vec![Input::Provisioned { sandbox: spec.name.clone(), provisioned }]
            }
            Effect::Teardown { spec, uid } => {
                self.pods.remove(&spec.name);
                self.ghost.workspace_gone(&spec.name);
                vec![Input::TornDown { sandbox: spec.name.clone(), uid: uid.clone(), branches: Vec::new() }]
            }
            Effect::AskHeld { serial, place } => {
                let pod = self.pod(place.sandbox.as_deref());
                let held = pod.and_then(|p| p.conversations.get(&place.iid)).is_some_and(|c| c.log.is_seated());
                vec![Input::Turn { serial: *serial, input: TurnInput::Held(held || blind) }]
            }
            Effect::ReadKills { serial, place } => {
                let pod = self.pod(place.sandbox.as_deref());
                let list = pod.filter(|_| !blind).map(|pod| ListedKill::of(pod.kills.kills().to_vec(), &place.iid));
                let last_end = pod.and_then(|pod| pod.last_end.clone());
                if let Some(list) = &list {
                    self.ghost.reads(list);
                }
                let kills = list.map(|list| self.with_told(list));
                vec![Input::Turn { serial: *serial, input: TurnInput::Read { kills, last_end } }]
            }
            Effect::ReadLastEnd { serial, sandbox, since } => {
                let pod = self.pod(sandbox.as_deref()).filter(|_| !blind);
                let end = pod.and_then(|pod| pod.last_end.clone()).filter(|end| end.at >= *since);
                vec![Input::Turn { serial: *serial, input: TurnInput::LastEnd(end) }]
            }
            Effect::Admit(admit) => {
                let serial = admit.serial;
                let mutant = self.mutant;
                let name = admit.place.sandbox.clone().unwrap_or_default();
                self.ghost.sent(&self.row, admit);
                let Some(pod) = self.pods.get_mut(&name) else { return };
                let admission_id = admit.admission_id.clone();
                let input = match pod.admit(admit, mutant) {
                    Seat::Answer { submission, batch, carried } => TurnInput::Admitted {
                        admission_id,
                        answer: AdmitAnswer {
                            stream_url: format!("/agents/{}/x", admit.place.agent),
                            offset: batch.to_string(),
                            submission_id: submission,
                            carried,
                        },
                    },
                    Seat::NotHeld => TurnInput::AdmitRefused {
                        admission_id,
                        status: 404,
                        error: "not held".to_owned(),
                        kept: Some(false),
                    },
                    Seat::Full => {
                        TurnInput::AdmitRefused { admission_id, status: 429, error: "full".to_owned(), kept: None }
                    }
                };
                vec![Input::Turn { serial, input }]
            }
            Effect::Watch { .. } => return self.watch(at, again),
            Effect::Abort(pending) => {
                let name = pending.sandbox.clone().unwrap_or_default();
                let mutant = self.mutant;
                let (iid, up_to) = (pending.abort.iid.as_str().to_owned(), pending.abort.up_to.clone());
                let Some(pod) = self.pods.get_mut(&name) else {
                    self.tasks.remove(at);
                    return;
                };
                match pod.abort(&iid, &up_to, mutant) {
                    Some(unprompted) => vec![Input::Aborted { iid, up_to: Some(up_to), unprompted }],
                    None => {
                        self.tasks[at].cursor = 1;
                        if fate == Fate::Orphaned {
                            self.restart_orchestrator();
                        }
                        return;
                    }
                }
            }
            Effect::Adopt { .. } | Effect::Do { .. } | Effect::Forget { .. } => Vec::new(),
        };
        if again {
            return;
        }
        if fate == Fate::Orphaned {
            return self.restart_orchestrator();
        }
        self.tasks.remove(at);
        self.inbox.extend(answers);
    }

    fn with_told(&self, mut list: Vec<ListedKill>) -> Vec<ListedKill> {
        if self.mutant == Some(Mutant::NoTold) {
            for kill in &mut list {
                kill.told = false;
            }
        }
        list
    }

    /// The stream's next events, up to the settlement.
    fn watch(&mut self, at: usize, twice: bool) {
        let Effect::Watch { serial, place, submission, .. } = self.tasks[at].effect.clone() else { return };
        let cursor = self.tasks[at].cursor;
        let name = place.sandbox.clone().unwrap_or_default();
        let found = self.pods.get(&name).and_then(|pod| pod.conversations.get(&place.iid));
        let Some(conversation) = found.filter(|c| c.log.is_seated()) else {
            self.tasks.remove(at);
            let input = TurnInput::ConversationLost { submission_id: submission };
            self.inbox.push_back(Input::Turn { serial, input });
            return;
        };
        let mut inputs = Vec::new();
        let mut over = false;
        for (batch, entries) in conversation.record.iter().enumerate().skip(cursor as usize) {
            for (index, entry) in entries.iter().enumerate() {
                match entry {
                    Entry::MemoryLimit { id, peak, limit, .. } => inputs.push(TurnInput::StreamKill {
                        submission_id: submission.clone(),
                        id: Some(id.clone()),
                        position: Position { batch: batch as u64, index: index as u64 },
                        peak: Some(peak.clone()),
                        limit: Some(limit.clone()),
                    }),
                    Entry::Settled { settlement } if settlement.submission_id == submission && !over => {
                        let mut settlement = settlement.clone();
                        if self.mutant == Some(Mutant::NoPrompted) {
                            settlement.prompted = None;
                        }
                        inputs.push(TurnInput::Settled { settlement, allowed: Vec::new() });
                        over = true;
                    }
                    _ => {}
                }
            }
            if over {
                break;
            }
        }
        let batches = conversation.log.batches;
        self.inbox.extend(inputs.into_iter().map(|input| Input::Turn { serial, input }));
        if twice {
            return; // the same offset is asked again
        }
        if over {
            self.tasks.remove(at);
        } else {
            self.tasks[at].cursor = batches;
        }
    }
}
