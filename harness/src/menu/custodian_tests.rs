use super::*;
use axum::Router;
use axum::routing::get;
use std::path::Path;

fn quick() -> Ladder {
    let ms = Duration::from_millis;
    Ladder { window: ms(60), attempt: ms(2_000), first: ms(2), ceiling: ms(5) }
}

fn client(socket: &Path) -> Custodian {
    Custodian::new(&format!("unix:{}", socket.display()), Some("t".into()), quick()).unwrap()
}

fn never() -> watch::Receiver<bool> {
    // A sender that is dropped never says stop.
    watch::Sender::new(false).subscribe()
}

fn serve(router: Router) -> (tempfile::TempDir, Custodian) {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("c.sock");
    let listener = tokio::net::UnixListener::bind(&socket).unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    let client = client(&socket);
    (dir, client)
}

#[tokio::test]
async fn p_12_an_orchestrator_that_never_answers_is_named_with_its_address() {
    let dir = tempfile::tempdir().unwrap();
    let read = client(&dir.path().join("nobody.sock")).surface("r/root/a", never()).await;
    let SurfaceRead::Failed(words) = read else { panic!("{read:?}") };
    assert!(
        words.starts_with("the Orchestrator never answered http://custodian/agents/r%2Froot%2Fa/surface: "),
        "{words}"
    );
    assert_eq!(client(&dir.path().join("nobody.sock")).reread("a", None).await, Reread::Unknown);
}

#[tokio::test]
async fn p_11_only_the_custodian_s_own_502_is_asked_again() {
    let reads = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let count = std::sync::Arc::clone(&reads);
    let router = Router::new().fallback(get(move |headers: axum::http::HeaderMap| async move {
        let n = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        assert_eq!(headers["authorization"], "Bearer t");
        if n == 0 {
            return (StatusCode::BAD_GATEWAY, [(HEADER_CUSTODIAN, "unreachable")], "x");
        }
        (StatusCode::BAD_GATEWAY, [("x-other", "y")], "a proxy")
    }));
    let (_dir, client) = serve(router);
    let read = client.surface("a", never()).await;
    assert_eq!(read, SurfaceRead::Failed("the surface of \"a\" could not be read: HTTP 502: a proxy".into()));
    assert_eq!(reads.load(std::sync::atomic::Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_stop_ends_the_ladder_and_the_wait() {
    let dir = tempfile::tempdir().unwrap();
    let mut client = client(&dir.path().join("nobody.sock"));
    client.ladder = Ladder::default();
    let stop = watch::Sender::new(true);
    assert_eq!(client.surface("a", stop.subscribe()).await, SurfaceRead::Stopped);
    assert_eq!(client.pick("a", "s/c", "go", &Map::new(), true, stop.subscribe()).await, PickOutcome::Stopped);
    assert_eq!(client.outstanding("a", "d", stop.subscribe()).await, PickOutcome::Stopped);
}

/// Answers an outstanding poll with these statuses and bodies in turn.
async fn polled(answers: Vec<(u16, String)>) -> (PickOutcome, usize) {
    let left = std::sync::Arc::new(std::sync::Mutex::new(std::collections::VecDeque::from(answers)));
    let waiting = std::sync::Arc::clone(&left);
    let router = Router::new().fallback(get(move |uri: axum::http::Uri| async move {
        assert_eq!(uri.path(), "/agents/r%2Froot%2Fa/events/d%201");
        let (status, body) = waiting.lock().unwrap().pop_front().expect("asked once too often");
        (StatusCode::from_u16(status).unwrap(), body)
    }));
    let (_dir, client) = serve(router);
    let outcome = client.outstanding("r/root/a", "d 1", never()).await;
    let left = left.lock().unwrap().len();
    (outcome, left)
}

#[tokio::test]
async fn decision_13_an_outstanding_answer_is_asked_for_until_it_comes_or_the_turn_is_over() {
    let answer = |more: &str| {
        (
            200,
            format!(r#"{{"delivered":true,"event":"go","moved":true,"turnComplete":false,"deliveryId":"d 1"{more}}}"#),
        )
    };
    let trouble = || {
        let texts = [
            (503, ""),
            (502, "a proxy"),
            (500, "x"),
            (504, ""),
            (429, ""),
            (408, ""),
            (200, "{"),
            (204, ""),
            (204, ""),
        ];
        let mut all: Vec<(u16, String)> = texts.into_iter().map(|(status, body)| (status, body.to_owned())).collect();
        all.push(answer(r#","outstanding":true"#));
        all
    };
    let (outcome, left) = polled([trouble(), vec![answer(r#","answered":true"#)]].concat()).await;
    assert!(matches!(&outcome, PickOutcome::Answered(answer) if answer.answered), "{outcome:?}");
    assert_eq!(left, 0);
    let (outcome, _) = polled([trouble(), vec![(404, String::new())]].concat()).await;
    assert_eq!(outcome, PickOutcome::Refused(PickRefusal::Gone), "E2");
    let (outcome, _) = polled(vec![(403, String::new())]).await;
    assert_eq!(outcome, PickOutcome::Refused(PickRefusal::Other { status: 403 }));
}

#[tokio::test]
async fn decision_13_a_connection_that_breaks_in_mid_answer_is_asked_again() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("c.sock");
    let listener = tokio::net::UnixListener::bind(&socket).unwrap();
    let served = tokio::spawn(async move {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let body = r#"{"delivered":true,"event":"go","moved":true,"turnComplete":true,"deliveryId":"d"}"#;
        for length in [body.len() + 9, body.len()] {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await.unwrap();
            let head = format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
            stream.write_all(head.as_bytes()).await.unwrap();
        }
    });
    let outcome = client(&socket).outstanding("a", "d", never()).await;
    assert!(matches!(&outcome, PickOutcome::Answered(answer) if answer.turn_complete), "{outcome:?}");
    served.await.unwrap();
}

#[tokio::test]
async fn an_answer_over_the_bound_is_a_failure_and_not_memory() {
    let router = Router::new().fallback(get(|| async { "x".repeat(ANSWER_MAX_BYTES + 1) }));
    let (_dir, client) = serve(router);
    let read = client.surface("a", never()).await;
    assert!(matches!(&read, SurfaceRead::Failed(words) if words.contains("over 4194304 bytes")), "{read:?}");
}

#[tokio::test]
async fn an_unkeyed_pick_that_never_arrived_is_sent_once() {
    let dir = tempfile::tempdir().unwrap();
    let outcome = client(&dir.path().join("nobody.sock")).pick("a", "s/c", "go", &Map::new(), false, never()).await;
    assert!(matches!(outcome, PickOutcome::Refused(PickRefusal::Transport { .. })), "{outcome:?}");
}
