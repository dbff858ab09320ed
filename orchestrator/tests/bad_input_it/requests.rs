//! Requests that cannot be taken.

use crate::server::{Folder, answer};
use crate::{ASK, SETTINGS, start};
use serde_json::{Value, json};

/// What an open feed or list must never say.
const HIDDEN: [&str; 5] = ["hidden-input", "hidden-context", "hidden-meta", "hidden-output", "instanceId"];

/// The error's sentence, with its status checked.
fn refused((status, body): (u16, Value), expected: u16) -> String {
    assert_eq!(status, expected, "{body}");
    let error = body["error"].as_str().unwrap_or_else(|| panic!("no sentence in {body}"));
    assert!(!error.is_empty() && error.len() < 2_000, "{error}");
    error.to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn starts_and_answers_that_do_not_fit_are_refused_with_the_reason() {
    let folder = Folder::new(SETTINGS, &[("ask", ASK)]);
    let _server = folder.start().await;
    let runs = "/workflows/ask/runs";
    let error = refused(folder.post("/workflows/nothing/runs", &json!({})).await.unwrap(), 404);
    assert!(error.contains("nothing"), "{error}");
    let error = refused(folder.post(runs, &json!({ "n": "many" })).await.unwrap(), 400);
    assert!(error.contains("integer"), "{error}");
    refused(folder.post(runs, &json!({ "other": 1 })).await.unwrap(), 400);
    refused(folder.post(runs, &json!([1, 2])).await.unwrap(), 400);
    let raw = |path: &str, body: String| {
        folder.client().post(format!("{}{path}", folder.url())).bearer_auth(folder.token()).body(body)
    };
    let error = refused(answer(raw(runs, "{ not json".into())).await.unwrap(), 400);
    assert!(error.contains("not JSON"), "{error}");
    refused(answer(raw(runs, "[".repeat(100_000))).await.unwrap(), 400);
    refused(answer(raw(runs, "\u{0}\u{1}".into())).await.unwrap(), 400);
    refused(answer(raw(runs, format!("{{\"text\":\"{}\"}}", "x".repeat(2 << 20)))).await.unwrap(), 413);
    refused(answer(raw("/runs", "{}".into())).await.unwrap(), 400);
    refused(answer(raw("/runs", r#"{"program":"workflow: [","input":{}}"#.into())).await.unwrap(), 400);
    let (_, list) = folder.get("/runs").await.unwrap();
    assert_eq!(list["runs"], json!([]), "a refused start leaves nothing behind");

    let run = start(&folder, "ask", &json!({})).await;
    let gate = format!("/runs/{run}/gates/review/events");
    let error = refused(folder.post(&gate, &json!({ "type": "change" })).await.unwrap(), 400);
    assert!(error.contains("notes"), "{error}");
    let error = refused(folder.post(&gate, &json!({ "type": "nonsense" })).await.unwrap(), 400);
    assert!(error.contains("approve"), "{error}");
    refused(folder.post(&gate, &json!({ "no": "type" })).await.unwrap(), 400);
    refused(folder.post(&gate, &json!(["approve"])).await.unwrap(), 400);
    refused(folder.post(&format!("/runs/{run}/gates/other/events"), &json!({ "type": "approve" })).await.unwrap(), 404);
    refused(folder.post(&format!("/runs/{run}/events"), &json!({ "type": "nonsense" })).await.unwrap(), 400);
    refused(folder.get("/agents/nobody/surface").await.unwrap(), 404);
    refused(folder.post("/agents/nobody/events", &json!({ "type": "approve" })).await.unwrap(), 404);
    refused(folder.get("/nowhere").await.unwrap(), 404);
    refused(folder.ask("DELETE", &format!("/runs/{run}"), None, None).await.unwrap(), 405);
    let status = folder.until(&run, "parked", |s| s["gates"][0]["activation"] == "review#1").await;
    assert_eq!((&status["rev"], &status["context"]["rounds"]), (&json!(1), &json!(0)), "nothing was taken");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_counts_once_with_a_key_and_a_stale_one_never() {
    let folder = Folder::new(SETTINGS, &[("ask", ASK)]);
    let mut server = folder.start().await;
    let run = start(&folder, "ask", &json!({})).await;
    let gate = format!("/runs/{run}/gates/review/events");
    let change = json!({ "type": "change", "notes": "more" });
    let (status, first) = folder.ask("POST", &gate, Some(&change), Some("k1")).await.unwrap();
    assert_eq!(status, 200, "{first}");
    let again = folder.ask("POST", &gate, Some(&change), Some("k1")).await.unwrap();
    assert_eq!(again, (200, first.clone()), "a known key gets its stored answer");
    let stale = folder.post(&format!("{gate}?activation=review%231"), &change).await.unwrap();
    assert_eq!(stale.1["activation"], "review#2", "{stale:?}");
    refused(stale, 409);
    let (status, _) = folder.post(&format!("{gate}?activation=review%232"), &change).await.unwrap();
    assert_eq!(status, 200);
    for bad in [String::new(), "k".repeat(257), "\u{fc}".into()] {
        let request = folder.client().post(format!("{}{gate}", folder.url())).bearer_auth(folder.token());
        let request =
            request.header("idempotency-key", reqwest::header::HeaderValue::from_bytes(bad.as_bytes()).unwrap());
        refused(answer(request.json(&change)).await.unwrap(), 400);
    }
    server.kill();
    let _server = folder.start().await;
    let again = folder.ask("POST", &gate, Some(&change), Some("k1")).await.unwrap();
    assert_eq!(again, (200, first.clone()), "and over a restart");
    let status = folder.until(&run, "parked", |s| s["gates"][0]["activation"] == "review#3").await;
    assert_eq!(status["context"]["rounds"], 2);

    let (status, _) = folder.ask("POST", &gate, Some(&json!({ "type": "approve" })), Some("k2")).await.unwrap();
    assert_eq!(status, 200);
    refused(folder.post(&gate, &json!({ "type": "approve" })).await.unwrap(), 409);
    let (status, _) = folder.ask("POST", &gate, Some(&json!({ "type": "approve" })), Some("k2")).await.unwrap();
    assert_eq!(status, 200, "an ended run knows its keys");
    refused(folder.post(&format!("/runs/{run}/events"), &json!({ "type": "CANCEL" })).await.unwrap(), 409);

    let (_, one) = folder.ask("POST", "/workflows/ask/runs", Some(&json!({})), Some("start")).await.unwrap();
    let (_, two) = folder.ask("POST", "/workflows/ask/runs", Some(&json!({})), Some("start")).await.unwrap();
    assert_eq!(one["runId"], two["runId"], "a start key makes one run");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prompt_over_the_bound_faults_its_run_and_no_other() {
    const JUDGE: &str = r#"
workflow: judge
input: { type: object, required: [text], properties: { text: { type: string } } }
agents: { judge: { model: nobody/judge, instructions: Judge., workspace: none } }
events: { verdict: { from: agent } }
initial: judging
states:
  judging: { agent: judge, prompt: "{{ input.text }}{{ input.text }}", on: { verdict: done, agent.fault: done } }
  done: { final: true }
"#;
    let folder = Folder::new(SETTINGS, &[("judge", JUDGE), ("ask", ASK)]);
    let _server = folder.start().await;
    let parked = start(&folder, "ask", &json!({})).await;
    let text = |bytes: usize| json!({ "text": "x".repeat(bytes) });
    refused(folder.post("/workflows/judge/runs", &text(2 << 20)).await.unwrap(), 413);
    let run = start(&folder, "judge", &text(900 << 10)).await;
    let status = folder.until(&run, "over", |s| s["status"] != "live").await;
    let fault = status["fault"].as_str().unwrap_or_default();
    assert!(status["status"] == "error" && fault.contains("error.expression") && fault.len() < 4_096, "{status}");
    folder.until(&parked, "parked", |s| s["gates"][0]["gate"] == "review").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prefix_names_one_run_or_says_why_not() {
    let folder = Folder::new(SETTINGS, &[("ask", ASK)]);
    let mut server = folder.start().await;
    let run = start(&folder, "ask", &json!({})).await;
    server.kill();
    // A second run with the same first characters, which chance would not give.
    let twin = format!("{}{}", &run[..8], "a".repeat(18));
    let command = |arguments: &[&str]| {
        let output = folder.command(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    let (out, back) = (folder.dir.join("out.jsonl"), folder.dir.join("back.jsonl"));
    command(&["store", "export", out.to_str().unwrap()]);
    let mut lines: Vec<Value> =
        std::fs::read_to_string(&out).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let row = lines.iter().find(|line| line["kind"] == "row").unwrap().to_string().replace(&run, &twin);
    let end = lines.len() - 1;
    lines[end]["rows"] = json!(2);
    lines.insert(1, serde_json::from_str(&row).unwrap());
    std::fs::write(&back, lines.iter().map(Value::to_string).collect::<Vec<_>>().join("\n") + "\n").unwrap();
    std::fs::rename(folder.state().join("store"), folder.dir.join("old-store")).unwrap();
    command(&["store", "import", back.to_str().unwrap()]);

    let _server = folder.start().await;
    let ambiguous = folder.get(&format!("/runs/{}", &run[..6])).await.unwrap();
    let mut hits: Vec<String> = serde_json::from_value(ambiguous.1["runs"].clone()).unwrap();
    hits.sort();
    let mut both = [run.clone(), twin.clone()];
    both.sort();
    assert_eq!(hits, both);
    refused(ambiguous, 400);
    refused(folder.get("/runs/0000").await.unwrap(), 404);
    refused(folder.get(&format!("/runs/{}", &run[..3])).await.unwrap(), 400);
    refused(folder.get("/runs/resolve?prefix=ab").await.unwrap(), 400);
    refused(folder.get(&format!("/runs/{}", "x".repeat(5_000))).await.unwrap(), 404);
    for one in [&run, &twin] {
        let gate = format!("/runs/{}/gates/review/events", &one[..20]);
        let (status, body) = folder.post(&gate, &json!({ "type": "approve" })).await.unwrap();
        assert_eq!(status, 200, "{body}");
        folder.until(one, "done", |s| s["status"] == "done").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_token_there_is_shape_and_nothing_else() {
    let folder = Folder::new(SETTINGS, &[("ask", ASK)]);
    let _server = folder.start().await;
    let run = start(&folder, "ask", &json!({})).await;
    let guarded = [
        ("POST", "/workflows/ask/runs".to_owned()),
        ("GET", "/runs".to_owned()),
        ("POST", "/runs".to_owned()),
        ("GET", format!("/runs/resolve?prefix={run}")),
        ("GET", format!("/runs/{run}")),
        ("GET", format!("/runs/{run}/events")),
        ("POST", format!("/runs/{run}/events")),
        ("GET", format!("/runs/{run}/history")),
        ("GET", format!("/runs/{run}/replay")),
        ("POST", format!("/runs/{run}/adopt")),
        ("POST", format!("/runs/{run}/gates/review/events")),
        ("GET", format!("/agents/{run}%2Froot%2Fa/surface")),
        ("POST", format!("/agents/{run}%2Froot%2Fa/events")),
        ("GET", format!("/agents/{run}%2Froot%2Fa/events/d-1")),
    ];
    let token = folder.token();
    let wrong =
        ["Bearer x".to_owned(), format!("Bearer {token}x"), format!("bearer{token}"), token.clone(), String::new()];
    for (method, path) in &guarded {
        refused(folder.stranger(method, path).await, 401);
        for bearer in &wrong {
            let request = folder.client().request(method.parse().unwrap(), format!("{}{path}", folder.url()));
            refused(answer(request.header("authorization", bearer)).await.unwrap(), 401);
        }
    }
    for path in ["/healthz", "/readyz", "/workflows", "/workflows/ask", "/workflows/ask/machine", "/workflows/ask/runs"]
    {
        let (status, body) = folder.stranger("GET", path).await;
        assert_eq!(status, 200, "{path}: {body}");
        let said = body.to_string();
        assert!(!HIDDEN[1..].iter().any(|hidden| said.contains(hidden)), "{path}: {body}");
    }
    let (status, _) =
        folder.post(&format!("/runs/{run}/gates/review/events"), &json!({ "type": "approve" })).await.unwrap();
    assert_eq!(status, 200);
    // The feed of an ended run ends by itself.
    let (status, feed) = folder.stranger("GET", &format!("/workflows/ask/runs/{run}/events")).await;
    let said = feed.as_str().unwrap().to_owned();
    assert!(status == 200 && said.contains("event: gate") && said.contains("\"done\""), "{said}");
    assert!(!HIDDEN.iter().any(|hidden| said.contains(hidden)), "{said}");
    let (_, whole) = folder.get(&format!("/runs/{run}/events")).await.unwrap();
    assert!(whole.as_str().unwrap().contains("hidden-meta"), "the token's feed says it: {whole}");
    refused(folder.stranger("GET", &format!("/workflows/other/runs/{run}/events")).await, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_paths_and_queries_are_refused_in_json() {
    let folder = Folder::new(SETTINGS, &[("ask", ASK)]);
    let _server = folder.start().await;
    for path in ["/runs/%ff", "/runs/%ff%fe/events", "/workflows/%ff", "/agents/%ff/surface", "/runs/resolve"] {
        let error = refused(folder.get(path).await.unwrap(), 400);
        assert!(!error.contains("panicked"), "{path}: {error}");
    }
    refused(folder.get("/runs/a%2Fb%2Fc").await.unwrap(), 404);
    refused(folder.get("/runs/abcd/history?from=x").await.unwrap(), 400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_may_be_as_large_as_the_store_takes_and_a_key_is_one_request() {
    let folder = Folder::new(SETTINGS, &[("ask", ASK)]);
    let _server = folder.start().await;
    let program = format!("workflow: [\n# {}", "x".repeat(4 << 20));
    let error = refused(folder.post("/runs", &json!({ "program": program })).await.unwrap(), 400);
    assert!(error.contains("does not check"), "{error}");
    let program = "x".repeat(18 << 20);
    refused(folder.post("/runs", &json!({ "program": program })).await.unwrap(), 413);
    let start = async |n: u32| {
        let request = folder.client().post(format!("{}/workflows/ask/runs", folder.url())).bearer_auth(folder.token());
        answer(request.header("idempotency-key", "k").json(&json!({ "n": n }))).await.unwrap()
    };
    let (first, again) = (start(1).await, start(1).await);
    assert_eq!((first.0, again.0, &first.1), (201, 201, &again.1));
    let error = refused(start(2).await, 422);
    assert!(error.contains("another input"), "{error}");
}
