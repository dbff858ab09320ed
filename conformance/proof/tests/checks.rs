//! The proof's own tests: small bounds that an ordinary test run can afford. `jr2-proof ci` goes wider.
#![allow(clippy::unwrap_used, clippy::panic)] // a test fails by panicking

use jr2_proof::explore::explore;
use jr2_proof::mutant::Mutant;
use jr2_proof::plan::{self, Freedom};
use jr2_proof::{scene, sim};
use std::time::Duration;

/// Scenes there were when the seeds below found their faults: the number is a part of a walk's name.
const SCENES_THEN: u64 = 5;
const NOTHING: Freedom = Freedom { exits: 0, tools: 0, silences: 0, asks: 0 };

#[test]
fn every_state_of_a_menu_only_run_with_one_fault_keeps_the_promises() {
    let scene = scene::all().into_iter().find(|s| s.name == "menu-only").unwrap();
    let report = explore(&scene, plan::budget(1, NOTHING), None, Duration::from_mins(5));
    assert_eq!(report.violation, None);
    assert!(report.complete && report.ends > 10, "{report:?}");
}

#[test]
fn every_scene_without_faults_ends() {
    for scene in scene::all() {
        let report = explore(&scene, plan::budget(0, NOTHING), None, Duration::from_mins(5));
        assert_eq!(report.violation, None, "{}", scene.name);
        assert!(report.complete && report.ends > 0, "{report:?}");
    }
}

#[test]
fn walks_that_once_broke_a_promise_keep_it() {
    // A Turn beside an unheard one; a conversation lost after its surface was read; a Submission of an earlier Turn that
    // read a later Turn's surface.
    for seed in [6_262, 11_107, 9_911, 15_765] {
        let scenes = scene::all();
        let scene = &scenes[(seed % SCENES_THEN) as usize];
        let walk = sim::walk(scene, plan::wild(4), None, seed);
        assert_eq!(walk.violation.map(|(what, _)| what), None, "seed {seed}");
    }
    // An admission that was sent again after its Submission had asked and its conversation was lost.
    let scenes = scene::all();
    let asking = scenes.iter().find(|scene| scene.name == "asking").unwrap();
    let walk = sim::walk(asking, plan::wild(4), None, 268_149);
    assert_eq!(walk.violation.map(|(what, _)| what), None);
}

#[test]
fn a_rule_that_is_taken_away_is_noticed_and_the_walk_is_shrunk() {
    for mutant in [Mutant::NoSeen, Mutant::NoReserve, Mutant::NoRaiseAgain, Mutant::NoAdmissionIds, Mutant::NoKept] {
        // One thread: the same walk is found every time.
        let walks = plan::walk_all(1, plan::wild(4), Some(mutant), 1, &|seeds, _| seeds > 2_000);
        let (_, _, walk) = walks.broken.unwrap_or_else(|| panic!("{mutant:?} was not noticed"));
        let (what, trace) = walk.violation.unwrap();
        assert!(!what.is_empty() && trace.len() < 40, "{mutant:?}: {what} in {} steps", trace.len());
    }
}
