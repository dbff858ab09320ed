//! What the Instance Harness hears of who lives (spec S-18).

use super::*;
use jr2_shared::harness::LiveSet;

const CLERK: &str = "
workflow: clerks
agents: { clerk: { model: p/m, instructions: Write., workspace: none } }
events: { finish: { from: agent }, go: { from: external } }
initial: work
states:
  work: { agent: clerk, prompt: Write., on: { finish: end, agent.fault: rest } }
  rest: { gate: {}, on: { go: end } }
  end: { final: true }
";

/// Sets as they came.
type Heard = Arc<Mutex<Vec<LiveSet>>>;

/// An Instance Harness that seats nothing and hears every set.
async fn listens(heard: Heard) -> HarnessEndpoint {
    let put = move |axum::Json(set): axum::Json<LiveSet>| {
        shared::lock(&heard).push(set);
        async { axum::Json(json!({ "freed": 0 })) }
    };
    let router = axum::Router::new()
        .route("/agents", axum::routing::put(put))
        .fallback(|| async { (axum::http::StatusCode::BAD_REQUEST, axum::Json(json!({ "error": "clerk: no" }))) });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    HarnessEndpoint { url, token: "t".into() }
}

#[tokio::test]
async fn s_18_the_set_names_live_menu_only_conversations_and_is_empty_when_none_lives() {
    let program = program(&[("clerks", CLERK)]);
    let (provider, heard) = (Arc::new(Nowhere::default()), Heard::default());
    let store: Arc<MemoryStore> = Arc::default();
    let host = open_beside(store.clone(), &program, provider.clone()).await;
    host.say_live_set().await;
    assert!(shared::lock(&heard).is_empty(), "nobody is started only to hear that nobody lives");
    *shared::lock(&provider.1) = Some(listens(heard.clone()).await);
    let run = host.start("clerks", json!({}), None).await.unwrap();
    until(&host, &run, |status| !status.gates.is_empty()).await;
    shared::lock(&heard).clear();
    host.say_live_set().await;
    let set = shared::lock(&heard).pop().expect("a set came");
    assert!(set.live.iter().all(|one| one.agent == "clerk" && one.instance_id.starts_with(run.as_str())), "{set:?}");
    host.send_event(&run, json!({ "type": "CANCEL" }), None).await.unwrap();
    until(&host, &run, |status| status.ended.is_some()).await;
    host.say_live_set().await;
    assert_eq!(shared::lock(&heard).pop(), Some(LiveSet::default()), "the last ones go too");
}
