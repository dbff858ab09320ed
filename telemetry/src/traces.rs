//! Finished spans, exported by OTLP over HTTP. Everything about the exporter comes from OpenTelemetry's own variables.

use crate::context::TraceParent;
use opentelemetry::trace::{
    SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt as _, TraceFlags, TraceId, TraceState,
    Tracer as _, TracerProvider as _,
};
use opentelemetry::{Array, Context, KeyValue, StringValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator, SdkTracer, SdkTracerProvider};
use std::cell::Cell;
use std::sync::OnceLock;
use std::time::SystemTime;

/// Where spans go: for all signals, or for traces alone. Without either there is no exporter.
const ENDPOINT_VARIABLES: [&str; 2] = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];
/// Turns everything off.
const DISABLED_VARIABLE: &str = "OTEL_SDK_DISABLED";

static TRACER: OnceLock<SdkTracer> = OnceLock::new();

thread_local! {
    /// The ids of the span that this thread is about to make.
    static NEXT: Cell<Option<TraceParent>> = const { Cell::new(None) };
}

/// Why there is no exporter though one was asked for.
#[derive(Debug, thiserror::Error)]
#[error("the OTLP exporter cannot be made: {0}")]
pub struct StartError(String);

/// Ends the export when it is dropped: what was finished is sent first.
#[derive(Default)]
#[must_use = "dropping it ends the export"]
pub struct Traces(Option<SdkTracerProvider>);

impl Traces {
    /// Whether spans go anywhere.
    pub fn are_exported(&self) -> bool {
        self.0.is_some()
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        if let Some(provider) = self.0.take()
            && let Err(error) = provider.shutdown()
        {
            tracing::warn!(%error, "traces.not_all_sent");
        }
    }
}

/// Starts the export for a service when the environment names an endpoint.
pub fn start(service: &'static str, version: &'static str) -> Result<Traces, StartError> {
    let named = ENDPOINT_VARIABLES.iter().any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()));
    let disabled = std::env::var(DISABLED_VARIABLE).is_ok_and(|value| value.eq_ignore_ascii_case("true"));
    if !named || disabled {
        return Ok(Traces(None));
    }
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .build()
        .map_err(|error| StartError(error.to_string()))?;
    let resource =
        Resource::builder().with_service_name(service).with_attribute(KeyValue::new("service.version", version));
    let provider = SdkTracerProvider::builder()
        .with_id_generator(GivenIds(RandomIdGenerator::default()))
        .with_resource(resource.build())
        .with_batch_exporter(exporter)
        .build();
    // A second start in one process keeps the first.
    let _ = TRACER.set(provider.tracer("jr2"));
    tracing::info!("traces.exported");
    Ok(Traces(Some(provider)))
}

/// Ids that the caller gave, else random ones.
#[derive(Debug)]
struct GivenIds(RandomIdGenerator);

impl IdGenerator for GivenIds {
    fn new_trace_id(&self) -> TraceId {
        NEXT.get().map_or_else(|| self.0.new_trace_id(), |next| TraceId::from_bytes(next.trace))
    }

    fn new_span_id(&self) -> SpanId {
        NEXT.get().map_or_else(|| self.0.new_span_id(), |next| SpanId::from_bytes(next.span))
    }
}

/// What a span is to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Work of this process.
    Internal,
    /// A question to another one.
    Client,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A whole number.
    Number(i64),
    /// A list of texts.
    Texts(Vec<String>),
}

/// Something that is over.
#[derive(Clone, Debug)]
pub struct Span {
    /// Its name, of few different values.
    pub name: String,
    /// What it is to others.
    pub kind: Kind,
    /// Its own place in its trace; `None` = a new one below the parent.
    pub own: Option<TraceParent>,
    /// The span it is part of.
    pub parent: Option<TraceParent>,
    /// When it began.
    pub began: SystemTime,
    /// When it was over.
    pub ended: SystemTime,
    /// What is known of it.
    pub attributes: Vec<(&'static str, Value)>,
    /// Why it failed, if it did.
    pub error: Option<String>,
}

/// Whether anybody wants spans: whoever would have to work for one asks first.
pub fn wanted() -> bool {
    TRACER.get().is_some()
}

/// Hands a span to the exporter; without one nothing happens.
pub fn finish(span: Span) {
    let Some(tracer) = TRACER.get() else { return };
    record(tracer, span);
}

fn record(tracer: &SdkTracer, span: Span) {
    use opentelemetry::trace::Span as _;
    let parent = span.parent.map_or_else(Context::new, |parent| {
        let flags = if parent.sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
        let (trace, id) = (TraceId::from_bytes(parent.trace), SpanId::from_bytes(parent.span));
        Context::new().with_remote_span_context(SpanContext::new(trace, id, flags, true, TraceState::default()))
    });
    let kind = match span.kind {
        Kind::Internal => SpanKind::Internal,
        Kind::Client => SpanKind::Client,
    };
    let attributes = span.attributes.into_iter().map(|(name, value)| attribute(name, value)).collect::<Vec<_>>();
    let builder =
        SpanBuilder::from_name(span.name).with_kind(kind).with_start_time(span.began).with_attributes(attributes);
    NEXT.set(span.own);
    let mut made = tracer.build_with_context(builder, &parent);
    NEXT.set(None);
    if let Some(error) = span.error {
        made.set_status(Status::error(error));
    }
    made.end_with_timestamp(span.ended);
}

fn attribute(name: &'static str, value: Value) -> KeyValue {
    match value {
        Value::Text(text) => KeyValue::new(name, text),
        Value::Number(number) => KeyValue::new(name, number),
        Value::Texts(texts) => {
            let texts: Vec<StringValue> = texts.into_iter().map(Into::into).collect();
            KeyValue::new(name, opentelemetry::Value::Array(Array::String(texts)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry_sdk::trace::InMemorySpanExporter;
    use std::time::Duration;

    #[test]
    fn a_finished_span_has_the_ids_times_and_parent_it_was_given() {
        let kept = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder()
            .with_id_generator(GivenIds(RandomIdGenerator::default()))
            .with_simple_exporter(kept.clone())
            .build();
        let tracer = provider.tracer("test");
        let began = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000);
        let (run, turn) = (TraceParent::of_run("r"), TraceParent::of_turn("r", 1));
        let span = |name: &str, own, parent, error: Option<&str>| Span {
            name: name.into(),
            kind: Kind::Client,
            own,
            parent,
            began,
            ended: began + Duration::from_millis(5),
            attributes: vec![("n", Value::Number(3)), ("t", Value::Texts(vec!["stop".into()]))],
            error: error.map(str::to_owned),
        };
        record(&tracer, span("run", Some(run), None, None));
        record(&tracer, span("turn", Some(turn), Some(run), Some("broke")));
        record(&tracer, span("chat", None, Some(turn), None));
        let unsampled = TraceParent { sampled: false, ..turn };
        record(&tracer, span("quiet", None, Some(unsampled), None));
        let spans = kept.get_finished_spans().unwrap();
        let names: Vec<&str> = spans.iter().map(|span| span.name.as_ref()).collect();
        assert_eq!(names, ["run", "turn", "chat"], "a caller that does not keep its trace is respected");
        let trace = TraceId::from_bytes(run.trace);
        assert!(spans.iter().all(|span| span.span_context.trace_id() == trace));
        assert_eq!(spans[0].span_context.span_id(), SpanId::from_bytes(run.span));
        assert_eq!(spans[1].parent_span_id, SpanId::from_bytes(run.span));
        assert_eq!(spans[1].status, Status::error("broke"));
        assert_eq!(spans[2].parent_span_id, SpanId::from_bytes(turn.span));
        assert_ne!(spans[2].span_context.span_id(), SpanId::from_bytes(turn.span));
        assert_eq!(spans[0].end_time.duration_since(spans[0].start_time).unwrap(), Duration::from_millis(5));
        assert_eq!(spans[2].attributes.len(), 2);
    }
}
