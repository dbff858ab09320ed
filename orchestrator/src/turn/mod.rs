//! The Turn protocol as a pure machine: admission, nudge, wake, re-admission, reroll, fault (spec 7).
