//! Who watches the world and says which promise was broken ("What is claimed about notices").
//!
//! *Said* = the Submission's `prompted` record that holds the notice is durable; counted per source and Turn.

mod asks;

use crate::mutant::turns;
use crate::world::World;
use crate::world::pod::Pod;
use asks::{Asks, Found};
use jr2_orchestrator::run::core::{AdmitEffect, Input};
use jr2_orchestrator::run::{Row, Status};
use jr2_orchestrator::turn::{ListedKill, Phase, Prompt, Source, To, TurnInput};
use jr2_orchestrator::workspace::LastEnd;
use std::collections::{BTreeMap, BTreeSet};

/// What one list read showed: the kills in order with whether the reader was told, and a kernel kill.
#[derive(Clone, Debug, Default)]
struct Look {
    kills: Vec<(Source, bool)>,
    end: Option<Source>,
    /// What another admission carried, or was about to, when this one took its notices: that one says it.
    others: BTreeSet<Source>,
}

/// One admission that went out.
#[derive(Clone, Debug)]
struct Sent {
    turn: String,
    base: String,
    first_iid: String,
    continued: bool,
    workspace: Option<String>,
    /// It takes everything in its scope.
    whole: bool,
    /// What its Turn's list read showed and nobody else was about to say.
    visible: Vec<Source>,
    prompted: bool,
    /// Its words lean on what the conversation holds: they say no task.
    leans: bool,
    /// Guard kills it may not say, because this Turn was told or they are older than it.
    forbidden: BTreeSet<Source>,
}

/// One thing that was said: in which Turns, and how often its pod's conversations had been lost by the first time.
#[derive(Clone, Debug, Default)]
struct Said {
    turns: BTreeSet<String>,
    losses: u32,
}

/// The watcher.
#[derive(Clone, Debug, Default)]
pub struct Ghost {
    /// The first promise that was broken.
    pub violation: Option<String>,
    /// Excuses, permits and rules that came into play; for the witnesses.
    pub seen: BTreeSet<&'static str>,
    acknowledged: BTreeSet<Source>,
    gone: BTreeSet<String>,
    raised: BTreeMap<u64, (To, Option<Source>)>,
    folded: BTreeSet<Source>,
    told: BTreeSet<Source>,
    said: BTreeMap<Source, Said>,
    said_alone: BTreeMap<u64, Said>,
    looks: BTreeMap<u64, Option<Look>>,
    first_looks: BTreeMap<String, Option<BTreeSet<Source>>>,
    carried: BTreeMap<String, BTreeSet<u64>>,
    sent: BTreeMap<String, Sent>,
    losses: BTreeMap<String, u32>,
    /// What the list under the last read really said of who was told.
    truth: BTreeMap<String, bool>,
    asks: Asks,
}

impl Ghost {
    /// What of the watcher makes two worlds differ; which rules came into play does not.
    pub fn write(&self, text: &mut String) {
        use std::fmt::Write as _;
        let facts: [&dyn std::fmt::Debug; 11] = [
            &self.acknowledged,
            &self.gone,
            &self.raised,
            &self.folded,
            &self.told,
            &self.said,
            &self.said_alone,
            &self.looks,
            &self.first_looks,
            &self.carried,
            &self.sent,
        ];
        for fact in facts {
            let _ = write!(text, "{fact:?}|"); // writing to a String cannot fail
        }
        self.asks.write(text);
    }

    fn broken(&mut self, what: String) {
        self.violation.get_or_insert(what);
    }

    fn found(&mut self, found: Found) {
        self.seen.extend(found.seen);
        found.broken.into_iter().for_each(|what| self.broken(what));
    }

    /// The result of a call is written, with the answer of its asked pick.
    pub fn call_answered(&mut self, delivery: &str) {
        let mut found = Found::default();
        self.asks.call_answered(delivery, &mut found);
        self.found(found);
    }

    /// The Harness gave up a pick's call.
    pub fn given_up(&mut self, pick: &str) {
        self.asks.given_up(pick);
    }

    /// A prompt is durable, and behind it the receipt of an asked pick.
    pub fn receipt_said(&mut self, pod: &str, delivery: &str) {
        let mut found = Found::default();
        let losses = self.losses.get(pod).copied().unwrap_or(0);
        self.asks.prompt_said(delivery, losses, "ask answered by a receipt", &mut found);
        self.found(found);
    }

    /// A guard's kill is in its Harness's list.
    pub fn guard_killed(&mut self, workspace: &str, id: &str) {
        self.acknowledged.insert(Source::Kill(workspace.to_owned(), id.to_owned()));
    }

    /// A Harness ended.
    pub fn harness_ended(&mut self, workspace: &str, pod: &Pod, end: &LastEnd, lose: bool) {
        if lose {
            *self.losses.entry(workspace.to_owned()).or_insert(0) += 1;
            if !pod.conversations.is_empty() {
                self.seen.insert("permit conversation-lost");
            }
        }
        if let Some(before) = &pod.last_end
            && before.oom == Some(true)
        {
            let source = Source::End(workspace.to_owned(), before.at);
            if !self.raised.values().any(|(_, s)| s.as_ref() == Some(&source)) {
                self.seen.insert("excuse ended-again");
            }
        }
        if end.oom == Some(true) {
            self.seen.insert("kernel kill");
        }
    }

    /// A Workspace is gone: what is still unsaid about it has its excuse.
    pub fn workspace_gone(&mut self, workspace: &str) {
        self.gone.insert(workspace.to_owned());
        self.seen.insert("excuse workspace-gone");
    }

    /// A bash answer with the kill's verdict returned.
    pub fn told(&mut self, workspace: &str, kill: &str, _iid: &str) {
        self.told.insert(Source::Kill(workspace.to_owned(), kill.to_owned()));
        self.seen.insert("told");
    }

    /// Turns that went out.
    pub fn turns(&self) -> usize {
        self.sent.values().map(|sent| sent.turn.as_str()).collect::<BTreeSet<_>>().len()
    }

    /// A list is read: what it really says, whatever a mutant makes of it.
    pub fn reads(&mut self, kills: &[ListedKill]) {
        self.truth = kills.iter().map(|kill| (kill.id.clone(), kill.told)).collect();
    }

    /// The run is about to take an input.
    pub fn applies(&mut self, row: &Row, input: &Input) {
        let Input::Turn { serial, input: TurnInput::Read { kills, last_end } } = input else { return };
        let Some(turn) = turns(&row.root).into_iter().find(|t| row_serial(row, t.iid.as_str()) == Some(*serial)) else {
            return;
        };
        let Some(workspace) = turn.frame.workspace.clone() else { return };
        let reserved = row.ledger.pending.iter().filter(|p| p.reserved.is_some());
        let beside = turns(&row.root).into_iter().filter(|t| t.iid != turn.iid);
        let beside = beside.flat_map(|t| &t.carried).flat_map(|c| &c.notices);
        let others: BTreeSet<Source> = reserved.chain(beside).filter_map(|p| p.source.clone()).collect();
        let look = kills.as_ref().map(|kills| Look {
            others,
            kills: kills
                .iter()
                .map(|k| {
                    (Source::Kill(workspace.clone(), k.id.clone()), self.truth.get(&k.id).copied().unwrap_or(k.told))
                })
                .collect(),
            end: last_end
                .as_ref()
                .filter(|end| end.oom == Some(true))
                .map(|end| Source::End(workspace.clone(), end.at)),
        });
        if look.is_none() {
            self.seen.insert("blind read");
        }
        let key = turn_key(turn);
        let sources = look.as_ref().map(|look| look.kills.iter().map(|(s, _)| s.clone()).collect());
        self.first_looks.entry(key).or_insert(sources);
        self.looks.insert(*serial, look);
    }

    /// A save is durable.
    pub fn saved(&mut self, before: &Row, after: &Row) {
        for pending in &after.ledger.pending {
            self.raised.entry(pending.n).or_insert_with(|| (pending.to.clone(), pending.source.clone()));
        }
        let named: BTreeSet<&Source> = self.raised.values().filter_map(|(_, source)| source.as_ref()).collect();
        for source in &after.ledger.seen {
            if !named.contains(source) && self.folded.insert(source.clone()) {
                self.seen.insert("folded");
            }
        }
        let was = |n: u64| before.ledger.pending.iter().any(|p| p.n == n);
        if after.ledger.pending.iter().any(|p| p.n <= before.ledger.raised && !was(p.n)) {
            self.seen.insert("raised again");
        }
        if after.ledger.pending.iter().any(|p| p.reserved.is_some()) {
            self.seen.insert("reserved");
        }
        let mut found = Found::default();
        self.asks.saved(before, after, &mut found);
        self.found(found);
    }

    /// An admission goes out.
    pub fn sent(&mut self, row: &Row, admit: &AdmitEffect) {
        let Some(turn) = turns(&row.root).into_iter().find(|t| t.iid.as_str() == admit.place.iid && !t.is_over())
        else {
            return;
        };
        let Phase::Admitting { pending } = &turn.phase else { return };
        if !self.sent.contains_key(&admit.admission_id) {
            let mut found = Found::default();
            asks::admits(row, turn, &mut found);
            self.found(found);
        }
        let whole = matches!(pending.prompt, Prompt::Task | Prompt::ReadmitLost);
        let numbers: BTreeSet<u64> =
            admit.notices.iter().filter_map(|n| n.id.as_ref()?.strip_prefix('n')?.parse().ok()).collect();
        let key = turn_key(turn);
        let look = self.looks.get(&admit.serial).cloned().flatten();
        let mut visible = Vec::new();
        let mut forbidden = BTreeSet::new();
        if let Some(look) = &look {
            let all = look.kills.iter().map(|(s, _)| s).chain(&look.end);
            visible = all.filter(|s| !look.others.contains(s)).cloned().collect();
            let told = look.kills.iter().rposition(|(_, told)| *told).map_or(0, |at| at + 1);
            forbidden.extend(look.kills[..told].iter().map(|(s, _)| s.clone()));
        }
        if let Some(Some(first)) = self.first_looks.get(&key) {
            forbidden.extend(first.iter().cloned());
        }
        // What an unheard admission of this Turn carried is said whatever else the scope leaves out (spec N-64).
        for n in self.carried.get(&key).into_iter().flatten() {
            if let Some((_, Some(source))) = self.raised.get(n) {
                forbidden.remove(source);
            }
        }
        self.carried.entry(key.clone()).or_default().extend(&numbers);
        self.seen.insert(match &pending.prompt {
            Prompt::Task => "prompt task",
            Prompt::Nudge { .. } => "prompt nudge",
            Prompt::Wake => "prompt wake",
            Prompt::ReadmitKept { with_task: true } => "prompt re-admitted with its task",
            Prompt::ReadmitKept { with_task: false } => "prompt re-admitted",
            Prompt::ReadmitLost => "prompt re-admitted, conversation lost",
        });
        self.sent.entry(admit.admission_id.clone()).or_insert(Sent {
            turn: key,
            base: turn.frame.base.as_str().to_owned(),
            first_iid: turn.frame.iid.as_str().to_owned(),
            continued: turn.frame.continued,
            workspace: turn.frame.workspace.clone(),
            whole,
            visible,
            prompted: false,
            leans: matches!(
                pending.prompt,
                Prompt::Nudge { .. } | Prompt::Wake | Prompt::ReadmitKept { with_task: false }
            ),
            forbidden,
        });
    }

    /// A Submission's rendered message is durable: what it carried was said.
    pub fn prompted(
        &mut self,
        workspace: &str,
        iid: &str,
        (admission, carried): (Option<String>, Vec<String>),
        first: bool,
    ) {
        let Some(sent) = admission.as_ref().and_then(|id| self.sent.get_mut(id)) else {
            return self.broken(format!("{iid} was prompted for an admission that never went out"));
        };
        if std::mem::replace(&mut sent.prompted, true) && self.losses.get(workspace).copied().unwrap_or(0) == 0 {
            return self.broken(format!("{} was prompted twice", admission.unwrap_or_default()));
        }
        let sent = sent.clone();
        if sent.leans && first {
            return self.broken(format!("{iid} was asked to go on, and its conversation holds nothing"));
        }
        let losses = self.losses.get(workspace).copied().unwrap_or(0);
        for id in carried {
            let Some(n) = id.strip_prefix('n').and_then(|n| n.parse::<u64>().ok()) else { continue };
            let Some((to, source)) = self.raised.get(&n).cloned() else { continue };
            let in_scope = match &to {
                To::Workspace(name) => sent.workspace.as_ref() == Some(name) && name == workspace,
                To::Conversation(base) => sent.continued && *base == sent.base,
                To::Turn(first) => *first == sent.first_iid,
            };
            if !in_scope {
                self.broken(format!("{id} for {to:?} was said to {iid}"));
            }
            if let Some(source) = source.as_ref().filter(|s| !sent.whole && s.is_guard_kill()) {
                self.seen.insert("guard kill said within its Turn");
                if sent.forbidden.contains(source) {
                    self.broken(format!("{source:?} was said within the Turn although it was told, or older than it"));
                }
            }
            if let Some(Source::Pick(_, delivery)) = &source {
                let mut found = Found::default();
                self.asks.prompt_said(delivery, losses, "ask answered by a notice", &mut found);
                self.found(found);
            }
            let said = match source.clone() {
                Some(source) => self.said.entry(source).or_default(),
                None => self.said_alone.entry(n).or_default(),
            };
            if said.turns.is_empty() {
                said.losses = losses;
            }
            said.turns.insert(sent.turn.clone());
            let permits = (losses - said.losses) as usize;
            if said.turns.len() > 1 + permits {
                let turns = said.turns.clone();
                self.broken(format!("{id} ({source:?}) was said in {turns:?}"));
            }
        }
    }

    /// Conservation, in every state.
    pub fn check(&mut self, world: &World) {
        let row = &world.row;
        if row.status.is_ended() {
            self.seen.insert("excuse run-ended");
            return;
        }
        let mut kept: BTreeSet<u64> = row.ledger.pending.iter().map(|p| p.n).collect();
        for turn in turns(&row.root) {
            kept.extend(turn.carried.iter().flat_map(|c| c.notices.iter().map(|p| p.n)));
        }
        kept.extend(
            row.aborts.iter().filter_map(|a| a.abort.carried.as_ref()).flat_map(|c| c.notices.iter().map(|p| p.n)),
        );
        let lost = row.ledger.seen.iter().find(|source| {
            let of_gone = match source {
                Source::Kill(ws, _) | Source::End(ws, _) => self.gone.contains(ws),
                Source::Pick(_, delivery) => self.asks.is_excused(delivery),
                Source::Place(..) => false,
            };
            let held = self.raised.iter().any(|(n, (_, s))| s.as_ref() == Some(source) && kept.contains(n));
            !of_gone && !held && !self.said.contains_key(source) && !self.folded.contains(source)
        });
        if let Some(lost) = lost.cloned() {
            self.broken(format!("{lost:?} is seen, and nobody keeps it or said it"));
        }
        let unseen = self.acknowledged.iter().find(|source| {
            let Source::Kill(workspace, id) = source else { return false };
            let listed = world.pods.get(workspace).is_some_and(|pod| pod.kills.kills().iter().any(|k| k.id == *id));
            !row.ledger.seen.contains(source) && !listed && !self.gone.contains(workspace)
        });
        if unseen.is_some() {
            self.seen.insert("excuse evicted");
        }
        let mut found = Found::default();
        Asks::check(world, &mut found);
        self.found(found);
    }

    /// Delivery, when everything is over.
    pub fn check_end(&mut self, world: &World) {
        if world.row.status != Status::Done {
            return self.broken(format!("the run ended as {:?}: {:?}", world.row.status, world.row.reason));
        }
        let unsaid = self.sent.values().filter(|sent| sent.whole && sent.prompted).find_map(|sent| {
            let unsaid = sent.visible.iter().find(|source| {
                !self.said.contains_key(source) && !self.folded.contains(source) && !self.told.contains(source)
            });
            unsaid.map(|source| format!("{source:?} was in the list of {} and was never said", sent.turn))
        });
        if let Some(unsaid) = unsaid {
            self.broken(unsaid);
        }
        let mut found = Found::default();
        self.asks.check_end(&mut found);
        self.found(found);
    }
}

fn turn_key(turn: &jr2_orchestrator::turn::Turn) -> String {
    // Ordinals count the entries of one state, and a continued conversation goes through several.
    format!("{}@{}#{}", turn.frame.iid, turn.frame.state, turn.frame.ordinal)
}

fn row_serial(row: &Row, iid: &str) -> Option<u64> {
    fn below(actor: &jr2_orchestrator::run::Actor, iid: &str) -> Option<u64> {
        actor.invoked.values().find_map(|invoked| match &invoked.kind {
            jr2_orchestrator::run::InvokedKind::Agent(turn) if turn.iid.as_str() == iid => Some(invoked.serial),
            jr2_orchestrator::run::InvokedKind::Run(child) => below(child, iid),
            _ => None,
        })
    }
    below(&row.root, iid)
}
