//! Picks that ask: who still owes the answer, and how often it was said.
//!
//! An answer is said by its call's result, by the receipt behind a later prompt, or by a `pick-answer` notice. Once is
//! the rule. After a cut it may be said again, because nobody can tell whether the call had it; after a lost conversation
//! it may be said once more.

use crate::mutant::turns;
use crate::world::World;
use jr2_orchestrator::run::core::{self, Facts, Input, Reply};
use jr2_orchestrator::run::{Actor, InvokedKind, Route, Row};
use jr2_orchestrator::turn::{Pending, Phase, Source, To, Turn};
use jr2_shared::notice::Notice;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// Where one asked pick stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    /// What it asked still runs.
    Outstanding,
    /// It came back to its state.
    Back,
    /// Its Turn is over: the answer was said, or a notice has it.
    Settled,
    /// Its Turn is over, and one of the named windows took the answer.
    Excused,
}

/// One asked pick.
#[derive(Clone, Debug)]
struct Ask {
    turn: String,
    base: String,
    continued: bool,
    pick: String,
    stand: Stand,
    /// Its call's result holds the answer.
    by_call: bool,
    /// Prompts that held it, as a receipt or as a notice.
    prompts: u32,
    /// How often the conversations had been lost by the first of them.
    losses: u32,
    /// Its call was cut, or ended without it: the answer is owed to a later prompt.
    due: bool,
    /// Its call gave up before an answer came: the model was told that nobody knows.
    given_up: bool,
}

impl Ask {
    fn said(&self) -> bool {
        self.by_call || self.prompts > 0
    }
}

/// Every asked pick by its delivery.
#[derive(Clone, Debug, Default)]
pub(super) struct Asks {
    by_delivery: BTreeMap<String, Ask>,
}

/// What was noticed: broken promises, and rules that came into play.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub broken: Option<String>,
    pub seen: BTreeSet<&'static str>,
}

impl Found {
    fn broken(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }
}

impl Asks {
    /// What makes two worlds differ.
    pub fn write(&self, text: &mut String) {
        use std::fmt::Write as _;
        if !self.by_delivery.is_empty() {
            let _ = write!(text, "{:?}|", self.by_delivery); // writing to a String cannot fail
        }
    }

    /// A save is durable.
    pub fn saved(&mut self, before: &Row, after: &Row, found: &mut Found) {
        for turn in turns(&after.root) {
            for kept in turn.picks.iter().filter(|kept| kept.answer.outstanding || kept.answer.answered) {
                let ask = self.by_delivery.entry(kept.answer.delivery_id.clone()).or_insert_with(|| Ask {
                    turn: super::turn_key(turn),
                    base: turn.frame.base.as_str().to_owned(),
                    continued: turn.frame.continued,
                    pick: kept.pick_id.clone(),
                    stand: Stand::Outstanding,
                    by_call: false,
                    prompts: 0,
                    losses: 0,
                    due: false,
                    given_up: false,
                });
                if kept.answer.answered && ask.stand == Stand::Outstanding {
                    ask.stand = Stand::Back;
                    ask.due = turns(&before.root).iter().any(|was| is_without_call(was, &ask.turn));
                    found.seen.insert("ask came back");
                }
                ask.due |= turn.receipt_due.as_ref() == Some(&ask.pick);
            }
        }
        let restarted = |p: &&Pending| matches!(&p.notice, Notice::PickAnswer { cut, .. } if cut == "restarted");
        if after.ledger.pending.iter().any(|p| restarted(&p)) {
            found.seen.insert("ask restarted");
        }
        let live: BTreeSet<String> =
            turns(&after.root).into_iter().filter(|t| !t.is_over()).map(super::turn_key).collect();
        for (delivery, ask) in &mut self.by_delivery {
            if matches!(ask.stand, Stand::Outstanding | Stand::Back) && !live.contains(&ask.turn) {
                ask.stand = ended(delivery, ask, before, after, found);
            }
        }
    }

    /// A call's result with the answer is written.
    pub fn call_answered(&mut self, delivery: &str, found: &mut Found) {
        let Some(ask) = self.by_delivery.get_mut(delivery) else {
            return found.broken(format!("{delivery} was answered and never asked"));
        };
        found.seen.insert("ask answered in its call");
        if ask.said() {
            found.broken(format!("{delivery} was answered in its call, and had been said before"));
        }
        ask.by_call = true;
    }

    /// One of the named windows took the answer.
    pub fn is_excused(&self, delivery: &str) -> bool {
        self.by_delivery.get(delivery).is_some_and(|ask| ask.stand == Stand::Excused)
    }

    /// A pick's call gave up.
    pub fn given_up(&mut self, pick: &str) {
        self.by_delivery.values_mut().filter(|ask| ask.pick == pick).for_each(|ask| ask.given_up = true);
    }

    /// A prompt with the answer is durable.
    pub fn prompt_said(&mut self, delivery: &str, losses: u32, how: &'static str, found: &mut Found) {
        let Some(ask) = self.by_delivery.get_mut(delivery) else {
            return found.broken(format!("the answer of {delivery} was said and never asked for"));
        };
        found.seen.insert(how);
        if ask.prompts == 0 {
            ask.losses = losses;
        }
        ask.prompts += 1;
        if ask.prompts > 1 + losses.saturating_sub(ask.losses) {
            found.broken(format!("the answer of {delivery} was said in {} prompts", ask.prompts));
        }
        if ask.by_call {
            found.seen.insert("permit cut after the answer");
            if !ask.due {
                found.broken(format!("the answer of {delivery} reached its call uncut and was said again"));
            }
        }
        if ask.stand == Stand::Outstanding {
            found.broken(format!("the answer of {delivery} was said while it is outstanding"));
        }
    }

    /// In every state: other picks are refused while one is outstanding.
    pub fn check(world: &World, found: &mut Found) {
        for (turn, _) in outstanding(&world.row.root) {
            if !turn.takes_picks() {
                continue;
            }
            let input = Input::Pick {
                iid: turn.iid.as_str().to_owned(),
                pick: Some("another".to_owned()),
                event: "finish".to_owned(),
                payload: json!({}),
            };
            let facts = Facts { now: world.now, seed: world.row.next_serial };
            let outcome = core::apply(&world.program, &world.row, &input, facts);
            match outcome.reply {
                Reply::Refused { status: 400, error, .. } if !outcome.changed && error == "a pick is outstanding" => {
                    found.seen.insert("other pick refused");
                }
                reply => found.broken(format!("another pick was taken while one is outstanding: {reply:?}")),
            }
        }
    }

    /// When everything is over: what came back was said.
    pub fn check_end(&self, found: &mut Found) {
        let owed = |ask: &&Ask| matches!(ask.stand, Stand::Outstanding | Stand::Back) && !ask.said();
        if let Some((delivery, _)) = self.by_delivery.iter().find(|(_, ask)| owed(ask)) {
            found.broken(format!("the answer of {delivery} was never said"));
        }
    }
}

/// An admission goes out: none may while the Turn's pick is outstanding (decision 34).
pub(super) fn admits(row: &Row, turn: &Turn, found: &mut Found) {
    if outstanding(&row.root).iter().any(|(asking, _)| asking.frame.iid == turn.frame.iid) {
        found.broken(format!("{} is asked to go on while its pick is outstanding", turn.iid));
    }
}

/// The Turn of an asked pick is over: who has the answer now?
fn ended(delivery: &str, ask: &Ask, before: &Row, after: &Row, found: &mut Found) -> Stand {
    let Some(turn) = turns(&before.root).into_iter().find(|turn| super::turn_key(turn) == ask.turn) else {
        found.broken(format!("the Turn of {delivery} went without a save"));
        return Stand::Excused;
    };
    let is_it = |source: &Source| matches!(source, Source::Pick(_, of) if of == delivery);
    let noticed = after.ledger.pending.iter().find(|p| p.source.as_ref().is_some_and(is_it));
    if let Some(pending) = noticed {
        if !ask.continued || pending.to != To::Conversation(ask.base.clone()) {
            found.broken(format!("{:?} hears the answer of {delivery}", pending.to));
        }
        match &pending.notice {
            Notice::PickAnswer { cut, .. } if cut == "left" => found.seen.insert("ask left"),
            Notice::PickAnswer { cut, .. } if cut == "stopped" => found.seen.insert("ask stopped"),
            _ => false,
        };
        return Stand::Settled;
    }
    if !ask.continued {
        // No later Turn hears of it, also where its call's answer was lost with the conversation, or an abort had it.
        found.seen.insert("excuse fresh pick");
        return Stand::Excused;
    }
    let of_abort = after.aborts.iter().filter_map(|a| a.abort.carried.as_ref());
    if of_abort.flat_map(|c| &c.notices).any(|p| p.source.as_ref().is_some_and(is_it)) {
        return Stand::Settled; // the abort's answer says whether it was said
    }
    let raised = |row: &Row| row.epochs.get(&ask.base).copied().unwrap_or(0);
    let excuse = if ask.said() {
        return Stand::Settled;
    } else if after.status.is_ended() {
        "excuse run-ended"
    } else if raised(after) > raised(before) {
        "excuse faulted pick"
    } else if ask.stand == Stand::Back && holds_call(turn, &ask.pick) {
        "excuse left as it came back"
    } else if ask.given_up && !ask.due {
        "excuse given up"
    } else {
        found.broken(format!("the answer of {delivery} is nobody's to say: its state was left"));
        return Stand::Excused;
    };
    found.seen.insert(excuse);
    Stand::Excused
}

/// The Turn's Submission is over: no call waits for an answer that comes back now.
fn is_without_call(turn: &Turn, key: &str) -> bool {
    super::turn_key(turn) == key && matches!(turn.phase, Phase::Idle | Phase::Held { .. })
}

/// The Submission that made the pick runs, as far as the Orchestrator knows: its call may have the answer.
fn holds_call(turn: &Turn, pick: &str) -> bool {
    let is_own = |submission: &str| pick.strip_prefix(submission).is_some_and(|rest| rest.starts_with('/'));
    match &turn.phase {
        Phase::Waiting => turn.admission.as_ref().is_some_and(|a| is_own(&a.submission_id)),
        // The first admission's answer is still on its way: no other Submission can have picked.
        Phase::Admitting { pending } => pending.read && turn.receipt_due.is_none(),
        _ => false,
    }
}

/// Every live Turn whose pick's route runs.
fn outstanding(actor: &Actor) -> Vec<(&Turn, &Route)> {
    let mut all = Vec::new();
    for invoked in actor.invoked.values() {
        match (&invoked.kind, &invoked.route) {
            (InvokedKind::Agent(turn), Some(route)) if !turn.is_over() => all.push((&**turn, &**route)),
            (InvokedKind::Run(child), _) => all.extend(outstanding(child)),
            _ => {}
        }
    }
    all
}
