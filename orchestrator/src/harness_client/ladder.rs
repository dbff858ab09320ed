//! When to try again (spec P-10, P-18): pure, so the shell supplies the time and the random bits.

use std::time::Duration;

/// Pauses that double from a first to a longest one, jittered in the upper half, inside an optional window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ladder {
    pause: Duration,
    first: Duration,
    max: Duration,
    window: Option<Duration>,
}

impl Ladder {
    /// A ladder that ends when `window` has passed.
    pub fn within(window: Duration, first: Duration, max: Duration) -> Self {
        Self { pause: first.min(max), first: first.min(max), max, window: Some(window) }
    }

    /// A ladder without an end.
    pub fn endless(first: Duration, max: Duration) -> Self {
        Self { pause: first.min(max), first: first.min(max), max, window: None }
    }

    /// The pause before the next attempt, or `None` when the window is over. `elapsed` counts from the first attempt;
    /// `random` places the pause in its upper half.
    pub fn next(&mut self, elapsed: Duration, random: u64) -> Option<Duration> {
        let half = self.pause / 2;
        let share = random as f64 / u64::MAX as f64;
        let pause = half + half.mul_f64(share);
        self.pause = self.pause.saturating_mul(2).min(self.max);
        match self.window {
            None => Some(pause),
            Some(window) if elapsed >= window => None,
            Some(window) => Some(pause.min(window.saturating_sub(elapsed))),
        }
    }

    /// Starts at the first pause again, because something went well.
    pub fn reset(&mut self) {
        self.pause = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FIRST: Duration = Duration::from_millis(250);
    const MAX: Duration = Duration::from_secs(5);
    const WINDOW: Duration = Duration::from_secs(90);

    #[test]
    fn p_10_pauses_double_to_five_seconds() {
        let mut ladder = Ladder::endless(FIRST, MAX);
        let pauses: Vec<u128> =
            (0..7).filter_map(|_| ladder.next(Duration::ZERO, u64::MAX)).map(|p| p.as_millis()).collect();
        assert_eq!(pauses, [250, 500, 1000, 2000, 4000, 5000, 5000]);
        ladder.reset();
        assert_eq!(ladder.next(Duration::ZERO, 0), Some(FIRST / 2));
    }

    #[test]
    fn p_18_the_window_ends_the_ladder_and_cuts_its_last_pause() {
        let mut ladder = Ladder::within(WINDOW, FIRST, MAX);
        assert_eq!(
            ladder.next(WINDOW.saturating_sub(Duration::from_millis(10)), u64::MAX),
            Some(Duration::from_millis(10))
        );
        assert_eq!(ladder.next(WINDOW, 0), None);
    }

    proptest! {
        #[test]
        fn p_10_jitter_stays_in_the_upper_half(tries in 0_usize..40, random: u64) {
            let mut ladder = Ladder::endless(FIRST, MAX);
            for _ in 0..tries {
                ladder.next(Duration::ZERO, 0);
            }
            let whole = FIRST.saturating_mul(1 << tries.min(20)).min(MAX);
            let pause = ladder.next(Duration::ZERO, random).unwrap();
            prop_assert!(pause >= whole / 2 && pause <= whole);
        }

        #[test]
        fn a_window_always_ends(random: u64) {
            let mut ladder = Ladder::within(WINDOW, FIRST, MAX);
            let mut elapsed = Duration::ZERO;
            let mut tries = 0;
            while let Some(pause) = ladder.next(elapsed, random) {
                elapsed += pause;
                tries += 1;
                prop_assert!(tries < 100);
            }
            prop_assert!(elapsed == WINDOW);
        }
    }
}
