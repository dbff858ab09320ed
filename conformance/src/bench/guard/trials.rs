//! `jr2-conformance guard-trials`: each hog many times, and who was first.

use super::super::BenchError;
use super::{Hog, MIB, Options, Outcome, Rig};
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

/// The Size's memory in MiB: small, so that a trial is short; a larger one leaves the guard more time.
const LIMIT_MIB: u64 = 256;
/// What a hog wants in MiB.
const WANTED_MIB: u64 = 512;
/// Processes at once: more than a bomb needs to pass the limit.
const PIDS_MAX: u64 = 400;

/// Lines of a Harness's log that are shown when a trial was lost.
const LOG_LINES: usize = 8;

/// One line of the table.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Score {
    /// The hog.
    pub hog: String,
    /// The guard's meter.
    pub meter: String,
    /// How often it ran.
    pub trials: usize,
    /// The guard was first.
    pub won: usize,
    /// The kernel was first; the Harness and the verdict are there all the same.
    pub spared: usize,
    /// The Harness died, or the call had no verdict.
    pub lost: usize,
    /// Nobody killed.
    pub quiet: usize,
    /// Half of the calls took less, in milliseconds.
    pub median_ms: u64,
}

/// Runs a hog `trials` times, in a cgroup v2 that is `divided` or not; a Harness that died is started anew.
pub async fn run(
    harness: &Path,
    folder: &Path,
    program: &str,
    hog: Hog,
    trials: usize,
    divided: bool,
) -> Result<Score, BenchError> {
    let options = |round: usize| Options {
        harness: harness.to_owned(),
        folder: folder.join(format!("{}-{round}", hog.name())),
        limit: LIMIT_MIB * MIB,
        pids_max: (hog == Hog::Bomb).then_some(PIDS_MAX),
        in_group: true,
        shm_private: hog == Hog::Shm,
        divided,
        program: program.to_owned(),
    };
    let (mut outcomes, mut times): (Vec<Outcome>, Vec<Duration>) = (Vec::new(), Vec::new());
    let mut rig = Rig::start(&hog.name(), options(0)).await?;
    let meter = rig.meter().await?;
    for round in 1..=trials {
        let trial = rig.hog(hog, WANTED_MIB).await?;
        tracing::debug!(hog = %hog.name(), round, outcome = ?trial.outcome, text = %trial.text, "trial");
        outcomes.push(trial.outcome);
        times.push(trial.took);
        if trial.outcome == Outcome::Lost {
            tracing::warn!(hog = %hog.name(), round, text = %trial.text, log = %last_lines(&rig.log()), "lost");
            drop(rig);
            rig = Rig::start(&hog.name(), options(round)).await?;
        }
    }
    times.sort_unstable();
    let count = |wanted: Outcome| outcomes.iter().filter(|outcome| **outcome == wanted).count();
    Ok(Score {
        hog: hog.name(),
        meter,
        trials,
        won: count(Outcome::Won),
        spared: count(Outcome::Spared),
        lost: count(Outcome::Lost),
        quiet: count(Outcome::Quiet),
        median_ms: times.get(times.len() / 2).map_or(0, |time| time.as_millis() as u64),
    })
}

/// The end of a log.
fn last_lines(log: &str) -> String {
    let lines: Vec<&str> = log.lines().rev().take(LOG_LINES).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}
