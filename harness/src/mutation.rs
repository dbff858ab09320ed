//! Deviations that a test may turn on: the conformance suite must catch every one of them. Feature `mutations`, never in
//! `default`: without it nothing here is in the build.

/// Names the deviations, in the order of their numbers from 1.
macro_rules! mutations {
    ($($name:ident $words:literal,)*) => {
        /// One deviation from the specification.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mutation {
            $(#[doc = $words] $name,)*
        }

        impl Mutation {
            /// All of them: number `n` stands at `n - 1`.
            pub const ALL: &[(Self, &str)] = &[$((Self::$name, $words),)*];
        }
    };
}

mutations! {
    OpenKillList "the kill list asks for no bearer",
    UnknownWithoutBearer "without a bearer every path is 404",
    ReceiptWords "the receipt of a pick that ended the Turn has other words",
    NoticeTwice "two notices with the same words are said twice",
    NoticeDropped "the first notice of an admission is not said",
    MenuReordered "the tools block has the allowed picks first",
    AbortFalse "an abort says that it ended nothing",
    AbortFirstOnly "an abort leaves what waits behind the first",
    FailedAsCompleted "what failed settles completed",
    KeptIgnored "`kept` makes a new conversation",
    RunawayAtFive "a runaway trips at the fifth identical call",
    CallIdsRepeat "a call keeps an id that another has",
    ToldNotWritten "who was told of a kill is not kept",
    KillOnIdleStreams "a kill is on idle streams too",
    DrainAnswersOk "what meets the drain is answered 200",
    RestartAborts "what a restart cut settles aborted",
    CutCallRuns "a call that the output limit cut runs without arguments",
    GoneFails "a Turn that is over settles failed",
    PickRetried "a pick whose outcome is unknown is sent again without a key",
    AdmissionRepeated "a repeated admission is seated again",
    StandingPartCounts "the standing part counts",
    AllowedFirst "the Turn part begins with the Allowed picks",
    NotRestated "picks that others open are not restated",
    PollNeverWaits "a long poll does not wait",
    PartialDropped "what a model had said before an abort is dropped",
}

/// Environment variable with the number of the deviation, from 1; none when unset or 0.
#[cfg(feature = "mutations")]
const VARIABLE: &str = "JR2_MUTATION";

/// Whether this deviation is turned on.
#[cfg(feature = "mutations")]
pub fn is(mutation: Mutation) -> bool {
    static CHOSEN: std::sync::OnceLock<Option<Mutation>> = std::sync::OnceLock::new();
    let chosen = CHOSEN.get_or_init(|| {
        let number: usize = std::env::var(VARIABLE).ok()?.parse().ok()?;
        Mutation::ALL.get(number.checked_sub(1)?).map(|(mutation, _)| *mutation)
    });
    *chosen == Some(mutation)
}

/// Never: this build has no deviations.
#[cfg(not(feature = "mutations"))]
#[inline]
pub const fn is(_: Mutation) -> bool {
    false
}

/// A number that is another one at each call, for [`Mutation::StandingPartCounts`].
pub fn count() -> u64 {
    static COUNT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}
