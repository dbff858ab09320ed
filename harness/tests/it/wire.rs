//! The routes: auth, methods, bounds, views, epochs (spec 6.1 to 6.3, decisions 4, 26, 27).

use crate::world::{Answer, BEARER, IID, World};
use serde_json::{Value, json};

#[tokio::test]
async fn h_01_nobody_unknown_can_tell_a_route_from_a_404() {
    let world = World::start().await;
    for path in [world.path(), "/nothing".into(), "/agents".into(), "/healthz/x".into()] {
        for bearer in [None, Some("wrong"), Some("")] {
            let mut request = world.http.get(format!("http://h{path}"));
            if let Some(bearer) = bearer {
                request = request.bearer_auth(bearer);
            }
            let answer = request.send().await.unwrap();
            assert_eq!(answer.status(), 401, "{path}");
            assert_eq!(answer.json::<Value>().await.unwrap(), json!({"error": "unauthorized"}));
        }
    }
    assert_eq!(world.http.get("http://h/healthz").send().await.unwrap().status(), 204);
}

#[tokio::test]
async fn h_04_unknown_paths_are_404_and_other_methods_405() {
    let world = World::start().await;
    assert_eq!(world.call("GET", "/nothing", None).await.0, 404);
    assert_eq!(world.call("GET", "/agents", None).await.0, 405);
    assert_eq!(world.call("DELETE", &world.path(), None).await.0, 405);
    assert_eq!(world.call("GET", "/echo", None).await.0, 405);
    assert_eq!(world.call("POST", "/healthz", None).await.0, 405);
    for path in ["/nothing", "/agents"] {
        let (_, body, _) = world.call("GET", path, None).await;
        assert!(body["error"].is_string(), "{body}");
    }
}

#[tokio::test]
async fn decision_4_an_older_owner_is_refused() {
    let world = World::start().await;
    let ask = |epoch: &'static str| {
        let request = world.http.get(format!("http://h{}", world.path())).bearer_auth(BEARER);
        async move { request.header("x-jr2-owner-epoch", epoch).send().await.unwrap().status().as_u16() }
    };
    assert_eq!(ask("7").await, 404);
    assert_eq!(ask("6").await, 409);
    assert_eq!(ask("7").await, 404);
    assert_eq!(ask("8").await, 404);
    assert_eq!(ask("seven").await, 400);
    assert_eq!(world.call("GET", &world.path(), None).await.0, 404, "an Orchestrator without epochs is served");
}

#[tokio::test]
async fn bounds_are_said_and_nothing_is_seated() {
    let world = World::start().await;
    let prompt = "x".repeat((1 << 20) + 1);
    let (status, error, _) = world.call("POST", &world.path(), Some(world.body(&prompt))).await;
    assert_eq!(status, 400);
    assert!(error["error"].as_str().unwrap().starts_with("coder: the prompt is 1048577 bytes"), "{error}");
    let mut huge = world.body("x");
    huge["definition"]["instructions"] = json!("x".repeat(5 << 20));
    let (status, error, _) = world.call("POST", &world.path(), Some(huge)).await;
    assert_eq!(status, 413);
    assert!(error["error"].as_str().unwrap().contains("over 4194304 bytes"), "{error}");
    let request = world.http.post(format!("http://h{}", world.path())).bearer_auth(BEARER).body("{");
    assert_eq!(request.send().await.unwrap().status(), 400);
    assert_eq!(world.call("GET", &world.path(), None).await.0, 404);
    assert!(!world.conversations().join("coder").exists());
}

#[tokio::test]
async fn h_06_and_h_07_refusals_name_the_slot() {
    let world = World::start().await;
    let mut body = world.body("x");
    body["definition"]["model"] = json!("nobody/x");
    let (status, error, _) = world.call("POST", &world.path(), Some(body)).await;
    assert_eq!((status, error["error"].as_str().unwrap().starts_with("coder: ")), (400, true));
    let instance = World::start_with(&[("JR2_MENU_ONLY", "1")]).await;
    assert_eq!(instance.call("POST", &instance.path(), Some(instance.body("x"))).await.0, 403);
    let mut body = instance.body("x");
    body["definition"]["workspace"] = json!("none");
    let settled = instance.turn(body).await;
    assert_eq!(settled["outcome"], "completed");
    instance.fake.with(|script| {
        let request = &script.model_requests[0];
        let text = request["messages"][0]["content"].as_str().unwrap();
        assert!(text.contains("You have no Working tools") && !text.contains("CPU"), "{text}");
        assert!(!request["messages"][1]["content"].as_str().unwrap().contains("Working directory"));
        assert_eq!(request["tools"].as_array().unwrap().len(), 2);
    });
}

#[tokio::test]
async fn decision_27_a_kept_admission_of_a_conversation_that_is_not_held_creates_nothing() {
    let world = World::start().await;
    let mut body = world.body("x");
    body["kept"] = json!(true);
    let (status, error, _) = world.call("POST", &world.path(), Some(body.clone())).await;
    assert_eq!((status, &error["kept"]), (404, &json!(false)));
    // N-72: only that body is the refusal; any other 404 says nothing of `kept`.
    for path in [format!("{}?view=history", world.path()), "/agents/coder".to_owned(), "/nowhere".to_owned()] {
        let (status, error, _) = world.call("GET", &path, None).await;
        assert!(status == 404 || status == 405, "{path}: {status}");
        assert!(error["error"].is_string() && error.get("kept").is_none(), "{path}: {error}");
    }
    assert_eq!(error["error"], "the conversation is not held here");
    assert!(!world.conversations().join("coder").exists(), "nothing is seated");
    world.turn(world.body("x")).await;
    assert_eq!(world.call("POST", &world.path(), Some(body)).await.0, 200);
}

#[tokio::test]
async fn the_stream_is_read_from_any_offset_and_the_poll_waits() {
    let world = World::start().await;
    world.script(vec![Answer::Text("One.")]);
    let admitted = world.admit(world.body("A")).await;
    assert_eq!(admitted["streamUrl"].as_str().unwrap(), format!("http://h/agents/coder/{}", IID.replace('/', "%2F")));
    let id = admitted["submissionId"].as_str().unwrap();
    assert!(id.starts_with("s-1-") && id.len() == 10, "{id}");
    world.settled(id).await;
    let read = |offset: String| {
        let path = format!("{}?offset={offset}&view=updates", world.path());
        let world = &world;
        async move { world.call("GET", &path, None).await }
    };
    let (status, all, headers) = read(admitted["offset"].as_str().unwrap().to_owned()).await;
    assert_eq!(status, 200);
    assert_eq!(headers["stream-up-to-date"], "true");
    let kinds: Vec<&str> = all.as_array().unwrap().iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["message-appended", "message-appended", "submission-settled"]);
    let one = &all[1];
    assert_eq!((one["conversationId"].as_str(), &one["message"]["role"]), (Some(IID), &json!("assistant")));
    assert_eq!(one["message"]["parts"], json!([{"type": "text", "text": "One.", "state": "done"}]));
    let next = headers["stream-next-offset"].to_str().unwrap().to_owned();
    let (_, none, _) = read(next.clone()).await;
    assert_eq!(none, json!([]));
    for odd in ["nonsense", "999999", ""] {
        assert_eq!(read(odd.to_owned()).await.1, all, "an offset nobody gave out reads from the start");
    }
    // A parked poll is answered by the next Turn's message.
    let poll = world.path() + &format!("?offset={next}&view=updates&live=long-poll");
    let (polled, _) = tokio::join!(world.call("GET", &poll, None), world.admit(world.body("B")));
    assert_eq!((polled.0, &polled.1[0]["message"]["role"]), (200, &json!("user")));
    assert_eq!(world.call("GET", &format!("{}?view=sideways", world.path()), None).await.0, 400);
}

#[tokio::test]
async fn put_agents_frees_what_is_not_live_and_not_busy() {
    let world = World::start().await;
    world.turn(world.body("A")).await;
    let live = json!({"live": [{"agent": "coder", "instanceId": IID}]});
    assert_eq!(world.call("PUT", "/agents", Some(live)).await.1, json!({"freed": 0}));
    world.script(vec![Answer::Hang]);
    world.admit(world.body("B")).await;
    world.fake.until("the model is asked", |script| script.model_requests.len() == 2).await;
    let nobody = json!({"live": []});
    assert_eq!(world.call("PUT", "/agents", Some(nobody.clone())).await.1, json!({"freed": 0}), "busy");
    world.call("POST", &format!("{}/abort", world.path()), None).await;
    assert_eq!(world.call("PUT", "/agents", Some(json!({"live": [{"agent": 1}]}))).await.0, 400);
    // The driver may still be putting its pen down.
    let freed = tokio::time::timeout(crate::world::DEADLINE, async {
        while world.call("PUT", "/agents", Some(nobody.clone())).await.1 != json!({"freed": 1}) {}
    });
    freed.await.unwrap();
    assert_eq!(world.call("GET", &world.path(), None).await.0, 404);
    assert_eq!(std::fs::read_dir(world.conversations().join("coder")).unwrap().count(), 0);
    assert_eq!(world.turn(world.body("C")).await["outcome"], "completed", "its place is free");
}

#[tokio::test]
async fn a_process_that_cannot_start_says_why() {
    let world = World::start().await;
    let mut command = world.command(env!("CARGO_BIN_EXE_jr2-harness"));
    let ended = command.env_remove("JR2_HARNESS_TOKEN_SHA256").status().unwrap();
    assert_eq!(ended.code(), Some(1));
    assert!(world.stderr().contains("JR2_HARNESS_TOKEN_SHA256 is not set"), "{}", world.stderr());
    // Its socket is in use by the first one, which stays.
    let ended = world.command(env!("CARGO_BIN_EXE_jr2-harness")).status().unwrap();
    assert_eq!(ended.code(), Some(1));
    assert_eq!(world.http.get("http://h/healthz").send().await.unwrap().status(), 204);
}

#[tokio::test]
async fn metrics_count_what_the_record_says_and_take_the_bearer() {
    let world = World::start().await;
    assert_eq!(world.http.get("http://h/metrics").send().await.unwrap().status(), 401);
    let call = ("c1", "bash", json!({ "command": "exit 3" }).to_string());
    world.script(vec![Answer::Calls(vec![call]), Answer::Text("Done.")]);
    world.turn(world.body("go")).await;
    let answer = world.http.get("http://h/metrics").bearer_auth(BEARER).send().await.unwrap();
    assert!(answer.headers()["content-type"].to_str().unwrap().starts_with("application/openmetrics-text"));
    let text = answer.text().await.unwrap();
    for line in [
        "jr2_harness_settlements_total{outcome=\"completed\",error=\"none\"} 1",
        "jr2_harness_calls_total{tool=\"bash\",outcome=\"failed\"} 1",
        "jr2_harness_question_seconds_count 2",
        "jr2_harness_call_seconds_count 1",
        "jr2_harness_memory_kills_total 0",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}: {text}");
    }
    assert!(text.ends_with("# EOF\n"));
}
