//! The declared transitions: the scenarios drive every one of them, and nothing drives another.

use super::*;

/// Every transition that does something. A restore that asks again is one too.
pub(super) const DECLARED: &[Transition] = &[
    ("new", "begin", "awaiting-aborts"),
    ("awaiting-aborts", "aborts-clear", "admitting"),
    ("awaiting-aborts", "aborts-clear", "asking-held"),
    ("awaiting-aborts", "restored", "awaiting-aborts"),
    ("asking-held", "held", "admitting"),
    ("asking-held", "held", "ended"),
    ("asking-held", "held", "reading"),
    ("asking-held", "restored", "asking-held"),
    ("awaiting-aborts", "aborts-clear", "reading"),
    ("reading", "read", "admitting"),
    ("reading", "restored", "reading"),
    ("admitting", "surface-read", "admitting"),
    ("admitting", "admit-refused", "reading"),
    ("waiting", "surface-read", "waiting"),
    ("waiting", "stream-kill", "waiting"),
    ("waiting", "settled", "reading"),
    ("idle", "allowed", "reading"),
    ("idle", "route-returned", "reading"),
    ("reading-last-end", "last-end", "reading"),
    ("admitting", "admitted", "waiting"),
    ("admitting", "admit-refused", "admitting"),
    ("admitting", "admit-refused", "ended"),
    ("admitting", "admit-unreachable", "ended"),
    ("admitting", "pick", "admitting"),
    ("admitting", "restored", "admitting"),
    ("admitting", "route-returned", "admitting"),
    ("waiting", "settled", "admitting"),
    ("waiting", "settled", "idle"),
    ("waiting", "settled", "held"),
    ("waiting", "settled", "reading-last-end"),
    ("waiting", "settled", "ended"),
    ("waiting", "conversation-lost", "held"),
    ("waiting", "conversation-lost", "reading-last-end"),
    ("waiting", "denied", "ended"),
    ("waiting", "pick", "waiting"),
    ("waiting", "restored", "waiting"),
    ("waiting", "route-returned", "waiting"),
    ("idle", "allowed", "admitting"),
    ("idle", "allowed", "ended"),
    ("idle", "route-returned", "admitting"),
    ("idle", "route-returned", "idle"),
    ("held", "route-returned", "reading-last-end"),
    ("reading-last-end", "last-end", "asking-held"),
    ("reading-last-end", "last-end", "admitting"),
    ("reading-last-end", "last-end", "ended"),
    ("reading-last-end", "restored", "reading-last-end"),
];

#[test]
fn every_declared_transition_is_driven_and_no_other() {
    let mut seen = Recorder::new();
    for scenario in scenarios::ALL.iter().chain(notices::ALL.iter().copied().flatten()) {
        scenario(&mut seen);
    }
    let declared: Recorder = DECLARED.iter().copied().collect();
    assert_eq!(declared.len(), DECLARED.len(), "a transition is declared twice");
    let missing: Vec<_> = declared.difference(&seen).collect();
    let undeclared: Vec<_> = seen.difference(&declared).collect();
    assert!(missing.is_empty() && undeclared.is_empty(), "not driven: {missing:#?}\nnot declared: {undeclared:#?}");
}
