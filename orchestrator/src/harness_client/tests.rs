//! The client against small fakes over real sockets: slow peers, cut connections, wrong answers.

mod kills;

use super::*;
use crate::turn::Watch;
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use jr2_shared::harness::{
    AdmitAnswer, AdmitRequest, AgentDefinition, HEADER_NEXT_OFFSET, HEADER_OWNER_EPOCH, LiveSet, Outcome,
};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinHandle;

/// What a fake was asked.
#[derive(Clone, Debug)]
struct Seen {
    method: String,
    target: String,
    headers: HeaderMap,
    body: Vec<u8>,
}

type Script = Box<dyn Fn(usize, &Seen) -> Reply + Send + Sync>;

enum Reply {
    Now(Response),
    Never,
}

/// A Harness that answers by script; the n-th request gets `script(n)`.
struct Fake {
    url: String,
    seen: Arc<Mutex<Vec<Seen>>>,
    task: JoinHandle<()>,
    _dir: Option<tempfile::TempDir>,
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Fake {
    fn router(script: Script) -> (Router, Arc<Mutex<Vec<Seen>>>) {
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let log = seen.clone();
        let script = Arc::new(script);
        let router = Router::new().fallback(move |request: Request| {
            let (log, script) = (log.clone(), script.clone());
            async move {
                let (parts, body) = request.into_parts();
                let body = axum::body::to_bytes(body, 8 << 20).await.unwrap().to_vec();
                let target = parts.uri.path_and_query().unwrap().to_string();
                let one = Seen { method: parts.method.to_string(), target, headers: parts.headers, body };
                let n = {
                    let mut log = log.lock().unwrap();
                    log.push(one.clone());
                    log.len() - 1
                };
                match script(n, &one) {
                    Reply::Now(response) => response,
                    Reply::Never => std::future::pending().await,
                }
            }
        });
        (router, seen)
    }

    async fn tcp(script: impl Fn(usize, &Seen) -> Reply + Send + Sync + 'static) -> Self {
        let (router, seen) = Self::router(Box::new(script));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, seen, task, _dir: None }
    }

    #[allow(clippy::unused_async)] // It reads like `tcp`.
    async fn unix(script: impl Fn(usize, &Seen) -> Reply + Send + Sync + 'static) -> Self {
        let (router, seen) = Self::router(Box::new(script));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("harness.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let url = format!("unix:{}", path.display());
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, seen, task, _dir: Some(dir) }
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    fn client(&self) -> HarnessClient {
        client_of(&self.url)
    }
}

/// Short pauses, and windows that a loaded machine does not run out of.
fn quick() -> Timing {
    Timing {
        kills_window: Duration::from_millis(500),
        backoff_first: Duration::from_millis(4),
        backoff_max: Duration::from_millis(20),
        send_window: Duration::from_secs(15),
        held_window: Duration::from_secs(15),
        attempt: Duration::from_secs(1),
        long_poll: Duration::from_secs(1),
    }
}

/// For what must give up: windows that are over soon.
fn hasty() -> Timing {
    Timing { send_window: Duration::from_millis(300), held_window: Duration::from_millis(300), ..quick() }
}

fn client_of(url: &str) -> HarnessClient {
    let endpoint = HarnessEndpoint { url: url.to_owned(), token: "secret".to_owned() };
    HarnessClient::new(move || Some(endpoint.clone()), Connections::new().unwrap(), 7).with_timing(quick())
}

/// A raw peer that does `bytes` to every connection and closes it.
async fn raw(bytes: &'static [u8]) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let task = tokio::spawn(async move {
        while let Ok((mut peer, _)) = listener.accept().await {
            let mut buffer = [0; 4096];
            let _ = peer.read(&mut buffer).await;
            let _ = peer.write_all(bytes).await;
        }
    });
    (url, task)
}

fn now(status: u16, body: Value) -> Reply {
    Reply::Now((StatusCode::from_u16(status).unwrap(), body.to_string()).into_response())
}

fn page(events: Value, next: &str) -> Reply {
    Reply::Now(([(HEADER_NEXT_OFFSET, next.to_owned())], events.to_string()).into_response())
}

fn iid() -> Iid {
    Iid("r/root/coder/0a".into())
}

fn admission() -> AdmitRequest {
    AdmitRequest {
        message: "do it".into(),
        cwd: None,
        definition: AgentDefinition {
            model: "p/m".into(),
            instructions: String::new(),
            workspace: jr2_shared::harness::Access::Write,
            thinking_level: None,
            max_tokens: None,
            temperature: None,
        },
        model: None,
        thinking_level: None,
        notices: Vec::new(),
        receipt: None,
        kept: false,
        admission_id: Some("r/root/coder/0a#1".into()),
    }
}

fn answer() -> AdmitAnswer {
    AdmitAnswer {
        stream_url: "http://elsewhere:1/agents/coder/r%2Froot%2Fcoder%2F0a".into(),
        offset: "0:0".into(),
        submission_id: "s-1-abcdef".into(),
        carried: None,
    }
}

fn watch() -> Watch {
    let AdmitAnswer { stream_url, offset, submission_id, .. } = answer();
    Watch { iid: iid(), stream_url, offset, submission_id }
}

fn settled(id: &str) -> Value {
    json!({"type": "submission-settled", "conversationId": "r/root/coder/0a", "position": {"batch": 2, "index": 0},
           "submissionId": id, "outcome": "completed", "text": "fine"})
}

/// Every wait of these tests ends by a deadline, not by patience.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), what).await.expect("it ends in time")
}

#[tokio::test]
async fn an_admission_says_who_it_is_over_tcp_and_unix() {
    let ok = |_: usize, _: &Seen| now(200, serde_json::to_value(answer()).unwrap());
    for fake in [Fake::tcp(ok).await, Fake::unix(ok).await] {
        let outcome = soon(fake.client().admit("coder", &iid(), &admission())).await;
        assert_eq!(outcome, AdmitOutcome::Admitted(answer()));
        let seen = fake.seen();
        assert_eq!(seen.len(), 1);
        assert_eq!((seen[0].method.as_str(), seen[0].target.as_str()), ("POST", "/agents/coder/r%2Froot%2Fcoder%2F0a"));
        assert_eq!(seen[0].headers["authorization"], "Bearer secret");
        assert_eq!(seen[0].headers[HEADER_OWNER_EPOCH], "7");
        let body: AdmitRequest = serde_json::from_slice(&seen[0].body).unwrap();
        assert_eq!(body, admission());
    }
}

#[tokio::test]
async fn d_31_a_draining_503_garbage_and_silence_send_the_same_admission_again() {
    let fake = Fake::tcp(|n, _| match n {
        0 => now(503, json!({"error": "draining"})),
        1 => Reply::Now("no json".into_response()),
        2 => Reply::Never,
        _ => now(200, serde_json::to_value(answer()).unwrap()),
    })
    .await;
    let outcome = soon(fake.client().admit("coder", &iid(), &admission())).await;
    assert_eq!(outcome, AdmitOutcome::Admitted(answer()));
    let seen = fake.seen();
    assert_eq!(seen.len(), 4);
    assert!(seen.iter().all(|one| one.body == seen[0].body), "the same bytes, so the same admission id");
}

#[tokio::test]
async fn p_18_answers_are_not_sent_again() {
    for status in [400_u16, 401, 403, 404, 405, 409, 413, 429, 500, 502] {
        let fake = Fake::tcp(move |_, _| now(status, json!({"error": "coder: no"}))).await;
        let outcome = soon(fake.client().admit("coder", &iid(), &admission())).await;
        assert_eq!(outcome, AdmitOutcome::Refused { status, error: "coder: no".into(), kept: None });
        assert_eq!(fake.seen().len(), 1);
    }
}

#[tokio::test]
async fn n_72_only_kept_false_is_the_refusal() {
    for (body, kept) in [(json!({"kept": false}), Some(false)), (json!({"error": "x", "kept": false}), Some(false))] {
        let fake = Fake::tcp(move |_, _| now(404, body.clone())).await;
        match soon(fake.client().admit("coder", &iid(), &admission())).await {
            AdmitOutcome::Refused { status: 404, kept: got, .. } => assert_eq!(got, kept),
            other => panic!("{other:?}"),
        }
    }
    let fake = Fake::tcp(|_, _| now(404, json!({}))).await;
    let outcome = soon(fake.client().admit("coder", &iid(), &admission())).await;
    assert!(matches!(outcome, AdmitOutcome::Refused { status: 404, kept: None, .. }));
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_is_not_followed() {
    let target = Fake::tcp(|_, _| now(200, serde_json::to_value(answer()).unwrap())).await;
    let to = target.url.clone();
    let fake = Fake::tcp(move |_, _| {
        Reply::Now((StatusCode::TEMPORARY_REDIRECT, [("location", format!("{to}/x"))]).into_response())
    })
    .await;
    let outcome = soon(fake.client().admit("coder", &iid(), &admission())).await;
    assert!(matches!(outcome, AdmitOutcome::Refused { status: 307, .. }), "{outcome:?}");
    assert!(target.seen().is_empty(), "the bearer went nowhere else");
}

#[tokio::test]
async fn an_admission_gives_up_after_its_window() {
    let (url, peer) = raw(b"").await;
    let outcome = soon(client_of(&url).with_timing(hasty()).admit("coder", &iid(), &admission())).await;
    assert!(matches!(&outcome, AdmitOutcome::Unreachable { detail } if detail.starts_with("transport")), "{outcome:?}");
    peer.abort();

    let fake = Fake::tcp(|_, _| now(503, json!({"error": "draining"}))).await;
    let outcome = soon(fake.client().with_timing(hasty()).admit("coder", &iid(), &admission())).await;
    assert_eq!(outcome, AdmitOutcome::Refused { status: 503, error: "draining".into(), kept: None });

    for (url, detail) in
        [("unix:/nowhere/at/all.sock", "connect"), ("ftp://x", "`ftp://x` is no"), ("unix:relative", "`unix:relative`")]
    {
        match soon(client_of(url).with_timing(hasty()).admit("coder", &iid(), &admission())).await {
            AdmitOutcome::Unreachable { detail: got } => assert!(got.starts_with(detail), "{got}"),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_huge_answer_is_cut_off_and_a_huge_admission_never_leaves() {
    let fake = Fake::tcp(|_, _| Reply::Now(vec![b'x'; 1 << 20].into_response())).await;
    let outcome = soon(fake.client().with_timing(hasty()).admit("coder", &iid(), &admission())).await;
    assert!(matches!(&outcome, AdmitOutcome::Unreachable { detail } if detail.contains("longer than")), "{outcome:?}");

    let fake = Fake::tcp(|_, _| now(200, serde_json::to_value(answer()).unwrap())).await;
    let huge = AdmitRequest { message: "x".repeat(5 << 20), ..admission() };
    let outcome = soon(fake.client().with_timing(hasty()).admit("coder", &iid(), &huge)).await;
    assert!(matches!(outcome, AdmitOutcome::Refused { status: 413, .. }));
    assert!(fake.seen().is_empty());

    let fake = Fake::tcp(|_, _| Reply::Now((StatusCode::BAD_REQUEST, "é".repeat(20_000)).into_response())).await;
    match soon(fake.client().with_timing(hasty()).admit("coder", &iid(), &admission())).await {
        AdmitOutcome::Refused { status: 400, error, .. } => assert!(error.len() <= 2 << 10),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_endpoint_is_asked_before_every_attempt() {
    let fake = Fake::tcp(|_, _| now(200, serde_json::to_value(answer()).unwrap())).await;
    let good = HarnessEndpoint { url: fake.url.clone(), token: "new".into() };
    let gone = HarnessEndpoint { url: "http://127.0.0.1:1".into(), token: "old".into() };
    let next = Mutex::new(VecDeque::from([None, Some(gone)]));
    let dial = move || next.lock().unwrap().pop_front().unwrap_or_else(|| Some(good.clone()));
    let client = HarnessClient::new(dial, Connections::new().unwrap(), 1).with_timing(quick());
    assert_eq!(soon(client.admit("coder", &iid(), &admission())).await, AdmitOutcome::Admitted(answer()));
    assert_eq!(fake.seen()[0].headers["authorization"], "Bearer new");
}

#[tokio::test]
async fn p_20_a_wait_goes_on_through_every_trouble_at_the_same_offset() {
    let fake = Fake::unix(|n, _| match n {
        0 => page(json!([{"type": "later-kind", "x": 1}, 5, settled("s-0-other")]), "1:0"),
        1 => now(500, json!({"error": "broken"})),
        2 => now(503, json!({"error": "draining"})),
        3 => Reply::Now("garbage".into_response()),
        4 => Reply::Now((StatusCode::FOUND, [("location", "/elsewhere")]).into_response()),
        5 => Reply::Never,
        6 => Reply::Now((StatusCode::NO_CONTENT, [(HEADER_NEXT_OFFSET, "1:0")]).into_response()),
        7 => {
            let broken = Body::from_stream(futures_util::stream::iter([
                Ok::<_, std::io::Error>("[{\"type\":".to_owned()),
                Err(std::io::Error::other("cut")),
            ]));
            Reply::Now(Response::new(broken))
        }
        _ => page(json!([settled("s-1-abcdef")]), "2:1"),
    })
    .await;
    let observed = Mutex::new(0);
    let end = soon(fake.client().wait_settlement("coder", &watch(), &|_| *observed.lock().unwrap() += 1)).await;
    match end {
        WaitEnd::Settled(settlement) => {
            assert_eq!(settlement.outcome, Outcome::Completed);
            assert_eq!(settlement.text.as_deref(), Some("fine"));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(*observed.lock().unwrap(), 4, "every event, also one of a later kind: the reader of kills judges");
    let targets: Vec<String> = fake.seen().into_iter().map(|one| one.target).collect();
    assert_eq!(targets[0], "/agents/coder/r%2Froot%2Fcoder%2F0a?offset=0%3A0&view=updates&live=long-poll");
    assert!(targets[1..].iter().all(|target| target.contains("offset=1%3A0")), "{targets:?}");
    assert_eq!(targets.len(), 9);
}

#[tokio::test]
async fn a_wait_ends_on_404_401_and_403() {
    for (status, expected) in [
        (404, WaitEnd::ConversationLost),
        (401, WaitEnd::Denied { status: 401 }),
        (403, WaitEnd::Denied { status: 403 }),
    ] {
        let fake = Fake::tcp(move |_, _| now(status, json!({"error": "x"}))).await;
        assert_eq!(soon(fake.client().wait_settlement("coder", &watch(), &|_| {})).await, expected);
        assert_eq!(fake.seen().len(), 1);
    }
}

#[tokio::test]
async fn a_wait_survives_cut_connections() {
    let (url, peer) = raw(b"HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n[{\"type\"").await;
    let fake = Fake::tcp(|_, _| page(json!([settled("s-1-abcdef")]), "2:1")).await;
    let tries = Arc::new(Mutex::new(0));
    let (counted, good) = (tries.clone(), fake.url.clone());
    let dial = move || {
        let mut tries = counted.lock().unwrap();
        *tries += 1;
        let url = if *tries < 5 { url.clone() } else { good.clone() };
        Some(HarnessEndpoint { url, token: "t".into() })
    };
    let client = HarnessClient::new(dial, Connections::new().unwrap(), 1).with_timing(quick());
    assert!(matches!(soon(client.wait_settlement("coder", &watch(), &|_| {})).await, WaitEnd::Settled(_)));
    assert_eq!(*tries.lock().unwrap(), 5);
    peer.abort();
}

#[tokio::test]
async fn a_peer_that_answers_nothing_at_once_is_not_asked_in_a_tight_loop() {
    let fake = Fake::tcp(|n, _| page(json!([]), &format!("{n}:0"))).await;
    let client = fake.client().with_timing(Timing {
        backoff_first: Duration::from_millis(40),
        backoff_max: Duration::from_millis(80),
        ..quick()
    });
    let watch = watch();
    let waiting = client.wait_settlement("coder", &watch, &|_| {});
    assert!(tokio::time::timeout(Duration::from_millis(400), waiting).await.is_err());
    assert!(fake.seen().len() <= 20, "{}", fake.seen().len());
}

#[tokio::test]
async fn p_39_only_a_404_means_not_held() {
    for (status, held) in [(200, true), (401, true), (404, false), (500, true)] {
        let fake = Fake::tcp(move |_, _| now(status, json!({}))).await;
        assert_eq!(soon(fake.client().held("coder", &iid())).await, held, "{status}");
        assert_eq!(fake.seen().len(), 1);
        assert_eq!(fake.seen()[0].target, "/agents/coder/r%2Froot%2Fcoder%2F0a?view=history");
    }
    let long = Fake::tcp(|_, _| Reply::Now(vec![b'x'; 1 << 20].into_response())).await;
    assert!(soon(long.client().held("coder", &iid())).await);
}

#[tokio::test]
async fn p_40_held_is_asked_again_while_it_drains_and_then_taken_as_held() {
    let fake = Fake::tcp(|n, _| if n < 3 { now(503, json!({})) } else { now(404, json!({})) }).await;
    assert!(!soon(fake.client().held("coder", &iid())).await);
    assert_eq!(fake.seen().len(), 4);
    assert!(soon(client_of("unix:/nowhere/at/all.sock").with_timing(hasty()).held("coder", &iid())).await);
}

#[tokio::test]
async fn d_33_an_abort_is_asked_until_it_is_answered() {
    let fake = Fake::tcp(|n, _| match n {
        0 => now(503, json!({"error": "draining"})),
        1 => now(500, json!({"error": "broken"})),
        2 => Reply::Never,
        3 => Reply::Now("garbage".into_response()),
        _ => now(200, json!({"aborted": true})),
    })
    .await;
    let end = soon(fake.client().abort("coder", &iid(), "r/root/coder/0a#2")).await;
    assert_eq!(end, AbortEnd::Answered { aborted: true, unprompted: Vec::new() });
    let seen = fake.seen();
    assert_eq!(seen.len(), 5);
    assert_eq!(seen[4].target, "/agents/coder/r%2Froot%2Fcoder%2F0a/abort");
    assert_eq!(serde_json::from_slice::<Value>(&seen[4].body).unwrap(), json!({"upTo": "r/root/coder/0a#2"}));
    for (status, expected) in [
        (404, AbortEnd::Answered { aborted: false, unprompted: Vec::new() }),
        (401, AbortEnd::Refused { status: 401, error: "no".into() }),
    ] {
        let fake = Fake::tcp(move |_, _| now(status, json!({"error": "no"}))).await;
        assert_eq!(soon(fake.client().abort("coder", &iid(), "x#1")).await, expected);
    }
}

#[tokio::test]
async fn the_short_calls_read_their_answers() {
    let fake = Fake::unix(|_, seen| match (seen.method.as_str(), seen.target.as_str()) {
        ("PUT", "/agents") => now(200, json!({"freed": 3})),
        ("GET", "/healthz") => Reply::Now(StatusCode::NO_CONTENT.into_response()),
        ("POST", "/echo") => now(200, json!({"printed": 2})),
        ("GET", "/isolation") => now(200, json!({"landlock": 7, "systemCalls": true})),
        _ => now(404, json!({"error": "unknown"})),
    })
    .await;
    let client = fake.client();
    assert_eq!(client.put_live_set(&LiveSet::default()).await.unwrap().freed, 3);
    client.healthz().await.unwrap();
    let isolation = client.isolation().await.unwrap();
    assert_eq!((isolation.landlock, isolation.system_calls, isolation.root), (7, true, false));
    assert_eq!(client.echo(&[json!({}), json!({})]).await.unwrap(), 2);

    let (url, peer) = raw(b"this is not http\r\n\r\n").await;
    assert!(matches!(client_of(&url).healthz().await, Err(CallError::Transport(_))));
    peer.abort();
    let down = Fake::tcp(|_, _| now(500, json!({"error": "ill"}))).await;
    assert_eq!(down.client().healthz().await, Err(CallError::Status { status: 500, error: "ill".into() }));
    assert!(matches!(down.client().echo(&[]).await, Err(CallError::Status { status: 500, .. })));
    let nowhere = HarnessClient::new(|| None, Connections::new().unwrap(), 1);
    assert_eq!(nowhere.healthz().await, Err(CallError::NotUp));
}
