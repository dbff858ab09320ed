//! What the guard decides: from a reading to kills, words and the next look (spec 10.2). Pure.
//!
//! One spike is one kill: everything from the first shot until shortly after the report belongs to it, so that a slow exit
//! or a process that was forked meanwhile makes no second Notice.

use super::pace::{Gauge, NEAR};
use std::time::Duration;

/// How long killed processes may take to give their memory back before the second pass.
const SETTLE: Duration = Duration::from_millis(150);
/// Pause between two looks while they do.
const SETTLING: Duration = Duration::from_millis(2);
/// How long after its report a kill takes in what comes of the same spike, when the use stays high.
const SAME_SPIKE: Duration = Duration::from_millis(500);
/// And once the use is low again.
const CALM: Duration = Duration::from_millis(30);

/// What a meter says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Bytes of anonymous and shared memory: exact, or an upper bound that is not near the limit.
    pub used: u64,
    /// Processes the kernel has killed for memory in the group, where it counts them (public faults A12, A14, A15).
    pub kernel_kills: Option<u64>,
}

/// What the step is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// The meter was read.
    Read(Reading),
    /// The Agent's processes were listed: how many were not shot at before.
    Found(usize),
}

/// What is to be done, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// List the Agent's processes and answer with [`Input::Found`].
    List,
    /// Give every running call the verdict of a new kill, with its peak in bytes.
    Fire(u64),
    /// Kill what was listed, and what it forked meanwhile; calls begun meanwhile get the same kill's verdict.
    Kill,
    /// Empty `/dev/shm` where it is private.
    Clear,
    /// The kill is over: keep it, say it.
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Watching,
    /// The list of the first pass is awaited.
    Listing {
        peak: u64,
        by_kernel: bool,
    },
    /// The first pass is over.
    Struck {
        since: Duration,
    },
    /// The list of the second pass is awaited.
    ListingAgain,
    /// Reported; what comes until then is of the same spike.
    Over {
        until: Duration,
    },
    /// The list of what came of the same spike is awaited.
    ListingRest {
        until: Duration,
    },
}

/// Where the guard stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    phase: Phase,
    /// The kernel's kills that were seen.
    kernel_kills: Option<u64>,
    used: u64,
}

impl Default for State {
    fn default() -> Self {
        Self { phase: Phase::Watching, kernel_kills: None, used: 0 }
    }
}

/// Takes one step at `now`, an instant of any fixed clock.
pub fn step(gauge: &Gauge, state: State, input: Input, now: Duration) -> (State, Vec<Effect>) {
    match input {
        Input::Read(reading) => on_reading(gauge, state, reading, now),
        Input::Found(fresh) => on_list(state, fresh, now),
    }
}

/// How long the next look may wait.
pub fn next_look(gauge: &Gauge, state: &State) -> Duration {
    match state.phase {
        Phase::Struck { .. } => SETTLING,
        // Nothing is left to kill, and the use stays: what starts now must still be seen.
        _ if gauge.fires(state.used) => NEAR,
        _ => gauge.period(state.used),
    }
}

fn on_reading(gauge: &Gauge, before: State, reading: Reading, now: Duration) -> (State, Vec<Effect>) {
    // The first count is what was there before us; a count that went back is a new group's.
    let by_kernel = matches!((before.kernel_kills, reading.kernel_kills), (Some(seen), Some(now)) if now > seen);
    let high = gauge.fires(reading.used);
    let state = State { kernel_kills: reading.kernel_kills, used: reading.used, ..before };
    let to = |phase, effects: &[Effect]| (State { phase, ..state }, effects.to_vec());
    match before.phase {
        Phase::Struck { .. } if !high => to(Phase::Over { until: now + CALM }, &[Effect::Clear, Effect::Done]),
        Phase::Struck { since } if now.saturating_sub(since) >= SETTLE => to(Phase::ListingAgain, &[Effect::List]),
        Phase::Over { until } if now < until && (high || by_kernel) => {
            to(Phase::ListingRest { until }, &[Effect::List])
        }
        Phase::Over { until } if now < until => to(Phase::Over { until: until.min(now + CALM) }, &[]),
        Phase::Watching | Phase::Over { .. } if high || by_kernel => {
            // The kernel kills at its limit and not before.
            let peak = if by_kernel { reading.used.max(gauge.kernel_limit) } else { reading.used };
            to(Phase::Listing { peak, by_kernel }, &[Effect::List])
        }
        Phase::Over { .. } => to(Phase::Watching, &[]),
        phase => to(phase, &[]),
    }
}

fn on_list(state: State, fresh: usize, now: Duration) -> (State, Vec<Effect>) {
    let to = |phase, effects: &[Effect]| (State { phase, ..state }, effects.to_vec());
    match state.phase {
        // Nothing to kill: say nothing, log nothing (spec 10.2).
        Phase::Listing { by_kernel: false, .. } if fresh == 0 => to(Phase::Watching, &[Effect::Clear]),
        Phase::Listing { peak, .. } => to(Phase::Struck { since: now }, &[Effect::Fire(peak), Effect::Kill]),
        Phase::ListingAgain => {
            to(Phase::Over { until: now + SAME_SPIKE }, &[Effect::Kill, Effect::Clear, Effect::Done])
        }
        Phase::ListingRest { until } if fresh == 0 => to(Phase::Over { until }, &[Effect::Clear]),
        Phase::ListingRest { until } => to(Phase::Over { until }, &[Effect::Kill, Effect::Clear]),
        phase => to(phase, &[]),
    }
}

#[cfg(test)]
#[path = "step_tests.rs"]
mod tests;
