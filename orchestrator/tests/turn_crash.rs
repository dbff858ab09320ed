//! The Turn machine and the Harness client together, with a shell that dies at every point and comes back from its row.
//!
//! The fake Harness keeps to decision 31: an admission id it knows seats nothing. So whatever dies when, it must end up
//! with the same admissions, in the same order, with the same words and the same notices.

// A test file whose helpers fail the test by panicking.
#![allow(clippy::unwrap_used)]

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use jr2_orchestrator::harness_client::{Connections, HarnessClient};
use jr2_orchestrator::turn::{Frame, Ledger, ListedKill, Turn, TurnEffect, TurnInput, step};
use jr2_orchestrator::workspace::HarnessEndpoint;
use jr2_shared::harness::{AdmitAnswer, AdmitRequest, AgentDefinition, HEADER_NEXT_OFFSET};
use jr2_shared::ids::Iid;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What each Submission comes to, in order.
const ENDS: [&str; 5] = ["runaway", "harness_restarted", "completed", "completed", "completed"];

type Seated = Arc<Mutex<Vec<AdmitRequest>>>;

async fn admit(
    State(seated): State<Seated>,
    Path((agent, iid)): Path<(String, String)>,
    Json(request): Json<AdmitRequest>,
) -> Json<AdmitAnswer> {
    let mut seated = seated.lock().unwrap();
    let known = seated.iter().position(|one| one.admission_id == request.admission_id);
    let at = known.unwrap_or_else(|| {
        seated.push(request);
        seated.len() - 1
    });
    Json(AdmitAnswer {
        stream_url: format!("http://127.0.0.1/agents/{agent}/{}", iid.replace('/', "%2F")),
        offset: at.to_string(),
        submission_id: format!("s-{at}-abcdef"),
        carried: known.map(|_| seated[at].notices.iter().filter_map(|one| one.id.clone()).collect()),
    })
}

async fn updates(State(seated): State<Seated>) -> Response {
    let count = seated.lock().unwrap().len();
    let settled = |at: usize| {
        let id = format!("s-{at}-abcdef");
        match ENDS[at] {
            "completed" => json!({"type": "submission-settled", "submissionId": id, "outcome": "completed"}),
            kind => json!({"type": "submission-settled", "submissionId": id, "outcome": "failed",
                           "error": {"type": kind, "message": "m"}}),
        }
    };
    if count == 0 {
        return StatusCode::NOT_FOUND.into_response();
    }
    let events: Vec<Value> = (0..count).map(settled).collect();
    ([(HEADER_NEXT_OFFSET, count.to_string())], Json(events)).into_response()
}

async fn fake() -> (String, Seated) {
    let seated = Seated::default();
    let router = Router::new().route("/agents/{agent}/{iid}", get(updates).post(admit)).with_state(seated.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (url, seated)
}

fn definition() -> AgentDefinition {
    serde_json::from_value(json!({"model": "p/m", "instructions": "i"})).unwrap()
}

fn frame() -> Frame {
    Frame {
        agent: "coder".into(),
        base: Iid("r/root/coder".into()),
        iid: Iid("r/root/coder/0000000a".into()),
        continued: false,
        state: 1,
        ordinal: 1,
        task: Some("fix it".into()),
        cwd: None,
        workspace: Some("ws-1".into()),
        model: None,
        thinking_level: None,
        menu_empty: false,
        first_admission: 1,
    }
}

/// The fake's memory-kill list: one kill before the Turn, and one more at each admission that no bash call told.
fn kills(seated: &Seated) -> Vec<ListedKill> {
    let kill = |n: usize| ListedKill { id: format!("k{n}"), at: 1, peak: None, limit: Some("2Gi".into()), told: false };
    (0..=seated.lock().unwrap().len()).map(kill).collect()
}

/// Does one effect; `None` = nothing comes back.
async fn perform(client: &HarnessClient, seated: &Seated, turn: &Turn, effect: &TurnEffect) -> Option<TurnInput> {
    match effect {
        TurnEffect::AwaitAborts => Some(TurnInput::AbortsClear),
        TurnEffect::AskHeld { iid } => Some(TurnInput::Held(client.held(&turn.frame.agent, iid).await)),
        TurnEffect::Admit(admit) => {
            let request = admit.request(turn, definition());
            let outcome = client.admit(&turn.frame.agent, &admit.iid, &request).await;
            Some(outcome.into_input(&admit.admission_id))
        }
        TurnEffect::Watch(watch) => {
            let end = client.wait_settlement(&turn.frame.agent, watch, &|_| {}).await;
            Some(end.into_input(&watch.submission_id, vec!["done".into()]))
        }
        TurnEffect::ReadKills => Some(TurnInput::Read { kills: Some(kills(seated)), last_end: None }),
        TurnEffect::ReadLastEnd { .. } => Some(TurnInput::LastEnd(None)),
        _ => None,
    }
}

/// One seated admission: its id, its message, `kept`, and its notices by ledger id.
type Told = (String, String, bool, Vec<Option<String>>);

/// One whole Turn: its fault, what the Harness seated, and how many points it could have died at.
#[derive(Clone, Debug, PartialEq)]
struct Life {
    fault: String,
    seated: Vec<Told>,
    /// What is left to be said at the end.
    pending: usize,
    points: usize,
}

/// Runs a Turn to its end and dies at the given points.
async fn live(deaths: &[usize]) -> Life {
    let (url, seated) = fake().await;
    let endpoint = HarnessEndpoint { url, token: "t".into() };
    let client = HarnessClient::new(move || Some(endpoint.clone()), Connections::new().unwrap(), 1);
    let begin = TurnInput::Begin { held_before: false };
    let (turn, ledger, mut effects) = step(&Turn::new(frame()), &Ledger::default(), begin, 1);
    let mut row = serde_json::to_string(&(turn, ledger)).unwrap();
    let mut points = 0;
    let mut dies = || {
        points += 1;
        deaths.contains(&(points - 1))
    };
    let fault = 'life: loop {
        let (turn, ledger): (Turn, Ledger) = serde_json::from_str(&row).unwrap();
        let mut input = TurnInput::Restored;
        for effect in &effects {
            if let TurnEffect::Fault { reason } = effect {
                break 'life reason.clone();
            }
            // Dead after the save, before the effect left.
            if dies() {
                break;
            }
            let heard = perform(&client, &seated, &turn, effect).await;
            // Dead after the effect, before its answer was saved.
            if dies() {
                break;
            }
            input = heard.unwrap_or(input);
        }
        let (next, ledger, asked) = step(&turn, &ledger, input, 1);
        row = serde_json::to_string(&(next, ledger)).unwrap();
        effects = asked;
    };
    let (_, ledger): (Turn, Ledger) = serde_json::from_str(&row).unwrap();
    let seated = seated.lock().unwrap();
    let told = |one: &AdmitRequest| {
        let notices = one.notices.iter().map(|notice| notice.id.clone()).collect();
        (one.admission_id.clone().unwrap(), one.message.clone(), one.kept, notices)
    };
    Life { fault, seated: seated.iter().map(told).collect(), pending: ledger.pending.len(), points }
}

#[tokio::test]
async fn d_31_whatever_dies_when_the_harness_is_asked_for_the_same_submissions() {
    let all = async {
        let whole = live(&[]).await;
        assert_eq!(whole.fault, "agent completed its turn without calling any of: done");
        let ids: Vec<&str> = whole.seated.iter().map(|(id, ..)| id.rsplit('/').next().unwrap()).collect();
        assert_eq!(ids, ["0000000a#1", "0000000a-r1#2", "0000000a-r1#3", "0000000a-r1#4", "0000000a-r1#5"]);
        let notices: Vec<usize> = whole.seated.iter().map(|(.., notices)| notices.len()).collect();
        // The kill before each admission; the reroll and the re-admission also what nobody is known to have heard.
        assert_eq!(notices, [1, 2, 3, 1, 1]);
        for first in 0..whole.points {
            let once = live(&[first]).await;
            assert_eq!(once, Life { points: once.points, ..whole.clone() }, "dead at {first}");
            for second in first + 1..first + 4 {
                let twice = live(&[first, second]).await;
                assert_eq!(twice, Life { points: twice.points, ..whole.clone() }, "dead at {first}, {second}");
            }
        }
    };
    tokio::time::timeout(Duration::from_mins(2), all).await.expect("every life ends");
}
