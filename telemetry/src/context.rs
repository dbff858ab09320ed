//! The W3C trace context (<https://www.w3.org/TR/trace-context/>): read, written, and derived from what a run is.

use sha2::{Digest as _, Sha256};
use std::fmt::{self, Write as _};

/// The HTTP header that carries it.
pub const HEADER: &str = "traceparent";
/// Longest header read, in bytes: version 00 has 55, a later one may append to it.
const HEADER_MAX_BYTES: usize = 256;

/// A place in a trace: the trace and the span that others are children of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceParent {
    /// The trace, never all zero.
    pub trace: [u8; 16],
    /// The span, never all zero.
    pub span: [u8; 8],
    /// Whether the caller keeps this trace.
    pub sampled: bool,
}

impl TraceParent {
    /// The whole run: the same after every restart, because it is made of the run's id alone.
    pub fn of_run(run: &str) -> Self {
        Self { trace: first(&hash(&["run", run])), span: span_of(&["run", run]), sampled: true }
    }

    /// One Turn of a run, by the number of its invocation.
    pub fn of_turn(run: &str, serial: u64) -> Self {
        Self { span: span_of(&["turn", run, &serial.to_string()]), ..Self::of_run(run) }
    }

    /// Reads a header; `None` when it is none (an unreadable context starts a new trace, as the standard says).
    pub fn parse(header: &str) -> Option<Self> {
        if header.len() > HEADER_MAX_BYTES {
            return None;
        }
        let mut parts = header.trim().split('-');
        let version: [u8; 1] = unhex(parts.next()?)?;
        let (trace, span) = (unhex(parts.next()?)?, unhex(parts.next()?)?);
        let flags: [u8; 1] = unhex(parts.next()?)?;
        let known = match version[0] {
            0 => parts.next().is_none(),
            0xff => false,
            _ => true,
        };
        let valid = known && trace != [0; 16] && span != [0; 8];
        valid.then_some(Self { trace, span, sampled: flags[0] & 1 == 1 })
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-{:02x}", hex(&self.trace), hex(&self.span), u8::from(self.sampled))
    }
}

/// A span's id made of words: the same words, the same id.
pub fn span_of(words: &[&str]) -> [u8; 8] {
    first(&hash(words))
}

fn hash(words: &[&str]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for word in words {
        hash.update(word.len().to_le_bytes());
        hash.update(word.as_bytes());
    }
    hash.finalize().into()
}

/// The first bytes of a hash; one that begins with only zeros is not a valid id, so the last byte is set then.
fn first<const N: usize>(hash: &[u8; 32]) -> [u8; N] {
    let mut id = [0; N];
    id.copy_from_slice(&hash[..N]);
    if id == [0; N] {
        id[N - 1] = 1;
    }
    id
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Lower-case hex of exactly `N` bytes.
fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    if text.len() != 2 * N || !digits {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let turn = TraceParent::of_turn("r", 3);
        assert_eq!(TraceParent::parse(&turn.to_string()), Some(turn));
        assert_eq!(turn.to_string().len(), 55);
        assert_eq!(turn.trace, TraceParent::of_run("r").trace);
        assert_ne!(turn.span, TraceParent::of_turn("r", 4).span);
        assert_ne!(span_of(&["ab", "c"]), span_of(&["a", "bc"]));
    }

    #[test]
    fn what_is_no_context_is_none() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert!(TraceParent::parse(good).unwrap().sampled);
        assert!(!TraceParent::parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00").unwrap().sampled);
        assert!(TraceParent::parse(&good.replacen("00", "cc", 1)).is_some(), "a later version is read as far as known");
        for bad in [
            "",
            "00",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-ф-b7ad6b7169203331-01",
        ] {
            assert_eq!(TraceParent::parse(bad), None, "{bad}");
        }
        assert_eq!(TraceParent::parse(&format!("{good}{}", " ".repeat(400))), None);
    }
}
