//! The run host with an in-memory store: runs go on over crashes, answers count once.

mod kill_lists;
mod live_sets;

use super::*;
use crate::store::MemoryStore;
use crate::workflow::{Bindings, Catalog, Program};
use crate::workspace::{
    HarnessEndpoint, LastEnd, ProviderFuture, ProvisionError, Provisioned, SandboxProvider, SandboxSpec, SavedBranch,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

mod deliveries;

/// No Sandbox ever runs here; one may have ended.
#[derive(Default)]
struct Nowhere(Mutex<Option<LastEnd>>, Listener);

/// What listens where a Sandbox's Harness would.
type Listener = Mutex<Option<HarnessEndpoint>>;

fn none<'a, T: Send + 'a>() -> ProviderFuture<'a, Result<T, ProvisionError>> {
    let refused = ProvisionError { reason: "no-provider".into(), message: "this test has none".into() };
    Box::pin(async move { Err(refused) })
}

impl SandboxProvider for Nowhere {
    fn provision<'a>(&'a self, _: &'a SandboxSpec) -> ProviderFuture<'a, Result<Provisioned, ProvisionError>> {
        none()
    }
    fn adopt<'a>(&'a self, _: &'a SandboxSpec, _: &'a str) -> ProviderFuture<'a, Result<(), ProvisionError>> {
        none()
    }
    fn teardown<'a>(
        &'a self,
        _: &'a SandboxSpec,
        _: &'a str,
    ) -> ProviderFuture<'a, Result<Vec<SavedBranch>, ProvisionError>> {
        none()
    }
    fn step<'a>(
        &'a self,
        _: &'a str,
        _: &'a str,
        _: u32,
        _: &'a core::DoRequest,
    ) -> ProviderFuture<'a, core::DoResult> {
        Box::pin(async { core::DoResult::Failed { reason: "none".into(), detail: json!({}) } })
    }
    fn fetch<'a>(&'a self, _: &'a str, _: &'a str) -> ProviderFuture<'a, Result<(), ProvisionError>> {
        none()
    }
    fn sandbox_of(&self, _: &str) -> Option<String> {
        None
    }
    fn endpoint(&self, _: &str) -> Option<HarnessEndpoint> {
        shared::lock(&self.1).clone()
    }
    fn last_end(&self, _: &str) -> Option<LastEnd> {
        shared::lock(&self.0).clone()
    }
    fn instance_harness(&self) -> ProviderFuture<'_, Result<HarnessEndpoint, ProvisionError>> {
        match shared::lock(&self.1).clone() {
            Some(endpoint) => Box::pin(async move { Ok(endpoint) }),
            None => none(),
        }
    }
    fn sweep<'a>(&'a self, _: &'a [String]) -> ProviderFuture<'a, usize> {
        Box::pin(async { 0 })
    }
    fn release(&self) -> ProviderFuture<'_, ()> {
        Box::pin(async {})
    }
}

fn program(texts: &[(&str, &str)]) -> Arc<Program> {
    let all: BTreeMap<String, Arc<str>> = texts.iter().map(|(n, t)| ((*n).to_owned(), Arc::from(*t))).collect();
    let catalog = Catalog::from_texts(&all).unwrap_or_else(|e| panic!("{}", e.plain()));
    Arc::new(Program::build(&catalog, texts[0].0, &Bindings::default()).unwrap_or_else(|e| panic!("{}", e.plain())))
}

async fn open(store: Arc<MemoryStore>, program: &Arc<Program>) -> Host {
    open_beside(store, program, Arc::default()).await
}

async fn open_beside(store: Arc<MemoryStore>, program: &Arc<Program>, provider: Arc<Nowhere>) -> Host {
    let (_events, events) = tokio::sync::mpsc::unbounded_channel();
    let options = HostOptions {
        store,
        provider,
        events,
        clock: Arc::new(SystemClock),
        programs: BTreeMap::from([(program.root.clone(), program.clone())]),
        fatal: Arc::new(|error| panic!("{error}")),
    };
    Host::open(options).await.unwrap().0
}

async fn until(host: &Host, run: &jr2_shared::ids::RunId, what: impl Fn(&view::RunStatus) -> bool) -> view::RunStatus {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    loop {
        let status = host.status(run).await.unwrap();
        if what(&status) {
            return status;
        }
        assert!(tokio::time::Instant::now() < deadline, "never came: {status:#?}");
        tokio::task::yield_now().await;
    }
}

const COMMON: &str = "
workflow: common
events:
  go: { from: external, payload: { type: object, properties: { note: { type: string } } } }
context: { note: '' }
initial: a
states:
  a: { do: {}, on: { done.do: b } }
  b: { do: {}, on: { done.do: c } }
  c: { do: {}, on: { done.do: wait } }
  wait:
    gate: { question: go on? }
    on: { go: { to: d, set: { note: 'has(event.note) ? event.note : \"\"' } } }
  d: { do: {}, on: { done.do: end } }
  end: { final: true, output: { note: '{{ context.note }}' } }
";

#[tokio::test]
async fn a_run_parks_at_its_gate_and_ends_with_its_output() {
    let program = program(&[("common", COMMON)]);
    let host = open(Arc::new(MemoryStore::new()), &program).await;
    let run = host.start("common", json!({}), None).await.unwrap();
    let parked = until(&host, &run, |s| !s.gates.is_empty()).await;
    assert_eq!(parked.value, json!("wait"));
    assert_eq!(parked.gates[0].activation, "wait#1");
    assert_eq!(parked.gates[0].accepts[0].name, "go");
    let taken = host.send_gate(&run, "wait", json!({"type": "go", "note": "x"}), None, None).await.unwrap();
    assert_eq!(taken.status, 200);
    let done = until(&host, &run, |s| s.status.is_ended()).await;
    assert_eq!((done.status, done.output), (Status::Done, Some(json!({"note": "x"}))));
    // every transition had its own save: start, three steps, the answer, the last step
    assert_eq!(host.history(&run, 0, 100).unwrap().len(), 6);
    assert_eq!(host.replay(&run).unwrap().difference, None);
}

#[tokio::test]
async fn a_gate_refuses_what_it_cannot_take_and_takes_an_answer_once() {
    let program = program(&[("common", COMMON)]);
    let host = open(Arc::new(MemoryStore::new()), &program).await;
    let run = host.start("common", json!({}), None).await.unwrap();
    until(&host, &run, |s| !s.gates.is_empty()).await;
    let send = async |gate: &str, body: Value, activation: Option<&str>, key: Option<&str>| {
        let (activation, key) = (activation.map(str::to_owned), key.map(str::to_owned));
        host.send_gate(&run, gate, body, activation, key).await.unwrap()
    };
    assert_eq!(send("nope", json!({"type": "go"}), None, None).await.status, 404);
    let refused = send("wait", json!({"type": "stop"}), None, None).await;
    assert_eq!((refused.status, &refused.body["accepts"]), (400, &json!(["go"])));
    let invalid = send("wait", json!({"type": "go", "note": 7}), None, None).await;
    assert_eq!(invalid.status, 400);
    assert!(invalid.body["error"].as_str().unwrap().starts_with("invalid \"go\" payload:"), "{:?}", invalid.body);
    let stale = send("wait", json!({"type": "go"}), Some("wait#7"), None).await;
    assert_eq!((stale.status, &stale.body["activation"]), (409, &json!("wait#1")));
    let first = send("wait", json!({"type": "go"}), Some("wait#1"), Some("k1")).await;
    let again = send("wait", json!({"type": "go"}), Some("wait#1"), Some("k1")).await;
    assert_eq!((first.status, &first), (200, &again));
    assert!(send("wait", json!({"type": "go"}), Some("wait#1"), Some("k2")).await.status >= 404);
}

#[tokio::test]
async fn a_start_key_names_one_run() {
    let program = program(&[("common", COMMON)]);
    let host = open(Arc::new(MemoryStore::new()), &program).await;
    let one = host.start("common", json!({}), Some("k")).await.unwrap();
    let two = host.start("common", json!({}), Some("k")).await.unwrap();
    assert_eq!(one, two);
    assert_eq!(host.list(None).len(), 1);
}

/// Crashes after every number of durable saves: the run always goes on to the same end.
#[tokio::test]
async fn a_crash_after_any_save_loses_nothing() {
    let program = program(&[("common", COMMON)]);
    for durable in 1..6 {
        let store = Arc::new(MemoryStore::manual());
        let host = open(store.clone(), &program).await;
        let started = tokio::spawn({
            let host = host.clone();
            async move { host.start("common", json!({}), Some("k")).await }
        });
        let mut flushed = 0;
        while flushed < durable {
            if store.flush_next() {
                flushed += 1;
            }
            tokio::task::yield_now().await;
            if flushed == 4 && !host.list(None).is_empty() {
                let run = jr2_shared::ids::RunId(host.list(None)[0].run_id.clone());
                let host = host.clone();
                tokio::spawn(async move {
                    host.send_gate(&run, "wait", json!({"type": "go", "note": "n"}), None, Some("g".into())).await
                });
            }
        }
        drop(started);
        let after = Arc::new(store.crash());
        host.stop().await;
        let host = open(after.clone(), &program).await;
        let pump = tokio::spawn(async move {
            loop {
                after.flush();
                tokio::task::yield_now().await;
            }
        });
        let run = host.start("common", json!({}), Some("k")).await.unwrap();
        assert_eq!(host.list(None).len(), 1, "the keyed start is one run after {durable} saves");
        let status = until(&host, &run, |s| !s.gates.is_empty() || s.status.is_ended()).await;
        if !status.status.is_ended() {
            host.send_gate(&run, "wait", json!({"type": "go", "note": "n"}), None, Some("g".into())).await.unwrap();
        }
        let done = until(&host, &run, |s| s.status.is_ended()).await;
        assert_eq!(done.output, Some(json!({"note": "n"})), "after {durable} saves");
        pump.abort();
    }
}

const PARENT: &str = "
workflow: parent
events: { go: { from: external } }
context: { got: '' }
initial: work
states:
  work:
    run: child
    input: { word: hello }
    on:
      done.run: { to: end, set: { got: event.output.word } }
      error.run: { to: failed, set: { got: event.reason } }
  end: { final: true, output: { got: '{{ context.got }}' } }
  failed: { final: true, output: { failed: '{{ context.got }}' } }
";
const CHILD: &str = "
workflow: child
input: { type: object, required: [word], properties: { word: { type: string } } }
events: { go: { from: external } }
initial: ask
states:
  ask: { gate: { word: '{{ input.word }}' }, on: { go: end }, after: { 2h: late } }
  end: { final: true, output: { word: '{{ input.word }}' } }
  late: { final: true, output: { word: late } }
";

#[tokio::test]
async fn a_child_run_lives_in_its_parents_row_and_survives_a_restart() {
    let program = program(&[("parent", PARENT), ("child", CHILD)]);
    let store = Arc::new(MemoryStore::new());
    let host = open(store.clone(), &program).await;
    let run = host.start("parent", json!({}), None).await.unwrap();
    let parked = until(&host, &run, |s| !s.gates.is_empty()).await;
    assert_eq!(parked.gates[0].gate, "work.ask");
    assert_eq!(parked.children[0].value, json!("ask"));
    host.stop().await;
    let host = open(Arc::new(store.crash()), &program).await;
    let again = until(&host, &run, |s| !s.gates.is_empty()).await;
    assert_eq!(again.gates, parked.gates);
    host.send_gate(&run, "work.ask", json!({"type": "go"}), None, None).await.unwrap();
    let done = until(&host, &run, |s| s.status.is_ended()).await;
    assert_eq!(done.output, Some(json!({"got": "hello"})));
    assert_eq!(host.replay(&run).unwrap().difference, None);
}

#[tokio::test]
async fn cancel_ends_a_run_and_a_second_cancel_is_refused() {
    let program = program(&[("common", COMMON)]);
    let host = open(Arc::new(MemoryStore::new()), &program).await;
    let run = host.start("common", json!({}), None).await.unwrap();
    until(&host, &run, |s| !s.gates.is_empty()).await;
    assert_eq!(host.send_event(&run, json!({"type": "CANCEL"}), None).await.unwrap().status, 200);
    assert_eq!(until(&host, &run, |s| s.status.is_ended()).await.status, Status::Cancelled);
    assert_eq!(host.send_event(&run, json!({"type": "CANCEL"}), None).await.unwrap().status, 409);
    let late = host.send_gate(&run, "wait", json!({"type": "go"}), None, None).await.unwrap();
    assert_eq!(late.status, 409);
}

const TIMED: &str = "
workflow: timed
initial: wait
states:
  wait: { after: { 50ms: { to: end } } }
  end: { final: true }
";

#[tokio::test]
async fn a_delay_that_fell_due_while_nobody_ran_fires_once_after_the_restart() {
    let program = program(&[("timed", TIMED)]);
    let store = Arc::new(MemoryStore::new());
    let host = open(store.clone(), &program).await;
    let run = host.start("timed", json!({}), None).await.unwrap();
    host.stop().await;
    let host = open(Arc::new(store.crash()), &program).await;
    let done = until(&host, &run, |s| s.status.is_ended()).await;
    assert_eq!(done.status, Status::Done);
    assert_eq!(host.history(&run, 0, 100).unwrap().len(), 2);
}

#[tokio::test]
async fn a_recorded_end_is_answered_at_once_and_stays() {
    let program = program(&[("timed", TIMED)]);
    let provider = Arc::new(Nowhere::default());
    let host = open_beside(Arc::default(), &program, provider.clone()).await;
    let end = LastEnd { exit_code: 137, oom: None, reason: "killed".into(), at: 20, limit: None };
    *shared::lock(&provider.0) = Some(end.clone());
    let asked = async |since, wait| host.shared.last_end("ws-a", since, wait).await;
    for since in [0, 0, 20] {
        // No time to wait at all: it is there, and reading does not clear it.
        assert_eq!(asked(since, Duration::ZERO).await, Some(end.clone()));
    }
    assert_eq!(asked(21, Duration::ZERO).await, None, "an end before that instant is an earlier one");
    let later = LastEnd { at: 21, ..end };
    let (found, ()) = tokio::join!(asked(21, Duration::from_secs(20)), async {
        *shared::lock(&provider.0) = Some(later.clone());
    });
    assert_eq!(found, Some(later));
}

#[tokio::test]
async fn a_start_key_names_one_request() {
    let program = program(&[("timed", TIMED)]);
    let other = self::program(&[("again", &TIMED.replace("workflow: timed", "workflow: again"))]);
    let host = open(Arc::default(), &program).await;
    let first = host.start_program(program.clone(), json!({}), Some("k")).await.unwrap();
    assert_eq!(host.start_program(program, json!({}), Some("k")).await.unwrap(), first);
    let taken = host.start_program(other, json!({}), Some("k")).await.unwrap_err();
    assert!(matches!(&taken, HostError::KeyTaken(text) if text.contains(first.as_str())), "{taken}");
}
