//! The Custodian's socket: who may speak, and what leaves for a provider.

use crate::rig::{Call, DEADLINE, Rig, client, through_harness};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::any;
use jr2_orchestrator::workspace::{ProviderBinding, ProviderKey, SandboxEvent, SandboxProvider};
use std::sync::{Arc, Mutex};
use tokio::sync::{Notify, mpsc};

/// A provider that says its second word only when it is told to.
#[derive(Clone, Default)]
struct Upstream {
    go_on: Arc<Notify>,
    seen: Arc<Mutex<Vec<(String, String, String)>>>,
}

async fn chat(State(upstream): State<Upstream>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let authorization = parts.headers.get("authorization").map(|v| v.to_str().unwrap().to_owned()).unwrap_or_default();
    let entry = (parts.uri.to_string(), authorization, String::from_utf8_lossy(&body).into_owned());
    upstream.seen.lock().unwrap().push(entry);
    let (send, mut chunks) = mpsc::channel::<Result<Bytes, std::io::Error>>(2);
    tokio::spawn(async move {
        send.send(Ok("data: one\n\n".into())).await.unwrap();
        upstream.go_on.notified().await;
        send.send(Ok("data: two\n\n".into())).await.unwrap();
    });
    let stream = futures_util::stream::poll_fn(move |cx| chunks.poll_recv(cx));
    Response::builder().header("content-type", "text/event-stream").body(Body::from_stream(stream)).unwrap()
}

fn provider(id: &str, base: &str, key: ProviderKey) -> ProviderBinding {
    ProviderBinding { provider: serde_json::from_value(serde_json::json!({"id": id, "baseUrl": base})).unwrap(), key }
}

fn call(method: &str, path: &str, bearer: &str) -> Call {
    Call { method: method.into(), path: path.into(), bearer: bearer.into(), body: String::new() }
}

#[tokio::test]
async fn only_the_harness_with_its_token_has_a_voice() {
    let rig = Rig::new();
    let sandboxes = rig.provider();
    sandboxes.provision(&rig.spec("ws-a")).await.unwrap();
    sandboxes.provision(&rig.spec("ws-b")).await.unwrap();
    let surface = "/agents/r%2Froot%2Fcoder/surface";
    let good = through_harness(&sandboxes, "ws-a", &call("GET", surface, "sandbox")).await;
    assert_eq!((good.status().as_u16(), good.text().await.unwrap().as_str()), (200, "ws-a"));
    let other = rig.record("ws-b")["sandboxToken"].as_str().unwrap().to_owned();
    for bearer in ["wrong", "", other.as_str()] {
        let refused = through_harness(&sandboxes, "ws-a", &call("GET", surface, bearer)).await;
        assert_eq!(refused.status(), 403, "{bearer}");
    }
    assert_eq!(through_harness(&sandboxes, "ws-a", &call("GET", "/runs", "sandbox")).await.status(), 404);
    assert_eq!(through_harness(&sandboxes, "ws-a", &call("GET", "/runs", "wrong")).await.status(), 403);
    // A process of the Agent that read the token is still not the Harness.
    let token = rig.record("ws-a")["sandboxToken"].as_str().unwrap().to_owned();
    let socket = sandboxes.endpoint("ws-a").unwrap().url.replace("harness.sock", "custodian.sock");
    let stolen = client(&socket).get(format!("http://c{surface}")).bearer_auth(token).send().await.unwrap();
    assert_eq!(stolen.status(), 403);
    assert!(stolen.text().await.unwrap().contains("only this Sandbox's Harness"));
}

#[tokio::test]
async fn a_stream_flows_chunk_by_chunk_with_the_key_in_place_of_the_stand_in() {
    let upstream = Upstream::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/v1", listener.local_addr().unwrap());
    let app = Router::new().fallback(any(chat)).with_state(upstream.clone());
    tokio::spawn(async move { axum::serve(listener, app).await });
    let mut rig = Rig::new();
    // A variable every test has: its value stands for a key.
    rig.providers = vec![
        provider("real", &base, ProviderKey::Env("CARGO_PKG_NAME".into())),
        provider("unset", &base, ProviderKey::Env("JR2_TEST_NEVER_SET".into())),
        provider("open", &base, ProviderKey::None),
        provider("dead", "http://127.0.0.1:1/v1", ProviderKey::None),
    ];
    let sandboxes = rig.provider();
    sandboxes.provision(&rig.spec("ws-a")).await.unwrap();
    let mut ask = call("POST", "/providers/real/chat/completions?x=1", "jr2-held-CARGO_PKG_NAME");
    ask.body = "{\"stream\":true}".into();
    let mut answer = through_harness(&sandboxes, "ws-a", &ask).await;
    assert_eq!(answer.status(), 200);
    let first = tokio::time::timeout(DEADLINE, answer.chunk()).await.expect("the first chunk waits for the second");
    assert_eq!(first.unwrap().unwrap(), "data: one\n\n");
    upstream.go_on.notify_one();
    assert_eq!(answer.chunk().await.unwrap().unwrap(), "data: two\n\n");
    assert!(answer.chunk().await.unwrap().is_none());
    let seen = upstream.seen.lock().unwrap().clone();
    let key = format!("Bearer {}", std::env::var("CARGO_PKG_NAME").unwrap());
    assert_eq!(seen, [("/v1/chat/completions?x=1".to_owned(), key, "{\"stream\":true}".to_owned())]);

    let refused = through_harness(&sandboxes, "ws-a", &call("POST", "/providers/real/x", "sandbox")).await;
    assert_eq!(refused.status(), 403, "nothing leaves without a swap");
    let refused =
        through_harness(&sandboxes, "ws-a", &call("POST", "/providers/unset/x", "jr2-held-JR2_TEST_NEVER_SET")).await;
    assert_eq!(refused.status(), 403);
    assert!(refused.text().await.unwrap().contains("JR2_TEST_NEVER_SET"));
    let refused = through_harness(&sandboxes, "ws-a", &call("GET", "/providers/open/a%2e%2e/b", "x")).await;
    assert_eq!(refused.status(), 400);
    assert_eq!(through_harness(&sandboxes, "ws-a", &call("GET", "/providers/none/x", "x")).await.status(), 404);
    let dead = through_harness(&sandboxes, "ws-a", &call("POST", "/providers/dead/x", "x")).await;
    assert_eq!(dead.status(), 502);
    assert_eq!(dead.headers()["x-jr2-custodian"], "unreachable");
    assert_eq!(upstream.seen.lock().unwrap().len(), 1, "no refused request reached the provider");
    upstream.go_on.notify_one();
    let open = through_harness(&sandboxes, "ws-a", &call("GET", "/providers/open/models", "sandbox")).await;
    assert_eq!(open.status(), 200);
    assert_eq!(upstream.seen.lock().unwrap()[1].1, "", "the Sandbox token never leaves");
}

#[tokio::test]
async fn a_model_that_does_not_answer_is_said_once_and_so_is_its_return() {
    let answers = Arc::new(std::sync::atomic::AtomicU16::new(503));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}/v1", listener.local_addr().unwrap());
    let told = answers.clone();
    let app = Router::new().fallback(any(move || async move {
        axum::http::StatusCode::from_u16(told.load(std::sync::atomic::Ordering::Acquire)).unwrap()
    }));
    tokio::spawn(async move { axum::serve(listener, app).await });
    let mut rig = Rig::new();
    rig.providers =
        vec![provider("busy", &base, ProviderKey::None), provider("dead", "http://127.0.0.1:1/v1", ProviderKey::None)];
    let sandboxes = rig.provider();
    sandboxes.provision(&rig.spec("ws-a")).await.unwrap();
    let ask = async |id: &str| {
        through_harness(&sandboxes, "ws-a", &call("POST", &format!("/providers/{id}/chat"), "x")).await.status()
    };
    for _ in 0..3 {
        assert_eq!(ask("busy").await, 503);
    }
    answers.store(200, std::sync::atomic::Ordering::Release);
    for _ in 0..2 {
        assert_eq!(ask("busy").await, 200);
    }
    ask("dead").await;
    let mut said = Vec::new();
    for _ in 0..3 {
        let SandboxEvent::Model { name, provider, cause } = rig.event().await else { panic!("no word on a model") };
        assert_eq!(name, "ws-a");
        said.push((provider, cause));
    }
    let cause = |text: &str| Some(text.to_owned());
    let expected = [("busy", cause("HTTP 503")), ("busy", None), ("dead", cause("it cannot be reached"))];
    assert_eq!(said, expected.map(|(id, cause)| (id.to_owned(), cause)));
    assert!(rig.events.try_recv().is_err());
}
