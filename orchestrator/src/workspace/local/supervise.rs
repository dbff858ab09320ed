//! One Harness process: started, waited for, watched, started again when it dies.

use super::cgroup::{Cgroup, Who};
use super::death::{Baseline, Exit, OomCounter};
use super::environment::{DENIED_PORTS_VARIABLE, harness_mark, marks};
use super::layout::Place;
use super::process::{self, Marks, ProcessId};
use super::record::Record;
use super::{
    LocalLimits,
    restart::{Budget, Verdict},
};
use crate::run::{Clock, SystemClock};
use crate::workspace::git::refused;
use crate::workspace::{LastEnd, ProvisionError, SandboxEvent};
use jr2_shared::harness::HEADER_OWNER_EPOCH;
use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::sync::mpsc::UnboundedSender;

/// Largest log of one Harness in bytes; one older file of this size is kept beside it.
const LOG_MAX_BYTES: u64 = 4 << 20;
/// Bytes of the log's end that a failed start repeats.
const LOG_TAIL_BYTES: u64 = 1_024;
/// Pause between two looks at a Harness that starts: first, and at most.
const PROBE_PAUSE: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(100));
/// Longest time of one look.
const PROBE_LIMIT: Duration = Duration::from_secs(2);

/// All that is needed to start a Sandbox's Harness again.
pub struct Job {
    /// The Sandbox.
    pub name: String,
    /// Where it lies.
    pub place: Place,
    /// `jr2-harness`.
    pub program: PathBuf,
    /// Its environment, complete.
    pub variables: Vec<(OsString, OsString)>,
    /// How patient we are.
    pub limits: LocalLimits,
    /// Carried by every effect (decision 4).
    pub owner_epoch: u64,
    /// Finds a Harness whose pid was never written down.
    pub harness_token: String,
    /// The Sandbox's own memory cgroup, where it has one.
    pub cgroup: Option<Cgroup>,
    /// Its limit.
    pub memory_bytes: u64,
    /// The running Harness's pid for the Custodian; 0 = none.
    pub pid: Arc<AtomicI32>,
    /// From when its instants count.
    pub began: Instant,
    /// Set once the Sandbox is lost.
    pub lost: Arc<AtomicBool>,
    /// Where news goes.
    pub events: UnboundedSender<SandboxEvent>,
}

impl Job {
    fn marks(&self) -> Marks {
        marks(&self.place, self.cgroup.as_ref())
    }
}

/// A Harness that runs.
pub struct Harness {
    id: ProcessId,
    /// Kernel kills its cgroup had counted a while ago.
    kills_before: Baseline,
    hold: Hold,
}

enum Hold {
    Child(Child),
    Adopted(AsyncFd<OwnedFd>),
}

impl Harness {
    /// Waits for its end. Cancel-safe.
    async fn ended(&mut self) -> Exit {
        match &mut self.hold {
            Hold::Child(child) => child.wait().await.map_or(Exit::Unknown, Exit::of),
            Hold::Adopted(fd) => {
                // An error means the handle is of no use: the process is asked by name.
                if fd.readable().await.is_err() {
                    while process::is_alive(&self.id) {
                        tokio::time::sleep(PROBE_PAUSE.1).await;
                    }
                }
                Exit::Unknown
            }
        }
    }
}

/// Keeps the end of a Harness durably: before it is started again, and before anybody hears of it.
fn note_end(job: &Job, harness: &Harness, exit: Exit) -> LastEnd {
    job.pid.store(0, Ordering::Release);
    let kills = harness.kills_before.kills(job.cgroup.kills());
    let now = SystemClock.now_ms();
    let keep = || {
        let Some(mut record) = Record::load(&job.place.record)? else { return Ok(None) };
        let end = record.note_end(Some(&harness.id), exit, kills, now);
        record.save(&job.place.record)?;
        Ok::<_, super::record::RecordError>(Some(end))
    };
    match keep() {
        Ok(Some(end)) => end,
        Ok(None) => exit.end(kills, now, None),
        Err(error) => {
            tracing::error!(sandbox = %job.name, %error, "harness.end_not_recorded");
            exit.end(kills, now, None)
        }
    }
}

/// Finds the Sandbox's Harness if it still runs and answers; ends whatever does not.
pub async fn find(job: &Job, record: &Record) -> Option<Harness> {
    let mut candidates: Vec<ProcessId> = record.process.iter().filter(|p| process::is_alive(p)).cloned().collect();
    if candidates.is_empty() && record.process.as_ref().is_none_or(|p| p.boot == process::boot_id()) {
        // Started, but the Orchestrator died before it could write the pid down.
        candidates = process::with_environment(&[harness_mark(&job.harness_token)]);
    }
    // Children may carry the mark too: the one that listens is the Harness.
    let listening = listener_pid(&job.place.harness).await;
    let found = candidates.into_iter().find(|c| Some(c.pid) == listening)?;
    if !is_fenced(job, found.pid) {
        tracing::warn!(sandbox = %job.name, pid = found.pid, "harness.fenced_for_another_port");
        return None;
    }
    let fd = process::watch(&found)?;
    #[allow(unsafe_code)]
    // SAFETY: the OwnedFd is moved in, always answers the same descriptor, and is closed only after it is deregistered.
    let watched = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
    let hold = Hold::Adopted(watched.ok()?);
    let mut harness = Harness { id: found, kills_before: Baseline::new(job.began.elapsed(), job.cgroup.kills()), hold };
    match ready(job, &mut harness).await {
        Ready::Yes => {
            remember(job, &harness.id).ok()?;
            Some(harness)
        }
        Ready::Ended(_) | Ready::TooLate => None,
    }
}

/// A Harness that was told another port would let its commands dial the present one (decision 46).
fn is_fenced(job: &Job, pid: i32) -> bool {
    let told = job.variables.iter().find(|(name, _)| name == DENIED_PORTS_VARIABLE);
    told.is_none_or(|(name, ports)| {
        let line = format!("{}={}", name.to_string_lossy(), ports.to_string_lossy());
        process::environment_holds(pid, &[line])
    })
}

/// Starts a Harness and waits until it answers. Ends what an earlier one left behind first.
pub async fn start(job: &Job, old: Option<&ProcessId>) -> Result<Harness, ProvisionError> {
    job.pid.store(0, Ordering::Release);
    let left = process::end_all(old, &job.marks()).await;
    if left > 0 {
        return Err(refused("harness-not-ready", format!("{left} processes of the Sandbox would not end")));
    }
    let locks = super::locks::remove_git_locks(&job.place.work);
    if locks > 0 {
        tracing::warn!(sandbox = %job.name, locks, "sandbox.git_locks_removed");
    }
    let mut why = String::new();
    for _ in 0..=job.limits.restarts_before_ready {
        let mut harness = spawn(job)?;
        match ready(job, &mut harness).await {
            Ready::Yes => return Ok(harness),
            Ready::Ended(exit) => why = note_end(job, &harness, exit).reason,
            Ready::TooLate => {
                why = format!("it did not answer within {} s", job.limits.ready.as_secs());
                process::end_all(Some(&harness.id), &job.marks()).await;
                let exit = harness.ended().await;
                note_end(job, &harness, exit);
                break;
            }
        }
    }
    let tail = log_tail(&job.place.log);
    let said = if tail.is_empty() { String::new() } else { format!(". Its last words: {tail}") };
    Err(refused("harness-not-ready", format!("the Harness did not start: {why}{said}")))
}

fn spawn(job: &Job) -> Result<Harness, ProvisionError> {
    let failed = |what: &str, e: &dyn std::fmt::Display| refused("harness-not-ready", format!("{what}: {e}"));
    let log = open_log(&job.place.log).map_err(|e| failed("the Harness's log cannot be opened", &e))?;
    let errors = log.try_clone().map_err(|e| failed("the Harness's log cannot be opened", &e))?;
    let _ = std::fs::remove_file(&job.place.harness);
    let mut command = Command::new(&job.program);
    command.env_clear().envs(job.variables.iter().cloned()).current_dir(&job.place.dir);
    command.stdin(Stdio::null()).stdout(log).stderr(errors);
    #[allow(unsafe_code)]
    // SAFETY: setsid is async-signal-safe and touches no memory of the parent.
    unsafe {
        command.pre_exec(|| rustix::process::setsid().map(drop).map_err(Into::into));
    }
    if let Some(cgroup) = &job.cgroup {
        let door = cgroup.prepare(job.memory_bytes, Who::Harness);
        let door = door.map_err(|e| failed(&format!("the memory cgroup {}", cgroup.path.display()), &e))?;
        door.enter_first(command.as_std_mut());
    }
    let kills_before = Baseline::new(job.began.elapsed(), job.cgroup.kills());
    let child = command.spawn().map_err(|e| {
        let hint =
            if e.kind() == std::io::ErrorKind::NotFound { " (is jr2-harness installed beside jr2?)" } else { "" };
        failed(&format!("{} cannot be started{hint}", job.program.display()), &e)
    })?;
    let pid = child.id().map(u32::cast_signed).unwrap_or_default();
    let id = process::identify(pid).unwrap_or(ProcessId { pid, start_time: 0, boot: String::new() });
    let harness = Harness { id, kills_before, hold: Hold::Child(child) };
    remember(job, &harness.id).map_err(|e| failed("the Sandbox's record cannot be written", &e))?;
    tracing::info!(sandbox = %job.name, pid, "harness.started");
    Ok(harness)
}

fn remember(job: &Job, id: &ProcessId) -> Result<(), super::record::RecordError> {
    job.pid.store(id.pid, Ordering::Release);
    if let Some(mut record) = Record::load(&job.place.record)?
        && record.process.as_ref() != Some(id)
    {
        record.process = Some(id.clone());
        record.save(&job.place.record)?;
    }
    Ok(())
}

/// Why a Sandbox is lost.
pub struct Loss {
    reason: String,
    /// For people.
    pub message: String,
}

/// Watches until the Sandbox is lost. Letting go of it is dropping this future; the Harness runs on.
pub async fn watch(job: &Job, mut harness: Harness) -> Loss {
    let mut budget = Budget::default();
    let mut tick = tokio::time::interval(job.limits.look);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let exit = tokio::select! {
            exit = harness.ended() => exit,
            _ = tick.tick() => {
                if !job.place.is_there() {
                    return lose_directory(job, &harness.id).await;
                }
                rotate_log(&job.place.log);
                harness.kills_before.note(job.began.elapsed(), job.cgroup.kills());
                continue;
            }
        };
        let end = note_end(job, &harness, exit);
        if !job.place.is_there() {
            return lose_directory(job, &harness.id).await;
        }
        tracing::warn!(sandbox = %job.name, code = end.exit_code, reason = %end.reason, "harness.ended");
        match budget.note(job.began.elapsed(), &job.limits.restarts) {
            Verdict::Restart { after } => tokio::time::sleep(after).await,
            Verdict::GiveUp => {
                let message = format!("the Harness ended again and again; the last time {}", end.reason);
                return lose(job, "harness-not-ready", message);
            }
        }
        harness = match start(job, Some(&harness.id)).await {
            Ok(harness) => harness,
            Err(_) if !job.place.is_there() => return lose_directory(job, &harness.id).await,
            Err(error) => return lose(job, &error.reason, error.message),
        };
        let _ = job.events.send(SandboxEvent::HarnessRestarted { name: job.name.clone(), last_end: end });
    }
}

async fn lose_directory(job: &Job, id: &ProcessId) -> Loss {
    process::end_all(Some(id), &job.marks()).await;
    // The reason word of a Sandbox that was deleted (spec O-18).
    lose(job, "Deleted", format!("the Sandbox's directory {} was deleted", job.place.dir.display()))
}

fn lose(job: &Job, reason: &str, message: String) -> Loss {
    job.pid.store(0, Ordering::Release);
    job.lost.store(true, Ordering::Release);
    tracing::warn!(sandbox = %job.name, reason, "sandbox.lost");
    Loss { reason: reason.to_owned(), message }
}

/// Tells the run host that a Sandbox is lost.
pub fn say_lost(job: &Job, loss: Loss) {
    let event = SandboxEvent::Lost { name: job.name.clone(), reason: loss.reason, message: loss.message };
    let _ = job.events.send(event);
}

enum Ready {
    Yes,
    Ended(Exit),
    TooLate,
}

async fn ready(job: &Job, harness: &mut Harness) -> Ready {
    let answer = async {
        let mut pause = PROBE_PAUSE.0;
        loop {
            let look = tokio::time::timeout(PROBE_LIMIT, healthy(&job.place.harness, job.owner_epoch));
            if matches!(look.await, Ok(Ok(true))) {
                return;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PROBE_PAUSE.1);
        }
    };
    tokio::select! {
        biased;
        exit = harness.ended() => Ready::Ended(exit),
        () = answer => Ready::Yes,
        () = tokio::time::sleep(job.limits.ready) => Ready::TooLate,
    }
}

/// `GET /healthz`, asked by hand: one line out, one status line in.
async fn healthy(socket: &Path, owner_epoch: u64) -> std::io::Result<bool> {
    let mut stream = UnixStream::connect(socket).await?;
    let request = format!(
        "GET /healthz HTTP/1.1\r\nhost: jr2\r\nconnection: close\r\n{HEADER_OWNER_EPOCH}: {owner_epoch}\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut status = [0_u8; 12];
    stream.read_exact(&mut status).await?;
    Ok(status.starts_with(b"HTTP/1.1 2"))
}

/// The process that listens on a socket.
async fn listener_pid(socket: &Path) -> Option<i32> {
    UnixStream::connect(socket).await.ok()?.peer_cred().ok()?.pid()
}

fn open_log(path: &Path) -> std::io::Result<File> {
    std::fs::OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

/// The Harness appends, so the file can be emptied under it once its text is kept.
fn rotate_log(path: &Path) {
    if std::fs::metadata(path).is_ok_and(|m| m.len() > LOG_MAX_BYTES) {
        let rotate = || {
            std::fs::copy(path, path.with_extension("log.1"))?;
            File::options().write(true).open(path)?.set_len(0)
        };
        if let Err(error) = rotate() {
            tracing::warn!(log = %path.display(), %error, "harness.log_not_rotated");
        }
    }
}

fn log_tail(path: &Path) -> String {
    let read = || {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(LOG_TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok::<_, std::io::Error>(String::from_utf8_lossy(&bytes).trim().to_owned())
    };
    read().unwrap_or_default()
}
