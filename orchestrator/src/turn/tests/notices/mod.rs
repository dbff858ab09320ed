//! The rules of notices (spec 9) as scenarios over the pure machine: the Turns of one run over one ledger, and a fake list.

mod data;
mod delivery;
mod faults;
mod heard;
mod kernel;
mod marks;
mod readmission;
mod receipts;
mod refusals;
mod reprompts;
mod sources;

use super::*;
use jr2_shared::harness::Position;
use jr2_shared::notice::Notice;

pub(super) const ALL: &[&[fn(&mut Recorder)]] = &[
    data::ALL,
    delivery::ALL,
    faults::ALL,
    heard::ALL,
    kernel::ALL,
    marks::ALL,
    readmission::ALL,
    receipts::ALL,
    refusals::ALL,
    reprompts::ALL,
    sources::ALL,
];

/// A Harness's memory-kill list, oldest first, as the Turn under test reads it.
#[derive(Clone, Default)]
struct List(Vec<ListedKill>);

impl List {
    fn of(numbers: &[u8]) -> Self {
        Self(numbers.iter().copied().map(kill).collect())
    }

    fn kill(&mut self, n: u8) {
        self.0.push(kill(n));
    }

    /// A bash call of the reading conversation returned this kill's verdict.
    fn told(mut self, n: u8) -> Self {
        self.0.iter_mut().filter(|one| one.id == format!("k{n}")).for_each(|one| one.told = true);
        self
    }

    fn read(&self) -> TurnInput {
        TurnInput::Read { kills: Some(self.0.clone()), last_end: None }
    }

    /// The same read, while the Sandbox's record says how its Harness last ended.
    fn read_after(&self, end: LastEnd) -> TurnInput {
        TurnInput::Read { kills: Some(self.0.clone()), last_end: Some(end) }
    }
}

/// A read that failed or timed out.
fn unreadable() -> TurnInput {
    TurnInput::Read { kills: None, last_end: None }
}

/// The kill of a number: its peak tells it from the others.
fn kill(n: u8) -> ListedKill {
    let peak = Some(format!("1.{n}Gi"));
    ListedKill { id: format!("k{n}"), at: NOW + u64::from(n), peak, limit: Some("2Gi".into()), told: false }
}

fn stream_kill_of(submission_id: &str, id: Option<String>, index: u64, peak: Option<String>) -> TurnInput {
    let position = Position { batch: 1, index };
    TurnInput::StreamKill { submission_id: submission_id.to_owned(), id, position, peak, limit: Some("2Gi".into()) }
}

/// Another Agent of the same Workspace.
fn reviewer() -> Frame {
    let (base, iid) = (Iid("r/root/reviewer".into()), Iid("r/root/reviewer/0000000b".into()));
    Frame { agent: "reviewer".into(), base, iid, ..seated() }
}

/// A continued Turn in the Workspace.
fn standing() -> Frame {
    Frame { workspace: Some("ws-1".into()), ..continued() }
}

/// The next fresh Turn of the Agent: a conversation of its own.
fn later() -> Frame {
    Frame { iid: Iid("r/root/coder/0000000c".into()), ..seated() }
}

/// A notice in few words: `coder 1.1Gi` is NT1, `1.1Gi` NT2, `kernel` NT3, `coder kernel` NT3a, `kill` NT4.
fn words(notice: &Notice) -> String {
    match notice {
        Notice::MemoryLimit { agent, limit, peak } => {
            let what = match (limit, peak) {
                (_, Some(peak)) => peak.as_str(),
                (Some(_), None) => "kernel",
                (None, None) => "kill",
            };
            agent.iter().map(String::as_str).chain([what]).collect::<Vec<_>>().join(" ")
        }
        Notice::ConversationNew { reason } => format!("new: {}", reason.split(':').next().unwrap_or_default()),
        Notice::PickAnswer { pick, cut, .. } => format!("{pick} {cut}"),
    }
}

const GONE: &str = "new: the Harness no longer holds it";

impl<'a> Drive<'a> {
    /// The run's next Turn, over the same ledger. The one before it is forgotten, not left.
    fn next(&mut self, frame: Frame) {
        self.turn = Turn::new(frame);
        self.question = None;
        self.effects.clear();
    }

    /// The run's next Turn, up to its admission: what it sends is in `says`.
    fn begin(&mut self, frame: Frame, list: &List) {
        self.next(frame);
        self.feed(TurnInput::Begin { held_before: false });
        self.feed(TurnInput::AbortsClear);
        self.read(list);
    }

    /// The next continued Turn, after the Harness was asked.
    fn begin_held(&mut self, held: bool, list: &List) {
        let first_admission = self.turn.next_admission.max(4);
        self.next(Frame { first_admission, ..standing() });
        self.feed(TurnInput::Begin { held_before: true });
        self.feed(TurnInput::AbortsClear);
        self.feed(TurnInput::Held(held));
        self.read(list);
    }

    /// A run whose first Turn is admitted, its surface not read yet.
    fn admitted(frame: Frame, list: &List, recorder: &'a mut Recorder) -> Self {
        let mut drive = Self::new(frame.clone(), recorder);
        drive.begin(frame, list);
        drive.taken();
        drive
    }

    /// A run whose first Turn works: its Harness read its surface.
    fn working(frame: Frame, list: &List, recorder: &'a mut Recorder) -> Self {
        let mut drive = Self::admitted(frame, list, recorder);
        drive.surface_read();
        drive
    }

    /// Answers the read that stands before an admission.
    fn read(&mut self, list: &List) {
        if matches!(self.turn.phase, Phase::Reading { .. }) {
            self.feed(list.read());
        }
    }

    fn surface_read(&mut self) {
        self.feed(TurnInput::SurfaceRead);
    }

    /// The pending admission is answered and its surface read.
    fn taken_and_read(&mut self) {
        self.taken();
        self.surface_read();
    }

    /// The kill of this number is an event on the stream that is waited for.
    fn stream(&mut self, n: u8) {
        let input = stream_kill_of(&self.submission(), Some(format!("k{n}")), u64::from(n), kill(n).peak);
        self.feed(input);
    }

    /// The model stops without a pick and is nudged.
    fn nudged(&mut self, list: &List) {
        self.completed(&["a"]);
        self.read(list);
    }

    /// The model stops with nothing allowed, and a pick opens.
    fn woken(&mut self, list: &List) {
        self.completed(&[]);
        self.feed(TurnInput::Allowed(names(&["a"])));
        self.read(list);
    }

    /// The Harness restarts under the Turn; `held`: it kept the conversation.
    fn cut(&mut self, prompted: Option<bool>, held: bool, list: &List) {
        self.restarted(prompted);
        self.feed(TurnInput::LastEnd(None));
        self.feed(TurnInput::Held(held));
        self.read(list);
    }

    /// The state is left; the ledger goes on.
    fn leave(&mut self) -> Option<PendingAbort> {
        exit(&self.turn, &mut self.ledger)
    }

    /// What the admission that was just sent says.
    fn says(&self) -> Vec<String> {
        self.sent().notices.iter().map(|carried| words(&carried.notice)).collect()
    }

    /// What is still to be said, in the order raised.
    fn waits(&self) -> Vec<String> {
        self.ledger.pending.iter().filter(|p| p.reserved.is_none()).map(|p| words(&p.notice)).collect()
    }

    /// A notice of this conversation that has no source.
    fn raise_for_conversation(&mut self, reason: &str) {
        let to = To::Conversation("r/root/coder".into());
        self.ledger.raise(Notice::ConversationNew { reason: reason.into() }, to, None);
    }

    fn kernel_source(at: u64) -> Source {
        Source::End("ws-1".into(), at)
    }
}
