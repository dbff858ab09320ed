//! The tools block: Working tools first, then the Menu, in the same bytes (spec 6.6, 6.7, H-27).

use crate::suite::case::Need::Shared;
use crate::suite::case::{Outcome, contains, ensure, failed, same, same_text};
use crate::suite::orchestrator::Reply;
use crate::suite::stage::{RequestExt, Stage, call, text};
use serde_json::json;

crate::suite_cases! {
    "menu.001" "6.7" Shared, "access write has read, write, edit, bash, grep, glob, then the Menu" => write;
    "menu.002" "H-24" Shared, "access read has no write and no edit, and keeps bash" => read;
    "menu.003" "6.7" Shared, "access none has the Menu alone" => none;
    "menu.004" "BT-1" Shared, "the tools block has the same bytes over Turns, whatever is allowed" => same_bytes;
    "menu.005" "H-27" Shared, "other characters of an event's name become `_`, and the event is picked by its own name" => names;
    "menu.006" "P-2" Shared, "the Menu's order is the surface's" => order;
    "menu.007" "6.6" Shared, "an event's description and schema reach the model, `$schema` does not" => schema;
    "menu.008" "wire.md" Shared, "two events whose names collide stay apart" => collide;
    "menu.009" "BT-1" Shared, "the tools block has the same bytes within a Turn, whatever opens meanwhile" => within;
    "menu.010" "6.7" Shared, "a withheld tool that is called all the same does not run" => withheld;
}

const WRITE: [&str; 6] = ["read", "write", "edit", "bash", "grep", "glob"];

async fn tools_of(stage: &Stage, access: &str, want: &[&str]) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(text("Done."));
    let mut body = seat.body("Hello.")?;
    body["definition"]["workspace"] = json!(access);
    seat.turn_of(&body).await?;
    let want: Vec<String> = want.iter().chain(&["mcp__jr2__done", "mcp__jr2__more"]).map(|s| (*s).to_owned()).collect();
    same(&format!("tools of access {access}"), seat.asked(1).await?.tool_names(), want)
}

async fn write(stage: &Stage) -> Outcome {
    tools_of(stage, "write", &WRITE).await
}

async fn read(stage: &Stage) -> Outcome {
    tools_of(stage, "read", &["read", "bash", "grep", "glob"]).await
}

async fn none(stage: &Stage) -> Outcome {
    tools_of(stage, "none", &[]).await
}

async fn same_bytes(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let menu = ["alpha", "beta", "gamma"];
    for allowed in [&["alpha"][..], &["gamma"], &[], &["beta", "gamma"]] {
        seat.surface(&menu, allowed);
        seat.lane.say(text("Done."));
        seat.turn("Hello.").await?;
    }
    let requests = seat.lane.requests();
    let Some(first) = requests.first().and_then(|request| request.tools_text()) else {
        return failed("the first request has no tools");
    };
    for (n, request) in requests.iter().enumerate() {
        same_text(&format!("the tools of Turn {}", n + 1), request.tools_text().unwrap_or_default(), first)?;
    }
    same("requests", requests.len(), 4)
}

async fn names(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.surface(&["plan.approve now/é", "with-dash_1"], &["plan.approve now/é"]);
    seat.lane.say(call("c1", "mcp__jr2__plan_approve_now__", json!({})));
    seat.turn("Hello.").await?;
    let request = seat.asked(1).await?;
    let tools = request.tool_names();
    let want = ["mcp__jr2__plan_approve_now__", "mcp__jr2__with-dash_1"].map(str::to_owned);
    ensure(tools.ends_with(&want), || format!("tools: {tools:?}"))?;
    contains("the Turn part", &request.last_of("user"), "Allowed now: `mcp__jr2__plan_approve_now__`.")?;
    let picked = seat.desk.picks().first().map(|pick| pick.body["type"].clone());
    same("the event picked", picked, Some(json!("plan.approve now/é")))
}

async fn order(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.surface(&["zulu", "alpha", "mike"], &["zulu", "mike"]);
    seat.lane.say(text("Done."));
    seat.turn("Hello.").await?;
    let request = seat.asked(1).await?;
    let menu: Vec<String> = request.tool_names().into_iter().filter(|name| name.starts_with("mcp__")).collect();
    same("the Menu", menu, ["mcp__jr2__zulu", "mcp__jr2__alpha", "mcp__jr2__mike"].map(str::to_owned).to_vec())?;
    contains("the Turn part", &request.last_of("user"), "Allowed now: `mcp__jr2__zulu`, `mcp__jr2__mike`.")
}

async fn schema(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let schema =
        json!({"type": "object", "properties": {"verdict": {"enum": ["good", "bad"]}}, "required": ["verdict"]});
    let mut sent = schema.clone();
    sent["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    seat.desk.edit(|surface| {
        surface["menu"][0]["input"] = sent;
        surface["menu"][0]["description"] = json!("Says how it went.");
    });
    seat.lane.say(text("Done."));
    seat.turn("Hello.").await?;
    let tool = seat.asked(1).await?.tool("mcp__jr2__done");
    same("parameters", tool["parameters"].clone(), schema)?;
    contains("description", tool["description"].as_str().unwrap_or_default(), "Says how it went.")
}

async fn collide(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.surface(&["re.do", "re/do"], &["re.do", "re/do"]);
    let admitted = seat.prompt("Hello.").await?;
    let tools: Vec<String> =
        seat.asked(1).await?.tool_names().into_iter().filter(|name| name.starts_with("mcp__")).collect();
    let [first, second] = tools.as_slice() else { return failed(format!("tools: {tools:?}")) };
    ensure(first != second, || format!("both are {first}"))?;
    seat.lane.say(call("c1", second, json!({})));
    seat.settled(&admitted).await?;
    same("the event picked", seat.desk.picks().first().map(|pick| pick.body["type"].clone()), Some(json!("re/do")))
}

async fn within(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let admitted = seat.prompt("Hello.").await?;
    seat.asked(1).await?;
    seat.surface(&["done", "more"], &["done", "more"]);
    seat.desk.answer_picks([Reply::error(400, "not yet")]);
    seat.lane.say(call("c1", "mcp__jr2__done", json!({})));
    seat.lane.say(text("Done."));
    seat.settled(&admitted).await?;
    let (first, second) = (seat.asked(1).await?, seat.asked(2).await?);
    same_text("the tools", second.tools_text().unwrap_or_default(), first.tools_text().unwrap_or_default())
}

async fn withheld(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(call("c1", "write", json!({"path": "written", "content": "x"})));
    seat.lane.say(text("Done."));
    let mut body = seat.body("Hello.")?;
    body["definition"]["workspace"] = json!("read");
    seat.turn_of(&body).await?;
    ensure(!seat.cwd()?.join("written").exists(), || "it ran".to_owned())?;
    ensure(!seat.asked(2).await?.last_of("tool").is_empty(), || "the model was told nothing".to_owned())
}
