//! The embedded store on sled 0.34 (decision 1).
//!
//! sled's `flush` writes with `sync_file_range`: the bytes reach the drive, but neither the drive's cache nor the file's
//! length is made safe against a power cut. So after it `sync_data` runs on sled's log file: one device flush a group.

use super::committer::{Committer, Medium, STALL_LIMIT};
use super::keys::{self, FORMAT, META_EPOCH, META_FORMAT, META_IMPORTING};
use super::reader::{self, Keyspace};
use super::write_set::Writes;
use super::{RunStore, Save, StoreError, StoreFuture};
use jr2_shared::ids::RunId;
use std::fs::{DirBuilder, File, Permissions};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How long opening may take (decision 1): a damaged file can make sled spin for ever.
pub const OPEN_TIMEOUT: Duration = Duration::from_secs(30);
/// The disk bound when none is set, in bytes.
pub const DISK_MAX_DEFAULT_BYTES: u64 = 4 << 30;
/// sled's page cache, in bytes; the whole Orchestrator stays under 40 MiB.
const CACHE_BYTES: u64 = 4 << 20;
/// Bytes that stay free on the disk: sled must be able to finish a write, and other programs need room too.
const FREE_MIN_BYTES: u64 = 32 << 20;
/// How much of the log a save may take over its own size: pages are rewritten as they gather changes.
const LOG_FACTOR: u64 = 4;
/// How long a lock is waited for: a handle that closes in this process gives it up a moment later.
const LOCK_PATIENCE: Duration = Duration::from_millis(500);
/// sled's log file in the store's directory.
const LOG_FILE: &str = "db";

/// What an acknowledged save survives (decision 1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// A power cut.
    #[default]
    Power,
    /// The end of the process, not of the machine.
    Process,
}

/// How to open a store.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The directory; made with mode 0700 when missing.
    pub dir: PathBuf,
    /// What an acknowledged save survives.
    pub durability: Durability,
    /// Most bytes the store may take on disk.
    pub disk_max_bytes: u64,
    /// Bytes that must stay free on the disk.
    pub disk_free_min_bytes: u64,
    /// How long opening may take.
    pub open_timeout: Duration,
}

impl StoreOptions {
    /// The defaults for a directory.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            durability: Durability::Power,
            disk_max_bytes: DISK_MAX_DEFAULT_BYTES,
            disk_free_min_bytes: FREE_MIN_BYTES,
            open_timeout: OPEN_TIMEOUT,
        }
    }
}

/// The embedded store.
pub struct SledStore {
    // Before `disk`: it writes out what waits, then lets go of it.
    committer: Committer,
    disk: Arc<Disk>,
    epoch: u64,
}

impl SledStore {
    /// Opens the store, making it when it is missing, and raises its owner epoch durably (decision 4). Blocks.
    ///
    /// # Errors
    /// [`StoreError::Busy`] when another process holds it, [`StoreError::OpenTimeout`] after `open_timeout`,
    /// [`StoreError::Failed`] with the system's words, [`StoreError::Unreadable`] for another format or a damaged file.
    pub fn open(options: StoreOptions) -> Result<Self, StoreError> {
        make_dir(&options.dir)?;
        let (disk, epoch) = under_watchdog(&options.dir.clone(), options.open_timeout, move || {
            let disk = Disk::open(options)?;
            let epoch = disk.own()?;
            Ok((disk, epoch))
        })?;
        let disk = Arc::new(disk);
        let committer =
            Committer::start(Arc::clone(&disk), STALL_LIMIT).map_err(|error| disk.failed(error.to_string()))?;
        Ok(Self { committer, disk, epoch })
    }

    /// Holds an error once the store has failed for good; the host then exits (decision 43).
    pub fn fatal(&self) -> watch::Receiver<Option<StoreError>> {
        self.committer.fatal()
    }

    /// Bytes the store takes on disk.
    pub fn disk_bytes(&self) -> Result<u64, StoreError> {
        self.disk.bytes()
    }
}

impl Drop for SledStore {
    fn drop(&mut self) {
        if self.committer.fatal().borrow().is_some() {
            // sled writes when it is dropped; after a failure nothing more may be written on this handle.
            std::mem::forget(Arc::clone(&self.disk));
        }
    }
}

impl RunStore for SledStore {
    fn save(&self, save: Save) -> StoreFuture<()> {
        let queued = self.committer.queue(save);
        let path = self.disk.path.clone();
        Box::pin(async move {
            queued?.await.unwrap_or_else(|_| Err(StoreError::Failed { path, message: "the store was closed".into() }))
        })
    }

    fn visit_rows(&self, visit: &mut dyn FnMut(RunId, Result<Vec<u8>, StoreError>)) -> Result<(), StoreError> {
        reader::visit_rows(&*self.disk, visit)
    }

    fn row(&self, run: &RunId) -> Result<Option<Vec<u8>>, StoreError> {
        reader::packed(&*self.disk, &keys::row(run))
    }

    fn history(&self, run: &RunId, from: u64, limit: usize) -> Result<Vec<(u64, Vec<u8>)>, StoreError> {
        reader::history(&*self.disk, run, from, limit)
    }

    fn text(&self, hash: &str) -> Result<Option<Vec<u8>>, StoreError> {
        reader::packed(&*self.disk, &keys::text(hash))
    }

    fn texts(&self) -> Result<Vec<String>, StoreError> {
        reader::texts(&*self.disk)
    }

    fn start_key(&self, key: &str) -> Result<Option<RunId>, StoreError> {
        reader::start_key(&*self.disk, key)
    }

    fn epoch(&self) -> u64 {
        self.epoch
    }
}

/// An open sled database with the bounds and the durability it is held to.
pub(super) struct Disk {
    db: sled::Db,
    log: File,
    path: String,
    options: StoreOptions,
}

/// What a person does about a damaged log.
const RESCUE: &str = "move the folder away and bring the last `jr2 store export` back with `jr2 store import`";

/// Removes snapshots that a crash or a full disk cut short. sled takes the newest file for whole, a cut one included,
/// and then opens no more; the log it was made from is complete without it. Nothing is touched while another process
/// holds the log: sled itself says so next.
fn remove_torn_snapshots(dir: &Path, log: &Path) -> std::io::Result<()> {
    if !log.exists() {
        return Ok(());
    }
    let held = File::open(log)?;
    if rustix::fs::flock(&held, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(());
    }
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        if name.starts_with("snap.") && name.ends_with(".generating") {
            tracing::warn!(file = %path.display(), "a snapshot that was cut short is removed");
            std::fs::remove_file(&path)?;
        }
    }
    Ok(())
}

impl Disk {
    /// Opens sled in a directory that exists. What a crash left in the system's cache is made durable first, so that
    /// nothing is acted on that a power cut could still take back.
    pub(super) fn open(options: StoreOptions) -> Result<Self, StoreError> {
        let path = options.dir.display().to_string();
        let io = |error: std::io::Error| failed(&path, error.to_string());
        let log_path = options.dir.join(LOG_FILE);
        let power = options.durability == Durability::Power;
        if power && log_path.exists() {
            File::open(&log_path).and_then(|file| file.sync_all()).map_err(io)?;
        }
        remove_torn_snapshots(&options.dir, &log_path).map_err(io)?;
        let db = open_sled(&options.dir)?;
        let log = File::options().read(true).write(true).open(&log_path).map_err(io)?;
        if power {
            sync_tree(&options.dir).map_err(io)?;
        }
        Ok(Self { db, log, path, options })
    }

    /// Checks the format, writes it into a new store, raises the owner epoch; answers the epoch once it is durable.
    fn own(&self) -> Result<u64, StoreError> {
        let known = self.check_format()?;
        let epoch =
            self.epoch()?.checked_add(1).ok_or_else(|| StoreError::Unreadable("the owner epoch is spent".into()))?;
        let mut writes = Writes::new();
        if !known {
            writes.insert(META_FORMAT.to_vec(), Some(FORMAT.as_bytes().to_vec()));
        }
        writes.insert(META_EPOCH.to_vec(), Some(epoch.to_string().into_bytes()));
        self.apply(writes)?;
        self.flush()?;
        Ok(epoch)
    }

    /// True for a store of this format, false for an empty one.
    pub(super) fn check_format(&self) -> Result<bool, StoreError> {
        if self.get(META_IMPORTING)?.is_some() {
            let why = format!("an import into {} did not finish; remove the directory and import again", self.path);
            return Err(StoreError::Unreadable(why));
        }
        match self.get(META_FORMAT)? {
            Some(format) if format == FORMAT.as_bytes() => Ok(true),
            Some(format) => {
                let format = format.escape_ascii().to_string();
                Err(StoreError::Unreadable(format!("its format is `{format}`; this build reads `{FORMAT}`")))
            }
            None if self.db.is_empty() => Ok(false),
            None => Err(StoreError::Unreadable(format!("{} is no jr2 store", self.path))),
        }
    }

    /// The owner epoch of the last opening; 0 for a new store.
    pub(super) fn epoch(&self) -> Result<u64, StoreError> {
        let Some(bytes) = self.get(META_EPOCH)? else { return Ok(0) };
        let number = std::str::from_utf8(&bytes).ok().and_then(|text| text.parse().ok());
        number.ok_or_else(|| StoreError::Unreadable("the owner epoch is no number".into()))
    }

    /// Bytes on disk: the log, and whatever sled keeps beside it.
    pub(super) fn bytes(&self) -> Result<u64, StoreError> {
        self.db.size_on_disk().map_err(|error| self.sled_error(&error))
    }

    /// Where it lies.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    fn sled_error(&self, error: &sled::Error) -> StoreError {
        sled_error(&self.path, error)
    }
}

impl Keyspace for Disk {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let value = self.db.get(key).map_err(|error| self.sled_error(&error))?;
        Ok(value.map(|bytes| bytes.to_vec()))
    }

    fn scan(&self, from: &[u8], to: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), StoreError> {
        for pair in self.db.range(from..to) {
            let (key, value) = pair.map_err(|error| self.sled_error(&error))?;
            if !visit(&key, &value) {
                break;
            }
        }
        Ok(())
    }
}

impl Medium for Disk {
    fn space(&self) -> &dyn Keyspace {
        self
    }

    fn room_for(&self, bytes: usize) -> Result<(), StoreError> {
        let full = |message| Err(StoreError::Full { path: self.path.clone(), message });
        let taken = self.log.metadata().map_err(|error| self.failed(error.to_string()))?.len();
        let bound = self.options.disk_max_bytes;
        if taken.saturating_add(bytes as u64) > bound {
            return full(format!(
                "it takes {taken} bytes of its disk bound of {bound}; end and sweep runs, or raise it"
            ));
        }
        let free = rustix::fs::fstatvfs(&self.log).map_err(|error| self.failed(error.to_string()))?;
        let free = free.f_bavail.saturating_mul(free.f_frsize);
        let keep = self.options.disk_free_min_bytes;
        if free < keep.saturating_add(bytes as u64 * LOG_FACTOR) {
            return full(format!("{free} bytes are free on its disk, and {keep} stay free for a write to end well"));
        }
        Ok(())
    }

    fn apply(&self, writes: Writes) -> Result<(), StoreError> {
        let mut batch = sled::Batch::default();
        for (key, value) in writes {
            match value {
                Some(value) => batch.insert(key, value),
                None => batch.remove(key),
            }
        }
        self.db.apply_batch(batch).map_err(|error| self.sled_error(&error))
    }

    fn flush(&self) -> Result<(), StoreError> {
        self.db.flush().map_err(|error| self.sled_error(&error))?;
        if self.options.durability == Durability::Power {
            self.log.sync_data().map_err(|error| self.failed(error.to_string()))?;
        }
        Ok(())
    }

    fn failed(&self, message: String) -> StoreError {
        failed(&self.path, message)
    }
}

fn failed(path: &str, message: String) -> StoreError {
    StoreError::Failed { path: path.to_owned(), message }
}

/// The first words of the error sled gives for a held lock; it has no kind of its own.
const LOCK_WORDS: &str = "could not acquire lock";

fn sled_error(path: &str, error: &sled::Error) -> StoreError {
    match error {
        sled::Error::Io(io) if io.to_string().starts_with(LOCK_WORDS) => StoreError::Busy { path: path.to_owned() },
        sled::Error::Io(io) => failed(path, io.to_string()),
        sled::Error::Corruption { .. } => {
            StoreError::Unreadable(format!("the log in {path} is damaged ({error}); {RESCUE}"))
        }
        other => failed(path, other.to_string()),
    }
}

fn open_sled(dir: &Path) -> Result<sled::Db, StoreError> {
    let path = dir.display().to_string();
    let since = Instant::now();
    loop {
        let config = sled::Config::new().path(dir).mode(sled::Mode::LowSpace).cache_capacity(CACHE_BYTES);
        match config.flush_every_ms(None).open() {
            Ok(db) => return Ok(db),
            Err(error) => match sled_error(&path, &error) {
                StoreError::Busy { .. } if since.elapsed() < LOCK_PATIENCE => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                error => return Err(error),
            },
        }
    }
}

/// Makes the directory for its owner alone (decision 46).
fn make_dir(dir: &Path) -> Result<(), StoreError> {
    let io = |error: std::io::Error| failed(&dir.display().to_string(), error.to_string());
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(io)?;
    std::fs::set_permissions(dir, Permissions::from_mode(0o700)).map_err(io)
}

/// Makes the files of a store and their names durable; sled leaves names to the system.
fn sync_tree(dir: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        File::open(entry?.path())?.sync_all()?;
    }
    File::open(dir)?.sync_all()?;
    match dir.canonicalize()?.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

/// Runs `work` in a thread of its own and waits `timeout` for it. A thread that is late is left behind with its lock:
/// nothing can stop it, and the process is about to end.
pub(super) fn under_watchdog<T: Send + 'static>(
    dir: &Path,
    timeout: Duration,
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let path = dir.display().to_string();
    let (done, answer) = channel();
    let thread = std::thread::Builder::new().name("store-open".into()).spawn(move || {
        // Nobody listens any more once the timeout has passed.
        let _ = done.send(work());
    });
    thread.map_err(|error| failed(&path, error.to_string()))?;
    match answer.recv_timeout(timeout) {
        Ok(outcome) => outcome,
        Err(RecvTimeoutError::Timeout) => Err(StoreError::OpenTimeout { path, seconds: timeout.as_secs() }),
        Err(RecvTimeoutError::Disconnected) => {
            Err(StoreError::Unreadable(format!("sled panicked while it opened {path}: the file is damaged; {RESCUE}")))
        }
    }
}

/// Opens an existing store for a tool, without raising its epoch. It runs no longer than [`OPEN_TIMEOUT`].
pub(super) fn open_existing(dir: &Path) -> Result<Disk, StoreError> {
    if !dir.join(LOG_FILE).is_file() {
        return Err(failed(&dir.display().to_string(), "there is no store".into()));
    }
    let options = StoreOptions::new(dir);
    under_watchdog(dir, OPEN_TIMEOUT, move || Disk::open(options))
}

/// Opens a store that an import may fill, making it when it is missing.
pub(super) fn open_to_fill(dir: &Path) -> Result<Disk, StoreError> {
    make_dir(dir)?;
    let options = StoreOptions::new(dir);
    under_watchdog(dir, OPEN_TIMEOUT, move || Disk::open(options))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Save;

    #[tokio::test]
    async fn a_snapshot_that_was_cut_short_does_not_keep_the_store_shut() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("store");
        let run = RunId::from_random([7; 16]);
        let store = SledStore::open(StoreOptions::new(&dir)).unwrap();
        store.save(Save { run: Some(run.clone()), row: Some(b"{}".to_vec()), ..Save::default() }).await.unwrap();
        drop(store);
        for (name, bytes) in
            [("snap.0000000000ffffff.generating", &b""[..]), ("snap.0000000000fffffe.generating", b"x")]
        {
            std::fs::write(dir.join(name), bytes).unwrap();
            let store = SledStore::open(StoreOptions::new(&dir)).unwrap();
            assert_eq!(store.row(&run).unwrap().unwrap(), b"{}");
            assert!(!dir.join(name).exists());
        }
    }
}
