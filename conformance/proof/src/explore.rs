//! Visits every state of a scene once, depth first, and stops at the first broken promise with its whole trace.

use crate::mutant::Mutant;
use crate::scene::{Budget, Scene};
use crate::world::{Action, LEAVE, World};
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest path: a scene's Turns with every fault take a fraction of it, so a longer one never ends.
const DEPTH_MAX: usize = 2_000;

/// What was found.
#[derive(Clone, Debug)]
pub struct Report {
    /// The scene.
    pub scene: &'static str,
    /// The bounds.
    pub budget: Budget,
    /// Different states.
    pub states: u64,
    /// Steps taken.
    pub steps: u64,
    /// Ends reached.
    pub ends: u64,
    /// Longest path.
    pub depth: usize,
    /// Excuses, permits and rules that came into play.
    pub seen: BTreeSet<&'static str>,
    /// The broken promise and how it came to it.
    pub violation: Option<(String, Vec<String>)>,
    /// Every state within the bounds was visited.
    pub complete: bool,
}

/// How a state was reached.
struct Trail {
    action: Action,
    before: Option<Arc<Trail>>,
}

fn trace(trail: Option<&Arc<Trail>>) -> Vec<String> {
    let mut lines = Vec::new();
    let mut at = trail;
    while let Some(step) = at {
        lines.push(format!("{:?}", step.action));
        at = step.before.as_ref();
    }
    lines.reverse();
    lines
}

/// Explores until everything was visited, a promise is broken, or the time is up.
pub fn explore(scene: &Scene, budget: Budget, mutant: Option<Mutant>, time: Duration) -> Report {
    let started = Instant::now();
    let mut report = Report {
        scene: scene.name,
        budget,
        states: 0,
        steps: 0,
        ends: 0,
        depth: 0,
        seen: BTreeSet::new(),
        violation: None,
        complete: false,
    };
    let first = World::new(scene, budget, mutant);
    let mut visited = HashSet::from([first.fingerprint()]);
    let mut stack: Vec<(World, usize, Option<Arc<Trail>>)> = vec![(first, 0, None)];
    while let Some((world, depth, trail)) = stack.pop() {
        report.states += 1;
        report.depth = report.depth.max(depth);
        if report.states.is_multiple_of(256) && started.elapsed() > time {
            return report;
        }
        let mut actions = world.enabled();
        if world.is_over() {
            report.ends += 1;
            let mut ghost = world.ghost.clone();
            ghost.check_end(&world);
            report.seen.extend(&ghost.seen);
            if let Some(what) = ghost.violation {
                report.violation = Some((what, trace(trail.as_ref())));
                return report;
            }
            actions.clear();
        } else if actions.iter().all(is_fault) || depth >= DEPTH_MAX {
            report.violation =
                Some(("nothing can happen any more and the run has not ended".to_owned(), trace(trail.as_ref())));
            return report;
        }
        for action in actions {
            report.steps += 1;
            let mut next = world.clone();
            next.take_step(&action);
            let step = || Some(Arc::new(Trail { action: action.clone(), before: trail.clone() }));
            if let Some(what) = &next.ghost.violation {
                report.violation = Some((what.clone(), trace(step().as_ref())));
                report.seen.extend(&next.ghost.seen);
                return report;
            }
            if visited.insert(next.fingerprint()) {
                stack.push((next, depth + 1, step()));
            }
        }
    }
    report.complete = true;
    report
}

/// Faults and people are not what a run may wait for.
pub fn is_fault(action: &Action) -> bool {
    use Action::{Answer, Exit, GuardKill, HarnessEnds, OrchestratorEnds};
    matches!(action, GuardKill(..) | HarnessEnds(..) | OrchestratorEnds | Exit | Answer(_, LEAVE))
}
