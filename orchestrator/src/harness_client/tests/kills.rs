//! Reading the memory-kill list from a Harness that is slow, broken or lies (spec 9.5, 9.6).

use super::*;
use jr2_shared::memory_kills::{ANSWER_MAX_BYTES, ReadFault};

fn kill(id: &str) -> Value {
    json!({"id": id, "at": "2026-01-02T03:04:05Z", "peak": "1.9Gi", "limit": "2Gi", "told": []})
}

fn list(ids: &[&str]) -> Value {
    json!({"kills": ids.iter().map(|id| kill(id)).collect::<Vec<_>>()})
}

/// A window that a read which must give up is out of soon.
fn short() -> Timing {
    Timing { kills_window: Duration::from_millis(200), ..quick() }
}

/// A window that a read which must succeed is not out of on a loaded machine.
fn long() -> Timing {
    Timing { kills_window: Duration::from_secs(15), ..quick() }
}

async fn ids(client: &HarnessClient) -> Vec<String> {
    let reading = soon(client.memory_kills()).await.unwrap();
    reading.kills.into_iter().map(|kill| kill.id).collect()
}

#[test]
fn n_42_and_n_69_the_specifications_times() {
    let times = Timing::default();
    assert_eq!((times.kills_window, times.held_window), (Duration::from_secs(5), Duration::from_secs(30)));
}

#[tokio::test]
async fn n_42_a_harness_that_never_answers_costs_the_window_and_no_more() {
    let fake = Fake::tcp(|_, _| Reply::Never).await;
    let started = tokio::time::Instant::now();
    let read = soon(fake.client().with_timing(short()).memory_kills()).await;
    assert_eq!(read, Err(CallError::Timeout(short().kills_window)));
    assert!(started.elapsed() >= short().kills_window);
    assert_eq!(fake.seen().len(), 1);
    // One that drains for ever ends with the window too.
    let fake = Fake::tcp(|_, _| now(503, json!({"error": "draining"}))).await;
    assert!(soon(fake.client().with_timing(short()).memory_kills()).await.is_err());
    assert!(fake.seen().len() > 1);
    // One whose body never ends.
    let fake = Fake::tcp(|_, _| {
        let endless = futures_util::stream::pending::<Result<String, std::io::Error>>();
        Reply::Now(Response::new(Body::from_stream(endless)))
    })
    .await;
    assert!(soon(fake.client().with_timing(short()).memory_kills()).await.is_err());
}

#[tokio::test]
async fn n_42_a_read_that_never_left_and_a_draining_503_are_sent_again() {
    let fake =
        Fake::tcp(|n, _| if n < 2 { now(503, json!({"error": "draining"})) } else { now(200, list(&["k1"])) }).await;
    assert_eq!(ids(&fake.client().with_timing(long())).await, ["k1"]);
    assert_eq!(fake.seen().len(), 3);
    let good = HarnessEndpoint { url: fake.url.clone(), token: "t".into() };
    let gone = HarnessEndpoint { url: "http://127.0.0.1:1".into(), token: "t".into() };
    let next = Mutex::new(VecDeque::from([None, Some(gone)]));
    let dial = move || next.lock().unwrap().pop_front().unwrap_or_else(|| Some(good.clone()));
    let client = HarnessClient::new(dial, Connections::new().unwrap(), 1).with_timing(long());
    assert_eq!(ids(&client).await, ["k1"]);
}

#[tokio::test]
async fn n_42_nothing_else_is_sent_again() {
    for status in [400_u16, 401, 403, 404, 429, 500, 502, 504] {
        let fake = Fake::tcp(move |_, _| now(status, json!({"error": "no"}))).await;
        assert!(soon(fake.client().with_timing(long()).memory_kills()).await.is_err(), "{status}");
        assert_eq!(fake.seen().len(), 1, "{status}");
    }
    let dials = Arc::new(Mutex::new(0));
    let (url, peer) = raw(b"HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n{\"kills\"").await;
    let counted = dials.clone();
    let dial = move || {
        *counted.lock().unwrap() += 1;
        Some(HarnessEndpoint { url: url.clone(), token: "t".into() })
    };
    let client = HarnessClient::new(dial, Connections::new().unwrap(), 1).with_timing(long());
    assert!(soon(client.memory_kills()).await.is_err());
    assert_eq!(*dials.lock().unwrap(), 1, "a cut answer may have been a whole one: the next admission reads again");
    peer.abort();
}

#[tokio::test]
async fn n_43_what_is_no_list_could_not_tell() {
    let bodies: [&[u8]; 8] = [
        b"<!doctype html><title>502 Bad Gateway</title>",
        b"",
        b"{}",
        b"[]",
        b"{\"kills\": null}",
        b"{\"kills\": {\"0\": 1}}",
        b"{\"kills\": [",
        b"\0\0\0\0{\"kills\": []}",
    ];
    for body in bodies {
        let fake = Fake::tcp(move |_, _| Reply::Now(body.into_response())).await;
        let read = soon(fake.client().with_timing(long()).memory_kills()).await;
        assert!(matches!(read, Err(CallError::Garbage(_))), "{}: {read:?}", String::from_utf8_lossy(body));
        assert_eq!(fake.seen().len(), 1);
    }
    let fake = Fake::tcp(|_, _| now(200, list(&[]))).await;
    assert!(ids(&fake.client().with_timing(long())).await.is_empty(), "an empty list is one");
    // A failed read changes nothing: the kill is still there for the next one.
    let fake = Fake::tcp(|n, _| if n == 0 { now(500, json!({})) } else { now(200, list(&["k1"])) }).await;
    let client = fake.client().with_timing(long());
    assert!(soon(client.memory_kills()).await.is_err());
    assert_eq!(ids(&client).await, ["k1"]);
}

#[tokio::test]
async fn n_39_at_most_256_kib_of_the_answer_are_read() {
    let fake = Fake::tcp(|_, _| Reply::Now("x".repeat(300 << 10).into_response())).await;
    let read = soon(fake.client().with_timing(long()).memory_kills()).await;
    assert_eq!(read, Err(CallError::TooLarge(ANSWER_MAX_BYTES)));
    // The largest that a Harness within the bounds can say is read whole.
    let name = "n".repeat(128);
    let told: Vec<Value> = (0..32).map(|_| json!({"agent": name, "instanceId": name})).collect();
    let kills: Vec<Value> =
        (0..16).map(|n| json!({"id": format!("{n:064}"), "at": "2026-01-02T03:04:05Z", "told": told})).collect();
    let fake = Fake::tcp(move |_, _| now(200, json!({"kills": kills}))).await;
    assert_eq!(ids(&fake.client().with_timing(long())).await.len(), 16);
}

#[tokio::test]
async fn n_35_a_list_that_lies_is_a_list_with_fewer_kills() {
    let future = json!({"id": "later", "at": "9999-12-31T23:59:59Z"});
    let nul = json!({"id": "n\u{0}l", "at": "2026-01-02T03:04:05Z", "limit": "2Gi\u{0}"});
    let kills = json!([{"at": "2026-01-02T03:04:05Z"}, {"id": "x"}, {"id": "y", "at": "soon"}, 7, future, nul]);
    let fake = Fake::tcp(move |_, _| now(200, json!({"kills": kills}))).await;
    let reading = soon(fake.client().with_timing(long()).memory_kills()).await.unwrap();
    let kept: Vec<(&str, Option<&str>)> = reading.kills.iter().map(|k| (k.id.as_str(), k.limit.as_deref())).collect();
    assert_eq!(kept, [("later", None), ("n\u{0}l", None)]);
    assert_eq!(reading.faults.len(), 5, "{:?}", reading.faults);
    assert!(reading.faults.iter().any(|fault| matches!(fault, ReadFault::Size(_))));
}

#[tokio::test]
async fn n_69_held_is_asked_until_the_window_ends_and_then_taken_as_held() {
    let fake = Fake::tcp(|_, _| now(503, json!({"error": "draining"}))).await;
    assert!(soon(fake.client().with_timing(hasty()).held("coder", &iid())).await);
    assert!(fake.seen().len() > 1);
}
