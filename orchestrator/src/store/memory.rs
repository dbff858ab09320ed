//! A store in memory for tests: every save is durable at once, or only when the test says so, and it can crash.

use super::reader::{self, Keyspace};
use super::write_set::{self, WriteSet};
use super::{RunStore, Save, StoreError, StoreFuture};
use jr2_shared::ids::RunId;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// How error messages name a store that has no directory.
const PATH: &str = "memory";

/// A store in memory (decisions 1, 2). Clones share one content. Readers see what [`crash`](Self::crash) would keep.
#[derive(Clone)]
pub struct MemoryStore {
    inner: Arc<Mutex<Inner>>,
    epoch: u64,
}

#[derive(Default)]
struct Inner {
    durable: Map,
    waiting: VecDeque<(Save, oneshot::Sender<Result<(), StoreError>>)>,
    manual: bool,
    failed: Option<StoreError>,
}

#[derive(Clone, Default)]
struct Map(BTreeMap<Vec<u8>, Vec<u8>>);

impl Keyspace for Map {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.0.get(key).cloned())
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), StoreError> {
        for (key, value) in self.0.range(from.to_vec()..to.to_vec()) {
            if !visit(key, value) {
                break;
            }
        }
        Ok(())
    }
}

impl Map {
    fn commit(&mut self, save: &Save) -> Result<(), StoreError> {
        let mut set = WriteSet::new(self);
        set.stage(save)?;
        for (key, value) in set.into_writes() {
            match value {
                Some(value) => self.0.insert(key, value),
                None => self.0.remove(&key),
            };
        }
        Ok(())
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryStore {
    /// An empty store where every save is durable at once; epoch 1.
    pub fn new() -> Self {
        Self { inner: Arc::default(), epoch: 1 }
    }

    /// An empty store where saves wait until [`flush`](Self::flush) or [`flush_next`](Self::flush_next).
    pub fn manual() -> Self {
        let store = Self::new();
        store.lock().manual = true;
        store
    }

    /// How many saves wait to become durable.
    pub fn waiting(&self) -> usize {
        self.lock().waiting.len()
    }

    /// Makes the oldest waiting save durable and wakes its waiter; false when none waits.
    pub fn flush_next(&self) -> bool {
        let mut inner = self.lock();
        let Some((save, done)) = inner.waiting.pop_front() else { return false };
        let answer = inner.durable.commit(&save);
        drop(inner);
        // The saver may have stopped waiting; the save is durable all the same.
        let _ = done.send(answer);
        true
    }

    /// Makes every waiting save durable.
    pub fn flush(&self) {
        while self.flush_next() {}
    }

    /// The crash switch: saves that are not durable are gone, their waiters get an error and so does every later save
    /// on this handle. Answers the store as the next process opens it, with a higher epoch.
    pub fn crash(&self) -> Self {
        let error = StoreError::Failed { path: PATH.into(), message: "the process crashed".into() };
        let mut inner = self.lock();
        inner.failed = Some(error.clone());
        let lost = std::mem::take(&mut inner.waiting);
        let next = Inner { durable: inner.durable.clone(), manual: inner.manual, ..Inner::default() };
        drop(inner);
        for (_, done) in lost {
            let _ = done.send(Err(error.clone()));
        }
        Self { inner: Arc::new(Mutex::new(next)), epoch: self.epoch + 1 }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RunStore for MemoryStore {
    fn save(&self, save: Save) -> StoreFuture<()> {
        let mut inner = self.lock();
        let refused = inner.failed.clone().or_else(|| write_set::check(&save).err());
        if let Some(error) = refused {
            return Box::pin(std::future::ready(Err(error)));
        }
        let (done, answer) = oneshot::channel();
        inner.waiting.push_back((save, done));
        let manual = inner.manual;
        drop(inner);
        if !manual {
            self.flush();
        }
        Box::pin(async move {
            answer.await.unwrap_or_else(|_| {
                Err(StoreError::Failed { path: PATH.into(), message: "the store was dropped".into() })
            })
        })
    }

    fn visit_rows(&self, visit: &mut dyn FnMut(RunId, Result<Vec<u8>, StoreError>)) -> Result<(), StoreError> {
        let durable = self.lock().durable.clone();
        reader::visit_rows(&durable, visit)
    }

    fn row(&self, run: &RunId) -> Result<Option<Vec<u8>>, StoreError> {
        reader::packed(&self.lock().durable, &super::keys::row(run))
    }

    fn history(&self, run: &RunId, from: u64, limit: usize) -> Result<Vec<(u64, Vec<u8>)>, StoreError> {
        reader::history(&self.lock().durable, run, from, limit)
    }

    fn text(&self, hash: &str) -> Result<Option<Vec<u8>>, StoreError> {
        reader::packed(&self.lock().durable, &super::keys::text(hash))
    }

    fn texts(&self) -> Result<Vec<String>, StoreError> {
        reader::texts(&self.lock().durable)
    }

    fn start_key(&self, key: &str) -> Result<Option<RunId>, StoreError> {
        reader::start_key(&self.lock().durable, key)
    }

    fn epoch(&self) -> u64 {
        self.epoch
    }
}
