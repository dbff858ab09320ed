use super::*;
use crate::model::{ChatMessage, Finish};
use serde_json::json;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};

/// One scripted connection: bytes, then a close; or bytes, then silence.
#[derive(Clone)]
enum Step {
    Reply(String),
    Hang(String),
    /// A server that speaks this slowly.
    Drip(Vec<String>, Duration),
}

type Seen = Arc<Mutex<Vec<String>>>;

async fn serve(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), step: Step, seen: &Seen) {
    let mut got = Vec::new();
    let mut buffer = [0u8; 4096];
    loop {
        let n = stream.read(&mut buffer).await.unwrap();
        got.extend_from_slice(&buffer[..n]);
        let text = String::from_utf8_lossy(&got).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_lowercase();
            let length = head.split("content-length: ").nth(1).unwrap().lines().next().unwrap();
            if body.len() >= length.trim().parse::<usize>().unwrap() {
                break;
            }
        }
        assert!(n > 0, "the request ended early");
    }
    seen.lock().unwrap().push(String::from_utf8(got).unwrap());
    match step {
        Step::Reply(text) => stream.write_all(text.as_bytes()).await.unwrap(),
        Step::Drip(pieces, gap) => {
            let mut clock = tokio::time::interval(gap);
            for piece in pieces {
                clock.tick().await;
                stream.write_all(piece.as_bytes()).await.unwrap();
            }
        }
        Step::Hang(text) => {
            stream.write_all(text.as_bytes()).await.unwrap();
            let _ = stream.read(&mut buffer).await;
        }
    }
    let _ = stream.shutdown().await;
}

/// A server that plays the steps, one a connection, then closes. Gives its base URL and what it saw.
async fn server(steps: Vec<Step>) -> (String, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let seen = Seen::default();
    let record = seen.clone();
    tokio::spawn(async move {
        for step in steps {
            let (mut stream, _) = listener.accept().await.unwrap();
            serve(&mut stream, step, &record).await;
        }
    });
    (url, seen)
}

fn head(status: &str, more: &str) -> String {
    format!("HTTP/1.1 {status}\r\nconnection: close\r\n{more}\r\n")
}

fn piece(text: &str) -> String {
    format!("data: {}\n\n", json!({"choices": [{"delta": {"content": text}}]}))
}

fn good(text: &str) -> Step {
    Step::Reply(head("200 OK", "") + &piece(text) + "data: [DONE]\n\n")
}

fn refusal(status: &str, more: &str, body: &str) -> Step {
    Step::Reply(head(status, &format!("content-length: {}\r\n{more}", body.len())) + body)
}

fn quick() -> Timeouts {
    Timeouts { idle: Duration::from_millis(150), tail: Duration::from_millis(50), ..Timeouts::default() }
}

fn client(base: &str, custodian: &str, timeouts: Timeouts) -> ModelClient {
    let config = serde_json::from_value(json!({"providers": [
        {"id": "p", "baseUrl": base, "quirk": "llama.cpp", "standIn": "stand-in-1"}]}))
    .unwrap();
    ModelClient::with_timeouts(&config, custodian, timeouts).unwrap()
}

fn question() -> ModelRequest {
    ModelRequest {
        model: "m".into(),
        messages: vec![ChatMessage::User("hi".into())],
        tools: Vec::new().into(),
        thinking: None,
        max_tokens: None,
        temperature: None,
    }
}

fn never() -> watch::Receiver<bool> {
    watch::channel(false).1
}

/// Asks the scripted server with a budget; gives the result, what the server saw, and what is left of the budget.
async fn ask(steps: Vec<Step>, budget: u32) -> (Result<ModelAnswer, ModelError>, Vec<String>, u32) {
    let (url, seen) = server(steps).await;
    let mut budget = RetryBudget::new(budget);
    let client = client(&format!("{url}/v1/"), "http://127.0.0.1:9", quick());
    let result = client.ask("p", &question(), &mut budget, never()).await;
    let seen = seen.lock().unwrap().clone();
    (result, seen, budget.left())
}

#[tokio::test]
async fn a_question_over_tcp() {
    let (result, seen, _) = ask(vec![good("hello")], 0).await;
    assert_eq!(result.unwrap().text, "hello");
    let seen = seen[0].to_lowercase();
    assert!(seen.starts_with("post /v1/chat/completions "), "{seen}");
    assert!(seen.contains("authorization: bearer stand-in-1\r\n"));
}

#[tokio::test]
async fn a_question_over_the_custodians_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("custodian.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let seen = Seen::default();
    let record = seen.clone();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        serve(&mut stream, good("hello"), &record).await;
    });
    let client = client("/providers/p", &format!("unix:{}", path.display()), quick());
    let answer = client.ask("p", &question(), &mut RetryBudget::new(0), never()).await.unwrap();
    assert_eq!(answer.text, "hello");
    assert!(seen.lock().unwrap()[0].to_lowercase().starts_with("post /providers/p/chat/completions "));
}

#[tokio::test]
async fn a_path_goes_to_the_custodian_over_tcp_too() {
    let (url, seen) = server(vec![good("hello")]).await;
    let client = client("/providers/p", &url, quick());
    client.ask("p", &question(), &mut RetryBudget::new(0), never()).await.unwrap();
    assert!(seen.lock().unwrap()[0].to_lowercase().starts_with("post /providers/p/chat/completions "));
}

/// lobehub/lobehub#13817, Kilo-Org/kilocode#13983, respawn-llc/kent#230
#[tokio::test]
async fn f24_f38_retries_are_bounded_and_the_end_names_the_cause() {
    let busy = || refusal("503 Service Unavailable", "retry-after: 0\r\n", r#"{"error":{"message":"overloaded"}}"#);
    let (result, seen, left) = ask(vec![busy(), busy(), busy(), good("late")], 2).await;
    let Err(ModelError::Provider { status: Some(503), message }) = result else { panic!("{result:?}") };
    assert_eq!(message, "overloaded (asked 3 times)");
    assert_eq!((seen.len(), left), (3, 0));
    assert_eq!(seen[0], seen[1], "a retry sends the same bytes");
    let (result, _, left) = ask(vec![busy(), good("late")], 2).await;
    assert_eq!((result.unwrap().text.as_str(), left), ("late", 1));
}

#[tokio::test]
async fn a_limit_is_named_as_one() {
    let slow = |wait: &str| refusal("429 Too Many Requests", &format!("retry-after: {wait}\r\n"), "slow down");
    let (result, seen, _) = ask(vec![slow("0"), slow("0")], 1).await;
    assert_eq!(result.unwrap_err().to_string(), "provider limit: slow down (asked 2 times)");
    assert_eq!(seen.len(), 2);
    // A wish beyond the cap and a spent quota are not waited for.
    let (result, seen, left) = ask(vec![slow("4000")], 5).await;
    let text = result.unwrap_err().to_string();
    assert_eq!(text, "provider limit: slow down (asked 1 times); the provider wants 4000 s of silence");
    assert_eq!((seen.len(), left), (1, 5));
    let quota = refusal("429 Too Many Requests", "", r#"{"error":{"code":"insufficient_quota","message":"pay"}}"#);
    assert!(matches!(ask(vec![quota], 5).await, (Err(ModelError::Limit { .. }), _, 5)));
}

/// openai/codex#3229, openai/codex#3267
#[tokio::test]
async fn f07_silence_is_an_idle_end_that_is_bounded_and_says_why() {
    let silent = || Step::Hang(head("200 OK", "") + &piece("a"));
    let (result, seen, left) = ask(vec![silent(), silent(), good("late")], 9).await;
    assert_eq!(result.unwrap_err().to_string(), "provider silent: no byte came for 0.15 s (asked 2 times)");
    assert_eq!((seen.len(), left), (2, 8));
    let (result, _, _) = ask(vec![silent(), good("late")], 9).await;
    assert_eq!(result.unwrap().text, "late");
}

#[tokio::test]
async fn f07_the_idle_limit_counts_from_the_last_byte_and_a_comment_is_one() {
    let mut pieces = vec![head("200 OK", "")];
    pieces.extend(std::iter::repeat_n(": thinking\n\n".to_owned(), 8));
    pieces.push(piece("at last") + "data: [DONE]\n\n");
    // Three times the limit in all, a third of it between two bytes.
    let (result, seen, _) = ask(vec![Step::Drip(pieces, Duration::from_millis(50))], 0).await;
    assert_eq!((result.unwrap().text.as_str(), seen.len()), ("at last", 1));
}

#[tokio::test]
async fn f07_the_idle_limit_is_a_setting_of_the_provider() {
    let (url, _) = server(vec![Step::Hang(head("200 OK", "")), Step::Hang(head("200 OK", ""))]).await;
    let config = serde_json::from_value(json!({"providers": [{"id": "p", "baseUrl": url, "idleSeconds": 1}]})).unwrap();
    let client = ModelClient::new(&config, "http://127.0.0.1:9").unwrap();
    let error = client.ask("p", &question(), &mut RetryBudget::new(9), never()).await.unwrap_err();
    assert_eq!(error.to_string(), "provider silent: no byte came for 1 s (asked 2 times)");
}

#[tokio::test]
async fn a_finished_answer_does_not_wait_for_the_close() {
    let end = json!({"choices": [{"delta": {}, "finish_reason": "stop"}]});
    let open = Step::Hang(head("200 OK", "") + &piece("a") + &format!("data: {end}\n\n"));
    let (result, _, _) = ask(vec![open], 0).await;
    assert_eq!(result.unwrap().finish, Finish::Stop);
}

#[tokio::test]
async fn cut_and_broken_streams_are_asked_again() {
    let cut = Step::Reply(head("200 OK", "") + &piece("a"));
    let short = Step::Reply(head("200 OK", "content-length: 9999\r\n") + &piece("a"));
    let broken = Step::Reply(head("200 OK", "") + "data: {\"error\":{\"message\":\"boom\"}}\n\n");
    let (result, seen, _) = ask(vec![cut.clone(), short, broken.clone(), good("whole")], 3).await;
    assert_eq!((result.unwrap().text.as_str(), seen.len()), ("whole", 4));
    assert!(matches!(ask(vec![cut], 0).await.0, Err(ModelError::Transport { .. })));
    assert!(matches!(ask(vec![broken], 0).await.0, Err(ModelError::Provider { status: None, .. })));
}

/// earendil-works/pi#5930
#[tokio::test]
async fn f36_an_overflow_is_asked_once() {
    let fixture =
        concat!(env!("CARGO_MANIFEST_DIR"), "/../conformance/fixtures/llm-sse/08-error-context-overflow-stream.txt");
    let recorded = std::fs::read_to_string(fixture).unwrap();
    let (result, seen, left) = ask(vec![Step::Reply(recorded)], 9).await;
    let Err(ModelError::ContextOverflow { message }) = result else { panic!("{result:?}") };
    assert_eq!(crate::model::quirks::limit_in(&message), Some(8192));
    assert_eq!((seen.len(), left), (1, 9));
}

/// earendil-works/pi#5930, can1357/oh-my-pi#3752, earendil-works/pi#6751: every recorded or quoted refusal, through the
/// client, as an answer and inside a stream.
#[tokio::test]
async fn f36_f39_overflows_of_every_server_are_known_and_nothing_else_is() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../conformance/fixtures/llm-errors/");
    let rows = |name: &str| -> Vec<serde_json::Value> {
        serde_json::from_str(&std::fs::read_to_string(format!("{folder}{name}")).unwrap()).unwrap()
    };
    let answer = |row: &serde_json::Value| refusal(&format!("{} Refused", row["status"]), "", &row["body"].to_string());
    for row in rows("overflow.json") {
        let streamed = Step::Reply(head("200 OK", "") + &format!("data: {}\n\n", row["body"]));
        let in_stream = row["body"].get("error").is_some();
        for step in [Some(answer(&row)), in_stream.then_some(streamed)].into_iter().flatten() {
            let (result, seen, left) = ask(vec![step], 9).await;
            let Err(ModelError::ContextOverflow { message }) = result else { panic!("{row}: {result:?}") };
            assert_eq!(crate::model::quirks::limit_in(&message), row["window"].as_u64(), "{row}");
            assert_eq!((seen.len(), left), (1, 9), "asked once: {row}");
        }
    }
    for row in rows("other.json") {
        let (result, _, _) = ask(vec![answer(&row)], 0).await;
        assert!(!matches!(result, Ok(_) | Err(ModelError::ContextOverflow { .. })), "{row}: {result:?}");
    }
}

#[tokio::test]
async fn refusals_that_repeat_are_asked_once() {
    for status in ["400 Bad Request", "401 Unauthorized", "404 Not Found", "302 Found"] {
        let (result, seen, left) = ask(vec![refusal(status, "location: /elsewhere\r\n", "no")], 9).await;
        assert!(matches!(result, Err(ModelError::Provider { status: Some(_), .. })), "{status}");
        assert_eq!((seen.len(), left), (1, 9), "{status}");
    }
}

#[tokio::test]
async fn a_refused_connection_is_a_transport_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let mut budget = RetryBudget::new(1);
    let result = client(&url, "http://127.0.0.1:9", quick()).ask("p", &question(), &mut budget, never()).await;
    let Err(ModelError::Transport { message }) = result else { panic!("{result:?}") };
    assert!(message.ends_with("(asked 2 times)"), "{message}");
    assert!(!message.contains("127.0.0.1"), "{message}");
}

#[tokio::test]
async fn an_abort_keeps_what_had_arrived() {
    let (url, seen) = server(vec![Step::Hang(head("200 OK", "") + &piece("half"))]).await;
    let client = client(&url, "http://127.0.0.1:9", Timeouts::default());
    let (abort, heard) = watch::channel(false);
    let asking = tokio::spawn(async move { client.ask("p", &question(), &mut RetryBudget::new(9), heard).await });
    let deadline = Instant::now() + Duration::from_secs(10);
    while seen.lock().unwrap().is_empty() && Instant::now() < deadline {
        tokio::task::yield_now().await;
    }
    abort.send(true).unwrap();
    let Err(ModelError::Aborted { partial }) = asking.await.unwrap() else { panic!() };
    // The abort may outrun the first piece, never lose text that was decoded.
    assert!(matches!(partial.text.as_str(), "" | "half"));
    assert!(partial.tool_calls.is_empty());
}

#[tokio::test]
async fn unknown_and_wrong_providers_are_named() {
    let client = client("http://127.0.0.1:9", "http://127.0.0.1:9", quick());
    let result = client.ask("q", &question(), &mut RetryBudget::new(9), never()).await;
    assert_eq!(result.unwrap_err().to_string(), "provider error: there is no provider \"q\"; known: p");
    let new = |provider: serde_json::Value, custodian: &str| {
        let config = serde_json::from_value(json!({"providers": [provider]})).unwrap();
        ModelClient::new(&config, custodian).unwrap_err().to_string()
    };
    let ok = json!({"id": "p", "baseUrl": "/p"});
    insta::assert_snapshot!(new(ok, "ftp://x"), @r#"the Custodian's URL "ftp://x" is neither http://… nor unix:/…"#);
    let wrong = json!({"id": "p", "baseUrl": "p"});
    insta::assert_snapshot!(new(wrong, "unix:/x"), @r#"provider "p": baseUrl "p" must start with http://, https:// or /"#);
    let wrong = json!({"id": "p", "baseUrl": "/p", "quirk": "x"});
    assert!(new(wrong, "unix:/x").starts_with("provider \"p\": quirk \"x\" is not known; known: openai"));
    let wrong = json!({"id": "p", "baseUrl": "/p", "api": "x"});
    assert!(new(wrong, "unix:/x").contains("api \"x\" is not known"));
}
