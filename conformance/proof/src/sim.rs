//! Random walks: long runs with many faults, each named by its seed; a failing walk is shrunk and printed.

use crate::explore::is_fault;
use crate::mutant::Mutant;
use crate::scene::{Budget, Scene};
use crate::world::{Action, World};

/// Longest walk in steps.
const STEPS_MAX: usize = 5_000;
/// One step in this many is a fault, when there is another thing to do.
const FAULT_ONE_IN: u64 = 12;
/// Steps left out at once when a walk is shrunk: a crash and what mends it go only together.
const SHRINK_SPANS: [usize; 6] = [16, 8, 4, 3, 2, 1];

/// What one walk came to.
#[derive(Clone, Debug)]
pub struct Walk {
    /// Turns that were framed.
    pub turns: u64,
    /// Steps taken.
    pub steps: u64,
    /// The broken promise and the steps to it.
    pub violation: Option<(String, Vec<Action>)>,
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// Walks one seed.
pub fn walk(scene: &Scene, budget: Budget, mutant: Option<Mutant>, seed: u64) -> Walk {
    let mut random = Random(seed);
    let mut world = World::new(scene, budget, mutant);
    let mut taken = Vec::new();
    while taken.len() < STEPS_MAX && !world.is_over() {
        let all = world.enabled();
        let (faults, work): (Vec<Action>, Vec<Action>) = all.into_iter().partition(is_fault);
        let pool = if !faults.is_empty() && (work.is_empty() || random.next().is_multiple_of(FAULT_ONE_IN)) {
            faults
        } else {
            work
        };
        if pool.is_empty() {
            break;
        }
        let action = pool[random.below(pool.len())].clone();
        world.take_step(&action);
        taken.push(action);
        if world.ghost.violation.is_some() {
            break;
        }
    }
    let turns = world.ghost.turns() as u64;
    let what = end_of(&mut world);
    let steps = taken.len() as u64;
    let violation = what.map(|what| shrink(scene, budget, mutant, what, taken));
    Walk { turns, steps, violation }
}

fn end_of(world: &mut World) -> Option<String> {
    let mut ghost = std::mem::take(&mut world.ghost);
    if ghost.violation.is_none() {
        if world.is_over() {
            ghost.check_end(world);
        } else {
            ghost.violation = Some("the run has not ended".to_owned());
        }
    }
    world.ghost = ghost;
    world.ghost.violation.clone()
}

/// Leaves out spans of steps, then single ones, for as long as a promise is still broken.
fn shrink(
    scene: &Scene,
    budget: Budget,
    mutant: Option<Mutant>,
    what: String,
    steps: Vec<Action>,
) -> (String, Vec<Action>) {
    let mut best = steps;
    let breaks = |fewer: &[Action]| replay(scene, budget, mutant, fewer).is_some_and(|(_, used)| used == fewer.len());
    loop {
        let before = best.len();
        for span in SHRINK_SPANS {
            let mut at = 0;
            while at + span <= best.len() {
                let mut fewer = best.clone();
                fewer.drain(at..at + span);
                if breaks(&fewer) {
                    best = fewer;
                } else {
                    at += 1;
                }
            }
        }
        if best.len() == before {
            break;
        }
    }
    (replay(scene, budget, mutant, &best).map_or(what, |(what, _)| what), best)
}

/// Takes the steps that are possible; answers the broken promise and how many it took.
fn replay(scene: &Scene, budget: Budget, mutant: Option<Mutant>, steps: &[Action]) -> Option<(String, usize)> {
    let mut world = World::new(scene, budget, mutant);
    for (used, action) in steps.iter().enumerate() {
        if !world.enabled().contains(action) {
            return None;
        }
        world.take_step(action);
        if let Some(what) = &world.ghost.violation {
            return Some((what.clone(), used + 1));
        }
    }
    if !world.is_over() {
        return None;
    }
    end_of(&mut world).map(|what| (what, steps.len()))
}
