//! May a Harness that died be started again, and when? Pure.

use std::time::Duration;

/// How often a Harness may die.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestartLimits {
    /// Deaths inside [`Self::window`] that are forgiven.
    pub deaths: usize,
    /// Older deaths are forgotten.
    pub window: Duration,
    /// Pause before the first restart; doubled with each further death in the window.
    pub pause: Duration,
    /// Longest pause.
    pub pause_max: Duration,
}

impl Default for RestartLimits {
    /// Five deaths in a minute: a Harness that dies faster than its Turns are re-admitted helps nobody.
    fn default() -> Self {
        Self {
            deaths: 5,
            window: Duration::from_mins(1),
            pause: Duration::from_millis(20),
            pause_max: Duration::from_secs(5),
        }
    }
}

/// The recent deaths of one Harness.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    deaths: Vec<Duration>,
}

/// What to do about a death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Start it again after this pause.
    Restart {
        /// The pause.
        after: Duration,
    },
    /// It is a crash loop.
    GiveUp,
}

impl Budget {
    /// Notes a death at `now`, counted from any fixed instant.
    pub fn note(&mut self, now: Duration, limits: &RestartLimits) -> Verdict {
        self.deaths.retain(|at| now.saturating_sub(*at) < limits.window);
        self.deaths.push(now);
        if self.deaths.len() > limits.deaths {
            return Verdict::GiveUp;
        }
        let doublings = u32::try_from(self.deaths.len() - 1).unwrap_or(u32::MAX).min(16);
        Verdict::Restart { after: (limits.pause * 2_u32.pow(doublings)).min(limits.pause_max) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_until_the_budget_is_spent() {
        let limits = RestartLimits { deaths: 3, pause_max: Duration::from_millis(50), ..RestartLimits::default() };
        let mut budget = Budget::default();
        let after = |ms| Verdict::Restart { after: Duration::from_millis(ms) };
        let verdicts: Vec<Verdict> = (0..4).map(|s| budget.note(Duration::from_secs(s), &limits)).collect();
        assert_eq!(verdicts, [after(20), after(40), after(50), Verdict::GiveUp]);
    }

    #[test]
    fn old_deaths_are_forgotten() {
        let limits = RestartLimits { deaths: 1, ..RestartLimits::default() };
        let mut budget = Budget::default();
        for minute in 0..9 {
            let verdict = budget.note(Duration::from_secs(minute * 60), &limits);
            assert_eq!(verdict, Verdict::Restart { after: limits.pause });
        }
    }
}
