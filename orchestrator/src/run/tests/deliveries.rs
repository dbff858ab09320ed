//! `GET /agents/:iid/events/:deliveryId`: a long poll for the answer of a pick that asks (decision 13).

use super::*;
use crate::api::control_router;
use crate::workspace::INSTANCE_HARNESS;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use jr2_shared::ids::RunId;
use tower_service::Service;

const ASKING: &str = "
workflow: asking
agents: { lead: { model: a/b, instructions: Lead., workspace: none } }
events:
  ask: { from: lead }
  finish: { from: lead }
  approve: { from: external, payload: { type: object, properties: { note: { type: string } } } }
  drop: { from: external }
initial: working
states:
  working:
    agent: lead
    continue: true
    prompt: Work.
    initial: idle
    states:
      idle: { on: { ask: review } }
      review: { gate: {}, on: { approve: idle, drop: dropped } }
    on: { finish: done, agent.fault: dropped }
  dropped: { gate: {}, on: { approve: working } }
  done: { final: true, output: { ok: yes } }
";

/// A run whose lead has asked.
struct Asked {
    host: Host,
    run: RunId,
    iid: String,
    delivery: String,
    answer: Value,
}

async fn asked() -> Asked {
    asked_in(&Arc::new(MemoryStore::new()), &program(&[("asking", ASKING)])).await
}

async fn asked_in(store: &Arc<MemoryStore>, program: &Arc<Program>) -> Asked {
    let host = open(store.clone(), program).await;
    let run = host.start("asking", json!({}), None).await.unwrap();
    let iid = format!("{run}/root/lead");
    until(&host, &run, |s| !s.turns.is_empty()).await;
    let (status, answer) = call(&host, INSTANCE_HARNESS, post(&iid, &json!({"type": "ask", "pickId": "p1"}))).await;
    assert_eq!((status, &answer["outstanding"]), (StatusCode::OK, &json!(true)), "{answer}");
    let delivery = answer["deliveryId"].as_str().unwrap().to_owned();
    Asked { host, run, iid, delivery, answer }
}

fn path(iid: &str) -> String {
    format!("/agents/{}/events", iid.replace('/', "%2F"))
}

fn post(iid: &str, body: &Value) -> Request<Body> {
    Request::post(path(iid)).body(Body::from(body.to_string())).unwrap()
}

fn get(iid: &str, delivery: &str) -> Request<Body> {
    Request::get(format!("{}/{delivery}", path(iid))).body(Body::empty()).unwrap()
}

async fn call(host: &Host, sandbox: &str, request: Request<Body>) -> (StatusCode, Value) {
    let response = control_router(host.clone(), sandbox).call(request).await.unwrap();
    let status = response.status();
    let bytes = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

impl Asked {
    async fn read(&self) -> (StatusCode, Value) {
        call(&self.host, INSTANCE_HARNESS, get(&self.iid, &self.delivery)).await
    }

    /// A poll that the run's task holds by now.
    async fn polled(&self) -> tokio::task::JoinHandle<(StatusCode, Value)> {
        let (host, iid, delivery) = (self.host.clone(), self.iid.clone(), self.delivery.clone());
        let poll = tokio::spawn(async move { call(&host, INSTANCE_HARNESS, get(&iid, &delivery)).await });
        // The task takes messages in order: what is asked after the poll is answered after it was taken.
        for _ in 0..20 {
            self.host.status(&self.run).await.unwrap();
        }
        assert!(!poll.is_finished());
        poll
    }

    async fn gate(&self, event: &str) {
        let body = json!({"type": event, "note": "fine"});
        let taken = self.host.send_gate(&self.run, "working.review", body, None, None).await.unwrap();
        assert_eq!(taken.status, 200, "{:?}", taken.body);
    }
}

#[tokio::test]
async fn p_33_a_poll_is_answered_when_the_route_comes_back_and_reads_again() {
    let asked = asked().await;
    let poll = asked.polled().await;
    asked.gate("approve").await;
    let (status, answer) = poll.await.unwrap();
    assert_eq!((status, &answer["answered"], &answer["turnComplete"]), (StatusCode::OK, &json!(true), &json!(false)));
    assert_eq!(answer["reply"], json!({"party": "Gate review", "event": "approve", "payload": {"note": "fine"}}));
    assert_eq!(answer["deliveryId"], asked.answer["deliveryId"]);
    assert_eq!(asked.read().await, (StatusCode::OK, answer.clone()));
    let again = post(&asked.iid, &json!({"type": "ask", "pickId": "p1"}));
    assert_eq!(call(&asked.host, INSTANCE_HARNESS, again).await, (StatusCode::OK, answer));
    let unknown = call(&asked.host, INSTANCE_HARNESS, get(&asked.iid, "d-999")).await;
    assert_eq!(unknown, (StatusCode::NOT_FOUND, json!({"error": "no such delivery of this Turn"})));
    assert_eq!(asked.host.replay(&asked.run).unwrap().difference, None);
}

#[tokio::test]
async fn p_34_a_poll_hears_that_the_turn_is_over() {
    let asked = asked().await;
    let poll = asked.polled().await;
    asked.gate("drop").await;
    let gone = json!({"error": format!("no live agent surface for instance \"{}\"", asked.iid)});
    assert_eq!(poll.await.unwrap(), (StatusCode::NOT_FOUND, gone.clone()));
    assert_eq!(asked.read().await, (StatusCode::NOT_FOUND, gone));
    assert_eq!(asked.host.replay(&asked.run).unwrap().difference, None);
}

#[tokio::test]
async fn p_34_a_poll_hears_that_the_run_is_over() {
    let asked = asked().await;
    let poll = asked.polled().await;
    asked.host.send_event(&asked.run, json!({"type": "CANCEL"}), None).await.unwrap();
    assert_eq!(poll.await.unwrap().0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn p_03_another_sandbox_may_not_poll() {
    let asked = asked().await;
    let (status, body) = call(&asked.host, "ws-other", get(&asked.iid, &asked.delivery)).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{body}");
}

#[tokio::test]
async fn a_poll_ends_when_the_host_stops_and_the_answer_comes_after_the_restart() {
    let program = program(&[("asking", ASKING)]);
    let store = Arc::new(MemoryStore::new());
    let mut asked = asked_in(&store, &program).await;
    let poll = asked.polled().await;
    asked.host.stop().await;
    assert_eq!(poll.await.unwrap().0, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(asked.read().await.0, StatusCode::SERVICE_UNAVAILABLE);
    asked.host = open(Arc::new(store.crash()), &program).await;
    let poll = asked.polled().await;
    asked.gate("approve").await;
    let (status, answer) = poll.await.unwrap();
    assert_eq!((status, &answer["reply"]["party"]), (StatusCode::OK, &json!("Gate review")));
}

#[tokio::test]
async fn p_31_a_poll_for_what_is_outstanding_ends_without_an_answer() {
    let asked = asked().await;
    let none = asked.host.delivery_within(&asked.iid, None, &asked.delivery, Duration::from_millis(20)).await;
    assert_eq!(none.unwrap(), None);
    asked.gate("approve").await;
    assert_eq!(asked.read().await.0, StatusCode::OK);
}
