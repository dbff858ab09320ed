//! Every claim, a file or folder a group.

mod abort;
mod auth;
mod briefing;
mod calls;
mod compaction;
mod drain;
mod kept;
mod kills;
mod menu;
mod notice;
mod queue;
mod receipt;
mod restart;
mod runaway;
mod settle;
mod stream;
mod surface;
mod wire;

use super::Case;

/// Groups in the order of a report.
const GROUPS: [&[Case]; 18] = [
    wire::CASES,
    auth::CASES,
    queue::CASES,
    abort::CASES,
    settle::CASES,
    surface::CASES,
    menu::CASES,
    receipt::CASES,
    briefing::CASES,
    notice::CASES,
    kills::CASES,
    kept::CASES,
    runaway::CASES,
    compaction::CASES,
    drain::CASES,
    restart::CASES,
    stream::CASES,
    calls::CASES,
];

/// Every claim in the order of a report.
pub fn all() -> Vec<&'static Case> {
    GROUPS.iter().flat_map(|group| group.iter()).collect()
}
