//! What both programs' metrics share: the text format and the buckets.

pub use prometheus_client::metrics::counter::Counter;
pub use prometheus_client::metrics::gauge::Gauge;
pub use prometheus_client::metrics::histogram::Histogram;
pub use prometheus_client::registry::{Registry, Unit};

/// Counters of one name, told apart by labels of few different values.
pub type Labelled = prometheus_client::metrics::family::Family<Vec<(&'static str, String)>, Counter>;

/// The labels of one counter.
pub fn labels<const N: usize>(pairs: [(&'static str, &str); N]) -> Vec<(&'static str, String)> {
    pairs.into_iter().map(|(name, value)| (name, value.to_owned())).collect()
}

/// The content type of [`text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Buckets in seconds for what takes from a tenth of a millisecond to half a minute.
pub const FAST_SECONDS: [f64; 12] = [0.000_1, 0.000_3, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0];
/// Buckets in seconds for what a model or a test suite takes.
pub const SLOW_SECONDS: [f64; 10] = [0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1_000.0, 3_600.0];

/// A histogram of fast things.
pub fn fast() -> Histogram {
    Histogram::new(FAST_SECONDS)
}

/// A histogram of slow things.
pub fn slow() -> Histogram {
    Histogram::new(SLOW_SECONDS)
}

/// The registry in the OpenMetrics text format, which Prometheus reads.
pub fn text(registry: &Registry) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = prometheus_client::encoding::text::encode(&mut text, registry);
    text
}
