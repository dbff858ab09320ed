//! What a model is told around its task, as it arrives at the model server (spec 8.6).

use crate::world::{Answer, IID, World, last_of, pick_answer, surface};
use serde_json::{Value, json};

fn pick(id: &'static str, name: &'static str) -> Answer {
    Answer::Calls(vec![(id, name, "{}".to_owned())])
}

fn requests(world: &World) -> Vec<Value> {
    world.fake.with(|script| script.model_requests.clone())
}

#[tokio::test]
async fn bt_1_two_turns_of_one_seat_have_the_same_system_prompt_and_tools_to_the_byte() {
    let world = World::start().await;
    world.turn(world.body("First.")).await;
    world.fake.with(|script| script.surface = Some(surface(&["done", "more"], &["more"])));
    let mut second = world.body("Second.");
    second["notices"] = json!([{"kind": "memory-limit", "limit": "2Gi"}]);
    world.turn(second).await;
    let requests = requests(&world);
    assert_eq!(requests[0]["messages"][0].to_string(), requests[1]["messages"][0].to_string());
    assert_eq!(requests[0]["tools"].to_string(), requests[1]["tools"].to_string());
    assert_eq!(requests[0]["messages"][1], requests[1]["messages"][1], "B-7: the first Turn part stays as it was");
}

#[tokio::test]
async fn bt_7_a_pick_that_keeps_the_turn_open_says_what_is_allowed_after_it() {
    let world = World::start().await;
    world.script(vec![pick("c1", "mcp__jr2__done"), Answer::Text("Now I wait.")]);
    world.fake.with(|script| {
        script.on_pick = Some(Box::new(|_| (200, pick_answer("done", true, false, &["more"]))));
        script.surface_at_request = vec![(1, surface(&["done", "more"], &["more"]))];
    });
    world.turn(world.body("Go.")).await;
    let requests = requests(&world);
    assert!(last_of(&requests[1], "tool").ends_with("so it is not over yet. Allowed now: `mcp__jr2__more`."));
    let users = requests[1]["messages"].as_array().unwrap().iter().filter(|m| m["role"] == "user").count();
    assert_eq!(users, 1, "its own pick is not restated");
}

#[tokio::test]
async fn bt_9_a_pick_s_briefing_is_said_on_a_turn_that_may_make_it_and_on_no_other() {
    let with = |allowed: &[&str]| {
        let mut surface = surface(&["done", "more"], allowed);
        surface["menu"][1]["briefing"] = json!("Only after the tests pass.");
        surface
    };
    let world = World::start().await;
    for (turn, allowed, said) in [(0, &["done"][..], false), (1, &["done", "more"][..], true)] {
        world.fake.with(|script| script.surface = Some(with(allowed)));
        world.turn(world.body("Go.")).await;
        let requests = requests(&world);
        assert_eq!(last_of(&requests[turn], "user").contains("Only after the tests pass.\nAllowed now: "), said);
    }
}

#[tokio::test]
async fn bt_11_no_option_turns_the_briefing_off() {
    let world = World::start().await;
    let mut body = world.body("Go.");
    for key in ["briefing", "standing", "turnPart", "noBriefing"] {
        body[key] = json!(false);
        body["definition"][key] = json!(false);
    }
    body["definition"]["instructions"] = json!("");
    world.turn(body).await;
    let requests = requests(&world);
    assert!(
        requests[0]["messages"][0]["content"].as_str().unwrap().starts_with("<jr2-briefing>\njr2 runs the workflow")
    );
    let said = last_of(&requests[0], "user");
    assert!(said.starts_with("Go.\n\n<jr2-turn>\nWorking directory: ") && said.ends_with("\n</jr2-turn>"), "{said}");
}

#[tokio::test]
async fn n_16_two_notices_with_the_same_words_are_one_line_and_both_are_carried() {
    let world = World::start().await;
    let mut body = world.body("Go.");
    body["admissionId"] = json!(format!("{IID}#1"));
    let kill = |id: &str| json!({"kind": "memory-limit", "limit": "2Gi", "peak": "1.9Gi", "id": id});
    body["notices"] = json!([kill("n1"), kill("n2")]);
    let first = world.admit(body.clone()).await;
    assert_eq!(first.get("carried"), None);
    world.settled(first["submissionId"].as_str().unwrap()).await;
    assert_eq!(last_of(&requests(&world)[0], "user").matches("Notice: ").count(), 1);
    assert_eq!(world.admit(body).await["carried"], json!(["n1", "n2"]));
}

#[tokio::test]
async fn decision_12_at_most_32_notices_are_taken_and_the_answer_says_which() {
    let world = World::start().await;
    let mut body = world.body("Go.");
    let reason = "x".repeat(900);
    let notices: Vec<Value> = (0..40)
        .map(|n| json!({"kind": "conversation-new", "reason": format!("{n} {reason}"), "id": format!("n{n}")}))
        .collect();
    body["notices"] = json!(notices);
    let answer = world.admit(body).await;
    assert_eq!(answer["carried"], json!((0..32).map(|n| format!("n{n}")).collect::<Vec<_>>()));
    world.settled(answer["submissionId"].as_str().unwrap()).await;
    let requests = requests(&world);
    let said = last_of(&requests[0], "user");
    assert_eq!(said.matches("Notice: ").count(), 32);
    assert!(
        said.len() <= (16 << 10) + "Go.\n\n".len() && said.ends_with("Allowed now: `mcp__jr2__done`.\n</jr2-turn>")
    );
}

#[tokio::test]
async fn decision_34_the_receipt_of_a_cut_pick_follows_the_re_admit_text() {
    let world = World::start().await;
    world.turn(world.body("First.")).await;
    let mut body = world.body(jr2_shared::prompts::READMIT_KEPT);
    body["kept"] = json!(true);
    body["receipt"] = json!({"delivered": true, "event": "more", "moved": true, "turnComplete": false, "deliveryId": "d-4",
        "allowed": ["more"], "answered": true,
        "reply": {"party": "Gate review", "event": "approve", "payload": {"note": "ok"}}});
    world.turn(body.clone()).await;
    let requests_so_far = requests(&world);
    let said = last_of(&requests_so_far[1], "user");
    let expected = format!(
        "{}\n\nDelivered \"more\" to the workflow (delivery d-4). Its answer: approve from Gate review, with \
         {{\"note\":\"ok\"}}. The workflow is still in the state that asked for this turn, so it is not over \
         yet.\n\n<jr2-turn>\nWorking directory: {}\nAllowed now: `mcp__jr2__done`.\n</jr2-turn>",
        jr2_shared::prompts::READMIT_KEPT,
        world.work().display()
    );
    assert_eq!(said, expected);
    body["receipt"] = json!({"event": 7});
    world.turn(body).await;
    assert!(
        last_of(&requests(&world)[2], "user")
            .starts_with(&format!("{}\n\n<jr2-turn>", jr2_shared::prompts::READMIT_KEPT)),
        "a receipt of another shape is dropped, never an error"
    );
}
