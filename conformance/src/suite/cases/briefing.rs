//! The standing part, the Turn part and restatements, byte for byte (spec 8.2 to 8.4, 8.6).

use crate::suite::case::Need::{Process, Shared};
use crate::suite::case::{Halt, Outcome, contains, ensure, failed, one_of_texts, same, same_text};
use crate::suite::harness::CPUS;
use crate::suite::orchestrator::{Reply, taken};
use crate::suite::stage::{RequestExt, Seat, Stage, bash, call, text};
use crate::suite::texts::{self, allowed, turn_part};
use jr2_shared::memory_kills::is_guard_size;
use serde_json::json;

crate::suite_cases! {
    "briefing.001" "8.3" Shared, "access write: the instructions, a blank line, the standing part" => write;
    "briefing.002" "8.3" Shared, "access read: the same standing part as access write" => read;
    "briefing.003" "BT-2" Shared, "access none: ST3, and nothing of CPUs, memory or a working directory" => none;
    "briefing.004" "BT-1" Shared, "the system prompt has the same bytes over the Turns of a conversation" => same_bytes;
    "briefing.005" "BT-4" Shared, "the Turn part: working directory, Notices, a pick's briefing, the Allowed picks last" => order;
    "briefing.006" "BT-5" Shared, "with an empty prompt the Turn part stands alone" => alone;
    "briefing.007" "BT-6" Shared, "with nothing allowed the Turn part says A2" => nothing_allowed;
    "briefing.008" "B-7" Shared, "an earlier Turn part stays in the history unchanged" => unchanged;
    "briefing.009" "BT-8" Shared, "picks that another party opens are restated once, at the next step, with no Notice" => restated;
    "briefing.010" "BT-9" Shared, "a pick's briefing is said only where the pick is allowed, or is opened" => pick_briefing;
    "briefing.011" "B-10" Shared, "what the Agent's own pick changed is not restated" => own_pick;
    "briefing.012" "BT-3" Process(&[("JR2_CPUS", "")]), "CPUs unknown: nothing of CPUs is said" => no_cpus;
    "briefing.013" "BT-3" Process(&[("JR2_CPUS", "1")]), "one CPU is `1 CPU`" => one_cpu;
    "briefing.014" "H-20" Shared, "the request starts with one system message, then the user's" => system_first;
    "briefing.015" "B-6" Shared, "the standing part is the same in two conversations of the same access" => two_seats;
    "briefing.016" "8.4" Shared, "picks that close meanwhile are restated with A2" => closed;
    "briefing.017" "D-12" Shared, "a Turn part has at most 16 KiB: its longest lines are cut, none is left out" => bounded;
}

/// The one system prompt of a Turn with this access.
async fn system(seat: &Seat<'_>, access: &str) -> Result<String, Halt> {
    seat.lane.say(text("Done."));
    let mut body = seat.body("Hello.")?;
    body["definition"]["workspace"] = json!(access);
    seat.turn_of(&body).await?;
    Ok(seat.asked(1).await?.last_of("system"))
}

/// What stands between the words of ST4, when the line is there: CPUs and memory.
fn facts(system: &str) -> (Option<u64>, Option<String>) {
    let line = system.lines().find_map(|line| line.strip_prefix("- This Sandbox has ")?.strip_suffix('.'));
    let mut known = (None, None);
    for half in line.unwrap_or_default().split(" and ") {
        if let Some(memory) = half.strip_suffix(" of memory") {
            known.1 = Some(memory.to_owned());
        } else if let Some(n) = half.strip_suffix(" CPUs").or_else(|| half.strip_suffix(" CPU")) {
            known.0 = n.parse().ok();
        }
    }
    known
}

/// Checks a system prompt of an Agent with Working tools. What the Sandbox has is read off it, and everything else follows.
fn check(stage: &Stage, system: &str, cpus: Option<u64>) -> Outcome {
    let (said, memory) = facts(system);
    if stage.house.port().is_ok() {
        same("the CPUs that the Briefing states", said, cpus)?;
    }
    ensure(memory.as_deref().is_none_or(is_guard_size), || format!("the memory {memory:?} is not written as a Size"))?;
    let mut lines = vec![texts::ST1.to_owned(), texts::ST2.to_owned()];
    lines.extend(texts::st4(said, memory.as_deref()));
    lines.extend(said.map(texts::st5));
    let with = |last: Option<&str>| {
        let lines: Vec<String> = lines.iter().cloned().chain(last.map(str::to_owned)).collect();
        format!("You are a coder.\n\n{}", texts::standing(&lines))
    };
    let want = match memory {
        Some(_) => vec![with(Some(texts::ST6)), with(Some(texts::ST6_NO_SHM))],
        None => vec![with(None)],
    };
    one_of_texts("the system prompt", system, &want)
}

async fn write(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    check(stage, &system(&seat, "write").await?, Some(CPUS))
}

async fn read(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    check(stage, &system(&seat, "read").await?, Some(CPUS))
}

async fn none(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let said = system(&seat, "none").await?;
    let lines = [texts::ST1, texts::ST2, texts::ST3].map(str::to_owned);
    same_text("the system prompt", &said, &format!("You are a coder.\n\n{}", texts::standing(&lines)))?;
    let user = seat.asked(1).await?.last_of("user");
    same_text("the message", &user, &format!("Hello.\n\n{}", turn_part(&[&allowed(&["done"])])))
}

async fn same_bytes(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    for n in 0..3 {
        seat.lane.say(text("Done."));
        let notices = json!([{"kind": "memory-limit", "limit": "2Gi"}]);
        let more = if n == 1 { json!({ "notices": notices }) } else { json!({}) };
        seat.surface(&["done", "more"], if n == 2 { &[] } else { &["more"] });
        seat.turn_of(&seat.body_with(&format!("Prompt {n}."), more)?).await?;
    }
    let first = seat.asked(1).await?.last_of("system");
    for request in seat.lane.requests() {
        same_text("the system prompt", &request.last_of("system"), &first)?;
    }
    Ok(())
}

async fn order(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.surface(&["done", "more", "other"], &["done", "more"]);
    seat.desk.edit(|surface| {
        surface["menu"][0]["briefing"] = json!("Only after the tests pass.");
        surface["menu"][2]["briefing"] = json!("Never said here.");
    });
    seat.lane.say(text("Done."));
    let notices =
        json!([{"kind": "conversation-new", "reason": "first"}, {"kind": "conversation-new", "reason": "second"}]);
    seat.turn_of(&seat.body_with("Hello.", json!({ "notices": notices }))?).await?;
    let cwd = format!("Working directory: {}", seat.cwd()?.display());
    let lines = [
        cwd.as_str(),
        &texts::nt5("first"),
        &texts::nt5("second"),
        "Only after the tests pass.",
        &allowed(&["done", "more"]),
    ];
    same_text("the message", &seat.asked(1).await?.last_of("user"), &format!("Hello.\n\n{}", turn_part(&lines)))
}

async fn alone(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(text("Done."));
    seat.turn("").await?;
    let cwd = format!("Working directory: {}", seat.cwd()?.display());
    same_text("the message", &seat.asked(1).await?.last_of("user"), &turn_part(&[&cwd, &allowed(&["done"])]))
}

async fn nothing_allowed(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.surface(&["done", "more"], &[]);
    seat.lane.say(text("Done."));
    seat.turn("Hello.").await?;
    let cwd = format!("Working directory: {}", seat.cwd()?.display());
    let part = turn_part(&[&cwd, texts::A2]);
    same_text("the message", &seat.asked(1).await?.last_of("user"), &format!("Hello.\n\n{part}"))
}

async fn unchanged(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(text("One."));
    seat.lane.say(text("Two."));
    let notices = json!([{"kind": "conversation-new", "reason": "x"}]);
    seat.turn_of(&seat.body_with("First.", json!({ "notices": notices }))?).await?;
    seat.surface(&["done", "more"], &["more"]);
    seat.turn("Second.").await?;
    let (first, second) = (seat.asked(1).await?, seat.asked(2).await?);
    let (before, after) = (first.messages(), second.messages());
    ensure(after.starts_with(before), || format!("the history changed\n  was {before:?}\n  is  {after:?}"))
}

async fn restated(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let notices = json!([{"kind": "conversation-new", "reason": "x"}]);
    let admitted = seat.admit(&seat.body_with("Hello.", json!({ "notices": notices }))?).await?;
    seat.asked(1).await?;
    seat.surface(&["done", "more"], &["done", "more"]);
    for (id, command) in [("c1", "true"), ("c2", "true || true"), ("c3", "echo")] {
        seat.lane.say(bash(id, command));
    }
    seat.lane.say(text("Done."));
    seat.settled(&admitted).await?;
    let (first, last) = (seat.asked(1).await?.said_by("user"), seat.asked(4).await?.said_by("user"));
    let block = turn_part(&[&format!("{}{}", texts::RESTATED, allowed(&["done", "more"]))]);
    same("messages of the user", last.len(), 2)?;
    same_text("the first block", &last[0], &first.concat())?;
    same_text("the restatement", &last[1], &block)?;
    same("it is there in the second request", seat.asked(2).await?.said_by("user").len(), 2)
}

async fn pick_briefing(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let brief = |surface: &mut serde_json::Value| surface["menu"][1]["briefing"] = json!("More is for emergencies.");
    seat.desk.edit(brief);
    let admitted = seat.prompt("Hello.").await?;
    let first = seat.asked(1).await?.last_of("user");
    ensure(!first.contains("emergencies"), || format!("said of a pick that is not allowed: {first}"))?;
    seat.surface(&["done", "more"], &["done", "more"]);
    seat.desk.edit(brief);
    seat.lane.say(bash("c1", "true"));
    seat.asked(2).await?;
    seat.surface(&["done", "more"], &["more"]);
    seat.desk.edit(brief);
    seat.lane.say(bash("c2", "echo"));
    seat.asked(3).await?;
    seat.lane.say(text("Done."));
    seat.settled(&admitted).await?;
    let said = seat.asked(3).await?.said_by("user");
    let opened = format!("{}{}", texts::RESTATED, allowed(&["done", "more"]));
    let Some(second) = said.get(1) else { return failed(format!("no restatement when a pick opened: {said:?}")) };
    same_text("the restatement that opens it", second, &turn_part(&["More is for emergencies.", &opened]))?;
    let closed = format!("{}{}", texts::RESTATED, allowed(&["more"]));
    match said.get(2) {
        Some(third) => same_text("the one that only closes another", third, &turn_part(&[&closed])),
        None => failed("no restatement when a pick closed"),
    }
}

async fn own_pick(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let admitted = seat.prompt("Hello.").await?;
    seat.asked(1).await?;
    seat.surface(&["done", "more"], &["more"]);
    seat.desk.answer_picks([Reply::Json(200, taken("done", true, false, Some(&["more"])))]);
    seat.lane.say(call("c1", "mcp__jr2__done", json!({})));
    seat.lane.say(text("Done."));
    seat.settled(&admitted).await?;
    same("messages of the user", seat.asked(2).await?.said_by("user").len(), 1)
}

async fn no_cpus(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    check(stage, &system(&seat, "write").await?, None)
}

async fn one_cpu(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let said = system(&seat, "write").await?;
    check(stage, &said, Some(1))?;
    contains("the standing part", &said, " to 1 CPU.")
}

async fn system_first(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(bash("c1", "true"));
    seat.lane.say(text("Done."));
    seat.turn("Hello.").await?;
    for request in seat.lane.requests() {
        let roles: Vec<&str> = request.messages().iter().filter_map(|message| message["role"].as_str()).collect();
        ensure(roles.starts_with(&["system", "user"]), || format!("roles: {roles:?}"))?;
        same("system messages", roles.iter().filter(|role| **role == "system").count(), 1)?;
    }
    Ok(())
}

async fn two_seats(stage: &Stage) -> Outcome {
    let (one, other) = (stage.seat("a"), stage.seat_of("reviewer", "b"));
    let (first, second) = (system(&one, "write").await?, system(&other, "write").await?);
    same_text("the system prompt of the second", &second, &first)
}

async fn closed(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let admitted = seat.prompt("Hello.").await?;
    seat.asked(1).await?;
    seat.surface(&["done", "more"], &[]);
    seat.lane.say(bash("c1", "true"));
    seat.asked(2).await?;
    seat.lane.say(text("Done."));
    seat.settled(&admitted).await?;
    let block = turn_part(&[&format!("{}{}", texts::RESTATED, texts::A2)]);
    same_text("the restatement", &seat.asked(2).await?.last_of("user"), &block)
}

async fn bounded(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(text("Done."));
    let notice = |n: usize| json!({"kind": "conversation-new", "reason": format!("reason {n} {}", "x".repeat(900))});
    let notices: Vec<serde_json::Value> = (0..32).map(notice).collect();
    seat.turn_of(&seat.body_with("", json!({ "notices": notices }))?).await?;
    let said = seat.asked(1).await?.last_of("user");
    ensure(said.len() <= 16 << 10, || format!("the Turn part has {} bytes", said.len()))?;
    for n in 0..32 {
        contains("the Turn part", &said, &format!("(reason {n} "))?;
    }
    ensure(said.ends_with(&format!("{}\n</jr2-turn>", allowed(&["done"]))), || format!("its end: {said}"))
}
