//! Server-sent events, decoded from bytes as they come.

/// Most bytes of one event: a longer one is no feed of ours.
const EVENT_MAX_BYTES: usize = 8 << 20;

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// Its id, when it has one.
    pub id: Option<String>,
    /// Its kind.
    pub event: String,
    /// Its data.
    pub data: String,
}

/// Collects bytes and gives whole events.
#[derive(Debug, Default)]
pub struct Decoder {
    line: Vec<u8>,
    event: SseEvent,
    size: usize,
    after_cr: bool,
}

impl Decoder {
    /// Takes bytes; answers the events they complete. `Err` when one grows beyond every bound.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Vec<SseEvent>, String> {
        let mut events = Vec::new();
        for &byte in bytes {
            let after_cr = std::mem::replace(&mut self.after_cr, byte == b'\r');
            match byte {
                b'\n' if after_cr => {}
                b'\n' | b'\r' => events.extend(self.end_line()),
                _ => {
                    self.size += 1;
                    if self.size > EVENT_MAX_BYTES {
                        return Err(format!("an event is larger than {EVENT_MAX_BYTES} bytes"));
                    }
                    self.line.push(byte);
                }
            }
        }
        Ok(events)
    }

    fn end_line(&mut self) -> Option<SseEvent> {
        let line = String::from_utf8_lossy(&std::mem::take(&mut self.line)).into_owned();
        if line.is_empty() {
            self.size = 0;
            let event = std::mem::take(&mut self.event);
            return (!event.event.is_empty() || !event.data.is_empty()).then_some(event);
        }
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.event.event),
            "id" => self.event.id = Some(value.to_owned()),
            "data" => {
                if !self.event.data.is_empty() {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str =
        ": ping\n\nretry: 2000\n\nid: 3.1\nevent: status\ndata: {\"a\":\ndata: 1}\n\nevent: closed\r\ndata:x\r\n\r\n";

    #[test]
    fn events_are_read() {
        let events = Decoder::default().feed(TEXT.as_bytes()).unwrap();
        let first = SseEvent { id: Some("3.1".into()), event: "status".into(), data: "{\"a\":\n1}".into() };
        let second = SseEvent { id: None, event: "closed".into(), data: "x".into() };
        assert_eq!(events, [first, second]);
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_events(cuts in proptest::collection::vec(0..TEXT.len(), 0..8)) {
            let mut cuts = cuts;
            cuts.extend([0, TEXT.len()]);
            cuts.sort_unstable();
            let mut decoder = Decoder::default();
            let mut events = Vec::new();
            for pair in cuts.windows(2) {
                events.extend(decoder.feed(&TEXT.as_bytes()[pair[0]..pair[1]]).unwrap());
            }
            prop_assert_eq!(events, Decoder::default().feed(TEXT.as_bytes()).unwrap());
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = Decoder::default().feed(&bytes);
        }
    }
}
