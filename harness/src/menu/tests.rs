use super::*;
use jr2_shared::surface::{PickAnswer, PickReply};
use serde_json::{Value, json};

fn menu(surface: Value) -> Menu {
    Menu::of(serde_json::from_value(surface).unwrap()).unwrap()
}

fn ab() -> Menu {
    menu(json!({"instanceId": "i", "menu": [{"name": "a"}, {"name": "b"}], "allowed": ["b", "a"]}))
}

fn answer(body: Value) -> PickAnswer {
    let mut whole = json!({"delivered": true, "event": "a", "moved": true, "turnComplete": false, "deliveryId": "d1"});
    whole.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
    serde_json::from_value(whole).unwrap()
}

const R1: &str = "Delivered \"a\" to the workflow (delivery d1).";
const OPEN: &str = " The workflow is still in the state that asked for this turn, so it is not over yet.";
const OVER: &str =
    " The workflow consumed it and moved on: your turn is over. Stop here — do not call this or any other tool again.";
const ALLOWED: &str = " Allowed now: `mcp__jr2__a`, `mcp__jr2__b`.";
const NONE: &str =
    " Allowed now: none — the workflow's current state accepts no pick yet, so any pick is refused or does nothing.";

#[test]
fn r_1_to_8_every_receipt_to_the_byte() {
    let said = |body: Value| receipt(&ab(), &answer(body));
    assert_eq!(said(json!({"allowed": ["b", "a"]})), format!("{R1}{OPEN}{ALLOWED}"), "R4, in Menu order");
    assert_eq!(said(json!({"allowed": []})), format!("{R1}{OPEN}{NONE}"));
    assert_eq!(said(json!({})), format!("{R1}{OPEN}"), "decision 23: a missing list is never \"none\"");
    assert_eq!(said(json!({"turnComplete": true, "allowed": []})), format!("{R1}{OVER}"), "R3");
    assert_eq!(
        said(json!({"moved": false, "allowed": ["a", "b"]})),
        format!(
            "{R1} The workflow did NOT act on it: no transition in its current state accepts \"a\" with these arguments. Your \
             turn is not over. Do not repeat this call unchanged — change the arguments, pick a different tool, or do more \
             work first.{ALLOWED}"
        ),
        "R2"
    );
    let reply = json!({"party": "Gate review", "event": "approve", "payload": {"x": 1}});
    let answered = "Its answer: approve from Gate review, with {\"x\":1}.";
    assert_eq!(said(json!({"answered": true, "reply": reply})), format!("{R1} {answered}{OPEN}"), "R8");
    assert_eq!(said(json!({"answered": true})), format!("{R1} No reply came back for it.{OPEN}"), "R7");
    assert_eq!(
        said(json!({"nothingRan": true, "allowed": []})),
        format!("{R1} The pick came straight back: it moved the workflow, and nothing ran.{OPEN}{NONE}"),
        "R6"
    );
    let words = briefing::answer_words(&PickReply::Party {
        party: "Gate review".into(),
        event: "approve".into(),
        payload: json!({"x": 1}),
    });
    assert_eq!(words, answered, "N-87: the same words in a receipt and in a notice");
}

#[test]
fn e_1_to_6_every_refusal_to_the_byte() {
    let said = |why: PickRefusal| refusal(&ab(), "r/root/coder", &why);
    assert_eq!(
        said(PickRefusal::Transport { detail: "refused".into() }),
        "the pick never reached the Orchestrator (refused) — try it again"
    );
    assert_eq!(said(PickRefusal::Gone), "no live surface for agent \"r/root/coder\" — this turn is over");
    assert_eq!(
        said(PickRefusal::Unavailable { error: "stopping".into() }),
        "the Orchestrator is unavailable (stopping), so the pick was not taken — try it again"
    );
    assert_eq!(said(PickRefusal::Custodian { detail: "refused".into() }), "the Custodian could not reach it (refused)");
    let error = "\"i\" does not accept \"x\" (accepts: a, b)".to_owned();
    let all = Some(vec!["a".to_owned(), "b".to_owned()]);
    assert_eq!(said(PickRefusal::Invalid { error: error.clone(), allowed: all }), format!("{error}{ALLOWED}"));
    assert_eq!(said(PickRefusal::Invalid { error: error.clone(), allowed: Some(vec![]) }), format!("{error}{NONE}"));
    assert_eq!(said(PickRefusal::Invalid { error: error.clone(), allowed: None }), error);
    assert_eq!(said(PickRefusal::Other { status: 418 }), "the Orchestrator answered HTTP 418");
}

#[test]
fn e_7_an_event_that_is_no_ack_fails_the_read() {
    let surface =
        json!({"instanceId": "i", "menu": [{"name": "a"}, {"name": "b", "semantics": "deferred"}], "allowed": []});
    assert_eq!(
        Menu::of(serde_json::from_value(surface).unwrap()).unwrap_err(),
        "event \"b\" is `deferred`, which the Harness does not implement (ADR-0013: reserved, not built — an Agent must not be \
         handed a tool whose contract is a lie)"
    );
}

#[test]
fn p_16_older_surfaces_are_read_generously() {
    let old = menu(json!({"instanceId": "i", "accepts": [{"name": "a"}, {"name": "b"}], "allowed": ["a"]}));
    assert_eq!(old.allowed, ["a", "b"], "no menu: accepts is both");
    assert_eq!(menu(json!({"instanceId": "i", "menu": [{"name": "a"}]})).allowed, ["a"], "no allowed: all of it");
    assert_eq!(ab().allowed, ["a", "b"], "in Menu order");
    assert!(!ab().keyed && menu(json!({"instanceId": "i", "picks": "keyed"})).keyed);
    assert!(menu(json!({"instanceId": "i"})).picks.is_empty());
}

#[test]
fn h_27_events_that_share_a_tool_name_get_distinct_ones_every_time() {
    let tools = |names: &[&str]| -> Vec<String> {
        let items: Vec<Value> = names.iter().map(|name| json!({ "name": name })).collect();
        menu(json!({"instanceId": "i", "menu": items})).picks.into_iter().map(|pick| pick.tool).collect()
    };
    assert_eq!(tools(&["a.b", "a/b", "c"]), ["mcp__jr2__a_b", "mcp__jr2__a_b_2", "mcp__jr2__c"]);
    assert_eq!(tools(&["a.b", "a_b"]), ["mcp__jr2__a_b_2", "mcp__jr2__a_b"], "the plain name keeps its tool");
    assert_eq!(tools(&["a.b", "a_b", "a_b_2"]), ["mcp__jr2__a_b_3", "mcp__jr2__a_b", "mcp__jr2__a_b_2"]);
    assert_eq!(tools(&["a", "a"]), ["mcp__jr2__a"], "one event named twice is one pick");
}

#[test]
fn decision_22_parameters_are_the_input_without_schema() {
    let input = json!({"$schema": "x", "type": "object", "properties": {"z": {}, "a": {}}, "required": ["z"]});
    let items =
        json!([{"name": "a", "description": "Do a.", "input": input}, {"name": "b", "input": 7}, {"name": "c"}]);
    let specs = menu(json!({"instanceId": "i", "menu": items})).specs();
    assert_eq!(
        specs[0].parameters.to_string(),
        r#"{"type":"object","properties":{"z":{},"a":{}},"required":["z"]}"#,
        "the order of the wire is kept"
    );
    assert_eq!(specs[0].description, "Do a.");
    assert_eq!(specs[1].description, "Tells the workflow \"b\".");
    for spec in &specs[1..] {
        assert_eq!(spec.parameters, json!({"type": "object", "properties": {}}));
    }
}
