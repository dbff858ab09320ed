//! What a run of the proof consists of: which scenes within which bounds, how many walks, and how the work is shared out.

use crate::explore::{Report, explore};
use crate::mutant::Mutant;
use crate::scene::{self, Budget, Scene};
use crate::sim::{self, Walk};
use clap::ValueEnum as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How much a budget allows besides faults: events from outside, tool calls, silent stops.
#[derive(Clone, Copy, Debug)]
pub struct Freedom {
    /// States ended from outside.
    pub exits: u8,
    /// Working-tool calls.
    pub tools: u8,
    /// Stops without a pick.
    pub silences: u8,
    /// Picks that ask.
    pub asks: u8,
}

/// A budget with at most `faults` faults on one path, of every kind.
pub fn budget(faults: u8, free: Freedom) -> Budget {
    Budget {
        faults,
        guard_kills: faults.min(3),
        kernel_kills: faults.min(3),
        harness_crashes: faults,
        losses: faults,
        orchestrator_crashes: faults,
        wire: faults,
        blind_reads: faults,
        exits: free.exits,
        tools: free.tools,
        silences: free.silences,
        asks: free.asks,
    }
}

/// One exploration.
#[derive(Clone)]
pub struct Job {
    /// The scene.
    pub scene: Scene,
    /// Its bounds.
    pub budget: Budget,
}

/// Scene, faults on one path, and what else is free.
type Bound = (&'static str, u8, Freedom);

/// The bounds that run on every change.
const CI: &[Bound] = &[
    ("menu-only", 2, Freedom { exits: 1, tools: 0, silences: 1, asks: 0 }),
    ("fresh", 1, Freedom { exits: 1, tools: 1, silences: 1, asks: 0 }),
    ("fresh", 2, Freedom { exits: 0, tools: 0, silences: 0, asks: 0 }),
    ("in-turn", 1, Freedom { exits: 0, tools: 1, silences: 0, asks: 0 }),
    ("beside", 1, Freedom { exits: 0, tools: 0, silences: 0, asks: 0 }),
    ("two-workspaces", 1, Freedom { exits: 0, tools: 0, silences: 0, asks: 0 }),
    ("asking", 1, Freedom { exits: 1, tools: 0, silences: 1, asks: 1 }),
    ("asking-fresh", 1, Freedom { exits: 1, tools: 0, silences: 1, asks: 1 }),
    ("asking-fresh", 2, Freedom { exits: 0, tools: 0, silences: 0, asks: 1 }),
];

/// The bounds of `jr2-proof deep`.
const DEEP: &[Bound] = &[
    ("menu-only", 3, Freedom { exits: 1, tools: 0, silences: 1, asks: 0 }),
    ("fresh", 2, Freedom { exits: 1, tools: 1, silences: 1, asks: 0 }),
    ("fresh", 3, Freedom { exits: 0, tools: 1, silences: 0, asks: 0 }),
    ("in-turn", 1, Freedom { exits: 1, tools: 1, silences: 1, asks: 0 }),
    ("in-turn", 2, Freedom { exits: 0, tools: 1, silences: 0, asks: 0 }),
    ("beside", 2, Freedom { exits: 0, tools: 0, silences: 0, asks: 0 }),
    ("beside", 1, Freedom { exits: 1, tools: 1, silences: 0, asks: 0 }),
    ("two-workspaces", 2, Freedom { exits: 0, tools: 0, silences: 0, asks: 0 }),
    ("asking", 2, Freedom { exits: 1, tools: 0, silences: 0, asks: 1 }),
    ("asking-fresh", 2, Freedom { exits: 1, tools: 0, silences: 1, asks: 1 }),
    ("asking-fresh", 3, Freedom { exits: 1, tools: 0, silences: 1, asks: 2 }),
    ("asking-each-other", 1, Freedom { exits: 1, tools: 0, silences: 0, asks: 2 }),
];

fn jobs(bounds: &[Bound]) -> Vec<Job> {
    let scenes = scene::all();
    let job = |(name, faults, free): &Bound| {
        let scene = scenes.iter().find(|s| s.name == *name)?.clone();
        Some(Job { scene, budget: budget(*faults, *free) })
    };
    bounds.iter().filter_map(job).collect()
}

/// What runs on every change.
pub fn ci() -> Vec<Job> {
    jobs(CI)
}

/// What runs by hand and for long.
pub fn deep() -> Vec<Job> {
    jobs(DEEP)
}

/// Explores every job, `threads` at a time; `tell` hears each report as it comes.
pub fn explore_all(
    jobs: Vec<Job>,
    time: Duration,
    threads: usize,
    tell: &(dyn Fn(&Report, Duration) + Sync),
) -> Vec<Report> {
    let todo = Mutex::new(jobs.into_iter());
    let reports = Mutex::new(Vec::new());
    let next = || todo.lock().ok().and_then(|mut jobs| jobs.next());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(job) = next() {
                    let begun = Instant::now();
                    let report = explore(&job.scene, job.budget, None, time);
                    tell(&report, begun.elapsed());
                    if let Ok(mut all) = reports.lock() {
                        all.push(report);
                    }
                }
            });
        }
    });
    reports.into_inner().unwrap_or_default()
}

/// What random walks came to.
#[derive(Debug, Default)]
pub struct Walks {
    /// Walks taken.
    pub seeds: u64,
    /// Turns in them.
    pub turns: u64,
    /// Steps in them.
    pub steps: u64,
    /// The first that broke a promise: its seed, its scene, and the walk.
    pub broken: Option<(u64, &'static str, Walk)>,
}

/// The budget of random walks: long paths with many faults.
pub fn wild(faults: u8) -> Budget {
    budget(faults, Freedom { exits: 2, tools: 3, silences: 3, asks: 3 })
}

/// Walks seeds from `from` on until `enough` says so of seeds and Turns, or a promise is broken.
pub fn walk_all(
    from: u64,
    budget: Budget,
    mutant: Option<Mutant>,
    threads: usize,
    enough: &(dyn Fn(u64, u64) -> bool + Sync),
) -> Walks {
    let scenes = scene::all();
    let seed = AtomicU64::new(from);
    let (turns, steps, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let broken = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let seed = seed.fetch_add(1, Ordering::Relaxed);
                    if enough(seed - from, turns.load(Ordering::Relaxed)) {
                        return;
                    }
                    let scene = &scenes[(seed % scenes.len() as u64) as usize];
                    let walk = sim::walk(scene, budget, mutant, seed);
                    turns.fetch_add(walk.turns, Ordering::Relaxed);
                    steps.fetch_add(walk.steps, Ordering::Relaxed);
                    if walk.violation.is_some() {
                        stop.store(true, Ordering::Relaxed);
                        if let Ok(mut first) = broken.lock() {
                            first.get_or_insert((seed, scene.name, walk));
                        }
                    }
                }
            });
        }
    });
    Walks {
        seeds: seed.load(Ordering::Relaxed) - from,
        turns: turns.load(Ordering::Relaxed),
        steps: steps.load(Ordering::Relaxed),
        broken: broken.into_inner().unwrap_or_default(),
    }
}

/// Walks that a mutant may survive at most before it counts as not found.
const MUTANT_SEEDS_MAX: u64 = 400_000;

/// Takes each rule away in turn; answers the walks it took to notice, or none.
pub fn mutants(threads: usize, tell: &dyn Fn(Mutant, &Walks)) -> bool {
    let mut all_found = true;
    for mutant in Mutant::value_variants() {
        let walks = walk_all(1, wild(4), Some(*mutant), threads, &|seeds, _| seeds >= MUTANT_SEEDS_MAX);
        all_found &= walks.broken.is_some();
        tell(*mutant, &walks);
    }
    all_found
}
