//! `kill -9` in mid-write: nothing acknowledged is lost, the order of each run holds, the store is sound (decision 1).
//!
//! The test starts itself again as the victim, which saves numbered rows of many runs from many threads and says each
//! save that was acknowledged on a pipe. A pipe outlives a killed writer, so what was said is what was acknowledged.
#![allow(clippy::expect_used)] // A test stops at the first surprise.

use jr2_orchestrator::store::{Durability, RunStore, Save, SledStore, StoreOptions, verify};
use jr2_shared::ids::RunId;
use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Set in the victim: the store's directory.
const VICTIM: &str = "JR2_STORE_VICTIM";
/// How many kills to do; more than the default for a long run.
const KILLS: &str = "JR2_STORE_KILLS";
/// Kills of a normal run.
const KILLS_DEFAULT: u32 = 60;
/// Threads of the victim; each owns the runs whose number leaves its own as the remainder.
const THREADS: usize = 8;
/// Runs of the victim.
const RUNS: usize = 24;
/// History entries kept for each run.
const HISTORY_KEPT: u64 = 20;
/// How long anything here may take before the test gives up.
const PATIENCE: Duration = Duration::from_mins(1);

fn options(dir: &Path) -> StoreOptions {
    StoreOptions { durability: Durability::Process, ..StoreOptions::new(dir) }
}

fn run(number: usize) -> RunId {
    RunId(format!("run{number}"))
}

/// The row of a run at a revision: its size follows from the revision, from a few bytes to many chunks.
fn row(number: usize, rev: u64) -> Vec<u8> {
    let size = [10, 700, 3_000, 9_000, 40_000, 150_000][(rev as usize * 7 + number) % 6];
    format!("{{\"rev\":{rev},\"pad\":\"{}\"}}", "p".repeat(size)).into_bytes()
}

fn rev_of(row: &[u8]) -> u64 {
    let value: serde_json::Value = serde_json::from_slice(row).expect("a row is whole");
    value["rev"].as_u64().expect("a row has its revision")
}

/// The victim's life: saves until it is killed. Does nothing in a normal test run.
#[test]
fn victim() {
    let Some(dir) = std::env::var_os(VICTIM) else { return };
    let store = Arc::new(SledStore::open(options(Path::new(&dir))).expect("the victim opens its store"));
    say(&format!("epoch {}\n", store.epoch()));
    let threads: Vec<_> = (0..THREADS).map(|thread| (thread, Arc::clone(&store))).collect();
    let threads: Vec<_> =
        threads.into_iter().map(|(t, store)| std::thread::spawn(move || save_on(&store, t))).collect();
    for thread in threads {
        thread.join().expect("a saver");
    }
}

fn save_on(store: &SledStore, thread: usize) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let runs: Vec<usize> = (thread..RUNS).step_by(THREADS).collect();
    let at = |number| store.row(&run(number)).expect("a row reads").map_or(0, |row| rev_of(&row));
    let mut revs: HashMap<usize, u64> = runs.iter().map(|number| (*number, at(*number))).collect();
    loop {
        for number in &runs {
            // Two saves of one run in flight at once: their order is the order of the calls.
            let rev = revs[number] + 2;
            let saves = [rev - 1, rev].map(|rev| (rev, store.save(save(*number, rev))));
            for (rev, saved) in saves {
                runtime.block_on(saved).expect("a save");
                say(&format!("ack {number} {rev}\n"));
            }
            revs.insert(*number, rev);
        }
    }
}

fn save(number: usize, rev: u64) -> Save {
    Save {
        run: Some(run(number)),
        row: Some(row(number, rev)),
        history: Some((rev, row(number, rev))),
        history_from: rev.checked_sub(HISTORY_KEPT),
        start_keys: if rev == 1 { vec![(format!("key {number}"), run(number))] } else { Vec::new() },
        ..Save::default()
    }
}

/// One write a line: lines of several threads never mix, and none waits in a buffer that dies with the process.
fn say(line: &str) {
    std::io::stdout().lock().write_all(line.as_bytes()).expect("the parent listens");
    std::io::stdout().lock().flush().expect("the parent listens");
}

struct Victim {
    child: Child,
    lines: Receiver<String>,
}

impl Drop for Victim {
    fn drop(&mut self) {
        // Already dead on the normal path.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(dir: &Path) -> Victim {
    let mut child = Command::new(std::env::current_exe().expect("this test's own file"))
        .args(["victim", "--exact", "--nocapture", "--test-threads=1"])
        .env(VICTIM, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("the victim starts");
    let stdout: ChildStdout = child.stdout.take().expect("a pipe");
    let (tell, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
            if tell.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                return;
            }
        }
    });
    Victim { child, lines }
}

/// A small generator: the kill instants only need to be spread, and a failure prints its seed.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn nothing_acknowledged_is_lost_by_kill_9() {
    let kills = std::env::var(KILLS).ok().and_then(|text| text.parse().ok()).unwrap_or(KILLS_DEFAULT);
    let mut seed = u64::from(std::process::id()) * 0x9e37_79b9 + 1;
    println!("seed {seed}");
    let dir = tempfile::tempdir().expect("a directory");
    let mut acked: HashMap<usize, u64> = HashMap::new();
    let mut total = 0u64;
    for round in 0..kills {
        let mut victim = start(dir.path());
        // Kill after a random number of acknowledgements and then a random part of a commit.
        let wanted = random(&mut seed) % 150;
        let nanos = random(&mut seed) % 3_000_000;
        let deadline = Instant::now() + PATIENCE;
        let mut seen = 0;
        while seen < wanted {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = victim.lines.recv_timeout(left).expect("the victim saves");
            seen += u64::from(note(&line, &mut acked, u64::from(round) + 1));
        }
        let until = Instant::now() + Duration::from_nanos(nanos);
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        victim.child.kill().expect("the kill");
        victim.child.wait().expect("the end");
        // The rest of the pipe was said before the kill and counts too.
        while let Ok(line) = victim.lines.recv_timeout(PATIENCE) {
            seen += u64::from(note(&line, &mut acked, u64::from(round) + 1));
        }
        total += seen;
        check(dir.path(), &acked, round);
    }
    println!("{kills} kills, {total} acknowledged saves");
    assert!(total > u64::from(kills), "the victim did save");
}

/// Takes one line of the victim; true for an acknowledgement. A line that the kill cut has no number to trust.
fn note(line: &str, acked: &mut HashMap<usize, u64>, opening: u64) -> bool {
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["ack", number, rev] => {
            let (number, rev): (usize, u64) = (number.parse().expect("a run"), rev.parse().expect("a revision"));
            let before = acked.insert(number, rev).unwrap_or(0);
            assert!(rev > before, "run {number} acknowledged {rev} after {before}");
            true
        }
        ["epoch", epoch] => {
            let epoch: u64 = epoch.parse().expect("an epoch");
            // This test opens the store once between two victims, to read it.
            assert!(epoch >= opening, "epoch {epoch} at opening {opening}");
            false
        }
        _ => false,
    }
}

fn check(dir: &Path, acked: &HashMap<usize, u64>, round: u32) {
    if !dir.join("db").exists() {
        assert!(acked.is_empty());
        return;
    }
    let report = verify(dir).expect("the store opens after a kill");
    assert!(report.is_sound(), "round {round}: {report:?}");
    let store = SledStore::open(options(dir)).expect("the store opens after a kill");
    for (number, acked) in acked {
        let found = store.row(&run(*number)).expect("a row reads").expect("an acknowledged run is there");
        let rev = rev_of(&found);
        assert!(rev >= *acked, "round {round}: run {number} is at {rev}, {acked} was acknowledged");
        assert_eq!(found, row(*number, rev), "round {round}: the row of run {number} at {rev}");
        let history = store.history(&run(*number), 0, usize::MAX).expect("history reads");
        let revs: Vec<u64> = history.iter().map(|(rev, _)| *rev).collect();
        let first = rev.saturating_sub(HISTORY_KEPT).max(1);
        assert_eq!(revs, (first..=rev).collect::<Vec<_>>(), "round {round}: history and row are one save");
        for (rev, value) in history {
            assert_eq!(value, row(*number, rev));
        }
        assert_eq!(store.start_key(&format!("key {number}")).expect("a key reads"), Some(run(*number)));
    }
}
