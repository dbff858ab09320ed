//! Reads rows, history, texts and start keys out of a keyspace.

use super::StoreError;
use super::keys::{self, Key, Packed};
use jr2_shared::ids::RunId;

/// An ordered map of bytes to bytes, as both stores have one.
pub(super) trait Keyspace {
    /// The value of one key.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;
    /// Visits the pairs from `from` (included) to `to` (left out) in order, until `visit` answers false.
    fn scan(&self, from: &[u8], to: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), StoreError>;
}

/// The value of a packed key, put together from its chunks.
pub(super) fn packed(space: &dyn Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
    match space.get(key)? {
        Some(head) => put_together(space, key, &head).map(Some),
        None => Ok(None),
    }
}

/// Puts a value together whose own key holds `head`.
pub(super) fn put_together(space: &dyn Keyspace, key: &[u8], head: &[u8]) -> Result<Vec<u8>, StoreError> {
    let (count, length) = match keys::unpack(key, head)? {
        Packed::Whole(value) => return Ok(value.to_vec()),
        Packed::Chunked(count, length) => (count, length),
    };
    let mut value = Vec::new();
    for number in 0..count {
        let Some(chunk) = space.get(&keys::chunk(key, number))? else {
            return Err(StoreError::Unreadable(format!("chunk {number} of {} is missing", keys::shown(key))));
        };
        value.extend_from_slice(&chunk);
    }
    if value.len() as u64 != length {
        let (name, found) = (keys::shown(key), value.len());
        return Err(StoreError::Unreadable(format!("{name} has {found} bytes where {length} were written")));
    }
    Ok(value)
}

/// Visits every row; one that cannot be put together is visited as an error.
pub(super) fn visit_rows(
    space: &dyn Keyspace,
    visit: &mut dyn FnMut(RunId, Result<Vec<u8>, StoreError>),
) -> Result<(), StoreError> {
    space.scan(b"r/", &keys::after(b"r/"), &mut |key, head| {
        match keys::parse(key) {
            Some(Key::Row(run)) => visit(run, put_together(space, key, head)),
            _ => tracing::error!(key = keys::shown(key), "a row has an unknown key"),
        }
        true
    })
}

/// History entries of a run from revision `from` on, at most `limit`.
pub(super) fn history(
    space: &dyn Keyspace,
    run: &RunId,
    from: u64,
    limit: usize,
) -> Result<Vec<(u64, Vec<u8>)>, StoreError> {
    let mut entries = Vec::new();
    let mut broken = None;
    if limit == 0 {
        return Ok(entries);
    }
    space.scan(&keys::history(run, from), &end_of_history(run), &mut |key, head| {
        let Some(Key::History(_, revision)) = keys::parse(key) else { return true };
        match put_together(space, key, head) {
            Ok(value) => entries.push((revision, value)),
            Err(error) => broken = Some(error),
        }
        broken.is_none() && entries.len() < limit
    })?;
    broken.map_or(Ok(entries), Err)
}

/// The first key after every history key of a run.
pub(super) fn end_of_history(run: &RunId) -> Vec<u8> {
    let mut end = keys::history(run, u64::MAX);
    end.push(0);
    end
}

/// The hashes of every pinned text.
pub(super) fn texts(space: &dyn Keyspace) -> Result<Vec<String>, StoreError> {
    let mut hashes = Vec::new();
    space.scan(b"t/", &keys::after(b"t/"), &mut |key, _| {
        if let Some(Key::Text(hash)) = keys::parse(key) {
            hashes.push(hash);
        }
        true
    })?;
    Ok(hashes)
}

/// The run a start key names.
pub(super) fn start_key(space: &dyn Keyspace, key: &str) -> Result<Option<RunId>, StoreError> {
    let Some(bytes) = space.get(&keys::start_key(key))? else { return Ok(None) };
    match String::from_utf8(bytes) {
        Ok(run) if keys::is_run_id(&run) => Ok(Some(RunId(run))),
        _ => Err(StoreError::Unreadable(format!("the start key `{key}` names no run"))),
    }
}
