//! A collector: takes spans by OTLP over HTTP and keeps them.

use axum::Router;
use axum::body::Bytes;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use prost::Message as _;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// One span, as far as the tests look.
#[derive(Clone, Debug)]
pub struct Kept {
    pub service: String,
    pub name: String,
    pub trace: String,
    pub span: String,
    pub parent: String,
    pub failed: bool,
    pub attributes: BTreeMap<String, String>,
}

#[derive(Clone)]
pub struct Collector {
    pub url: String,
    kept: Arc<Mutex<Vec<Kept>>>,
}

impl Collector {
    pub async fn start() -> Self {
        let kept: Arc<Mutex<Vec<Kept>>> = Arc::default();
        let into = kept.clone();
        let take = move |body: Bytes| {
            let into = into.clone();
            async move {
                let request = ExportTraceServiceRequest::decode(body).expect("the body is OTLP");
                into.lock().unwrap().extend(spans(request));
            }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, Router::new().route("/v1/traces", post(take))).await });
        Self { url, kept }
    }

    pub fn spans(&self) -> Vec<Kept> {
        self.kept.lock().unwrap().clone()
    }

    /// Waits until so many spans of this name came.
    pub async fn until(&self, name: &str, count: usize) -> Vec<Kept> {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let found: Vec<Kept> = self.spans().into_iter().filter(|span| span.name == name).collect();
            if found.len() >= count {
                return found;
            }
            assert!(Instant::now() < deadline, "no {count} spans `{name}`: {:#?}", self.spans());
            // Poll: until the condition holds.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

fn spans(request: ExportTraceServiceRequest) -> Vec<Kept> {
    let mut found = Vec::new();
    for group in request.resource_spans {
        let resource = group.resource.map(|r| texts(r.attributes)).unwrap_or_default();
        for span in group.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            found.push(Kept {
                service: resource.get("service.name").cloned().unwrap_or_default(),
                name: span.name,
                trace: jr2_shared::ids::hex(&span.trace_id),
                span: jr2_shared::ids::hex(&span.span_id),
                parent: jr2_shared::ids::hex(&span.parent_span_id),
                failed: span.status.is_some_and(|status| status.code == 2),
                attributes: texts(span.attributes),
            });
        }
    }
    found
}

fn texts(attributes: Vec<opentelemetry_proto::tonic::common::v1::KeyValue>) -> BTreeMap<String, String> {
    let text = |value: Value| match value {
        Value::StringValue(text) => text,
        Value::IntValue(number) => number.to_string(),
        other => format!("{other:?}"),
    };
    let pair = |pair: opentelemetry_proto::tonic::common::v1::KeyValue| Some((pair.key, text(pair.value?.value?)));
    attributes.into_iter().filter_map(pair).collect()
}
