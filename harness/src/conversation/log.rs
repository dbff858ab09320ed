//! A conversation as the fold of its log: what is recorded, and what that means for the queue, the messages, the stream.
//!
//! The same `apply` runs when an entry is appended and when a record is rebuilt, so a rebuilt conversation is the one that
//! died.

use super::queue::{Queue, Seated};
use crate::compaction::{Context, Counted};
use crate::model::ChatMessage;
use jr2_shared::harness::{
    History, HistoryMessage, Position, Settlement, StreamEvent, StreamEventKind, StreamMessage, TextPart,
};
use serde::{Deserialize, Serialize};

/// One fact of a conversation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "t", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum Entry {
    /// A Submission was seated (spec 6.2).
    Admitted {
        /// Its id.
        submission: String,
        /// The Orchestrator's id of it (decision 31).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        admission: Option<String>,
        /// Ids of the notices it carried.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        carried: Vec<String>,
    },
    /// An admission was aborted before it arrived (decision 33).
    AbortedAhead {
        /// Its id.
        up_to: String,
    },
    /// A Submission's rendered message stands in the record; its model may be asked (decision 32).
    Prompted {
        /// Which.
        submission: String,
    },
    /// A message joined.
    Message {
        /// The Submission it belongs to.
        submission: String,
        /// It.
        message: ChatMessage,
    },
    /// The server counted the tokens of everything before this entry (spec H-35).
    Counted {
        /// How many.
        tokens: u64,
    },
    /// The messages before one of them are no longer sent; a summary stands in for them (spec 6.9).
    Compacted {
        /// The Submission whose question it was made for.
        submission: String,
        /// The summary.
        summary: String,
        /// Index of the first message that is still sent.
        from: usize,
    },
    /// A Submission ended.
    Settled {
        /// How.
        settlement: Settlement,
    },
    /// The memory guard killed the Agent's processes while a Submission was active (spec N-24).
    MemoryLimit {
        /// The kill's id.
        id: String,
        /// When, RFC 3339.
        at: String,
        /// Peak as a Size is written.
        peak: String,
        /// Limit as a Size is written.
        limit: String,
    },
}

/// One append: entries that became durable together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Batch {
    /// Number, from 0, without gaps.
    pub b: u64,
    /// When, in milliseconds since the Unix epoch; for people.
    pub at: u64,
    /// The facts.
    pub e: Vec<Entry>,
}

/// What a stream position holds.
#[derive(Clone, Debug, PartialEq)]
enum StreamItem {
    /// The message at this index.
    Message(usize),
    /// A settlement.
    Settled(Settlement),
    /// Anything else, as the reader gets it.
    Event(StreamEventKind),
}

/// A conversation in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    /// Number of batches.
    pub batches: u64,
    /// Submissions waiting or running, and admissions known.
    pub queue: Queue,
    /// Every message ever, also those before the cut.
    pub messages: Vec<ChatMessage>,
    /// What stands in for the messages before the index.
    cut: Option<(String, usize)>,
    counted: Option<Counted>,
    stream: Vec<(Position, StreamItem)>,
}

/// Part of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// Its events.
    pub events: Vec<StreamEvent>,
    /// The offset to ask from next.
    pub next: u64,
    /// Nothing newer is recorded.
    pub up_to_date: bool,
}

/// Largest page of a stream in bytes of text: a reader that is far behind reads several.
const PAGE_MAX_BYTES: usize = 4 << 20;

impl Log {
    /// Whether anything was ever seated.
    pub fn is_seated(&self) -> bool {
        self.queue.ordinal() > 0
    }

    /// Folds one batch in. Batches must come in order; the caller numbers them by [`Log::batches`].
    pub fn apply(&mut self, entries: &[Entry]) {
        for (index, entry) in entries.iter().enumerate() {
            let position = Position { batch: self.batches, index: index as u64 };
            match entry {
                Entry::Admitted { submission, admission, carried } => self.queue.seat(
                    admission.clone(),
                    Seated { submission: submission.clone(), batch: self.batches, carried: carried.clone() },
                ),
                Entry::AbortedAhead { up_to } => self.queue.remember(up_to.clone()),
                Entry::Prompted { submission } => self.queue.prompted(submission),
                Entry::Message { message, .. } => {
                    self.stream.push((position, StreamItem::Message(self.messages.len())));
                    self.messages.push(message.clone());
                }
                Entry::Counted { tokens } => {
                    self.counted = Some(Counted { tokens: *tokens, at: self.messages.len() });
                }
                // Neither in the stream nor in the history (spec H-36).
                Entry::Compacted { summary, from, .. } => {
                    self.cut = Some((summary.clone(), (*from).min(self.messages.len())));
                    self.counted = None;
                }
                Entry::Settled { settlement } => {
                    self.queue.settled(&settlement.submission_id);
                    self.stream.push((position, StreamItem::Settled(settlement.clone())));
                }
                Entry::MemoryLimit { id, at, peak, limit } => {
                    let some = |text: &String| Some(text.clone());
                    let (id, at, peak, limit) = (some(id), some(at), some(peak), some(limit));
                    let event = StreamEventKind::MemoryLimit { peak, limit, id, at };
                    self.stream.push((position, StreamItem::Event(event)));
                }
            }
        }
        self.batches += 1;
    }

    /// What the model is sent of it.
    pub fn context(&self) -> Context {
        let (summary, from) = self.cut.clone().map_or((None, 0), |(summary, from)| (Some(summary), from));
        Context { summary, from, tail: self.messages[from..].to_vec(), counted: self.counted }
    }

    /// The stream from batch `offset` up to, but not including, batch `durable`. An offset beyond the end reads from
    /// the start: the log it was given for is gone.
    pub fn page(&self, iid: &str, offset: u64, durable: u64) -> Page {
        let from = if offset > durable { 0 } else { offset };
        let start = self.stream.partition_point(|(position, _)| position.batch < from);
        let mut events: Vec<StreamEvent> = Vec::new();
        let mut bytes = 0;
        for (position, item) in &self.stream[start..] {
            if position.batch >= durable {
                break;
            }
            // A page ends between batches, so that its offset says exactly what was read.
            let new_batch = events.last().is_none_or(|last| last.position.batch != position.batch);
            if bytes > PAGE_MAX_BYTES && new_batch {
                return Page { events, next: position.batch, up_to_date: false };
            }
            let kind = self.kind(item);
            if let StreamEventKind::MessageAppended { message } = &kind {
                bytes += message.parts.iter().map(|part| part.text.len()).sum::<usize>();
            }
            events.push(StreamEvent { conversation_id: iid.to_owned(), position: *position, event: kind });
        }
        Page { events, next: durable, up_to_date: true }
    }

    fn kind(&self, item: &StreamItem) -> StreamEventKind {
        match item {
            StreamItem::Settled(settlement) => StreamEventKind::SubmissionSettled(settlement.clone()),
            StreamItem::Event(event) => event.clone(),
            StreamItem::Message(index) => {
                let (role, text) = match &self.messages[*index] {
                    ChatMessage::System(text) => ("system", text),
                    ChatMessage::User(text) => ("user", text),
                    ChatMessage::Assistant { text, .. } => ("assistant", text),
                    ChatMessage::Tool { content, .. } => ("tool", content),
                };
                let part = TextPart { kind: "text".into(), text: text.clone(), state: "done".into() };
                let parts = if text.is_empty() { Vec::new() } else { vec![part] };
                let message = StreamMessage { id: format!("m-{index}"), role: role.into(), parts };
                StreamEventKind::MessageAppended { message }
            }
        }
    }

    /// The history view up to batch `durable` (spec 6.2): user and assistant texts, and every settlement.
    pub fn history(&self, iid: &str, durable: u64) -> History {
        let mut messages = Vec::new();
        let mut settlements = Vec::new();
        for (_, item) in self.stream.iter().take_while(|(position, _)| position.batch < durable) {
            match item {
                StreamItem::Settled(settlement) => settlements.push(settlement.clone()),
                StreamItem::Event(_) => {}
                StreamItem::Message(index) => match &self.messages[*index] {
                    ChatMessage::User(text) => {
                        messages.push(HistoryMessage { role: "user".into(), text: text.clone() });
                    }
                    ChatMessage::Assistant { text, .. } if !text.is_empty() => {
                        messages.push(HistoryMessage { role: "assistant".into(), text: text.clone() });
                    }
                    _ => {}
                },
            }
        }
        History { v: 1, conversation_id: iid.to_owned(), offset: durable.to_string(), messages, settlements }
    }

    /// Ids of calls the newest assistant message made that have no result yet.
    pub fn open_calls(&self) -> Vec<String> {
        let mut answered: Vec<&str> = Vec::new();
        for message in self.messages.iter().rev() {
            match message {
                ChatMessage::Tool { call_id, .. } => answered.push(call_id),
                ChatMessage::Assistant { tool_calls, .. } => {
                    let open = tool_calls.iter().filter(|call| !answered.contains(&call.id.as_str()));
                    return open.map(|call| call.id.clone()).collect();
                }
                _ => return Vec::new(),
            }
        }
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ToolCall;
    use jr2_shared::harness::Outcome;
    use proptest::prelude::*;

    fn said(text: &str) -> Entry {
        Entry::Message { submission: "s".into(), message: ChatMessage::User(text.into()) }
    }

    fn settled(id: &str) -> Entry {
        let settlement = Settlement {
            submission_id: id.into(),
            outcome: Outcome::Completed,
            error: None,
            prompted: None,
            text: None,
        };
        Entry::Settled { settlement }
    }

    #[test]
    fn entries_survive_the_record() {
        let entries = vec![
            Entry::Admitted { submission: "s".into(), admission: Some("i#1".into()), carried: vec!["n".into()] },
            Entry::AbortedAhead { up_to: "i#2".into() },
            Entry::Prompted { submission: "s".into() },
            said("a"),
            Entry::Counted { tokens: 7 },
            Entry::Compacted { submission: "s".into(), summary: "so far".into(), from: 1 },
            settled("s"),
            Entry::MemoryLimit { id: "k".into(), at: "t".into(), peak: "3Gi".into(), limit: "2Gi".into() },
        ];
        let text = serde_json::to_string(&entries).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Entry>>(&text).unwrap(), entries);
    }

    #[test]
    fn h_36_a_cut_changes_what_is_sent_and_nothing_that_is_shown() {
        let mut log = Log::default();
        log.apply(&[said("a"), said("b"), Entry::Counted { tokens: 9 }, said("c")]);
        let before = (log.page("i", 0, 1), log.history("i", 1));
        assert_eq!(log.context().counted, Some(Counted { tokens: 9, at: 2 }));
        let cut = |summary: &str, from| Entry::Compacted { submission: "s".into(), summary: summary.into(), from };
        log.apply(&[cut("first", 1)]);
        assert_eq!((log.page("i", 0, 1).events, log.history("i", 1)), (before.0.events, before.1));
        assert_eq!(log.page("i", 1, 2).events, []);
        let context = log.context();
        assert_eq!((context.summary.as_deref(), context.from, context.counted), (Some("first"), 1, None));
        assert_eq!(context.tail, [ChatMessage::User("b".into()), ChatMessage::User("c".into())]);
        log.apply(&[cut("second", 9)]);
        assert_eq!(
            (log.context().summary.as_deref(), log.context().tail.len()),
            (Some("second"), 0),
            "never out of bounds"
        );
        assert_eq!(log.history("i", 3).messages.len(), 3);
    }

    #[test]
    fn a_reader_sees_durable_entries_only() {
        let mut log = Log::default();
        log.apply(&[said("a")]);
        log.apply(&[said("b"), settled("s")]);
        assert_eq!(log.page("i", 0, 1).events.len(), 1);
        assert_eq!(log.history("i", 1).settlements.len(), 0);
        assert_eq!(log.page("i", 1, 2).events.len(), 2);
        assert_eq!(log.page("i", 9, 2).events.len(), 3, "an offset beyond the end reads from the start");
    }

    #[test]
    fn a_long_stream_comes_in_pages_that_end_between_batches() {
        let mut log = Log::default();
        let big = "x".repeat(PAGE_MAX_BYTES / 2 + 1);
        for _ in 0..4 {
            log.apply(&[said(&big), said("small")]);
        }
        let (mut offset, mut seen) = (0, 0);
        loop {
            let page = log.page("i", offset, 4);
            assert!(page.next > offset, "it goes on");
            seen += page.events.len();
            offset = page.next;
            if page.up_to_date {
                break;
            }
        }
        assert_eq!(seen, 8, "each event once");
    }

    #[test]
    fn open_calls_are_those_of_the_last_answer_without_a_result() {
        let call = |id: &str| ToolCall { id: id.into(), name: "bash".into(), arguments: "{}".into() };
        let answer =
            ChatMessage::Assistant { text: String::new(), reasoning: None, tool_calls: vec![call("a"), call("b")] };
        let mut log = Log::default();
        assert!(log.open_calls().is_empty());
        log.apply(&[Entry::Message { submission: "s".into(), message: answer }]);
        let result = ChatMessage::Tool { call_id: "a".into(), content: "ok".into() };
        log.apply(&[Entry::Message { submission: "s".into(), message: result }]);
        assert_eq!(log.open_calls(), ["b"]);
        log.apply(&[said("next")]);
        assert!(log.open_calls().is_empty(), "closed long ago");
    }

    proptest! {
        /// From every offset a reader sees exactly what the whole stream holds from there.
        #[test]
        fn reading_in_parts_is_reading_the_whole(sizes in prop::collection::vec(0usize..4, 1..20), at in 0u64..20) {
            let mut log = Log::default();
            for size in &sizes {
                log.apply(&vec![said("x"); *size]);
            }
            let end = log.batches;
            let at = at.min(end);
            let whole = log.page("i", 0, end).events;
            let (head, tail) = (log.page("i", 0, at).events, log.page("i", at, end).events);
            prop_assert_eq!([head, tail].concat(), whole);
        }
    }
}
