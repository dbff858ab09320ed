//! Picks from outside: receipts, refusals, re-sends, outstanding answers, restatements (spec 7.6, 7.11, decisions 13, 34).

use crate::world::{Answer, World, last_of, pick_answer, surface};
use serde_json::json;

fn pick(id: &'static str, tool: &'static str) -> Answer {
    Answer::Calls(vec![(id, tool, json!({"note": id}).to_string())])
}

#[tokio::test]
async fn bt_7_a_pick_that_keeps_the_turn_open_says_what_is_allowed_after_it() {
    let world = World::start().await;
    world.script(vec![pick("c1", "mcp__jr2__done"), pick("c2", "mcp__jr2__more")]);
    world.fake.with(|script| {
        script.on_pick = Some(Box::new(|body| match body["type"].as_str().unwrap() {
            "done" => (200, pick_answer("done", true, false, &["more"])),
            _ => (200, pick_answer("more", true, true, &[])),
        }));
    });
    let settled = world.turn(world.body("Go.")).await;
    assert_eq!(settled["outcome"], "completed");
    world.fake.with(|script| {
        assert_eq!(
            last_of(&script.model_requests[1], "tool"),
            "Delivered \"done\" to the workflow (delivery d1). The workflow is still in the state that asked for this turn, so it \
             is not over yet. Allowed now: `mcp__jr2__more`."
        );
        assert_eq!(script.model_requests.len(), 2);
    });
    let record = std::fs::read_to_string(world.log_file()).unwrap();
    assert!(record.contains("your turn is over. Stop here"), "the last receipt stands in the record");
}

#[tokio::test]
async fn e_5_a_refused_pick_comes_back_with_the_orchestrator_s_words() {
    let world = World::start().await;
    world.script(vec![pick("c1", "mcp__jr2__more"), Answer::Text("Oh.")]);
    world.fake.with(|script| {
        script.on_pick =
            Some(Box::new(|_| (400, json!({"error": "invalid \"more\" payload: x", "allowed": ["done"]}))));
    });
    world.turn(world.body("Go.")).await;
    world.fake.with(|script| {
        let said = last_of(&script.model_requests[1], "tool");
        assert_eq!(said, "invalid \"more\" payload: x Allowed now: `mcp__jr2__done`.");
        assert_eq!(script.picks.len(), 1);
    });
}

#[tokio::test]
async fn decision_34_an_unknown_outcome_is_sent_again_under_the_same_id_only_when_picks_are_keyed() {
    for (keyed, posts) in [(true, 2), (false, 1)] {
        let world = World::start().await;
        world.script(vec![pick("c1", "mcp__jr2__done"), Answer::Text("Oh.")]);
        world.fake.with(|script| {
            if !keyed {
                let mut old = surface(&["done"], &["done"]);
                old.as_object_mut().unwrap().remove("picks");
                script.surface = Some(old);
            }
            let faults = std::sync::atomic::AtomicUsize::new(0);
            script.on_pick = Some(Box::new(move |_| {
                if faults.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0 {
                    return (503, json!({"error": "stopping"}));
                }
                (200, pick_answer("done", true, true, &[]))
            }));
        });
        world.turn(world.body("Go.")).await;
        world.fake.with(|script| {
            assert_eq!(script.picks.len(), posts, "keyed: {keyed}");
            if keyed {
                assert_eq!(script.picks[0], script.picks[1]);
            } else {
                assert_eq!(script.picks[0].get("pickId"), None);
                assert_eq!(
                    last_of(&script.model_requests[1], "tool"),
                    "the Orchestrator is unavailable (stopping), so the pick was not taken — try it again"
                );
            }
        });
    }
}

#[tokio::test]
async fn decision_13_an_outstanding_pick_is_polled_for_its_answer() {
    let world = World::start().await;
    world.script(vec![pick("c1", "mcp__jr2__done"), Answer::Text("Thanks.")]);
    let answer = json!({"delivered": true, "event": "done", "moved": true, "turnComplete": false, "deliveryId": "d1",
        "allowed": ["more"], "answered": true,
        "reply": {"party": "Gate review", "event": "approve", "payload": {"note": "ok"}}});
    world.fake.with(|script| {
        script.on_pick = Some(Box::new(|_| {
            let mut asked = pick_answer("done", true, false, &[]);
            asked["outstanding"] = json!(true);
            (200, asked)
        }));
        script.outstanding = [None, None, Some(answer)].into();
    });
    world.turn(world.body("Go.")).await;
    world.fake.with(|script| {
        assert_eq!(
            last_of(&script.model_requests[1], "tool"),
            "Delivered \"done\" to the workflow (delivery d1). Its answer: approve from Gate review, with {\"note\":\"ok\"}. The \
             workflow is still in the state that asked for this turn, so it is not over yet. Allowed now: `mcp__jr2__more`."
        );
        assert!(script.outstanding.is_empty());
    });
}

#[tokio::test]
async fn an_abort_ends_the_wait_for_an_outstanding_answer() {
    let world = World::start().await;
    world.script(vec![pick("c1", "mcp__jr2__done")]);
    world.fake.with(|script| {
        script.on_pick = Some(Box::new(|_| {
            let mut asked = pick_answer("done", true, false, &[]);
            asked["outstanding"] = json!(true);
            (200, asked)
        }));
    });
    let submission = world.admit(world.body("Go.")).await["submissionId"].clone();
    world.fake.until("the pick is posted", |script| !script.picks.is_empty()).await;
    let (_, answer, _) = world.call("POST", &format!("{}/abort", world.path()), None).await;
    assert_eq!(answer, json!({"aborted": true}));
    assert_eq!(world.settled(submission.as_str().unwrap()).await["outcome"], "aborted");
}

#[tokio::test]
async fn bt_8_a_pick_opened_by_another_party_is_restated_once_at_the_step_boundary() {
    let world = World::start().await;
    let bash = |id, command: &str| Answer::Calls(vec![(id, "bash", json!({ "command": command }).to_string())]);
    world.script(vec![bash("c1", "true"), bash("c2", "true || true"), Answer::Text("Done.")]);
    let mut opened = surface(&["done", "more"], &["done", "more"]);
    opened["menu"][1]["briefing"] = json!("Only when asked.");
    world.fake.with(|script| script.surface_at_request = vec![(1, opened)]);
    let mut body = world.body("Go.");
    body["notices"] = json!([{"kind": "conversation-new", "reason": "x"}]);
    world.turn(body).await;
    world.fake.with(|script| {
        assert_eq!(script.surface_reads, [200, 200, 304]);
        let said = |request: usize| -> Vec<String> {
            let messages = script.model_requests[request]["messages"].as_array().unwrap();
            let users = messages.iter().filter(|m| m["role"] == "user");
            users.map(|m| m["content"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(said(0).len(), 1);
        assert_eq!(said(1)[0], said(0)[0], "the first block is unchanged");
        assert_eq!(
            said(1)[1..],
            ["<jr2-turn>\nOnly when asked.\nThe workflow's state changed since you last read the Allowed picks. Allowed \
              now: `mcp__jr2__done`, `mcp__jr2__more`.\n</jr2-turn>"]
        );
        assert_eq!(said(2), said(1), "restated once");
    });
}

#[tokio::test]
async fn decision_21_a_surface_that_goes_away_ends_the_turn_without_a_further_model_call() {
    let world = World::start().await;
    world.script(vec![Answer::Calls(vec![("c1", "bash", json!({"command": "true"}).to_string())])]);
    world.fake.with(|script| script.surface_at_request = vec![(1, serde_json::Value::Null)]);
    let settled = world.turn(world.body("Go.")).await;
    assert_eq!(settled["outcome"], "aborted");
    assert_eq!(world.fake.with(|script| script.model_requests.len()), 1);
}

#[tokio::test]
async fn two_events_with_one_tool_name_stay_apart() {
    let world = World::start().await;
    world.fake.with(|script| script.surface = Some(surface(&["re.do", "re/do"], &["re.do", "re/do"])));
    world.script(vec![pick("c1", "mcp__jr2__re_do_2")]);
    world.turn(world.body("Go.")).await;
    world.fake.with(|script| {
        assert_eq!(script.picks[0]["type"], "re/do");
        assert!(last_of(&script.model_requests[0], "user").contains("`mcp__jr2__re_do`, `mcp__jr2__re_do_2`"));
    });
}
