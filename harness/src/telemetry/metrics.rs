//! The Harness's metrics, one set a process (`docs/telemetry.md` names each).

use jr2_telemetry::metrics::{Counter, Histogram, Labelled, Registry, Unit, fast, labels, slow};
use std::sync::LazyLock;

/// Everything that is counted.
pub struct Metrics {
    registry: Registry,
    settlements: Labelled,
    questions: Labelled,
    tokens: Labelled,
    calls: Labelled,
    /// Memory kills of the guard.
    pub kills: Counter,
    /// Conversations that were compacted.
    pub compactions: Counter,
    /// From a question to the whole answer, retries among it.
    pub question: Histogram,
    /// One call of a Working tool or one pick.
    pub call: Histogram,
    /// Entries on their way into the record: the Harness's own part of a step.
    pub record: Histogram,
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
        let metrics = Self {
            registry: Registry::default(),
            settlements: Labelled::default(),
            questions: Labelled::default(),
            tokens: Labelled::default(),
            calls: Labelled::default(),
            kills: Counter::default(),
            compactions: Counter::default(),
            question: slow(),
            call: slow(),
            record: fast(),
        };
        let mut registry = Registry::with_prefix("jr2_harness");
        registry.register(
            "settlements",
            "Submissions that settled, by outcome and error type",
            metrics.settlements.clone(),
        );
        registry.register("questions", "Questions to a model, by what became of them", metrics.questions.clone());
        registry.register("tokens", "Tokens as the server counted them", metrics.tokens.clone());
        registry.register("calls", "Calls of Working tools, and picks", metrics.calls.clone());
        registry.register("memory_kills", "Kills of the memory guard", metrics.kills.clone());
        registry.register("compactions", "Conversations that were compacted", metrics.compactions.clone());
        let seconds = [
            ("question", "From a question to the whole answer, retries among it", &metrics.question),
            ("call", "One call of a Working tool, or one pick", &metrics.call),
            ("record", "Entries on their way into the record: the Harness's own part of a step", &metrics.record),
        ];
        for (name, help, histogram) in seconds {
            registry.register_with_unit(name, help, Unit::Seconds, histogram.clone());
        }
        Self { registry, ..metrics }
    }

    /// A Submission settled.
    pub fn settled(&self, outcome: &str, error: &str) {
        self.settlements.get_or_create(&labels([("outcome", outcome), ("error", error)])).inc();
    }

    /// A question is over.
    pub fn asked(&self, provider: &str, outcome: &str) {
        self.questions.get_or_create(&labels([("provider", provider), ("outcome", outcome)])).inc();
    }

    /// A server counted tokens; what it does not say is not counted.
    pub fn tokens(&self, kind: &str, count: Option<u64>) {
        if let Some(count) = count {
            self.tokens.get_or_create(&labels([("kind", kind)])).inc_by(count);
        }
    }

    /// A call is over. A tool's name is one of ours, never a model's word.
    pub fn called(&self, tool: &str, outcome: &str) {
        self.calls.get_or_create(&labels([("tool", tool), ("outcome", outcome)])).inc();
    }
}
