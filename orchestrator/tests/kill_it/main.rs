//! `kill -9` at random instants of a server that runs twenty workflows at once, and of its Harnesses: no run is lost, no
//! keyed effect happens twice, no answer is taken twice, and every run reaches its end.
//!
//! `JR2_KILLS` sets the number of kills (else as many as fit in a minute, sixty at least), `JR2_SEED` the instants.

// A test fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

mod cancel;
mod drive;
mod flows;
mod ledger;
mod server;

use drive::World;
use jr2_conformance::model::{Script, ScriptedModel};
use ledger::Ledger;
use server::{Folder, Server, kill, repository, shell, tail};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How many runs of which kind are under way at once: twenty.
const PLACES: [(&str, usize); 9] = [
    ("ledger", 4),
    ("commands", 1),
    ("gates", 4),
    ("hints", 2),
    ("timers", 3),
    ("family", 2),
    ("judge", 2),
    ("work", 1),
    ("cancelled", 1),
];
/// Kills of a run of the test that is told no number.
const KILLS_MIN: u64 = 60;
/// How long it goes on killing beyond that.
const KILLING: Duration = Duration::from_mins(1);
/// How long a server lives, in milliseconds: mostly the first; every fourth the second, in which a Sandbox can be made; every
/// twentieth the third, in which the word on how a Harness ended is waited for in full.
const LIVES_MS: [std::ops::Range<u64>; 3] = [5..400, 400..2_000, 5_500..6_500];
/// Kills of its Harness that one Turn meets: each of these is forgiven, one more is a fault by right.
const HARNESS_KILLS_MAX: u64 = 3;

/// Seeded, small, the same everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text}")))
}

#[derive(Default)]
struct Count {
    servers: u64,
    harnesses: u64,
    restarts: u64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_run_goes_on_and_every_keyed_effect_happens_once() {
    let seed = number("JR2_SEED").unwrap_or_else(|| u64::from(std::process::id()) << 20 ^ 0x6a72_3200);
    println!("JR2_SEED={seed}");
    let model = ScriptedModel::start(Script::from_json(flows::model()).unwrap()).unwrap();
    let settings = format!("providers: {{ scripted: {{ baseUrl: '{}' }} }}\n", model.url());
    let folder = Folder::new(&settings, &flows::WORKFLOWS);
    let repo = folder.dir.join("repo");
    repository(&repo);
    let ledger = Ledger::default();
    let url = ledger.serve().await;
    let world = Arc::new(World::new(folder, ledger, url, repo.display().to_string()));

    let begun = Instant::now();
    let server = world.folder.start().await;
    let mut places = tokio::task::JoinSet::new();
    for (kind, many) in PLACES {
        for _ in 0..many {
            let world = world.clone();
            places.spawn(async move { world.keep_filled(kind).await });
        }
    }
    let mut random = Random(seed);
    let (server, count) = killing(&world, server, &mut random, &mut places).await;
    let killed_for = begun.elapsed();
    world.stop.store(true, Ordering::Relaxed);
    while let Some(place) = places.join_next().await {
        place.unwrap_or_else(|e| panic!("{e}\n{}", tail(&world.folder.log())));
    }
    let finished = world.finished.load(Ordering::Relaxed);
    in_the_end(&world, server, &model).await;
    println!(
        "{} kills of the server and {} of a Harness, {} restarts, {finished} runs finished, {} Gate answers sent again, \
         killed for {:.1} s, all over after {:.1} s",
        count.servers,
        count.harnesses,
        count.restarts,
        world.resent.load(Ordering::Relaxed),
        killed_for.as_secs_f64(),
        begun.elapsed().as_secs_f64()
    );
}

/// Kills and starts again, until there were enough.
async fn killing(
    world: &World,
    mut server: Server,
    random: &mut Random,
    places: &mut tokio::task::JoinSet<()>,
) -> (Server, Count) {
    let (begun, wanted) = (Instant::now(), number("JR2_KILLS"));
    let mut count = Count::default();
    let mut harness_kills: BTreeMap<String, u64> = BTreeMap::new();
    loop {
        let kills = count.servers + count.harnesses;
        let enough = match wanted {
            Some(wanted) => kills >= wanted,
            None => kills >= KILLS_MIN && begun.elapsed() >= KILLING,
        };
        if enough {
            return (server, count);
        }
        let lives = &LIVES_MS[match count.servers {
            n if n % 20 == 19 => 2,
            n if n % 4 == 3 => 1,
            _ => 0,
        }];
        let life = lives.start + random.below(lives.end - lives.start);
        // Pause: how long this life lasts before its kill.
        tokio::time::sleep(Duration::from_millis(life)).await;
        if let Some(ended) = places.try_join_next() {
            ended.unwrap(); // a client found something wrong: the test ends here
        }
        let round = random.below(8);
        if round == 0 || round == 1 {
            count.harnesses += u64::from(kill_a_harness(world, random, &mut harness_kills));
        }
        if round != 0 {
            server.kill();
            count.servers += 1;
            server = world.folder.start().await;
            count.restarts += 1;
            after_a_restart(world).await;
        }
    }
}

/// Kills one of the Harnesses that run, unless it had its share.
fn kill_a_harness(world: &World, random: &mut Random, kills: &mut BTreeMap<String, u64>) -> bool {
    let running = world.folder.harnesses();
    let sandbox_of = |pid: &u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        String::from_utf8_lossy(&environment).split('\0').find(|v| v.starts_with("JR2_SANDBOX_DIR=")).map(str::to_owned)
    };
    let named: Vec<(u32, String)> = running.into_iter().filter_map(|pid| Some((pid, sandbox_of(&pid)?))).collect();
    if named.is_empty() {
        return false;
    }
    let (pid, sandbox) = &named[random.below(named.len() as u64) as usize];
    let shared = sandbox.ends_with("instance-harness");
    let so_far = kills.entry(sandbox.clone()).or_default();
    let may = if shared {
        world.may_kill_the_instance_harness(HARNESS_KILLS_MAX)
    } else {
        *so_far < HARNESS_KILLS_MAX // one Turn a Sandbox
    };
    if !may {
        return false;
    }
    *so_far += 1;
    world.instance_kills.fetch_add(u64::from(shared), Ordering::Relaxed);
    kill(*pid);
    true
}

/// Whatever was acknowledged is listed, and nothing is worse than live.
async fn after_a_restart(world: &World) {
    let acknowledged: BTreeSet<String> = world.started.lock().unwrap().keys().cloned().collect();
    let (code, list) = world.folder.get("/runs").await.unwrap();
    assert_eq!(code, 200, "{list}");
    let listed: BTreeMap<&str, &str> = list["runs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| (run["runId"].as_str().unwrap(), run["status"].as_str().unwrap()))
        .collect();
    for run in &acknowledged {
        assert!(listed.contains_key(run.as_str()), "run {run} was acknowledged and is gone");
    }
    for (run, status) in listed {
        assert!(["live", "done", "cancelled"].contains(&status), "run {run} is {status} after a restart");
    }
}

/// Everything is over: what was promised is counted.
async fn in_the_end(world: &World, mut server: Server, model: &ScriptedModel) {
    let started = world.started.lock().unwrap().clone();
    let (_, list) = world.folder.get("/runs").await.unwrap();
    let listed: BTreeSet<String> =
        list["runs"].as_array().unwrap().iter().map(|run| run["runId"].as_str().unwrap().to_owned()).collect();
    assert_eq!(listed, started.keys().cloned().collect(), "every run has one start that was answered");
    let mut effects = 0;
    for (run, (_, kind)) in &started {
        let (_, status) = world.folder.get(&format!("/runs/{run}")).await.unwrap();
        world.check(kind, run, &status);
        effects += if ["ledger", "family"].contains(kind) { 3 } else { 0 };
        let (code, replay) = world.folder.get(&format!("/runs/{run}/replay")).await.unwrap();
        assert!(code == 200 && replay["difference"].is_null(), "{kind} {run} does not replay: {replay}");
        if ["commands", "work"].contains(kind) {
            let commits = shell(world.repo.as_ref(), &format!("git rev-list main..jr2/{run} | wc -l"));
            assert_eq!(commits.trim(), "1", "commits of {kind} {run}");
        }
    }
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    for (_, kind) in started.values() {
        *kinds.entry(*kind).or_default() += 1;
    }
    println!("runs by kind: {kinds:?}");
    let books = world.ledger.keys();
    let (requests, keyless) = world.ledger.requests();
    assert_eq!((books.len(), keyless), (effects, 0), "every effect under its key, none twice");
    let repeated = books.values().filter(|kept| kept.requests > 1).count();
    println!("{effects} keyed effects by {requests} requests; {repeated} keys were asked more than once");
    assert_eq!(model.complaints(), Vec::<String>::new());
    let log = world.folder.log();
    for line in log.lines().filter(|line| line.contains("serve.restored")) {
        assert!(line.contains("lost=0") && line.contains("drifted=0") && line.contains("failed=0"), "{line}");
    }
    server.kill();
    let verified = world.folder.command(&["store", "verify"]).output().unwrap();
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
    assert_eq!(cancel::sandboxes(&world.folder), Vec::<String>::new(), "Sandboxes of ended runs");
    assert!(world.folder.harnesses().len() <= 1, "a Harness of an ended run runs yet");
}
