//! The prompt cache from outside (group G): every request of a conversation begins with the bytes of the one before it,
//! over Turns, faults, restarts and changed Menus; a compaction is the only cut, and it is marked.

use crate::world::{Answer, World, surface};
use serde_json::{Value, json};

const OPEN: &str = "The conversation history before this point was compacted";

/// Two cuts of one conversation have different ones.
const SUMMARIES: [&str; 4] = ["One.", "Two.", "Three.", "Four."];

/// What a provider's cache sees: the tools, then the messages.
fn prompt(request: &Value) -> String {
    let messages: Vec<String> = request["messages"].as_array().unwrap().iter().map(Value::to_string).collect();
    format!("{}\n{}", request["tools"], messages.join("\n"))
}

/// Where two requests part, in a few words.
fn parting(first: &Value, second: &Value) -> String {
    let (first, second) = (prompt(first), prompt(second));
    let at = first.bytes().zip(second.bytes()).take_while(|(a, b)| a == b).count();
    let around = |text: &str| -> String { text.chars().skip(at.saturating_sub(100)).take(300).collect() };
    format!("at {at}:\n{}\n{}", around(&first), around(&second))
}

/// Whether the second request begins with the first.
fn grows(first: &Value, second: &Value) -> bool {
    prompt(second).starts_with(&prompt(first))
}

/// mozilla-ai/clawbolt#1084: a provider's cache serves the second conversation of a seat from the first.
#[tokio::test]
async fn g05_conversations_of_one_definition_share_their_prefix() {
    let world = World::start().await;
    for iid in ["run1/root/coder/00000001", "run2/root/coder/00000001"] {
        let path = format!("/agents/coder/{}", iid.replace('/', "%2F"));
        let (status, answer, _) = world.call("POST", &path, Some(world.body("Go."))).await;
        assert_eq!(status, 200, "{answer}");
        world
            .fake
            .until("it is asked", |script| script.model_requests.len() == usize::from(iid.starts_with("run2")) + 1)
            .await;
    }
    let all = world.fake.with(|script| script.model_requests.clone());
    assert_eq!(prompt(&all[0]), prompt(&all[1]), "the same definition, Menu, prompt and directory");
}

fn bash(n: usize, counted: u64) -> Answer {
    let command = json!({"command": format!("echo {n}; head -c 6000 /dev/zero | tr '\\0' 'x'")}).to_string();
    Answer::Counted(counted, Box::new(Answer::Calls(vec![("call_0", "bash", command)])))
}

/// goruck/home-generative-agent#617, letta-ai/letta-code#4551, Systemorph/MeshWeaver#2108
#[tokio::test]
async fn g01_g03_g04_requests_of_a_conversation_only_grow_and_a_compaction_is_the_only_cut() {
    let config = json!({"providers": [{"id": "p", "baseUrl": "/providers/p", "contextWindow": 20_000}]}).to_string();
    let mut world = World::start_with(&[("JR2_HARNESS_JSON", &config)]).await;
    let mut counted = 1_000;
    for turn in 0..12 {
        if turn == 7 {
            world.kill();
            world.boot().await;
        }
        counted += 1_800;
        let compacts = counted > 13_334;
        let mut script = vec![bash(turn, counted - 1_700)];
        match turn % 4 {
            0 => script.push(Answer::Calls(vec![("call_0", "bush", "{\"cut".into())])),
            1 => script.push(Answer::Cut(vec![("call_0", "write", "{\"path\": \"a".into())])),
            2 => script.push(Answer::Text("")),
            _ => {}
        }
        if compacts {
            script.insert(1, Answer::Text(SUMMARIES[turn / 3]));
            counted = 7_000;
        }
        script.push(Answer::Counted(counted, Box::new(Answer::Text("Done."))));
        let allowed: &[&str] = if turn % 2 == 0 { &["done"] } else { &["more"] };
        world.fake.with(|script| script.surface = Some(surface(&["done", "more"], allowed)));
        world.script(script);
        let mut body = world.body(&format!("Turn {turn}."));
        body["notices"] = json!([{"kind": "memory-limit", "limit": "2Gi"}]);
        assert_eq!(world.turn(body).await["outcome"], "completed", "turn {turn}: {}", world.stderr());
    }
    let all = world.fake.with(|script| script.model_requests.clone());
    // The summariser's own questions are no part of the conversation.
    let all: Vec<&Value> = all.iter().filter(|request| request.get("tools").is_some()).collect();
    assert!(all.len() > 30, "{}", all.len());
    let mut cuts = 0;
    for pair in all.windows(2) {
        assert_eq!(pair[0]["tools"].to_string(), pair[1]["tools"].to_string(), "tools are frozen");
        assert_eq!(pair[0]["messages"][0].to_string(), pair[1]["messages"][0].to_string(), "so is the system prompt");
        if !grows(pair[0], pair[1]) {
            let marked = pair[1]["messages"][1]["content"].as_str().unwrap().starts_with(OPEN);
            assert!(
                marked && pair[0]["messages"][1] != pair[1]["messages"][1],
                "an unmarked cut: {}",
                parting(pair[0], pair[1])
            );
            cuts += 1;
        }
    }
    let compacted = world.stdout().matches("[compacted]").count();
    assert!(cuts >= 1 && cuts == compacted, "{cuts} cuts, {compacted} compactions");
    // This test can fail: a request whose history changed does not grow.
    let mut changed = all[1].clone();
    changed["messages"][1]["content"] = json!("x");
    assert!(!grows(all[0], &changed));
}
