//! Effects leave the process here, after their save. What happened comes back as an input (`docs/effects.md`).

use super::core::{AdmitEffect, DoRequest, DoResult, Effect, Input, Place};
use super::shared::Shared;
use crate::harness_client::{AbortEnd, HarnessClient, stream_kill};
use crate::turn::{ListedKill, TurnInput, Watch};
use crate::workspace::SandboxSpec;
use jr2_shared::crash::{self, Point};
use jr2_shared::harness::AdmitRequest;
use jr2_shared::ids::{Iid, RunId};
use jr2_telemetry::context::TraceParent;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::AbortHandle;

/// How long a cut waits for the word on how the Harness ended (decision 39).
const LAST_END_WAIT: Duration = Duration::from_secs(5);
/// Largest answer of an HTTP step that is kept, in bytes.
const HTTP_BODY_MAX_BYTES: usize = 64 << 10;
/// Pause between tries of a teardown that failed for a reason that may pass.
const TEARDOWN_AGAIN: Duration = Duration::from_secs(30);

impl Effect {
    /// The invocation whose answer it brings.
    pub fn serial(&self) -> Option<u64> {
        match self {
            Self::Admit(admit) => Some(admit.serial),
            Self::AskHeld { serial, .. }
            | Self::Watch { serial, .. }
            | Self::ReadKills { serial, .. }
            | Self::ReadLastEnd { serial, .. }
            | Self::Do { serial, .. } => Some(*serial),
            Self::Abort(_) | Self::Provision(_) | Self::Adopt { .. } | Self::Teardown { .. } | Self::Forget { .. } => {
                None
            }
        }
    }

    /// Its name and key in the history.
    pub fn name(&self) -> String {
        match self {
            Self::Admit(admit) => format!("admit {}", admit.admission_id),
            Self::AskHeld { place, .. } => format!("ask-held {}", place.iid),
            Self::Watch { submission, .. } => format!("watch {submission}"),
            Self::ReadKills { place, .. } => format!("read-kills {}", place.iid),
            Self::ReadLastEnd { .. } => "read-last-end".to_owned(),
            Self::Abort(abort) => format!("abort {}", abort.abort.up_to),
            Self::Do { key, attempt, .. } => format!("do {key} attempt {attempt}"),
            Self::Provision(spec) => format!("provision {}", spec.name),
            Self::Adopt { spec, .. } => format!("adopt {}", spec.name),
            Self::Teardown { spec, .. } => format!("teardown {}", spec.name),
            Self::Forget { serial } => format!("forget {serial}"),
        }
    }
}

/// Carries one effect out in a task of its own.
pub(super) fn perform(shared: &Arc<Shared>, run: &RunId, effect: Effect) -> AbortHandle {
    let (shared, run) = (shared.clone(), run.clone());
    tokio::spawn(async move {
        let input = match effect {
            Effect::Admit(admit) => Some(admission(&shared, &run, *admit).await),
            Effect::AskHeld { serial, place } => {
                let held = shared.client(place.sandbox.as_deref()).held(&place.agent, &Iid(place.iid.clone())).await;
                Some(Input::Turn { serial, input: TurnInput::Held(held) })
            }
            Effect::Watch { serial, place, stream_url, offset, submission } => {
                Some(watch(&shared, &run, serial, &place, stream_url, offset, submission).await)
            }
            Effect::ReadKills { serial, place } => Some(read_kills(&shared, serial, &place).await),
            Effect::ReadLastEnd { serial, sandbox, since } => {
                let end = match sandbox {
                    Some(name) => shared.last_end(&name, since, LAST_END_WAIT).await,
                    None => None,
                };
                Some(Input::Turn { serial, input: TurnInput::LastEnd(end) })
            }
            Effect::Abort(pending) => {
                let client = shared.client(pending.sandbox.as_deref());
                let abort = pending.abort;
                crash::point(Point::AbortSaved);
                let unprompted = match client.abort(&abort.agent, &abort.iid, &abort.up_to).await {
                    AbortEnd::Answered { unprompted, .. } => unprompted,
                    AbortEnd::Refused { status, .. } => {
                        tracing::warn!(run = %run, status, "a Harness refused an abort");
                        Vec::new()
                    }
                };
                crash::point(Point::AbortAnswered);
                Some(Input::Aborted { iid: abort.iid.0, up_to: Some(abort.up_to), unprompted })
            }
            Effect::Do { serial, key, attempt, sandbox, request } => {
                let result = step(&shared, &key, attempt, sandbox, request).await;
                Some(Input::Done { serial, result })
            }
            Effect::Provision(spec) => Some(provision(&shared, &run, spec).await),
            Effect::Adopt { spec, uid } => adopt(&shared, &run, spec, uid).await,
            Effect::Teardown { spec, uid } => {
                let (name, known) = (spec.name.clone(), uid.clone());
                let input = teardown(&shared, spec, uid).await;
                crash::point(Point::SandboxRemoved);
                if shared.tell_saved(&run, input).await {
                    shared.provider.forget(&name, &known);
                }
                None
            }
            Effect::Forget { .. } => None,
        };
        if let Some(input) = input {
            shared.tell(&run, input);
        }
    })
    .abort_handle()
}

async fn admission(shared: &Shared, run: &RunId, admit: AdmitEffect) -> Input {
    let turn = TraceParent::of_turn(run.as_str(), admit.serial);
    let client = shared.client(admit.place.sandbox.as_deref()).within(turn);
    let request = AdmitRequest {
        message: admit.message,
        cwd: admit.cwd,
        definition: admit.definition,
        model: admit.model,
        thinking_level: admit.thinking,
        notices: admit.notices,
        receipt: admit.receipt,
        kept: admit.kept,
        admission_id: Some(admit.admission_id.clone()),
    };
    let began = Instant::now();
    let outcome = client.admit(&admit.place.agent, &Iid(admit.place.iid), &request).await;
    crate::telemetry::metrics().admission.observe(began.elapsed().as_secs_f64());
    crash::point(Point::AdmissionAnswered);
    Input::Turn { serial: admit.serial, input: outcome.into_input(&admit.admission_id) }
}

/// The list as this Turn reads it, and the Sandbox's last end (spec N-41, N-79).
async fn read_kills(shared: &Shared, serial: u64, place: &Place) -> Input {
    let Some(sandbox) = &place.sandbox else {
        return Input::Turn { serial, input: TurnInput::Read { kills: None, last_end: None } };
    };
    let kills = shared.kill_list(sandbox).await;
    crash::point(Point::KillsRead);
    let kills = kills.map(|kills| ListedKill::of(kills, &place.iid));
    Input::Turn { serial, input: TurnInput::Read { kills, last_end: shared.provider.last_end(sandbox) } }
}

async fn watch(
    shared: &Shared,
    run: &RunId,
    serial: u64,
    place: &Place,
    stream_url: String,
    offset: String,
    submission_id: String,
) -> Input {
    let client: HarnessClient = shared.client(place.sandbox.as_deref());
    let watch = Watch { iid: Iid(place.iid.clone()), stream_url, offset, submission_id };
    let observe = |event: &Value| {
        let log = |fault| tracing::warn!(run = %run, %fault, "something of a memory kill on a stream was left out");
        if let Some(input) = stream_kill(event, &watch.submission_id, log) {
            crash::point(Point::KillHeard);
            shared.tell(run, Input::Turn { serial, input });
        }
    };
    let end = client.wait_settlement(&place.agent, &watch, &observe).await;
    crash::point(Point::SettlementHeard);
    Input::Turn { serial, input: end.into_input(&watch.submission_id, Vec::new()) }
}

async fn provision(shared: &Shared, run: &RunId, spec: SandboxSpec) -> Input {
    shared.own_sandbox(&spec.name, run).await;
    match shared.provider.provision(&spec).await {
        Ok(provisioned) => {
            crash::point(Point::SandboxProvisioned);
            Input::Provisioned { sandbox: spec.name, provisioned }
        }
        Err(error) => Input::ProvisionFailed { sandbox: spec.name, reason: error.reason, message: error.message },
    }
}

async fn adopt(shared: &Shared, run: &RunId, spec: SandboxSpec, uid: String) -> Option<Input> {
    shared.own_sandbox(&spec.name, run).await;
    let error = shared.provider.adopt(&spec, &uid).await.err()?;
    Some(Input::SandboxLost { sandbox: spec.name, reason: error.reason, message: error.message })
}

async fn teardown(shared: &Shared, spec: SandboxSpec, uid: String) -> Input {
    for _ in 0..2 {
        match shared.provider.teardown(&spec, &uid).await {
            Ok(branches) => return Input::TornDown { sandbox: spec.name, uid, branches },
            Err(error) if error.reason == "branch-not-saved" => {
                return Input::TeardownFailed { sandbox: spec.name, uid, message: error.message };
            }
            Err(error) => tracing::warn!(sandbox = %spec.name, %error, "teardown failed, trying once more"),
        }
        tokio::time::sleep(TEARDOWN_AGAIN).await;
    }
    let message = "the Sandbox could not be removed; its directory stays".to_owned();
    Input::TeardownFailed { sandbox: spec.name, uid, message }
}

async fn step(shared: &Shared, key: &str, attempt: u32, sandbox: Option<String>, request: DoRequest) -> DoResult {
    match request {
        DoRequest::Nothing => DoResult::Ok(Value::Null),
        DoRequest::Command { .. } => match sandbox {
            Some(name) => shared.provider.step(&name, key, attempt, &request).await,
            None => failed("no Workspace around the step"),
        },
        DoRequest::Http { method, url, headers, body, timeout_ms } => {
            let call = http_step(shared, key, attempt, &method, &url, headers, body);
            match tokio::time::timeout(Duration::from_millis(timeout_ms), call).await {
                Ok(result) => result,
                Err(_) => failed("timeout"),
            }
        }
    }
}

async fn http_step(
    shared: &Shared,
    key: &str,
    attempt: u32,
    method: &str,
    url: &str,
    headers: Vec<(String, String)>,
    body: Option<Value>,
) -> DoResult {
    let Ok(method) = reqwest::Method::from_bytes(method.as_bytes()) else {
        return failed("bad method");
    };
    let mut request = shared.http.request(method, url);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    request = request.header("Idempotency-Key", key).header("JR2-Step-Attempt", attempt.to_string());
    if let Some(body) = body {
        request = request.json(&body);
    }
    let mut response = match request.send().await {
        Ok(response) => response,
        Err(error) => return failed(&format!("request failed: {}", error.without_url())),
    };
    let status = response.status().as_u16();
    let mut bytes = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if bytes.len() + chunk.len() <= HTTP_BODY_MAX_BYTES => bytes.extend_from_slice(&chunk),
            Ok(Some(_)) => return failed(&format!("the answer is larger than {HTTP_BODY_MAX_BYTES} bytes")),
            Ok(None) => break,
            Err(error) => return failed(&format!("answer cut: {}", error.without_url())),
        }
    }
    let body = serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes)));
    let detail = json!({ "status": status, "body": body });
    if (200..300).contains(&status) {
        DoResult::Ok(detail)
    } else {
        DoResult::Failed { reason: format!("http {status}"), detail }
    }
}

fn failed(reason: &str) -> DoResult {
    DoResult::Failed { reason: reason.to_owned(), detail: json!({}) }
}
