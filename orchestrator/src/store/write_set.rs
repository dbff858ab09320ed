//! Turns saves into key writes. Pure: it reads a keyspace and its own staged writes, and changes neither disk nor clock.

use super::keys::{self, Key, Packed};
use super::reader::{self, Keyspace};
use super::{Save, StoreError};
use jr2_shared::ids::RunId;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;

/// Largest row and largest history entry, in bytes. Decision 36 discards a macrostep before it gets here.
pub const ROW_MAX_BYTES: usize = 4 << 20;
/// Largest pinned text, in bytes: a workflow of 1 MiB with its children resolved.
pub const TEXT_MAX_BYTES: usize = 16 << 20;
/// Longest start key, in bytes.
pub const START_KEY_MAX_BYTES: usize = 256;

/// What a value of a key becomes: new bytes, or nothing.
pub(super) type Writes = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// Says no to a save that this store must not take, before any of it is staged.
pub(super) fn check(save: &Save) -> Result<(), StoreError> {
    let refuse = |why: String| Err(StoreError::Refused(why));
    match &save.run {
        Some(run) if !keys::is_run_id(run.as_str()) => return refuse(format!("`{run}` is no run id")),
        None if save.row.is_some() || save.history.is_some() || save.history_from.is_some() || save.delete => {
            return refuse("it writes a run and names none".into());
        }
        _ => {}
    }
    if save.delete && (save.row.is_some() || save.history.is_some() || !save.start_keys.is_empty()) {
        return refuse("it writes and deletes the same run".into());
    }
    for (what, value) in [("row", save.row.as_ref()), ("history entry", save.history.as_ref().map(|(_, value)| value))]
    {
        if let Some(value) = value.filter(|value| value.len() > ROW_MAX_BYTES) {
            return refuse(format!("a {what} of {} bytes; at most {ROW_MAX_BYTES}", value.len()));
        }
    }
    for (hash, text) in &save.texts {
        if text.len() > TEXT_MAX_BYTES {
            return refuse(format!("a text of {} bytes; at most {TEXT_MAX_BYTES}", text.len()));
        }
        if sha256_hex(text) != *hash {
            return refuse(format!("a text that does not hash to its key `{}`", hash.escape_debug()));
        }
    }
    for (key, run) in &save.start_keys {
        if key.is_empty() || key.len() > START_KEY_MAX_BYTES {
            return refuse(format!("a start key of {} bytes; 1 to {START_KEY_MAX_BYTES}", key.len()));
        }
        if !keys::is_run_id(run.as_str()) {
            return refuse(format!("a start key that names `{run}`"));
        }
    }
    Ok(())
}

/// The sha256 of bytes in lower-case hex, as pinned texts are named.
pub(super) fn sha256_hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    Sha256::digest(bytes).iter().fold(String::with_capacity(64), |mut hex, byte| {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// How much a save weighs against the bounds, in bytes.
pub(super) fn weight(save: &Save) -> usize {
    let texts: usize = save.texts.iter().map(|(_, text)| text.len()).sum();
    save.row.as_ref().map_or(0, Vec::len) + save.history.as_ref().map_or(0, |(_, value)| value.len()) + texts
}

/// Whether a save only makes room, so that no bound may stand in its way.
pub(super) fn frees(save: &Save) -> bool {
    weight(save) == 0 && save.start_keys.is_empty()
}

/// The writes of a group of saves, staged over a keyspace in the order of the calls.
pub(super) struct WriteSet<'a> {
    space: &'a dyn Keyspace,
    writes: Writes,
}

impl<'a> WriteSet<'a> {
    /// An empty set over `space`.
    pub(super) fn new(space: &'a dyn Keyspace) -> Self {
        Self { space, writes: Writes::new() }
    }

    /// The staged writes.
    pub(super) fn into_writes(self) -> Writes {
        self.writes
    }

    /// Stages one save that [`check`] let through.
    pub(super) fn stage(&mut self, save: &Save) -> Result<(), StoreError> {
        if let Some(run) = &save.run {
            self.stage_run(run, save)?;
        }
        for (hash, text) in &save.texts {
            let key = keys::text(hash);
            if self.get(&key)?.is_none() {
                self.put_packed(&key, text)?;
            }
        }
        for hash in &save.drop_texts {
            self.remove_packed(&keys::text(hash))?;
        }
        for (key, run) in &save.start_keys {
            self.put_start_key(key, run)?;
        }
        Ok(())
    }

    fn stage_run(&mut self, run: &RunId, save: &Save) -> Result<(), StoreError> {
        if save.delete {
            return self.delete_run(run);
        }
        if let Some(row) = &save.row {
            self.put_packed(&keys::row(run), row)?;
        }
        if let Some((revision, value)) = &save.history {
            self.put_packed(&keys::history(run, *revision), value)?;
        }
        match save.history_from {
            Some(from) if from > 0 => self.drop_history(run, &keys::history(run, from)),
            _ => Ok(()),
        }
    }

    fn delete_run(&mut self, run: &RunId) -> Result<(), StoreError> {
        self.remove_packed(&keys::row(run))?;
        self.drop_history(run, &reader::end_of_history(run))?;
        let prefix = keys::starts_of(run);
        for index in self.keys_between(&prefix, &keys::after(&prefix))? {
            if let Some(Key::StartOf(_, key)) = keys::parse(&index) {
                self.writes.insert(keys::start_key(&key), None);
            }
            self.writes.insert(index, None);
        }
        Ok(())
    }

    fn drop_history(&mut self, run: &RunId, to: &[u8]) -> Result<(), StoreError> {
        for key in self.keys_between(&keys::history(run, 0), to)? {
            self.remove_packed(&key)?;
        }
        Ok(())
    }

    fn put_start_key(&mut self, key: &str, run: &RunId) -> Result<(), StoreError> {
        let name = keys::start_key(key);
        if let Some(before) = self.get(&name)?.and_then(|bytes| String::from_utf8(bytes).ok()) {
            self.writes.insert(keys::start_of(&RunId(before), key), None);
        }
        self.writes.insert(name, Some(run.as_str().as_bytes().to_vec()));
        self.writes.insert(keys::start_of(run, key), Some(Vec::new()));
        Ok(())
    }

    fn put_packed(&mut self, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        let before = self.chunks_of(key)?;
        let (head, chunks) = keys::pack(value);
        self.writes.insert(key.to_vec(), Some(head));
        let now = chunks.len() as u32;
        for (number, chunk) in (0..).zip(chunks) {
            self.writes.insert(keys::chunk(key, number), Some(chunk.to_vec()));
        }
        for number in now..before {
            self.writes.insert(keys::chunk(key, number), None);
        }
        Ok(())
    }

    fn remove_packed(&mut self, key: &[u8]) -> Result<(), StoreError> {
        for number in 0..self.chunks_of(key)? {
            self.writes.insert(keys::chunk(key, number), None);
        }
        self.writes.insert(key.to_vec(), None);
        Ok(())
    }

    fn chunks_of(&self, key: &[u8]) -> Result<u32, StoreError> {
        // A head that cannot be read may be overwritten: the new value stands on its own.
        Ok(match self.get(key)?.as_deref().map(|head| keys::unpack(key, head)) {
            Some(Ok(Packed::Chunked(count, _))) => count.min((TEXT_MAX_BYTES / keys::CHUNK_BYTES) as u32 + 1),
            _ => 0,
        })
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        match self.writes.get(key) {
            Some(staged) => Ok(staged.clone()),
            None => self.space.get(key),
        }
    }

    fn keys_between(&self, from: &[u8], to: &[u8]) -> Result<Vec<Vec<u8>>, StoreError> {
        let mut found = Vec::new();
        if from >= to {
            return Ok(found);
        }
        self.space.scan(from, to, &mut |key, _| {
            if !self.writes.contains_key(key) {
                found.push(key.to_vec());
            }
            true
        })?;
        let staged = self.writes.range(from.to_vec()..to.to_vec());
        found.extend(staged.filter(|(_, value)| value.is_some()).map(|(key, _)| key.clone()));
        Ok(found)
    }
}
