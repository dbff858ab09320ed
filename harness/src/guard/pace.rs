//! How soon the next look must be: before the fastest writer could fill what is left (spec 10.2).

use std::time::Duration;

/// The guard fires at this many tenths of the limit (spec 10.2).
const FIRE_TENTHS: u64 = 9;
/// How fast one CPU may fill memory, in bytes a second: above what `memset` on fresh pages reaches on the machines it was
/// measured on (`docs/memory-guard.md`).
const FILL_PER_CPU: u64 = 4 << 30;
/// CPUs that fill at once: past these the memory's own bandwidth is the bound.
const FILL_CPUS_MAX: u64 = 4;
/// The shortest period: below it the looks cost more than they save.
const SHORTEST: Duration = Duration::from_millis(1);
/// The longest period from half of the limit on (spec 10.2: 15 ms).
pub const NEAR: Duration = Duration::from_millis(15);
/// The longest period below that.
pub const FAR: Duration = Duration::from_millis(100);

/// The limit and what follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gauge {
    /// The limit in bytes.
    pub limit: u64,
    /// Where the kernel kills in a group of the Agent's own, in bytes: below the limit.
    pub kernel_limit: u64,
    /// How fast memory may fill, in bytes a second.
    fill: u64,
}

impl Gauge {
    /// A gauge of a limit in bytes, for a Sandbox of this many CPUs.
    pub fn new(limit: u64, cpus: u64) -> Self {
        Self { limit, kernel_limit: limit, fill: FILL_PER_CPU * cpus.clamp(1, FILL_CPUS_MAX) }
    }

    /// The same with a group of the Agent's own that has this limit in bytes.
    pub fn with_kernel_limit(self, kernel_limit: u64) -> Self {
        Self { kernel_limit, ..self }
    }

    /// Whether so much use fires the guard.
    pub fn fires(&self, used: u64) -> bool {
        used >= fire_at(self.limit)
    }

    /// How long the next look may wait when at most `used` bytes are in use. The look that fires must come before the limit:
    /// half of the last tenth is left for the kill itself.
    pub fn period(&self, used: u64) -> Duration {
        let last = self.limit - self.limit / 20;
        let room = last.saturating_sub(used);
        let longest = if used >= self.limit / 2 { NEAR } else { FAR };
        Duration::from_secs_f64(room as f64 / self.fill as f64).clamp(SHORTEST, longest)
    }
}

/// Where a limit fires, in bytes.
pub fn fire_at(limit: u64) -> u64 {
    limit / 10 * FIRE_TENTHS + limit % 10 * FIRE_TENTHS / 10
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn mt_1_it_fires_at_nine_tenths() {
        let gauge = Gauge::new(1_000_000, 2);
        assert!(!gauge.fires(899_000) && !gauge.fires(899_999));
        assert!(gauge.fires(900_000) && gauge.fires(901_000) && gauge.fires(u64::MAX));
    }

    #[test]
    fn m_02_the_period_tightens_towards_the_limit() {
        let gauge = Gauge::new(2048 * MIB, 2);
        assert_eq!(gauge.period(0), FAR);
        assert_eq!(gauge.period(1024 * MIB), NEAR);
        assert!(gauge.period(1840 * MIB) < NEAR, "{:?}", gauge.period(1840 * MIB));
        assert_eq!(gauge.period(u64::MAX), SHORTEST);
        let small = Gauge::new(256 * MIB, 1);
        assert!(small.period(0) < FAR && small.period(230 * MIB) < Duration::from_millis(4));
    }

    proptest! {
        #[test]
        fn m_02_no_stated_ramp_passes_the_limit_between_two_looks(
            limit in 64 * MIB..(1 << 40), part in 0.0f64..0.9, cpus in 0u64..256
        ) {
            let gauge = Gauge::new(limit, cpus);
            let used = (limit as f64 * part) as u64;
            let period = gauge.period(used);
            prop_assert!(period >= SHORTEST && period <= FAR);
            let filled = used as f64 + period.as_secs_f64() * gauge.fill as f64;
            // The shortest period is the one exception.
            prop_assert!(period == SHORTEST || filled <= limit as f64 * 0.951, "{} of {}", filled, limit);
            prop_assert!(part < 0.5 || period <= NEAR, "15 ms or better near it");
        }
    }
}
