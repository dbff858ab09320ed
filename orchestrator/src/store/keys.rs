//! The layout of the one keyspace: what every key looks like, and how a large value is cut into chunks.
//!
//! | key | value |
//! | --- | --- |
//! | `r/<run>` | the row, packed |
//! | `h/<run>/<revision, u64 big endian>` | a history entry, packed |
//! | `t/<sha256 in hex>` | a pinned text, packed |
//! | `k/<start key>` | the run id |
//! | `i/<run>/<start key>` | empty: the start keys that name a run |
//! | `c/<key>/<number, u32 big endian>` | one chunk of a packed value |
//! | `m/<name>` | format, owner epoch, import marker |

use super::StoreError;
use jr2_shared::ids::RunId;

/// The version of this layout, kept under `m/format`.
pub(super) const FORMAT: &str = "1";
/// Largest piece of a value under one key, in bytes. A leaf of sled's tree holds up to 17 pairs, and a page over 128 KiB
/// moves out of the log into a file of its own that no flush covers; 17 × 6 KiB stays inside the log.
pub(super) const CHUNK_BYTES: usize = 6 * 1024;
/// Where the format version lies.
pub(super) const META_FORMAT: &[u8] = b"m/format";
/// Where the owner epoch lies (decision 4).
pub(super) const META_EPOCH: &[u8] = b"m/epoch";
/// Present while an import runs; a store that still has it is half an import.
pub(super) const META_IMPORTING: &[u8] = b"m/importing";

/// First byte of a packed value that holds the whole value.
const WHOLE: u8 = 0;
/// First byte of a packed value whose bytes lie in chunks.
const CHUNKED: u8 = 1;

/// The key of a row.
pub(super) fn row(run: &RunId) -> Vec<u8> {
    joined(b"r/", run.as_str().as_bytes(), None)
}

/// The key of a history entry.
pub(super) fn history(run: &RunId, revision: u64) -> Vec<u8> {
    joined(b"h/", run.as_str().as_bytes(), Some(&revision.to_be_bytes()))
}

/// The key of a pinned text.
pub(super) fn text(hash: &str) -> Vec<u8> {
    joined(b"t/", hash.as_bytes(), None)
}

/// The key of a start key.
pub(super) fn start_key(key: &str) -> Vec<u8> {
    joined(b"k/", key.as_bytes(), None)
}

/// The key that says `run` was started under `key`.
pub(super) fn start_of(run: &RunId, key: &str) -> Vec<u8> {
    joined(b"i/", run.as_str().as_bytes(), Some(key.as_bytes()))
}

/// The prefix of every [`start_of`] key of a run.
pub(super) fn starts_of(run: &RunId) -> Vec<u8> {
    joined(b"i/", run.as_str().as_bytes(), Some(b""))
}

/// The key of a chunk.
pub(super) fn chunk(of: &[u8], number: u32) -> Vec<u8> {
    joined(b"c/", of, Some(&number.to_be_bytes()))
}

fn joined(prefix: &[u8], name: &[u8], tail: Option<&[u8]>) -> Vec<u8> {
    let mut key = Vec::with_capacity(prefix.len() + name.len() + tail.map_or(0, |tail| tail.len() + 1));
    key.extend_from_slice(prefix);
    key.extend_from_slice(name);
    if let Some(tail) = tail {
        key.push(b'/');
        key.extend_from_slice(tail);
    }
    key
}

/// The first key after every key that starts with `prefix`. Prefixes here end in `/`, so the last byte has a successor.
pub(super) fn after(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    end
}

/// What a key means.
// The words are the glossary's: a start key is one word there.
#[allow(clippy::enum_variant_names)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// A row.
    Row(RunId),
    /// A history entry.
    History(RunId, u64),
    /// A pinned text by hash.
    Text(String),
    /// A start key.
    StartKey(String),
    /// A start key that names a run.
    StartOf(RunId, String),
    /// A chunk of the value under another key.
    Chunk(Vec<u8>, u32),
    /// Meta by name.
    Meta(String),
}

/// Reads a key; `None` when this build writes no such key.
pub(super) fn parse(key: &[u8]) -> Option<Key> {
    let (prefix, rest) = key.split_at_checked(2)?;
    let word = |bytes: &[u8]| Some(std::str::from_utf8(bytes).ok()?.to_owned());
    let run = |bytes: &[u8]| word(bytes).filter(|text| is_run_id(text)).map(RunId);
    Some(match prefix {
        b"r/" => Key::Row(run(rest)?),
        b"h/" => {
            let (name, tail) = rest.split_at_checked(rest.len().checked_sub(9)?)?;
            let revision = tail.strip_prefix(b"/")?.try_into().ok()?;
            Key::History(run(name)?, u64::from_be_bytes(revision))
        }
        b"t/" => Key::Text(word(rest).filter(|hash| is_hash(hash))?),
        b"k/" => Key::StartKey(word(rest).filter(|key| !key.is_empty())?),
        b"i/" => {
            let slash = rest.iter().position(|byte| *byte == b'/')?;
            Key::StartOf(run(&rest[..slash])?, word(&rest[slash + 1..]).filter(|key| !key.is_empty())?)
        }
        b"c/" => {
            let (of, tail) = rest.split_at_checked(rest.len().checked_sub(5)?)?;
            let number = tail.strip_prefix(b"/")?.try_into().ok()?;
            Key::Chunk(of.to_vec(), u32::from_be_bytes(number))
        }
        b"m/" => Key::Meta(word(rest)?),
        _ => return None,
    })
}

/// A key as a person reads it: text as it stands, other bytes escaped.
pub(super) fn shown(key: &[u8]) -> String {
    match parse(key) {
        Some(Key::History(run, revision)) => format!("h/{run}/{revision}"),
        Some(Key::Chunk(of, number)) => format!("c/{}/{number}", shown(&of)),
        _ => key.escape_ascii().to_string(),
    }
}

/// Longest run id a key may hold, in bytes.
const RUN_ID_MAX_BYTES: usize = 64;

/// Whether a text may stand as a run id in a key: short, and without the separator.
pub(super) fn is_run_id(text: &str) -> bool {
    (1..=RUN_ID_MAX_BYTES).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

/// Whether a text is a sha256 in lower-case hex.
pub(super) fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

/// Packs a value: the bytes for its own key, and its chunks when it is larger than one piece.
pub(super) fn pack(value: &[u8]) -> (Vec<u8>, Vec<&[u8]>) {
    if value.len() <= CHUNK_BYTES {
        let mut head = Vec::with_capacity(value.len() + 1);
        head.push(WHOLE);
        head.extend_from_slice(value);
        return (head, Vec::new());
    }
    let chunks: Vec<&[u8]> = value.chunks(CHUNK_BYTES).collect();
    let mut head = vec![CHUNKED];
    head.extend_from_slice(&(chunks.len() as u32).to_be_bytes());
    head.extend_from_slice(&(value.len() as u64).to_be_bytes());
    (head, chunks)
}

/// What a packed value's own key holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Packed<'a> {
    /// All of it.
    Whole(&'a [u8]),
    /// The number of chunks and the length of the value in bytes.
    Chunked(u32, u64),
}

/// Reads the bytes under a packed value's own key.
pub(super) fn unpack<'a>(key: &[u8], head: &'a [u8]) -> Result<Packed<'a>, StoreError> {
    match head.split_first() {
        Some((&WHOLE, value)) => Ok(Packed::Whole(value)),
        Some((&CHUNKED, rest)) if rest.len() == 12 => {
            let mut count = [0; 4];
            let mut length = [0; 8];
            count.copy_from_slice(&rest[..4]);
            length.copy_from_slice(&rest[4..]);
            Ok(Packed::Chunked(u32::from_be_bytes(count), u64::from_be_bytes(length)))
        }
        _ => Err(StoreError::Unreadable(format!("the value of {} has an unknown form", shown(key)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_reads_back_as_what_it_was_written_for() {
        let run = RunId("abc".into());
        // A revision whose bytes hold the separator must not confuse the reader.
        let revision = u64::from_be_bytes(*b"/a/b/c//");
        assert_eq!(parse(&row(&run)), Some(Key::Row(run.clone())));
        assert_eq!(parse(&history(&run, revision)), Some(Key::History(run.clone(), revision)));
        assert_eq!(parse(&start_key("a/b")), Some(Key::StartKey("a/b".into())));
        assert_eq!(parse(&start_of(&run, "a/b")), Some(Key::StartOf(run.clone(), "a/b".into())));
        let of = history(&run, revision);
        assert_eq!(parse(&chunk(&of, 0x2f2f_2f2f)), Some(Key::Chunk(of, 0x2f2f_2f2f)));
        for wrong in [&b""[..], b"r", b"r/", b"r/a/b", b"x/abc", b"t/abc", b"h/abc", b"k/", b"i/abc", b"c/1"] {
            assert_eq!(parse(wrong), None, "{}", wrong.escape_ascii());
        }
    }

    #[test]
    fn history_keys_sort_by_revision() {
        let run = RunId("abc".into());
        assert!(history(&run, 9) < history(&run, 10));
        assert!(history(&run, 255) < history(&run, 256));
    }

    #[test]
    fn values_are_cut_at_the_chunk_size() {
        let small = vec![7; CHUNK_BYTES];
        let (head, chunks) = pack(&small);
        assert!(chunks.is_empty());
        assert_eq!(unpack(b"r/a", &head).unwrap(), Packed::Whole(&small));
        let large = vec![7; CHUNK_BYTES + 1];
        let (head, chunks) = pack(&large);
        assert_eq!(chunks.len(), 2);
        assert_eq!(unpack(b"r/a", &head).unwrap(), Packed::Chunked(2, large.len() as u64));
        assert!(unpack(b"r/a", b"").is_err());
        assert!(unpack(b"r/a", &[CHUNKED, 1]).is_err());
    }
}
