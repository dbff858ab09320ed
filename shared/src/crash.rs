//! The crash points: every place where a process may die between a decision and its durability, by name.
//!
//! With feature `crash-points`, which only tests turn on, a process ends itself with SIGKILL at the points that
//! `JR2_CRASH_AT` names (`<name>[#n]`, by commas; `n` counts passages in one process, from 1). `JR2_CRASH_ONCE` names a
//! folder: a file by the point's name is made there before the death, and where it stands already nobody dies, so that a
//! process that is started again with the same environment goes on. Without the feature a point is nothing.

/// The process that passes a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// `jr2 serve`.
    Orchestrator,
    /// `jr2-harness`.
    Harness,
}

macro_rules! points {
    ($($process:ident $point:ident $name:literal $between:literal),+ $(,)?) => {
        /// A place where the process may die. The page `docs/proof.md` lists them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Point {
            $(#[doc = $between] $point,)+
        }

        impl Point {
            /// Every point, the Orchestrator's first.
            pub const ALL: &[Self] = &[$(Self::$point),+];

            /// Its name.
            pub fn name(self) -> &'static str {
                match self { $(Self::$point => $name),+ }
            }

            /// Between what and what it lies.
            pub fn between(self) -> &'static str {
                match self { $(Self::$point => $between),+ }
            }

            /// Who passes it.
            pub fn process(self) -> Process {
                match self { $(Self::$point => Process::$process),+ }
            }
        }
    };
}

points! {
    Orchestrator RunStarted "run-started" "a new run's first save, and its 201",
    Orchestrator RunSaved "run-saved" "a save, and the effects it decided",
    Orchestrator SandboxProvisioned "sandbox-provisioned" "a Sandbox that is up, and the save that has it",
    Orchestrator KillsRead "kills-read" "a kill list that was read, and the save that has it",
    Orchestrator AdmissionAnswered "admission-answered" "an admission's answer, and the save that has it",
    Orchestrator SurfaceSaved "surface-saved" "the save of a first surface read, and its answer",
    Orchestrator PickSaved "pick-saved" "the save of a pick, and its answer",
    Orchestrator KillHeard "kill-heard" "a kill heard on a stream, and the save that has it",
    Orchestrator SettlementHeard "settlement-heard" "a settlement that was heard, and the save that has it",
    Orchestrator RequestSaved "request-saved" "the save of a Gate's answer or an outside event, and its 2xx",
    Orchestrator AbortSaved "abort-saved" "the save of an abort, and its request",
    Orchestrator AbortAnswered "abort-answered" "an abort's answer, and the save that has it",
    Orchestrator BranchesSaved "branches-saved" "the branches of a teardown, and the removal of the Sandbox",
    Orchestrator SandboxRemoved "sandbox-removed" "a Sandbox that is removed, and the save that has it",
    Harness AdmissionSeated "admission-seated" "an admission in the record, and its answer",
    Harness PromptRendered "prompt-rendered" "the rendered message, and its record",
    Harness PromptRecorded "prompt-recorded" "the record of the message, and the request to the model",
    Harness ModelAnswered "model-answered" "the model's answer, and its record",
    Harness CallRecorded "call-recorded" "the record of a call, and the run of its tool",
    Harness ToolRan "tool-ran" "a tool that ran, and the record of its result",
    Harness PickAnswered "pick-answered" "a pick's answer, and the record of its receipt",
    Harness SettlementRecorded "settlement-recorded" "the record of a settlement, and its readers",
    Harness AbortSettled "abort-settled" "the end of what an abort ended, and its answer",
    Harness KillKept "kill-kept" "a kill in the kept file, and the streams",
    Harness KillAnnounced "kill-announced" "a kill on the streams, and all that follows",
    Harness VerdictRecorded "verdict-recorded" "the record of a call's verdict, and `told` in the kept file",
    Harness ToldKept "told-kept" "`told` in the kept file, and the next request to the model",
}

/// The variables that say where to die: what a process hands to the one it starts.
pub const VARIABLES: &[&str] = if cfg!(feature = "crash-points") { &["JR2_CRASH_AT", "JR2_CRASH_ONCE"] } else { &[] };

/// The process dies here when it was told to; otherwise nothing happens.
#[cfg(feature = "crash-points")]
pub fn point(point: Point) {
    armed::pass(point);
}

/// Nothing: this build has no crash points.
#[cfg(not(feature = "crash-points"))]
#[inline(always)]
pub fn point(_: Point) {}

#[cfg(feature = "crash-points")]
mod armed {
    use super::{Point, VARIABLES};
    use std::path::PathBuf;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// One death to die.
    pub(super) struct Death {
        pub(super) at: Point,
        /// At this passage, from 1.
        pub(super) passage: u64,
        passed: AtomicU64,
    }

    /// What a process was told.
    struct Orders {
        deaths: Vec<Death>,
        once: Option<PathBuf>,
    }

    /// Reads `<name>[#n]`, by commas. A name that is none names no death: its test misses the file it waits for.
    pub(super) fn read(text: &str) -> Vec<Death> {
        let one = |part: &str| {
            let (name, passage) = part.split_once('#').unwrap_or((part, "1"));
            let at = Point::ALL.iter().copied().find(|point| point.name() == name.trim())?;
            Some(Death { at, passage: passage.trim().parse().ok()?, passed: AtomicU64::new(0) })
        };
        text.split(',').filter_map(one).collect()
    }

    pub(super) fn pass(point: Point) {
        static ORDERS: OnceLock<Orders> = OnceLock::new();
        let orders = ORDERS.get_or_init(|| Orders {
            deaths: std::env::var(VARIABLES[0]).map(|text| read(&text)).unwrap_or_default(),
            once: std::env::var_os(VARIABLES[1]).map(PathBuf::from),
        });
        for death in orders.deaths.iter().filter(|death| death.at == point) {
            if death.passed.fetch_add(1, Ordering::Relaxed) + 1 == death.passage && is_first(orders, point) {
                die();
            }
        }
    }

    /// Leaves the mark; false when it stands already, or nobody could see it.
    fn is_first(orders: &Orders, point: Point) -> bool {
        let Some(folder) = &orders.once else { return true };
        std::fs::OpenOptions::new().write(true).create_new(true).open(folder.join(point.name())).is_ok()
    }

    /// As `kill -9` does it: no destructor, no flush, no other thread goes on.
    #[allow(unsafe_code)]
    fn die() {
        // SAFETY: a system call with two numbers.
        unsafe {
            libc::kill(libc::getpid(), libc::SIGKILL);
        }
        loop {
            std::thread::park(); // the signal is on its way
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_kebab_case_and_unique() {
        let names: HashSet<&str> = Point::ALL.iter().map(|point| point.name()).collect();
        assert_eq!(names.len(), Point::ALL.len());
        let kebab = |name: &&str| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-') && !name.starts_with('-');
        assert!(names.iter().all(kebab));
    }

    #[test]
    fn without_the_feature_nothing_is_handed_on_and_nobody_dies() {
        assert_eq!(VARIABLES.is_empty(), !cfg!(feature = "crash-points"));
        Point::ALL.iter().copied().for_each(point);
    }

    #[cfg(feature = "crash-points")]
    #[test]
    fn orders_are_read() {
        let read = |text| armed::read(text).iter().map(|d| (d.at, d.passage)).collect::<Vec<_>>();
        assert_eq!(read("tool-ran#3,pick-saved"), [(Point::ToolRan, 3), (Point::PickSaved, 1)]);
        assert_eq!(read("nowhere,tool-ran#x"), []);
    }
}
