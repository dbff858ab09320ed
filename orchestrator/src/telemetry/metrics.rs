//! The Orchestrator's metrics, one set a process (`docs/metrics.md` names each).

use super::{NoticeState, Seen};
use crate::run::view::status_word;
use jr2_telemetry::metrics::{Counter, Gauge, Histogram, Labelled, Registry, Unit, fast, labels, slow};
use std::sync::LazyLock;

/// Everything that is counted.
pub struct Metrics {
    registry: Registry,
    runs_began: Labelled,
    runs_ended: Labelled,
    turns_began: Counter,
    turns: Histogram,
    settlements: Labelled,
    again: Labelled,
    kernel_kills: Counter,
    picks: Labelled,
    notices: Labelled,
    notices_pending: Gauge,
    /// How long an admission took until its answer, all attempts together.
    pub admission: Histogram,
    /// How long a save took from its row to its flush.
    pub save: Histogram,
    /// How long one flush of the store took.
    pub flush: Histogram,
}

/// The process's metrics.
pub fn metrics() -> &'static Metrics {
    static METRICS: LazyLock<Metrics> = LazyLock::new(Metrics::new);
    &METRICS
}

/// All of them in the OpenMetrics text format.
pub fn text() -> String {
    jr2_telemetry::metrics::text(&metrics().registry)
}

impl Metrics {
    fn new() -> Self {
        let mut registry = Registry::with_prefix("jr2");
        let metrics = Self {
            runs_began: Labelled::default(),
            runs_ended: Labelled::default(),
            turns_began: Counter::default(),
            turns: slow(),
            settlements: Labelled::default(),
            again: Labelled::default(),
            kernel_kills: Counter::default(),
            picks: Labelled::default(),
            notices: Labelled::default(),
            notices_pending: Gauge::default(),
            admission: fast(),
            save: fast(),
            flush: fast(),
            registry: Registry::default(),
        };
        registry.register("runs_started", "Runs that began", metrics.runs_began.clone());
        registry.register("runs_ended", "Runs that ended, by how", metrics.runs_ended.clone());
        registry.register("turns_started", "Turns that began", metrics.turns_began.clone());
        registry.register_with_unit(
            "turn_duration",
            "From a Turn's start to its end",
            Unit::Seconds,
            metrics.turns.clone(),
        );
        registry.register(
            "settlements",
            "Submissions that settled, by outcome and error type",
            metrics.settlements.clone(),
        );
        registry.register(
            "admissions_again",
            "Admissions that were no Turn's first: nudges, wakes, rerolls, re-admissions after a cut",
            metrics.again.clone(),
        );
        registry.register(
            "kernel_kills",
            "Turns whose Harness the kernel killed for memory",
            metrics.kernel_kills.clone(),
        );
        registry.register("picks", "Picks that were taken, by what became of them", metrics.picks.clone());
        registry.register("notices", "Notices that reached a state, by kind", metrics.notices.clone());
        registry.register("notices_pending", "Notices that wait for an admission", metrics.notices_pending.clone());
        registry.register_with_unit(
            "admission",
            "From an admission's first attempt to its answer",
            Unit::Seconds,
            metrics.admission.clone(),
        );
        registry.register_with_unit("save", "From a decided row to its flush", Unit::Seconds, metrics.save.clone());
        registry.register_with_unit("store_flush", "One flush of the store", Unit::Seconds, metrics.flush.clone());
        Self { registry, ..metrics }
    }

    /// Counts one thing.
    pub fn note(&self, seen: &Seen) {
        let again = |kind| {
            self.again.get_or_create(&labels([("kind", kind)])).inc();
        };
        match seen {
            Seen::RunBegan { workflow } => {
                self.runs_began.get_or_create(&labels([("workflow", workflow)])).inc();
            }
            Seen::RunEnded { workflow, status, .. } => {
                let labels = labels([("workflow", workflow), ("status", status_word(*status))]);
                self.runs_ended.get_or_create(&labels).inc();
            }
            Seen::TurnBegan => {
                self.turns_began.inc();
            }
            Seen::TurnEnded { began, ended, .. } => {
                self.turns.observe(ended.saturating_sub(*began) as f64 / 1_000.0);
            }
            Seen::Settled { outcome, error } => {
                self.settlements.get_or_create(&labels([("outcome", outcome), ("error", error)])).inc();
            }
            Seen::Nudge => again("nudge"),
            Seen::Wake => again("wake"),
            Seen::Reroll => again("reroll"),
            Seen::Readmission => again("cut"),
            Seen::KernelKill => {
                self.kernel_kills.inc();
                again("kernel-kill");
            }
            Seen::Pick(kind) => {
                self.picks.get_or_create(&labels([("kind", kind)])).inc();
            }
            Seen::Notices { kind, state, count } => {
                let state = match state {
                    NoticeState::Raised => "raised",
                    NoticeState::Delivered => "delivered",
                    NoticeState::Returned => "returned",
                    NoticeState::Dropped => "dropped",
                };
                self.notices.get_or_create(&labels([("kind", kind), ("state", state)])).inc_by(*count);
            }
            Seen::Pending(change) => {
                self.notices_pending.inc_by(*change);
            }
        }
    }

    /// A run is at work again after a restart with so many notices that wait.
    pub fn restored(&self, pending: usize) {
        self.notices_pending.inc_by(pending as i64);
    }
}
