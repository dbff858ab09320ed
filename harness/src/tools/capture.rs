//! Keeps the head and the tail of a stream of any length.

use std::collections::VecDeque;

/// Bytes kept from the start: what was run, and the first error.
pub(super) const HEAD_BYTES: usize = 12 << 10;
/// Bytes kept from the end: the summary and the last error.
pub(super) const TAIL_BYTES: usize = 20 << 10;

/// A bounded record of a stream.
#[derive(Debug, Default)]
pub(super) struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    dropped: u64,
    dropped_lines: u64,
}

impl Capture {
    /// Takes bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        let room = HEAD_BYTES - self.head.len();
        let (head, rest) = bytes.split_at(bytes.len().min(room));
        self.head.extend_from_slice(head);
        self.tail.extend(rest);
        let excess = self.tail.len().saturating_sub(TAIL_BYTES);
        for byte in self.tail.drain(..excess) {
            self.dropped += 1;
            self.dropped_lines += u64::from(byte == b'\n');
        }
    }

    /// What is kept as text: no broken characters at the cut, control characters made visible.
    pub fn text(&self) -> String {
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        if self.dropped == 0 {
            return printable(&[&self.head[..], &tail].concat());
        }
        let head = &self.head[..self.head.len() - unfinished(&self.head)];
        let skip = tail.iter().take(3).take_while(|b| **b & 0xC0 == 0x80).count();
        let cut = format!("\n… {} bytes ({} lines) left out …\n", self.dropped, self.dropped_lines);
        printable(head) + &cut + &printable(&tail[skip..])
    }
}

/// Bytes at the end that begin a character and do not end it.
fn unfinished(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => bytes.len() - error.valid_up_to(),
        _ => 0,
    }
}

fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes).replace("\r\n", "\n");
    text.chars()
        .map(|c| match c {
            '\n' | '\t' | '\r' => c,
            c if c.is_control() => char::REPLACEMENT_CHARACTER,
            c => c,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_short_stream_is_whole_and_a_long_one_keeps_both_ends() {
        let mut short = Capture::default();
        short.push("a\r\nb\0\u{1b}[1mé".as_bytes());
        assert_eq!(short.text(), "a\nb\u{fffd}\u{fffd}[1mé");
        let mut long = Capture::default();
        for n in 0..20_000 {
            long.push(format!("é line {n}\n").as_bytes());
        }
        let text = long.text();
        assert!(text.starts_with("é line 0\n") && text.ends_with("é line 19999\n"));
        assert!(text.contains(" left out …\n"));
        assert!(text.len() < HEAD_BYTES + TAIL_BYTES + 100);
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_same_text(
            bytes in proptest::collection::vec(any::<u8>(), 0..300), repeat in 1usize..300, size in 1usize..5_000,
        ) {
            let all = bytes.repeat(repeat);
            let (mut whole, mut parts) = (Capture::default(), Capture::default());
            whole.push(&all);
            all.chunks(size).for_each(|part| parts.push(part));
            prop_assert_eq!(whole.text(), parts.text());
            prop_assert_eq!(whole.head.len() + whole.tail.len() + whole.dropped as usize, all.len());
        }
    }
}
