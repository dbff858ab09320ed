//! `jr2-proof`: explores, walks and reports. Reports are JSON lines on stdout.
#![allow(clippy::print_stdout)] // the report is this program's output

use clap::{Parser, Subcommand};
use jr2_proof::explore::{Report, explore};
use jr2_proof::fuzz::TARGETS;
use jr2_proof::mutant::Mutant;
use jr2_proof::plan::{self, Freedom, Job, Walks};
use jr2_proof::scene;
use jr2_proof::witness::WITNESSES;
use serde_json::json;
use std::collections::BTreeSet;
use std::process::{self, ExitCode};
use std::time::{Duration, Instant};

#[derive(Parser)]
#[command(version, about = "Proves the pure cores of jr2 together", after_help = EXAMPLES)]
struct Cli {
    /// Threads.
    #[arg(long, global = true, default_value_t = 2)]
    threads: usize,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "Examples:
  jr2-proof ci                                   what runs on every change
  jr2-proof deep                                 the same, wider and longer
  jr2-proof check --scene in-turn --faults 2     one scene, every state within the bounds
  jr2-proof sim --seeds 100000 --from 1          random walks
  jr2-proof sim --seeds 1 --from 6262            one walk again
  jr2-proof mutants                              each rule taken away: must be noticed";

#[derive(Subcommand)]
enum Command {
    /// Explorations, mutants and a million simulated Turns within a few minutes.
    Ci {
        /// Simulated Turns.
        #[arg(long, default_value_t = 1_000_000)]
        turns: u64,
    },
    /// Wider bounds, longer walks, all pairs of crash points, long fuzzing; hours. Needs cargo and the sources.
    Deep {
        /// Most minutes for each exploration, and for each fuzz target.
        #[arg(long, default_value_t = 60)]
        minutes: u64,
        /// Simulated Turns.
        #[arg(long, default_value_t = 100_000_000)]
        turns: u64,
    },
    /// Visit every state of a scene within bounds.
    Check {
        /// Only this scene.
        #[arg(long)]
        scene: Option<String>,
        /// Faults on one path.
        #[arg(long, default_value_t = 1)]
        faults: u8,
        /// States ended from outside, on one path.
        #[arg(long, default_value_t = 0)]
        exits: u8,
        /// Working-tool calls on one path.
        #[arg(long, default_value_t = 0)]
        tools: u8,
        /// Stops without a pick, on one path.
        #[arg(long, default_value_t = 0)]
        silences: u8,
        /// Picks that ask, on one path.
        #[arg(long, default_value_t = 0)]
        asks: u8,
        /// Most seconds for each scene.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Break this rule.
        #[arg(long)]
        mutant: Option<Mutant>,
    },
    /// Walk at random.
    Sim {
        /// How many walks.
        #[arg(long, default_value_t = 10_000)]
        seeds: u64,
        /// The first seed.
        #[arg(long, default_value_t = 1)]
        from: u64,
        /// Faults on one path.
        #[arg(long, default_value_t = 4)]
        faults: u8,
        /// Break this rule.
        #[arg(long)]
        mutant: Option<Mutant>,
    },
    /// Take each rule away in turn.
    Mutants,
}

fn main() -> ExitCode {
    let Cli { threads, command } = Cli::parse();
    let ok = match command {
        Command::Ci { turns } => {
            let explored = explored(plan::ci(), Duration::from_mins(10), threads, true);
            let found = mutants(threads);
            explored && found && walked(1, u64::MAX, turns, 4, None, threads)
        }
        Command::Deep { minutes, turns } => {
            let explored = explored(plan::deep(), Duration::from_mins(minutes), threads, true);
            let found = mutants(threads);
            let walked = walked(1_000_000_000, u64::MAX, turns, 8, None, threads);
            let outside = crash_pairs() && fuzzed(minutes);
            explored && found && walked && outside
        }
        Command::Check { scene, faults, exits, tools, silences, asks, seconds, mutant } => {
            let budget = plan::budget(faults, Freedom { exits, tools, silences, asks });
            let scenes = scene::all().into_iter().filter(|s| scene.as_deref().is_none_or(|name| name == s.name));
            let jobs: Vec<Job> = scenes.map(|scene| Job { scene, budget }).collect();
            match mutant {
                None => explored(jobs, Duration::from_secs(seconds), threads, false),
                Some(_) => jobs.iter().all(|job| {
                    let begun = Instant::now();
                    let report = explore(&job.scene, job.budget, mutant, Duration::from_secs(seconds));
                    print_report(&report, begun.elapsed());
                    report.violation.is_none()
                }),
            }
        }
        Command::Sim { seeds, from, faults, mutant } => walked(from, seeds, u64::MAX, faults, mutant, threads),
        Command::Mutants => mutants(threads),
    };
    if ok { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Explores; `whole` asks that every state was visited and every witness seen.
fn explored(jobs: Vec<Job>, time: Duration, threads: usize, whole: bool) -> bool {
    let reports = plan::explore_all(jobs, time, threads, &|report, took| print_report(report, took));
    let mut ok = reports.iter().all(|report| report.violation.is_none());
    if whole {
        let seen: BTreeSet<&str> = reports.iter().flat_map(|report| report.seen.iter().copied()).collect();
        let missing: Vec<&&str> = WITNESSES.iter().filter(|w| !seen.contains(**w)).collect();
        let cut: Vec<&str> = reports.iter().filter(|r| !r.complete).map(|r| r.scene).collect();
        println!("{}", json!({ "explored": ok, "not complete": cut, "witnesses missing": missing }));
        ok &= missing.is_empty() && cut.is_empty();
    }
    ok
}

fn print_report(report: &Report, took: Duration) {
    let budget = report.budget;
    println!(
        "{}",
        json!({
            "scene": report.scene, "faults": budget.faults, "exits": budget.exits, "tools": budget.tools,
            "silences": budget.silences, "asks": budget.asks, "states": report.states, "steps": report.steps, "ends": report.ends,
            "depth": report.depth, "complete": report.complete, "seconds": took.as_secs(),
            "violation": report.violation.as_ref().map(|(what, _)| what),
        })
    );
    if let Some((_, trace)) = &report.violation {
        for (at, line) in trace.iter().enumerate() {
            println!("{at:4} {line}");
        }
    }
}

/// Every pair of crash points, with real processes.
fn crash_pairs() -> bool {
    let mut cargo = process::Command::new("cargo");
    cargo.args(["test", "-p", "jr2-proof", "--test", "crash_points"]).env("JR2_CRASH_PAIRS", "all");
    ran("all pairs of crash points", cargo)
}

/// Every fuzz target, one after another.
fn fuzzed(minutes: u64) -> bool {
    TARGETS.iter().all(|target| {
        let mut cargo = process::Command::new("cargo");
        cargo.current_dir("conformance/proof").args(["+nightly", "fuzz", "run", "-s", "none", target, "--"]);
        cargo.arg(format!("-max_total_time={}", minutes * 60)).arg("-max_len=65536");
        ran(target, cargo)
    })
}

fn ran(what: &str, mut command: process::Command) -> bool {
    let ok = command.status().is_ok_and(|status| status.success());
    println!("{}", json!({ "ran": what, "ok": ok }));
    ok
}

fn mutants(threads: usize) -> bool {
    plan::mutants(threads, &|mutant, walks| {
        let broken = walks.broken.as_ref().and_then(|(.., walk)| walk.violation.as_ref()).map(|(what, _)| what);
        println!(
            "{}",
            json!({ "mutant": format!("{mutant:?}"), "found": broken.is_some(), "walks": walks.seeds, "as": broken })
        );
    })
}

fn walked(from: u64, seeds: u64, turns: u64, faults: u8, mutant: Option<Mutant>, threads: usize) -> bool {
    let begun = Instant::now();
    let walks: Walks =
        plan::walk_all(from, plan::wild(faults), mutant, threads, &|walked, framed| walked >= seeds || framed >= turns);
    println!(
        "{}",
        json!({ "walks": walks.seeds, "from": from, "turns": walks.turns, "steps": walks.steps, "seconds": begun.elapsed().as_secs() })
    );
    let Some((seed, scene, walk)) = walks.broken else { return true };
    if let Some((what, trace)) = walk.violation {
        println!("{}", json!({ "seed": seed, "scene": scene, "violation": what }));
        for (at, action) in trace.iter().enumerate() {
            println!("{at:4} {action:?}");
        }
    }
    false
}
