//! The queue of one conversation, pure: who is seated, who runs, what an abort ends, what an admission repeats
//! (spec H-11, decisions 31 and 33).

use crate::mutation::{self, Mutation};
use jr2_shared::ids::split_admission_id;
use std::collections::{HashMap, HashSet, VecDeque};

/// Most Submissions of one conversation that may wait: the protocol needs two, a person's script a few more.
pub const QUEUE_MAX: usize = 16;
/// Most aborts remembered for admissions that did not arrive; the oldest go first.
const REMEMBERED_MAX: usize = 64;

/// A Submission as the record seated it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seated {
    /// Its id.
    pub submission: String,
    /// The batch that seated it: where a reader waits from.
    pub batch: u64,
    /// Ids of the notices it carried.
    pub carried: Vec<String>,
}

/// A Submission that has not settled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Its id.
    pub submission: String,
    /// The Orchestrator's id of it.
    pub admission: Option<String>,
    /// Its rendered message is durable (decision 32).
    pub prompted: bool,
    /// An abort ends it when its turn comes. Not part of the record: a restart settles it anyway.
    pub stopped: bool,
}

/// The queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Queue {
    ordinal: u64,
    known: HashMap<String, Seated>,
    /// Submissions that were ever prompted.
    prompted: HashSet<String>,
    waiting: VecDeque<Waiting>,
    ahead: VecDeque<String>,
}

/// What an admission comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Seat it under this ordinal.
    Seat(u64),
    /// Seat it and settle it aborted in the same write: its abort came first.
    SeatAborted(u64),
    /// It is seated already: answer what was answered then.
    Held(Seated),
    /// Too many wait.
    Full,
}

/// What an abort comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Abort {
    /// Submissions it ends, in order.
    pub ends: Vec<String>,
    /// It names an admission that has not arrived, to be remembered.
    pub remember: bool,
}

impl Queue {
    /// Number of Submissions ever seated.
    pub fn ordinal(&self) -> u64 {
        self.ordinal
    }

    /// The Submission whose turn it is (spec H-11).
    pub fn first(&self) -> Option<&Waiting> {
        self.waiting.front()
    }

    /// Everyone who has not settled, in order.
    pub fn waiting(&self) -> impl Iterator<Item = &Waiting> {
        self.waiting.iter()
    }

    /// Decides an admission. `ahead` are aborts remembered outside the record, while nothing was seated here yet.
    pub fn admit(&self, admission: Option<&str>, ahead: &[String]) -> Admission {
        let known = admission.filter(|_| !mutation::is(Mutation::AdmissionRepeated));
        if let Some(seated) = known.and_then(|id| self.known.get(id)) {
            return Admission::Held(seated.clone());
        }
        if admission.is_some_and(|id| self.ahead.iter().chain(ahead).any(|up_to| covers(up_to, id))) {
            return Admission::SeatAborted(self.ordinal + 1);
        }
        if self.waiting.len() >= QUEUE_MAX {
            return Admission::Full;
        }
        Admission::Seat(self.ordinal + 1)
    }

    /// Decides an abort and marks what it ends. Without `up_to` that is everything; with it, that Submission and those
    /// before it (decision 33).
    pub fn abort(&mut self, up_to: Option<&str>) -> Abort {
        let mut remember = false;
        let ends: Vec<String> = match up_to {
            None if mutation::is(Mutation::AbortFirstOnly) => {
                self.waiting.iter().take(1).map(|w| w.submission.clone()).collect()
            }
            None => self.waiting.iter().map(|w| w.submission.clone()).collect(),
            Some(id) => match self.waiting.iter().position(|w| w.admission.as_deref() == Some(id)) {
                Some(last) => self.waiting.iter().take(last + 1).map(|w| w.submission.clone()).collect(),
                None => {
                    remember = !self.known.contains_key(id);
                    let earlier = |w: &&Waiting| w.admission.as_deref().is_some_and(|other| covers(id, other));
                    self.waiting.iter().filter(earlier).map(|w| w.submission.clone()).collect()
                }
            },
        };
        for waiting in self.waiting.iter_mut().filter(|w| ends.contains(&w.submission)) {
            waiting.stopped = true;
        }
        Abort { ends, remember }
    }

    /// Whether an admission's rendered message ever was durable, so that a model may have been asked with it (decision
    /// 32). One that never arrived was not.
    pub fn was_prompted(&self, admission: &str) -> bool {
        self.known.get(admission).is_some_and(|seated| self.prompted.contains(&seated.submission))
    }

    /// Fold: a Submission was seated.
    pub fn seat(&mut self, admission: Option<String>, seated: Seated) {
        self.ordinal += 1;
        self.waiting.push_back(Waiting {
            submission: seated.submission.clone(),
            admission: admission.clone(),
            prompted: false,
            stopped: false,
        });
        if let Some(id) = admission {
            self.known.insert(id, seated);
        }
    }

    /// Fold: an abort is remembered.
    pub fn remember(&mut self, up_to: String) {
        if self.ahead.len() >= REMEMBERED_MAX {
            self.ahead.pop_front();
        }
        self.ahead.push_back(up_to);
    }

    /// Fold: a Submission's rendered message is durable.
    pub fn prompted(&mut self, submission: &str) {
        self.prompted.insert(submission.to_owned());
        for waiting in self.waiting.iter_mut().filter(|w| w.submission == submission) {
            waiting.prompted = true;
        }
    }

    /// Fold: a Submission settled.
    pub fn settled(&mut self, submission: &str) {
        self.waiting.retain(|w| w.submission != submission);
    }
}

/// Whether an abort up to `up_to` ends admission `id`: the same one, or an earlier one of the same iid.
fn covers(up_to: &str, id: &str) -> bool {
    if up_to == id {
        return true;
    }
    match (split_admission_id(up_to), split_admission_id(id)) {
        (Some((iid, last)), Some((other, n))) => iid == other && n <= last,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seat(queue: &mut Queue, id: &str) -> Admission {
        let admission = queue.admit(Some(id), &[]);
        if let Admission::Seat(n) | Admission::SeatAborted(n) = admission {
            queue.seat(Some(id.into()), Seated { submission: format!("s-{n}"), batch: n, carried: vec![] });
            if matches!(admission, Admission::SeatAborted(_)) {
                queue.settled(&format!("s-{n}"));
            }
        }
        admission
    }

    #[test]
    fn decision_31_a_repeat_seats_nothing_even_after_it_settled() {
        let mut queue = Queue::default();
        assert_eq!(seat(&mut queue, "r/a#1"), Admission::Seat(1));
        queue.settled("s-1");
        assert!(matches!(seat(&mut queue, "r/a#1"), Admission::Held(s) if s.submission == "s-1"));
        assert_eq!(seat(&mut queue, "r/a#2"), Admission::Seat(2));
    }

    #[test]
    fn decision_33_an_abort_ends_up_to_its_admission_only() {
        let mut queue = Queue::default();
        for id in ["r/a#1", "r/a#2", "r/a#3"] {
            seat(&mut queue, id);
        }
        assert_eq!(queue.abort(Some("r/a#2")), Abort { ends: vec!["s-1".into(), "s-2".into()], remember: false });
        assert!(!queue.waiting().last().unwrap().stopped);
        assert_eq!(queue.abort(None).ends.len(), 3);
    }

    #[test]
    fn decision_33_an_abort_that_comes_first_is_remembered() {
        let mut queue = Queue::default();
        seat(&mut queue, "r/a#1");
        assert_eq!(queue.abort(Some("r/a#3")), Abort { ends: vec!["s-1".into()], remember: true });
        queue.remember("r/a#3".into());
        assert_eq!(seat(&mut queue, "r/a#2"), Admission::SeatAborted(2), "an earlier one that is late");
        assert_eq!(seat(&mut queue, "r/a#3"), Admission::SeatAborted(3));
        assert_eq!(seat(&mut queue, "r/a#4"), Admission::Seat(4));
    }

    #[test]
    fn decision_33_a_stale_abort_does_not_end_a_later_turn() {
        let mut queue = Queue::default();
        seat(&mut queue, "r/a#1");
        queue.settled("s-1");
        seat(&mut queue, "r/a#2");
        assert_eq!(queue.abort(Some("r/a#1")), Abort { ends: vec![], remember: false });
    }

    #[test]
    fn the_queue_is_bounded() {
        let mut queue = Queue::default();
        for n in 0..QUEUE_MAX {
            assert!(matches!(seat(&mut queue, &format!("r/a#{n}")), Admission::Seat(_)));
        }
        assert_eq!(seat(&mut queue, "r/a#999"), Admission::Full);
        assert!(matches!(seat(&mut queue, "r/a#0"), Admission::Held(_)), "a repeat is answered even then");
    }

    proptest! {
        /// Whatever the order of admissions, aborts and ends: an id is seated at most once, the queue keeps seating
        /// order, an abort never ends a later admission, and one that was aborted first never runs.
        #[test]
        fn queue_invariants(steps in prop::collection::vec((0u8..3, 0u64..8), 0..60)) {
            let mut queue = Queue::default();
            let mut seated = HashSet::new();
            let mut aborted_up_to: Option<u64> = None;
            for (kind, n) in steps {
                let id = format!("r/a#{n}");
                match kind {
                    0 => match seat(&mut queue, &id) {
                        Admission::Seat(_) => {
                            prop_assert!(seated.insert(n));
                            prop_assert!(aborted_up_to.is_none_or(|last| n > last));
                        }
                        Admission::SeatAborted(_) => { prop_assert!(seated.insert(n)); }
                        Admission::Held(_) => prop_assert!(seated.contains(&n)),
                        Admission::Full => {}
                    },
                    1 => {
                        let position = queue.waiting().position(|w| w.admission.as_deref() == Some(&id));
                        let abort = queue.abort(Some(&id));
                        if let Some(last) = position { prop_assert_eq!(abort.ends.len(), last + 1); }
                        if abort.remember {
                            prop_assert!(!seated.contains(&n));
                            queue.remember(id);
                            aborted_up_to = aborted_up_to.max(Some(n));
                        }
                    }
                    _ => if let Some(first) = queue.first().map(|w| w.submission.clone()) { queue.settled(&first); },
                }
            }
        }
    }
}
