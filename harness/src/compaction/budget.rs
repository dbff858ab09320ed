//! How a model's window is shared out (spec H-33, H-34).

/// Least tokens kept free for the answer (spec H-33).
const RESERVE_TOKENS: u64 = 16_384;
/// Least of that in a small window (spec H-33).
const RESERVE_SMALL_TOKENS: u64 = 1_024;
/// Newest tokens that a cut leaves as they are (spec H-34).
const KEEP_TOKENS: u64 = 20_000;

/// The shares of one window, in tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// All of it.
    pub window: u64,
    /// What the answer may need.
    pub reserve: u64,
}

impl Budget {
    /// The shares of `window` when an answer may have `max_tokens` (spec H-33).
    pub fn of(window: u64, max_tokens: Option<u64>) -> Self {
        let reserve = RESERVE_TOKENS.max(max_tokens.unwrap_or(0));
        let small = reserve.saturating_mul(2) >= window;
        Self { window, reserve: if small { RESERVE_SMALL_TOKENS.max(window / 3) } else { reserve } }
    }

    /// Above this a context is compacted.
    pub fn threshold(&self) -> u64 {
        self.window.saturating_sub(self.reserve)
    }

    /// Newest tokens that stay. At most half of what a context may hold: in a small window 20,000 would be nearly all of
    /// it, and every step would compact anew (`docs/decisions/small-windows.md`).
    pub fn keep(&self) -> u64 {
        KEEP_TOKENS.min(self.threshold() / 2)
    }

    /// Most tokens of a summary: most of the reserve, since thinking comes out of it too.
    pub fn summary(&self) -> u64 {
        (self.reserve * 4 / 5).max(1)
    }

    /// Most tokens of the summariser's question: what its answer leaves, and a twentieth of the window for what we count
    /// wrong (F37).
    pub fn question(&self) -> u64 {
        self.window.saturating_sub(self.summary()).saturating_sub(self.window / 20)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn h_33_the_reserve() {
        let reserve = |window, max| Budget::of(window, max).reserve;
        assert_eq!(reserve(200_000, None), 16_384);
        assert_eq!(reserve(200_000, Some(32_000)), 32_000);
        assert_eq!(reserve(32_769, None), 16_384);
        assert_eq!(reserve(32_768, None), 10_922, "twice the reserve is the window: a third of it");
        assert_eq!(reserve(8_192, None), 2_730);
        assert_eq!(reserve(2_048, None), 1_024);
        assert_eq!(reserve(u64::MAX, Some(u64::MAX)), u64::MAX / 3);
    }

    #[test]
    fn h_34_what_stays() {
        assert_eq!(Budget::of(200_000, None).keep(), 20_000);
        assert_eq!(Budget::of(32_768, None).keep(), 10_923);
        assert_eq!(Budget::of(512, None).keep(), 0);
    }

    proptest! {
        /// F37: the summariser's question and answer fit the window together, whatever the window.
        #[test]
        fn the_shares_never_pass_the_window(window in 1_500u64..4_000_000, max in proptest::option::of(1u64..300_000)) {
            let budget = Budget::of(window, max);
            prop_assert!(budget.question() + budget.summary() < window);
            prop_assert!(budget.keep() + budget.reserve <= window);
        }
    }
}
