//! The OpenAPI document: generated from the types and the table of routes below, checked in under `docs/openapi.json`, held
//! by tests: it names exactly the routes of the router.

use crate::run::view::{ChildView, GateEvent, GateView, RunStatus, RunSummary, TurnView, WaitView};
use axum::Json;
use serde_json::{Map, Value, json};
use utoipa::PartialSchema;

/// `GET /openapi.json`.
pub async fn serve() -> Json<Value> {
    Json(document())
}

/// Who may call a route (spec 12.1).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Band {
    Open,
    /// The Instance token, or a Sandbox's for what is its own.
    Sandbox,
    /// The Instance token alone.
    Token,
}

/// What a route answers when it took the request.
#[derive(Clone, Copy)]
enum Answer {
    /// A named schema as JSON.
    Of(&'static str),
    /// Any JSON object; its members are in the summary.
    Json,
    /// Plain text.
    Text,
    /// Server-sent events.
    Feed,
}

struct Route {
    method: &'static str,
    path: &'static str,
    band: Band,
    about: &'static str,
    /// Query and header parameters: name, place, meaning.
    parameters: &'static [(&'static str, &'static str, &'static str)],
    body: Option<&'static str>,
    status: &'static str,
    answer: Answer,
    /// Refusals beside 401.
    refusals: &'static [&'static str],
}

const KEY: (&str, &str, &str) =
    ("Idempotency-Key", "header", "The same key gets the stored answer and does nothing again.");
const LAST: (&str, &str, &str) = ("Last-Event-ID", "header", "Resume after this entry.");
const LAST_QUERY: (&str, &str, &str) = ("lastEventId", "query", "The same, for clients that cannot set headers.");

const fn read(
    path: &'static str,
    band: Band,
    about: &'static str,
    answer: Answer,
    refusals: &'static [&'static str],
) -> Route {
    Route { method: "get", path, band, about, parameters: &[], body: None, status: "200", answer, refusals }
}

const fn act(
    path: &'static str,
    about: &'static str,
    body: &'static str,
    status: &'static str,
    answer: Answer,
) -> Route {
    let refusals = &["400", "404", "409"];
    Route {
        method: "post",
        path,
        band: Band::Token,
        about,
        parameters: &[KEY],
        body: Some(body),
        status,
        answer,
        refusals,
    }
}

const ROUTES: &[Route] = &[
    read("/healthz", Band::Open, "Is it there: `{ok, version, hash}`.", Answer::Json, &[]),
    read("/readyz", Band::Open, "Restored and not stopping: `{ok}`.", Answer::Json, &["503"]),
    read("/metrics", Band::Open, "Counters and histograms for Prometheus, as OpenMetrics text.", Answer::Text, &[]),
    read("/openapi.json", Band::Open, "This document.", Answer::Json, &[]),
    read(
        "/workflows",
        Band::Open,
        "What may be started: `{workflows: [{name, machineId, description}]}`.",
        Answer::Json,
        &[],
    ),
    read("/workflows/{name}", Band::Open, "One workflow: `{name, machineId, input}`.", Answer::Json, &["404"]),
    Route {
        parameters: &[("format", "query", "`mermaid` (default) or `dot`.")],
        ..read("/workflows/{name}/machine", Band::Open, "Its picture.", Answer::Text, &["400", "404"])
    },
    read("/workflows/{name}/runs", Band::Open, "Its runs, without their state.", Answer::Of("RunList"), &["404"]),
    read(
        "/workflows/{name}/events",
        Band::Open,
        "All its runs' feeds: `runs` first, then markers.",
        Answer::Feed,
        &["404"],
    ),
    Route {
        parameters: &[LAST, LAST_QUERY],
        ..read(
            "/workflows/{name}/runs/{run}/events",
            Band::Open,
            "One run's feed: shape and markers.",
            Answer::Feed,
            &["404"],
        )
    },
    Route {
        refusals: &["400", "404", "409", "422"],
        ..act("/workflows/{name}/runs", "Start a run; the body is its input.", "Input", "201", Answer::Of("Started"))
    },
    read("/runs", Band::Token, "Every run.", Answer::Of("RunList"), &[]),
    Route {
        refusals: &["400", "404", "409", "422"],
        ..act("/runs", "Start a run of a program whose text comes along.", "StartProgram", "201", Answer::Of("Started"))
    },
    Route {
        parameters: &[("prefix", "query", "4 characters or more.")],
        ..read(
            "/runs/resolve",
            Band::Token,
            "Runs whose id starts so: `{runs, truncated}`, 10 at most.",
            Answer::Json,
            &["400"],
        )
    },
    read("/runs/{run}", Band::Token, "The whole status.", Answer::Of("RunStatus"), &["400", "404"]),
    Route {
        parameters: &[LAST, LAST_QUERY],
        ..read("/runs/{run}/events", Band::Token, "The run's whole feed.", Answer::Feed, &["400", "404"])
    },
    act("/runs/{run}/events", "An outside event, or `CANCEL` with `keep`.", "Event", "200", Answer::Of("Taken")),
    Route {
        parameters: &[("from", "query", "From this save on.")],
        ..read("/runs/{run}/history", Band::Token, "Its saves: `{runId, entries}`.", Answer::Json, &["400", "404"])
    },
    read(
        "/runs/{run}/isolation",
        Band::Token,
        "What isolates the commands in each of its Sandboxes: `{sandboxes: [{sandbox, isolation}]}`.",
        Answer::Json,
        &["400", "404"],
    ),
    read(
        "/runs/{run}/replay",
        Band::Token,
        "Re-step it and compare: `{steps, difference}`.",
        Answer::Json,
        &["400", "404"],
    ),
    Route {
        parameters: &[],
        body: None,
        ..act("/runs/{run}/adopt", "Move it to the present text.", "", "200", Answer::Of("Taken"))
    },
    Route {
        refusals: &["400", "403", "404", "409"],
        parameters: &[("activation", "query", "Only this activation; another one is 409 with the present one."), KEY],
        ..act("/runs/{run}/gates/{gate}/events", "Answer a Gate.", "Event", "200", Answer::Of("Taken"))
    },
    read("/repos", Band::Token, "Repositories of live Workspaces: `{repos}`.", Answer::Json, &[]),
    Route {
        parameters: &[],
        band: Band::Sandbox,
        refusals: &["400", "403", "404"],
        ..act("/sandboxes/{name}/fetch", "Fetch a repository's source again.", "Fetch", "200", Answer::Of("Taken"))
    },
    Route {
        parameters: &[("If-None-Match", "header", "The ETag read before: 304 when nothing changed.")],
        ..read(
            "/agents/{iid}/surface",
            Band::Sandbox,
            "An Agent's Menu and Allowed picks.",
            Answer::Of("Surface"),
            &["404"],
        )
    },
    Route {
        band: Band::Sandbox,
        parameters: &[("x-jr2-pick-id", "header", "Names the pick: a repeat gets the same answer.")],
        ..act("/agents/{iid}/events", "A pick.", "Event", "200", Answer::Of("PickAnswer"))
    },
    read(
        "/agents/{iid}/events/{delivery}",
        Band::Sandbox,
        "The answer to an earlier pick, waited for up to 25 s while it is outstanding.",
        Answer::Of("PickAnswer"),
        &["204", "404"],
    ),
];

/// The document.
pub fn document() -> Value {
    let mut paths = Map::new();
    for route in ROUTES {
        let item = paths.entry(route.path).or_insert_with(|| json!({}));
        item[route.method] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "jr2",
            "description": "The Orchestrator. Routes without `security` are open: they show structure, never a run's state.",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "http://127.0.0.1:4000" }],
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "securitySchemes": {
                "instance": { "type": "http", "scheme": "bearer", "description": "`.jr2/token`" },
                "sandbox": { "type": "http", "scheme": "bearer", "description": "A Sandbox's own token: for itself alone." },
            },
        },
    })
}

fn operation(route: &Route) -> Value {
    let in_path = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let mut parameters: Vec<Value> = in_path
        .map(|name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }))
        .collect();
    parameters.extend(route.parameters.iter().map(|(name, place, about)| {
        json!({ "name": name, "in": place, "description": about, "schema": { "type": "string" } })
    }));
    let content = match route.answer {
        Answer::Of(name) => json!({ "application/json": { "schema": reference(name) } }),
        Answer::Json => json!({ "application/json": { "schema": { "type": "object" } } }),
        Answer::Text => json!({ "text/plain": { "schema": { "type": "string" } } }),
        Answer::Feed => json!({ "text/event-stream": { "schema": { "type": "string" } } }),
    };
    let mut responses = Map::new();
    responses.insert(route.status.to_owned(), json!({ "description": "taken", "content": content }));
    let guarded = (route.band != Band::Open).then_some("401");
    for status in route.refusals.iter().copied().chain(guarded) {
        if status == "204" {
            responses.insert(status.to_owned(), json!({ "description": "not yet: ask again" }));
            continue;
        }
        let body = json!({ "application/json": { "schema": reference("Refusal") } });
        responses.insert(status.to_owned(), json!({ "description": refusal(status), "content": body }));
    }
    responses.sort_keys();
    let mut operation = json!({ "summary": route.about, "parameters": parameters, "responses": responses });
    if let Some(body) = route.body {
        operation["requestBody"] = json!({ "content": { "application/json": { "schema": reference(body) } } });
    }
    match route.band {
        Band::Open => {}
        Band::Sandbox => operation["security"] = json!([{ "instance": [] }, { "sandbox": [] }]),
        Band::Token => operation["security"] = json!([{ "instance": [] }]),
    }
    operation
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn refusal(status: &str) -> &'static str {
    match status {
        "400" => "the request does not fit",
        "401" => "the token is missing or wrong",
        "403" => "not for this token",
        "422" => "the key started another run",
        "404" => "no such thing",
        "409" => "the run stands elsewhere",
        _ => "stopping",
    }
}

/// Shapes of the wire by name.
fn schemas() -> Value {
    let text = json!({ "type": "string" });
    let object = json!({ "type": "object" });
    let mut all = Map::new();
    let derived: [(&str, utoipa::openapi::RefOr<utoipa::openapi::schema::Schema>); 7] = [
        ("RunStatus", RunStatus::schema()),
        ("RunSummary", RunSummary::schema()),
        ("ChildView", ChildView::schema()),
        ("GateView", GateView::schema()),
        ("GateEvent", GateEvent::schema()),
        ("TurnView", TurnView::schema()),
        ("WaitView", WaitView::schema()),
    ];
    for (name, schema) in derived {
        all.insert(name.to_owned(), serde_json::to_value(schema).unwrap_or_default());
    }
    let mut add = |name: &str, required: &[&str], properties: Value| {
        all.insert(name.to_owned(), json!({ "type": "object", "required": required, "properties": properties }));
    };
    add("RunList", &["runs"], json!({ "runs": { "type": "array", "items": reference("RunSummary") } }));
    add("Started", &["runId", "instanceId"], json!({ "runId": text, "instanceId": text }));
    add("StartProgram", &["program"], json!({ "program": text, "input": {} }));
    add("Input", &[], json!({}));
    add("Fetch", &["identity"], json!({ "identity": text }));
    add("Event", &["type"], json!({ "type": text, "pickId": text, "keep": { "type": "boolean" } }));
    add(
        "Taken",
        &["ok"],
        json!({ "ok": { "type": "boolean" }, "activation": text, "buffered": { "type": "boolean" } }),
    );
    let texts = json!({ "type": "array", "items": text });
    add(
        "Refusal",
        &["error"],
        json!({ "error": text, "problems": texts, "accepts": texts, "allowed": texts, "runs": texts, "activation": text }),
    );
    let items = json!({ "type": "array", "items": reference("MenuItem") });
    add(
        "Surface",
        &["instanceId"],
        json!({ "instanceId": text, "runId": text, "sandbox": text, "menu": items, "allowed": texts, "picks": text }),
    );
    add(
        "MenuItem",
        &["name"],
        json!({ "name": text, "description": text, "input": object, "semantics": text, "briefing": text }),
    );
    let flag = json!({ "type": "boolean" });
    add(
        "PickAnswer",
        &["delivered", "event", "moved", "turnComplete", "deliveryId"],
        json!({
            "delivered": flag, "event": text, "moved": flag, "turnComplete": flag, "deliveryId": text, "allowed": texts,
            "outstanding": flag, "answered": flag, "nothingRan": flag, "reply": reference("PickReply"),
        }),
    );
    add(
        "PickReply",
        &[],
        json!({ "party": text, "event": text, "payload": json!({}), "child": text, "output": json!({}) }),
    );
    Value::Object(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The checked-in document; `JR2_BLESS=1` writes it anew.
    const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/openapi.json");

    #[test]
    fn the_checked_in_document_is_the_generated_one() {
        let made = serde_json::to_string_pretty(&document()).unwrap() + "\n";
        if std::env::var_os("JR2_BLESS").is_some() {
            std::fs::write(PATH, &made).unwrap();
        }
        let kept = std::fs::read_to_string(PATH).unwrap_or_default();
        assert!(kept == made, "docs/openapi.json has drifted: run this test with JR2_BLESS=1");
    }

    /// `method path` of every `.route(…)` in a source text.
    fn routes_of(text: &str) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        for part in text.split(".route(\"").skip(1) {
            let (path, rest) = part.split_once('"').unwrap();
            let rest = rest.split(".route(").next().unwrap().split(';').next().unwrap();
            for method in ["get", "post", "put", "delete", "patch"] {
                if rest.contains(&format!(" {method}(")) || rest.contains(&format!(").{method}(")) {
                    found.insert(format!("{method} {path}"));
                }
            }
        }
        found
    }

    #[test]
    fn every_route_of_the_router_is_in_the_document_and_no_other() {
        let mut served = routes_of(include_str!("mod.rs"));
        served.extend(routes_of(include_str!("agents.rs")));
        let written: BTreeSet<String> = ROUTES.iter().map(|r| format!("{} {}", r.method, r.path)).collect();
        assert_eq!(written, served);
        assert_eq!(written.len(), ROUTES.len());
    }

    #[test]
    fn every_reference_has_its_schema() {
        let document = document();
        let text = document.to_string();
        for part in text.split("\"#/components/schemas/").skip(1) {
            let name = part.split('"').next().unwrap();
            assert!(document["components"]["schemas"].get(name).is_some(), "{name}");
        }
    }
}
