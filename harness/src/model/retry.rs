//! When to ask again: one budget a Submission (decision 52), exponential waits with jitter, the server's own wish first.

use std::time::{Duration, SystemTime};

/// Retries one Submission may spend over all its questions: enough for a busy hour, few enough that a broken provider
/// costs minutes (F24).
pub const RETRIES_PER_SUBMISSION: u32 = 8;
/// Retries of one question after an idle limit: each already cost the whole limit (F07).
pub const IDLE_RETRIES_PER_QUESTION: u32 = 1;
/// First wait; doubled by each further retry of one question.
pub const BACKOFF_FIRST: Duration = Duration::from_millis(500);
/// Longest wait of our own choosing.
pub const BACKOFF_MAX: Duration = Duration::from_secs(30);
/// Longest wait a server may wish for: a longer wish ends the question at once instead of being cut short.
pub const RETRY_AFTER_MAX: Duration = Duration::from_mins(5);

/// What is left of a Submission's retries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryBudget {
    left: u32,
}

impl Default for RetryBudget {
    fn default() -> Self {
        Self::new(RETRIES_PER_SUBMISSION)
    }
}

impl RetryBudget {
    /// A budget of `retries`.
    pub fn new(retries: u32) -> Self {
        Self { left: retries }
    }

    /// How many are left.
    pub fn left(&self) -> u32 {
        self.left
    }

    /// A part of it, of at most `most`; what the part spends is given back with [`RetryBudget::settle`].
    pub fn part(&self, most: u32) -> Self {
        Self { left: self.left.min(most) }
    }

    /// Takes what a part that began with `most` spent.
    pub fn settle(&mut self, most: u32, part: &Self) {
        self.left -= self.left.min(most) - part.left;
    }

    /// Spends one; `false` when none is left.
    pub fn spend(&mut self) -> bool {
        let had = self.left > 0;
        self.left = self.left.saturating_sub(1);
        had
    }
}

/// What an HTTP status (or one inside a stream) asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusClass {
    /// Ask again; a limit when the budget ends.
    Limit,
    /// A limit that waiting does not lift.
    Quota,
    /// Ask again.
    Retry,
    /// Asking again gives the same.
    Fatal,
}

/// Classifies a refusal by its status and the error's code and words.
pub fn classify(status: Option<u16>, code: &str, message: &str) -> StatusClass {
    let all = format!("{code} {message}").to_lowercase();
    let quota = ["insufficient_quota", "billing_hard_limit", "exceeded your current quota", "insufficient balance"];
    if status == Some(402) || quota.iter().any(|text| all.contains(text)) {
        return StatusClass::Quota;
    }
    match status {
        Some(429) => StatusClass::Limit,
        Some(408 | 409 | 425 | 500 | 502 | 503 | 504 | 507..=599) => StatusClass::Retry,
        Some(_) => StatusClass::Fatal,
        None if all.contains("rate_limit") || all.contains("rate limit") => StatusClass::Limit,
        // An error in a stream without a status: the server broke while it spoke.
        None => StatusClass::Retry,
    }
}

/// The wait before retry number `retry` (from 0), `jitter` in `0..=255` spreading it over its upper half.
pub fn backoff(retry: u32, jitter: u8) -> Duration {
    let full = BACKOFF_FIRST.saturating_mul(1 << retry.min(16)).min(BACKOFF_MAX);
    full / 2 + full.mul_f64(f64::from(jitter) / 510.0)
}

/// Reads `retry-after` (seconds or HTTP date) or `retry-after-ms`. Nonsense is `None`, a past date is no wait.
pub fn retry_after(seconds_or_date: Option<&str>, millis: Option<&str>, now: SystemTime) -> Option<Duration> {
    let number = |text: &str| text.trim().parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0);
    if let Some(ms) = millis.and_then(number) {
        return Duration::try_from_secs_f64(ms / 1000.0).ok();
    }
    let text = seconds_or_date?;
    if let Some(seconds) = number(text) {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let at = httpdate::parse_http_date(text.trim()).ok()?;
    Some(at.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn statuses() {
        assert_eq!(classify(Some(429), "", "slow down"), StatusClass::Limit);
        assert_eq!(classify(Some(429), "insufficient_quota", ""), StatusClass::Quota);
        assert_eq!(classify(Some(402), "", ""), StatusClass::Quota);
        assert_eq!(classify(None, "rate_limit_error", ""), StatusClass::Limit);
        for status in [408, 409, 425, 500, 502, 503, 504, 529] {
            assert_eq!(classify(Some(status), "", ""), StatusClass::Retry, "{status}");
        }
        for status in [400, 401, 403, 404, 413, 422, 501, 505] {
            assert_eq!(classify(Some(status), "", ""), StatusClass::Fatal, "{status}");
        }
        assert_eq!(classify(None, "", "boom"), StatusClass::Retry);
    }

    #[test]
    fn a_servers_wish() {
        let now = httpdate::parse_http_date("Mon, 30 Nov 2026 10:00:00 GMT").unwrap();
        let wish = |text| retry_after(Some(text), None, now);
        assert_eq!(wish("7"), Some(Duration::from_secs(7)));
        assert_eq!(wish(" 0.5 "), Some(Duration::from_millis(500)));
        assert_eq!(wish("Mon, 30 Nov 2026 10:01:30 GMT"), Some(Duration::from_secs(90)));
        assert_eq!(wish("Mon, 30 Nov 2026 09:00:00 GMT"), Some(Duration::ZERO));
        for nonsense in ["-1", "soon", "", "inf", "NaN", "1e300"] {
            assert_eq!(wish(nonsense), None, "{nonsense}");
        }
        assert_eq!(retry_after(Some("9"), Some("20"), now), Some(Duration::from_millis(20)));
        assert_eq!(retry_after(None, None, now), None);
    }

    #[test]
    fn a_budget_ends() {
        let mut budget = RetryBudget::new(2);
        assert_eq!([budget.spend(), budget.spend(), budget.spend()], [true, true, false]);
        assert_eq!(budget.left(), 0);
    }

    #[test]
    fn h_34_a_summary_spends_at_most_two_of_the_submission_s_retries() {
        for left in 0..5 {
            let mut budget = RetryBudget::new(left);
            let mut part = budget.part(2);
            let spent = u32::from(part.spend());
            budget.settle(2, &part);
            assert_eq!((part.spend(), budget.left()), (left >= 2, left - spent));
        }
    }

    proptest! {
        #[test]
        fn waits_grow_and_stay_bounded(retry in 0u32..1000, jitter in any::<u8>()) {
            let wait = backoff(retry, jitter);
            prop_assert!(wait <= BACKOFF_MAX && wait >= BACKOFF_FIRST / 2);
            prop_assert!(wait <= backoff(retry + 1, 255));
        }
    }
}
