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
