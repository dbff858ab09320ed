//! Bytes of a response body into JSON payloads: server-sent events, or a plain JSON body from a server that did not stream.
//!
//! Framing is done in bytes and text is decoded per whole payload, so no character can be cut by a read (F32).

/// Longest line in bytes: one chunk of a real server is a few hundred; this bounds what a broken one makes us hold.
pub const LINE_MAX_BYTES: usize = 8 << 20;
/// Largest body of one answer in bytes: far above any real answer, far below the Harness's memory.
pub const BODY_MAX_BYTES: usize = 64 << 20;

const BOM: &[u8] = b"\xef\xbb\xbf";

/// One thing the framing found.
#[derive(Debug, PartialEq)]
pub enum Frame {
    /// A JSON value.
    Json(serde_json::Value),
    /// A JSON value or text that the server marked as an error by the event's or field's name.
    Error(String),
    /// `[DONE]`.
    Done,
    /// A payload that starts like JSON and is none: bytes of the answer are missing.
    Malformed(String),
    /// A bound was passed.
    TooBig(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Undecided,
    Events,
    Body,
}

/// The framing state. Feed bytes with [`Framer::push`], end with [`Framer::close`].
#[derive(Clone, Debug, PartialEq)]
pub struct Framer {
    mode: Mode,
    /// Unfinished line, or the whole body when it is no event stream.
    held: Vec<u8>,
    after_cr: bool,
    total: usize,
    event: String,
    /// Data lines of one event that are no whole JSON yet.
    pending: String,
    stopped: bool,
}

impl Framer {
    /// A fresh one.
    pub fn new() -> Self {
        Self {
            mode: Mode::Undecided,
            held: Vec::new(),
            after_cr: false,
            total: 0,
            event: String::new(),
            pending: String::new(),
            stopped: false,
        }
    }

    /// Takes bytes, gives the payloads they complete.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Frame> {
        let mut out = Vec::new();
        let room = BODY_MAX_BYTES - self.total;
        let (mut rest, too_big) = if bytes.len() > room { (&bytes[..room], true) } else { (bytes, false) };
        self.total += rest.len();
        while let (false, Some((&first, tail))) = (self.stopped, rest.split_first()) {
            match self.mode {
                Mode::Undecided => {
                    self.decide(first);
                    rest = tail;
                }
                Mode::Body => {
                    self.held.extend_from_slice(rest);
                    rest = &[];
                }
                Mode::Events => rest = self.event_bytes(rest, &mut out),
            }
        }
        if too_big && !self.stopped {
            self.stop(&mut out, Frame::TooBig("answer"));
        }
        out
    }

    /// The body has ended: gives what the last bytes still hold. An unfinished JSON payload is dropped; the missing end
    /// of the stream tells of it.
    pub fn close(&mut self) -> Vec<Frame> {
        let mut out = Vec::new();
        if self.stopped {
            return out;
        }
        match self.mode {
            Mode::Undecided => {}
            Mode::Body => self.body(&mut out),
            Mode::Events => {
                let line = std::mem::take(&mut self.held);
                self.line(&line, &mut out);
                out.retain(|frame| !matches!(frame, Frame::Malformed(_)));
            }
        }
        self.stopped = true;
        out
    }

    fn stop(&mut self, out: &mut Vec<Frame>, frame: Frame) {
        out.push(frame);
        self.stopped = true;
    }

    /// Skips a byte order mark and white space; the first byte after them tells the two kinds of body apart.
    fn decide(&mut self, byte: u8) {
        self.held.push(byte);
        if BOM.starts_with(&self.held) {
            if self.held == BOM {
                self.held.clear();
            }
            return;
        }
        if byte.is_ascii_whitespace() && self.held.len() == 1 {
            self.held.clear();
            return;
        }
        self.mode = if matches!(self.held[0], b'{' | b'[') { Mode::Body } else { Mode::Events };
    }

    /// Takes bytes up to the first line end, gives the rest.
    fn event_bytes<'a>(&mut self, bytes: &'a [u8], out: &mut Vec<Frame>) -> &'a [u8] {
        let bytes = match bytes {
            [b'\n', rest @ ..] if self.after_cr => rest,
            _ => bytes,
        };
        self.after_cr = false;
        let end = bytes.iter().position(|b| matches!(b, b'\n' | b'\r'));
        let piece = &bytes[..end.unwrap_or(bytes.len())];
        if self.held.len() + piece.len() > LINE_MAX_BYTES {
            self.stop(out, Frame::TooBig("line"));
            return &[];
        }
        self.held.extend_from_slice(piece);
        let Some(end) = end else { return &[] };
        self.after_cr = bytes[end] == b'\r';
        let line = std::mem::take(&mut self.held);
        self.line(&line, out);
        &bytes[end + 1..]
    }

    fn line(&mut self, line: &[u8], out: &mut Vec<Frame>) {
        let line = String::from_utf8_lossy(line);
        if line.is_empty() {
            self.event.clear();
            let pending = std::mem::take(&mut self.pending);
            if !pending.is_empty() {
                self.stop(out, Frame::Malformed(pending));
            }
            return;
        }
        // Some servers drop an error object between the events, without a field name.
        if line.starts_with('{') {
            return self.data(&line, out);
        }
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => self.data(value, out),
            "event" => value.clone_into(&mut self.event),
            "error" => out.push(Frame::Error(value.to_owned())),
            // Comments (an empty name), `id`, `retry`, and whatever else.
            _ => {}
        }
    }

    fn data(&mut self, value: &str, out: &mut Vec<Frame>) {
        let trimmed = value.trim();
        if trimmed == "[DONE]" {
            return self.stop(out, Frame::Done);
        }
        if self.event == "error" && self.pending.is_empty() && !trimmed.is_empty() {
            out.push(Frame::Error(value.to_owned()));
            return;
        }
        if let Ok(json) = serde_json::from_str(trimmed) {
            if self.pending.is_empty() {
                out.push(Frame::Json(json));
            } else if let Ok(joined) = serde_json::from_str(&format!("{}\n{value}", self.pending)) {
                self.pending.clear();
                out.push(Frame::Json(joined));
            } else if json.is_object() {
                // A whole chunk after an unfinished one: the first was broken, not continued.
                let broken = std::mem::take(&mut self.pending);
                self.stop(out, Frame::Malformed(broken));
            } else {
                self.extend(value, out);
            }
            return;
        }
        if self.pending.is_empty() && !trimmed.starts_with(['{', '[']) {
            return; // Keep-alive words and the like.
        }
        self.extend(value, out);
    }

    /// Adds a data line to an event whose JSON spans several.
    fn extend(&mut self, value: &str, out: &mut Vec<Frame>) {
        if self.pending.len() + value.len() >= LINE_MAX_BYTES {
            return self.stop(out, Frame::TooBig("event"));
        }
        if !self.pending.is_empty() {
            self.pending.push('\n');
        }
        self.pending.push_str(value);
        if let Ok(json) = serde_json::from_str(&self.pending) {
            self.pending.clear();
            out.push(Frame::Json(json));
        }
    }

    /// One JSON value, or several one after the other.
    fn body(&mut self, out: &mut Vec<Frame>) {
        let text = String::from_utf8_lossy(&self.held);
        for value in serde_json::Deserializer::from_str(&text).into_iter::<serde_json::Value>() {
            match value {
                Ok(value) => out.push(Frame::Json(value)),
                Err(error) if error.is_eof() => break,
                Err(_) => {
                    out.push(Frame::Malformed(text.chars().take(200).collect()));
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn frames(text: &str) -> Vec<Frame> {
        let mut framer = Framer::new();
        let mut out = framer.push(text.as_bytes());
        out.extend(framer.close());
        out
    }

    #[test]
    fn line_ends_comments_spaces_and_names_do_not_matter() {
        let want = vec![Frame::Json(json!({"a": 1})), Frame::Json(json!({"b": 2})), Frame::Done];
        for text in [
            "data: {\"a\":1}\n\ndata: {\"b\":2}\n\ndata: [DONE]\n\n",
            "data:{\"a\":1}\r\n\r\ndata:{\"b\":2}\r\n\r\ndata:[DONE]",
            "\u{feff}: hi\rdata: {\"a\":1}\r\r: ping\rid: 7\rdata: {\"b\":2}\rretry: 1\r\rdata: [DONE] \r\r",
            "\n\n: hi\nevent: chunk\ndata: {\"a\":1}\ndata: {\"b\":2}\ndata: ping\ndata:\ndata: [DONE]\ndata: {\"late\":1}\n",
            "data: {\ndata: \"a\":1\ndata: }\n\ndata: {\"b\":\ndata: 2}\n\ndata: [DONE]\n\n",
        ] {
            assert_eq!(frames(text), want, "{text:?}");
        }
    }

    #[test]
    fn a_plain_body_is_read_whole() {
        assert_eq!(frames(" \n{\n \"a\": 1\n}\n"), vec![Frame::Json(json!({"a": 1}))]);
        assert_eq!(frames("{\"a\":1}\n{\"b\":2}"), vec![Frame::Json(json!({"a": 1})), Frame::Json(json!({"b": 2}))]);
        assert_eq!(frames("{\"a\":"), vec![]);
        assert!(matches!(frames("{oops}")[..], [Frame::Malformed(_)]));
    }

    #[test]
    fn a_broken_payload_is_seen_and_a_cut_one_is_not() {
        assert!(matches!(frames("data: {\"a\":\n\n")[..], [Frame::Malformed(_)]));
        assert!(matches!(frames("data: {\"a\":\ndata: {\"b\":2}\n\n")[..], [Frame::Malformed(_)]));
        assert_eq!(frames("data: {\"a\":"), vec![]);
    }

    #[test]
    fn errors_by_name() {
        assert_eq!(frames("event: error\ndata: boom\n\n"), vec![Frame::Error("boom".into())]);
        assert_eq!(frames("error: {\"code\":500}\n\n"), vec![Frame::Error("{\"code\":500}".into())]);
    }

    #[test]
    fn a_line_without_end_is_bounded() {
        let mut framer = Framer::new();
        framer.push(b"data: ");
        let out = framer.push(&vec![b'x'; LINE_MAX_BYTES + 1]);
        assert_eq!(out, vec![Frame::TooBig("line")]);
        assert!(framer.push(b"\ndata: {}\n").is_empty());
    }
}
