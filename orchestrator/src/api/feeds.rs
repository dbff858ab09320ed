//! Feeds as server-sent events: level-triggered, ids `rev.index`, resume by `Last-Event-ID`, pings (spec Q-3, decision 43).

use super::errors::Refused;
use super::{Api, workflows};
use crate::run::{FeedEntry, FeedId, FeedKind, Heard, HostError};
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream, StreamExt};
use jr2_shared::ids::RunId;
use serde::Deserialize;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::time::Duration;

/// Ping comments (spec Q-3).
const PING_EVERY: Duration = Duration::from_secs(15);
/// What a client waits before it joins again (spec 12.2).
const RETRY: Duration = Duration::from_secs(2);

/// Where to resume, for clients that cannot set headers.
#[derive(Deserialize)]
pub struct FeedQuery {
    #[serde(rename = "lastEventId")]
    last_event_id: Option<String>,
}

fn resume(headers: &HeaderMap, query: &FeedQuery) -> Option<FeedId> {
    let header = headers.get("last-event-id").and_then(|v| v.to_str().ok());
    header.or(query.last_event_id.as_deref()).and_then(|text| text.parse().ok())
}

/// `GET /runs/:id/events`: everything, instance token only.
pub async fn run_feed(
    State(api): State<Api>,
    Path(run): Path<String>,
    Query(query): Query<FeedQuery>,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    let run = api.host.resolve(&run)?;
    one_run(&api, &run, resume(&headers, &query), false).await
}

/// `GET /workflows/:name/runs/:runId/events`: shape and markers only.
pub async fn open_run_feed(
    State(api): State<Api>,
    Path((name, run)): Path<(String, String)>,
    Query(query): Query<FeedQuery>,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    let run = api.host.resolve(&run)?;
    if api.host.status(&run).await?.workflow != name {
        return Err(Refused(HostError::NotFound(format!("no run \"{run}\" of \"{name}\""))));
    }
    one_run(&api, &run, resume(&headers, &query), true).await
}

/// Says that everything durable when the reader joined has been given; it has no id.
const CAUGHT_UP: &str = "caught-up";

async fn one_run(api: &Api, run: &RunId, from: Option<FeedId>, open: bool) -> Result<Response, Refused> {
    let feed = api.host.subscribe(run, from).await?;
    let covered = feed.backlog.last().map(|(id, _)| *id).or(feed.from);
    let status = &feed.status;
    let mut first = vec![Ok(Event::default().retry(RETRY).comment("jr2"))];
    first.extend(feed.backlog.iter().filter_map(|(id, entry)| event(Some(*id), entry, open)).map(Ok));
    if feed.backlog.iter().all(|(_, e)| e.kind != FeedKind::Status) {
        // A reader that missed nothing still learns where the run stands.
        let data = json!({ "runId": run.as_str(), "workflow": status.workflow, "status": status.status,
                           "value": status.value });
        let entry = FeedEntry { kind: FeedKind::Status, data };
        first.extend(event(covered, &entry, open).map(Ok));
    }
    first.push(Ok(Event::default().event(CAUGHT_UP).data("{}")));
    let ended = status.status.is_ended();
    let rest = live(feed.live, covered, move |id, entry| event(id, entry, open));
    let all: std::pin::Pin<Box<dyn Stream<Item = Result<Event, Infallible>> + Send>> = if ended {
        Box::pin(stream::iter(first).chain(closed("ended")))
    } else {
        Box::pin(stream::iter(first).chain(rest))
    };
    Ok(sse(all))
}

/// `GET /workflows/:name/events`: `runs` first, then every run's markers.
pub async fn workflow_feed(State(api): State<Api>, Path(name): Path<String>) -> Response {
    if api.host.workflow(&name).is_none() {
        return workflows::unknown(&name);
    }
    let batches = api.host.subscribe_workflow(&name);
    let runs = json!({ "runs": api.host.list(Some(&name)) });
    let first = vec![
        Ok::<_, Infallible>(Event::default().retry(RETRY).comment("jr2")),
        Ok(Event::default().event("runs").data(runs.to_string())),
    ];
    let rest = stream::unfold(batches, |mut batches| async move {
        let batch = batches.recv().await?;
        let events: Vec<Result<Event, Infallible>> = batch
            .entries
            .iter()
            .filter_map(|entry| {
                let mut entry = entry.clone();
                if let Value::Object(fields) = &mut entry.data {
                    fields.insert("runId".to_owned(), json!(batch.run.as_str()));
                }
                event(None, &entry, true).map(Ok)
            })
            .collect();
        Some((stream::iter(events), batches))
    });
    sse(stream::iter(first).chain(rest.flatten()).chain(closed("stopping")))
}

/// Events as they become durable, then one `closed`: the run ended, or the host stops (or this reader lagged too far
/// behind: it joins again by id).
fn live(
    batches: Heard,
    covered: Option<FeedId>,
    each: impl Fn(Option<FeedId>, &FeedEntry) -> Option<Event> + Clone + Send + 'static,
) -> impl Stream<Item = Result<Event, Infallible>> + Send {
    stream::unfold(Some(batches), move |open| {
        let each = each.clone();
        async move {
            let mut batches = open?;
            let Some(batch) = batches.recv().await else {
                return Some((stream::iter(vec![Ok(closed_event("stopping"))]), None));
            };
            if batch.passing {
                let words: Vec<_> = batch.entries.iter().filter_map(|entry| each(None, entry).map(Ok)).collect();
                return Some((stream::iter(words), Some(batches)));
            }
            let mut events: Vec<Result<Event, Infallible>> = batch
                .entries
                .iter()
                .enumerate()
                .map(|(index, entry)| (FeedId { rev: batch.rev, index: index as u32 }, entry))
                .filter(|(id, _)| covered.is_none_or(|c| *id > c))
                .filter_map(|(id, entry)| each(Some(id), entry).map(Ok))
                .collect();
            let over = batch.entries.iter().any(|e| e.kind == FeedKind::Status && is_end(&e.data));
            if over {
                events.push(Ok(closed_event("ended")));
            }
            Some((stream::iter(events), (!over).then_some(batches)))
        }
    })
    .flatten()
}

fn is_end(data: &Value) -> bool {
    data.get("status").and_then(Value::as_str).is_some_and(|s| s != "live")
}

fn closed(why: &'static str) -> impl Stream<Item = Result<Event, Infallible>> + Send {
    stream::once(async move { Ok(closed_event(why)) })
}

fn closed_event(why: &str) -> Event {
    Event::default().event("closed").data(json!({ "reason": why }).to_string())
}

fn sse(events: impl Stream<Item = Result<Event, Infallible>> + Send + 'static) -> Response {
    Sse::new(events).keep_alive(KeepAlive::new().interval(PING_EVERY).text("ping")).into_response()
}

/// One entry as an event; open feeds carry shape and markers, never run state (spec ).
fn event(id: Option<FeedId>, entry: &FeedEntry, open: bool) -> Option<Event> {
    let name = serde_json::to_value(entry.kind).ok()?;
    let data = if open { open_data(entry)? } else { entry.data.clone() };
    let event = Event::default().event(name.as_str()?).data(data.to_string());
    Some(match id {
        Some(id) => event.id(id.to_string()),
        None => event,
    })
}

fn open_data(entry: &FeedEntry) -> Option<Value> {
    let field = |name: &str| entry.data.get(name).cloned().unwrap_or(Value::Null);
    let run = |mut data: Value| {
        if let (Some(id), Value::Object(fields)) = (entry.data.get("runId"), &mut data) {
            fields.insert("runId".to_owned(), id.clone());
        }
        data
    };
    match entry.kind {
        FeedKind::Status => Some(entry.data.clone()),
        FeedKind::Emit => Some(entry.data.clone()),
        FeedKind::Retry => Some(run(json!({ "child": field("child"), "attempt": field("attempt") }))),
        FeedKind::Fault => Some(run(json!({ "child": field("child"), "event": field("event") }))),
        FeedKind::Pick => {
            let mut data = json!({ "event": field("event"), "moved": field("moved") });
            for flag in ["outstanding", "answered"] {
                if let Some(value) = entry.data.get(flag) {
                    data[flag] = value.clone();
                }
            }
            Some(run(data))
        }
        FeedKind::Gate => Some(run(json!({ "gate": field("gate"), "activation": field("activation") }))),
        FeedKind::Placing | FeedKind::Placed => Some(run(json!({ "child": field("child") }))),
        FeedKind::Admission => Some(run(json!({ "child": field("child"), "agent": field("agent") }))),
        // It names providers and what they answer.
        FeedKind::Branch | FeedKind::Activity => None,
    }
}
