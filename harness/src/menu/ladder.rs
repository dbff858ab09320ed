//! The retry ladder of spec P-10 as plain arithmetic: how long to wait before which attempt, and when to give up.

use std::time::Duration;

/// A bounded series of attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ladder {
    /// No attempt starts later than this after the first (spec P-10: 90 s).
    pub window: Duration,
    /// Longest single attempt (spec P-10: 10 s).
    pub attempt: Duration,
    /// First wait (spec P-10: 250 ms); doubles each time.
    pub first: Duration,
    /// Longest wait (spec P-10: 5 s).
    pub ceiling: Duration,
}

impl Default for Ladder {
    fn default() -> Self {
        Self {
            window: Duration::from_secs(90),
            attempt: Duration::from_secs(10),
            first: Duration::from_millis(250),
            ceiling: Duration::from_secs(5),
        }
    }
}

impl Ladder {
    /// The wait after failed attempt `failed` (from 1), jittered over the upper half by `random`.
    pub fn wait(&self, failed: u32, random: u32) -> Duration {
        let doubled = self.first.saturating_mul(1 << failed.saturating_sub(1).min(16)).min(self.ceiling);
        let half = doubled / 2;
        half + half.mul_f64(f64::from(random) / f64::from(u32::MAX))
    }

    /// The wait before the next attempt, or `None` when it would start after the window.
    pub fn next(&self, failed: u32, elapsed: Duration, random: u32) -> Option<Duration> {
        let wait = self.wait(failed, random);
        (elapsed + wait < self.window).then_some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn p_10_waits_stay_in_the_upper_half_and_under_the_ceiling(failed in 1u32..200, random: u32) {
            let ladder = Ladder::default();
            let wait = ladder.wait(failed, random);
            let whole = ladder.first.saturating_mul(1 << (failed - 1).min(16)).min(ladder.ceiling);
            prop_assert!(wait >= whole / 2 && wait <= whole);
        }
    }

    #[test]
    fn p_10_the_window_ends_it() {
        let ladder = Ladder::default();
        assert!(ladder.next(1, Duration::ZERO, 0).is_some());
        assert!(ladder.next(9, Duration::from_secs(89), u32::MAX).is_none());
    }
}
