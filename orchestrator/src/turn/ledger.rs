//! The ledger: every notice of one run from its raise until it was said (spec 9, seed ADR-0062).
//!
//! Plain data in the run's row. A notice is *pending* until an admission that carried it was answered; an admission that
//! goes out *reserves* what it carries, so that no other one takes it. `seen` holds every source ever raised: a kill that
//! is read twice, on two paths or after a restore, is one notice.

use super::faults;
use super::kills::ListedKill;
use jr2_shared::notice::{CarriedNotice, NOTICES_MAX, Notice, TURN_PART_MAX_BYTES};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Every notice of one run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    /// Not delivered yet, in the order they were raised.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<Pending>,
    /// Every source raised that can still be read again (spec N-2, N-23, decision 10).
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub seen: BTreeSet<Source>,
    /// Raises so far: the next notice's number.
    #[serde(default)]
    pub raised: u64,
}

/// One notice (spec N-1).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pending {
    /// Its number in the order of raises; it names the notice on the wire (decision 31).
    pub n: u64,
    /// What it says.
    pub notice: Notice,
    /// Who hears it.
    pub to: To,
    /// What it was raised from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// The admission that carries it and has no answer yet (spec N-11, N-12).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved: Option<String>,
}

impl Pending {
    /// Its id on the wire (decision 31).
    pub fn id(&self) -> String {
        format!("n{}", self.n)
    }

    fn carried(&self) -> CarriedNotice {
        CarriedNotice { id: Some(self.id()), notice: self.notice.clone() }
    }
}

/// Who hears a notice (spec N-7, N-8).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum To {
    /// The next admission of any Agent in this Sandbox.
    Workspace(String),
    /// The next continued Turn of this Agent (its base iid).
    Conversation(String),
    /// This one Turn (its first iid), and nobody after it: a fresh Turn's own "this conversation is new" (spec N-78).
    Turn(String),
}

/// What a notice was raised from; the same source never raises twice (spec N-18 to N-21).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// A guard kill: Sandbox and the kill's id.
    Kill(String, String),
    /// A guard kill of a Harness that gives no ids: conversation and place on its stream (spec N-20).
    Place(String, u64, u64),
    /// A kernel kill: Sandbox and the instant its Harness ended, in wall milliseconds (spec N-21).
    End(String, u64),
    /// A pick's answer: the conversation and the pick's delivery.
    Pick(String, String),
}

impl Source {
    /// Of a guard kill on the list: Sandbox and id. A kill without an id has no place in the list's order.
    pub fn listed_kill(&self) -> Option<(&str, &str)> {
        match self {
            Self::Kill(workspace, id) => Some((workspace, id)),
            _ => None,
        }
    }

    /// A guard kill, told by id or by place.
    pub fn is_guard_kill(&self) -> bool {
        matches!(self, Self::Kill(..) | Self::Place(..))
    }
}

impl Ledger {
    /// Raises a notice. `false`: its source was seen, or an equal sourceless one for the same hearer is pending
    /// (spec N-19, N-22); nothing changed.
    pub fn raise(&mut self, notice: Notice, to: To, source: Option<Source>) -> bool {
        match &source {
            Some(source) if self.seen.contains(source) => return false,
            Some(source) => {
                self.seen.insert(source.clone());
            }
            // One that is on its way may be heard before this happened: it does not stand for this one.
            None if self
                .pending
                .iter()
                .any(|p| p.source.is_none() && p.reserved.is_none() && p.to == to && p.notice == notice) =>
            {
                return false;
            }
            None => {}
        }
        self.raised += 1;
        self.pending.push(Pending { n: self.raised, notice, to, source, reserved: None });
        true
    }

    /// Raises "this conversation is new". One that is still to be said stands for this one too: it is said once, with the
    /// reason that tells more (spec N-67).
    pub fn raise_new(&mut self, reason: String, to: To) {
        let waits =
            |p: &&mut Pending| p.reserved.is_none() && p.to == to && matches!(p.notice, Notice::ConversationNew { .. });
        match self.pending.iter_mut().find(waits) {
            Some(_) if reason == faults::HOLDS_NO_LONGER => {}
            Some(pending) => pending.notice = Notice::ConversationNew { reason },
            None => {
                self.raise(Notice::ConversationNew { reason }, to, None);
            }
        }
    }

    /// Raises a kernel kill that a Turn faulted on. A list read may have raised it already without an Agent; as long as it
    /// is not on its way it names the Agent now (spec N-81).
    pub fn raise_fault(&mut self, notice: Notice, to: To, source: Source) {
        let waiting = self.pending.iter_mut().find(|p| p.reserved.is_none() && p.source.as_ref() == Some(&source));
        match waiting {
            Some(pending) => pending.notice = notice,
            None => {
                self.raise(notice, to, Some(source));
            }
        }
    }

    /// Raises what a list read brought: the newest kill, unless it was seen; the older ones are marked seen and give no
    /// notice of their own (spec N-30). `kills` is oldest first.
    pub fn raise_listed(&mut self, workspace: &str, kills: &[ListedKill]) -> bool {
        let Some((newest, older)) = kills.split_last() else { return false };
        let notice = Notice::memory_limit(None, newest.limit.clone(), newest.peak.clone());
        let source = |kill: &ListedKill| Source::Kill(workspace.to_owned(), kill.id.clone());
        let mut changed = self.raise(notice, To::Workspace(workspace.to_owned()), Some(source(newest)));
        for kill in older {
            changed |= self.seen.insert(source(kill));
        }
        changed
    }

    /// Reserves for an admission what `wants` says, in the order raised and within the caps (spec N-11, decision 12): the first
    /// one always goes, because the Harness cuts its words.
    pub fn take(&mut self, admission_id: &str, wants: impl Fn(&Pending) -> bool) -> Vec<CarriedNotice> {
        let mut taken = Vec::new();
        let mut bytes = 0;
        for pending in self.pending.iter_mut().filter(|p| p.reserved.is_none()) {
            if !wants(pending) {
                continue;
            }
            bytes += serde_json::to_string(&pending.notice).map_or(0, |text| text.len());
            if taken.len() == NOTICES_MAX || (bytes > TURN_PART_MAX_BYTES && !taken.is_empty()) {
                break;
            }
            pending.reserved = Some(admission_id.to_owned());
            taken.push(pending.carried());
        }
        taken
    }

    /// What an admission that has no answer yet carries: a re-send says the same to the byte (decision 31).
    pub fn reserved(&self, admission_id: &str) -> Vec<CarriedNotice> {
        self.pending.iter().filter(|p| p.reserved.as_deref() == Some(admission_id)).map(Pending::carried).collect()
    }

    /// The admission was answered: what it carried leaves the ledger (spec N-13). `carried` is the answer's own list when
    /// the Harness held the admission already; what is not on it stays pending (decision 31).
    pub fn deliver(&mut self, admission_id: &str, carried: Option<&[String]>) -> Vec<Pending> {
        let mut delivered = Vec::new();
        let mut rest = Vec::with_capacity(self.pending.len());
        for mut pending in std::mem::take(&mut self.pending) {
            let rode = pending.reserved.as_deref() == Some(admission_id);
            if rode {
                pending.reserved = None;
            }
            if rode && carried.is_none_or(|ids| ids.contains(&pending.id())) {
                delivered.push(pending);
            } else {
                rest.push(pending);
            }
        }
        self.pending = rest;
        delivered
    }

    /// The admission failed: what it reserved is pending again (spec N-14).
    pub fn release(&mut self, admission_id: &str) {
        for pending in self.pending.iter_mut().filter(|p| p.reserved.as_deref() == Some(admission_id)) {
            pending.reserved = None;
        }
    }

    /// Delivered notices that nobody heard are pending again, each with its own source and in its old place (spec N-57,
    /// N-61).
    pub fn raise_again(&mut self, notices: Vec<Pending>) {
        self.pending.extend(notices);
        self.pending.sort_by_key(|p| p.n);
    }

    /// A Turn is over: nobody else hears what was for it alone.
    pub fn forget_turn(&mut self, turn: &str) {
        self.pending.retain(|p| !matches!(&p.to, To::Turn(to) if to == turn));
    }

    /// A Sandbox is gone: nothing of it can be read again, and nobody works in it (decision 10). Answers how many pending
    /// notices went with it.
    pub fn forget_workspace(&mut self, workspace: &str) -> usize {
        self.seen.retain(|source| match source {
            Source::Kill(of, _) | Source::End(of, _) => of != workspace,
            Source::Place(..) | Source::Pick(..) => true,
        });
        let before = self.pending.len();
        self.pending.retain(|p| !matches!(&p.to, To::Workspace(to) if to == workspace));
        before - self.pending.len()
    }

    /// A conversation is freed: its stream is read by nobody any more (decision 10).
    pub fn forget_conversation(&mut self, iid: &str) {
        self.seen.retain(|source| !matches!(source, Source::Place(of, ..) | Source::Pick(of, _) if of == iid));
    }

    /// Nothing was ever raised: the row says nothing about it.
    pub fn is_empty(&self) -> bool {
        self.raised == 0
    }
}
