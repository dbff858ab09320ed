//! What a claim is, and how its check ends.

use super::stage::Stage;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

/// What a claim's check needs of the Harness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The Harness that all share: the check touches its own conversations only.
    Shared,
    /// A Harness that no other check uses meanwhile.
    Alone,
    /// A process of its own, which it may end and start, with these variables beside the usual ones.
    Process(&'static [(&'static str, &'static str)]),
}

/// A numbered claim.
#[derive(Clone, Copy)]
pub struct Case {
    /// `<group>.<number>`; never used for another claim.
    pub id: &'static str,
    /// The rule of the specification.
    pub rule: &'static str,
    /// The claim in one line.
    pub says: &'static str,
    /// What the check needs.
    pub need: Need,
    /// The check waits for a time of the wire, so a quick run leaves it out.
    pub slow: bool,
    /// The check.
    pub run: Check,
}

/// A check's body.
pub type Check = for<'a> fn(&'a Stage) -> Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;

/// How a check ends.
pub type Outcome = Result<(), Halt>;

/// Why a check stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Halt {
    /// The claim does not hold: what was seen.
    Failed(String),
    /// Nothing is known about the claim: why.
    NotRun(String),
}

impl Case {
    /// What stands before the dot.
    pub fn group(&self) -> &'static str {
        self.id.split_once('.').map_or(self.id, |(group, _)| group)
    }

    /// What stands behind it.
    pub fn number(&self) -> &'static str {
        self.id.split_once('.').map_or("", |(_, number)| number)
    }
}

/// A failure with these words.
pub fn failed<T>(words: impl Into<String>) -> Result<T, Halt> {
    Err(Halt::Failed(words.into()))
}

/// Fails with both values unless they are equal.
pub fn same<A: PartialEq<B> + std::fmt::Debug, B: std::fmt::Debug>(what: &str, got: A, want: B) -> Outcome {
    if got == want {
        return Ok(());
    }
    failed(format!("{what}\n  got  {got:?}\n  want {want:?}"))
}

/// Fails with both texts, each whole, unless they are equal byte for byte.
pub fn same_text(what: &str, got: &str, want: &str) -> Outcome {
    if got == want {
        return Ok(());
    }
    let at = got.bytes().zip(want.bytes()).position(|(a, b)| a != b).unwrap_or_else(|| got.len().min(want.len()));
    failed(format!("{what} (they part at byte {at})\n--- got\n{got}\n--- want\n{want}\n---"))
}

/// Fails unless the text is one of these.
pub fn one_of_texts(what: &str, got: &str, want: &[String]) -> Outcome {
    match want {
        _ if want.iter().any(|text| text == got) => Ok(()),
        [first, ..] => same_text(what, got, first),
        [] => failed(format!("{what}: nothing was expected, got {got}")),
    }
}

/// Fails unless the text holds the part.
pub fn contains(what: &str, got: &str, part: &str) -> Outcome {
    if got.contains(part) {
        return Ok(());
    }
    failed(format!("{what}: it does not hold {part:?}\n--- got\n{got}\n---"))
}

/// Fails with these words unless it is so.
pub fn ensure(so: bool, words: impl FnOnce() -> String) -> Outcome {
    if so { Ok(()) } else { Err(Halt::Failed(words())) }
}

/// How long a check may take when nobody says otherwise.
pub const DEADLINE: Duration = Duration::from_secs(45);

/// Lists claims: id, rule, need, the claim, the check; `slow` before those that wait for a time of the wire.
#[macro_export]
#[doc(hidden)]
macro_rules! suite_cases {
    ($($(@$slow:ident)? $id:literal $rule:literal $need:expr, $says:literal => $run:path;)*) => {
        /// The group's claims.
        pub const CASES: &[$crate::suite::Case] = &[$($crate::suite::Case {
            id: $id,
            rule: $rule,
            says: $says,
            need: $need,
            slow: $crate::suite_cases!(@is $($slow)?),
            run: |stage| Box::pin($run(stage)),
        }),*];
    };
    (@is) => { false };
    (@is slow) => { true };
}
