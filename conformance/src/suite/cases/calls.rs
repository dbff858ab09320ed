//! Tool calls: what a model gets wrong, what a tool returns, what is printed (spec 6.6, 6.7, H-23 to H-26).

use crate::suite::case::Need::{Process, Shared};
use crate::suite::case::{Outcome, contains, ensure, same};
use crate::suite::stage::{RequestExt, Stage, bash, call, calls, text};
use serde_json::{Value, json};

crate::suite_cases! {
    "calls.001" "F28" Shared, "an unknown tool is answered with the tools there are" => unknown_tool;
    "calls.002" "F26" Shared, "arguments that do not parse come back to the model as the call's result" => unparsable;
    "calls.003" "F20" Shared, "a replayed history holds no arguments that do not parse" => replayed;
    "calls.004" "6.6" Shared, "several calls of one answer run in their order, each with its result" => several;
    "calls.005" "F21" Shared, "every call and result has an id, and ids do not repeat" => ids;
    "calls.006" "H-26" Shared, "bash returns output, errors and exit code" => bash_result;
    "calls.007" "H-26" Shared, "a command killed by a signal says so" => bash_killed;
    "calls.008" "H-25" Shared, "grep shows 200 lines and says how many more there are" => grep_bound;
    "calls.009" "6.7" Shared, "write, edit and read work in the working directory" => files;
    "calls.010" "H-23" Process(&[]), "the printer writes a line an item, bash cut at 100 characters, results never" => printed;
    "calls.011" "6.6" Shared, "each result is sent back before the model is asked again" => results;
    "calls.012" "6.7" Shared, "a tool that fails is the model's to know; the Turn goes on" => tool_fails;
}

async fn unknown_tool(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(call("c1", "bush", json!({})));
    seat.lane.say(text("Oh."));
    same("outcome", seat.turn("Hello.").await?["outcome"].clone(), json!("completed"))?;
    let said = seat.asked(2).await?.last_of("tool");
    for name in ["bush", "bash", "mcp__jr2__done"] {
        contains("the result", &said, name)?;
    }
    Ok(())
}

async fn unparsable(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(call("c1", "bash", json!("{\"command\": \"echo x > ran\"")));
    seat.lane.say(text("Oh."));
    same("outcome", seat.turn("Hello.").await?["outcome"].clone(), json!("completed"))?;
    ensure(!seat.cwd()?.join("ran").exists(), || "it ran".to_owned())?;
    same("results", seat.asked(2).await?.said_by("tool").len(), 1)
}

async fn replayed(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    for (n, arguments) in ["{\"command\": ", "not json", "[1, 2]", "\"text\""].into_iter().enumerate() {
        seat.lane.say(call(&format!("c{n}"), "bash", json!(arguments)));
    }
    seat.lane.say(text("Oh."));
    seat.turn("Hello.").await?;
    for request in seat.lane.requests() {
        for call in request.messages().iter().flat_map(|m| m["tool_calls"].as_array().into_iter().flatten()) {
            let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
            let object = serde_json::from_str::<Value>(arguments).is_ok_and(|value| value.is_object());
            ensure(object, || format!("arguments in the history: {arguments}"))?;
        }
    }
    Ok(())
}

async fn several(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(calls([
        ("c1", "bash", json!({"command": "echo one >> order; echo first"})),
        ("c2", "bash", json!({"command": "echo two >> order; echo second"})),
        ("c3", "read", json!({"path": "order"})),
    ]));
    seat.lane.say(text("Done."));
    seat.turn("Hello.").await?;
    let results = seat.asked(2).await?.said_by("tool");
    same("results", results.len(), 3)?;
    contains("the first", &results[0], "first")?;
    contains("the second", &results[1], "second")?;
    contains("the third", &results[2], "one")?;
    contains("the third", &results[2], "two")
}

async fn ids(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    for n in 0..3 {
        // The same id each time, as some servers give it.
        seat.lane.say(bash("call_0", &format!("echo {n}")));
    }
    seat.lane.say(text("Done."));
    seat.turn("Hello.").await?;
    let request = seat.asked(4).await?;
    let called: Vec<Value> = request
        .messages()
        .iter()
        .flat_map(|message| message["tool_calls"].as_array().into_iter().flatten())
        .map(|call| call["id"].clone())
        .collect();
    let answered: Vec<Value> = request
        .messages()
        .iter()
        .filter(|message| message["role"] == "tool")
        .map(|message| message["tool_call_id"].clone())
        .collect();
    same("ids of results, in the order of the calls", answered, called.clone())?;
    let unique: std::collections::HashSet<String> = called.iter().map(ToString::to_string).collect();
    same("distinct ids", unique.len(), 3)?;
    ensure(called.iter().all(|id| id.as_str().is_some_and(|id| !id.is_empty())), || format!("ids: {called:?}"))
}

async fn bash_result(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(bash("c1", "echo to-stdout; echo to-stderr >&2; exit 7"));
    seat.lane.say(text("Done."));
    seat.turn("Hello.").await?;
    let said = seat.asked(2).await?.last_of("tool");
    for part in ["to-stdout", "to-stderr", "7"] {
        contains("the result", &said, part)?;
    }
    Ok(())
}

async fn bash_killed(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(bash("c1", "kill -9 $$"));
    seat.lane.say(text("Done."));
    seat.turn("Hello.").await?;
    contains("the result", &seat.asked(2).await?.last_of("tool"), "Command killed by signal SIGKILL (exit 137)")
}

async fn grep_bound(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(bash("c1", "seq -f 'needle %g' 1 250 > hay.txt"));
    seat.lane.say(call("c2", "grep", json!({"pattern": "needle"})));
    seat.lane.say(text("Done."));
    seat.turn("Hello.").await?;
    let said = seat.asked(3).await?.last_of("tool");
    let last = said.trim_end().lines().last().unwrap_or_default().to_owned();
    same("its last line", last.as_str(), "… 50 more lines truncated — narrow the search")?;
    same("lines that match", said.matches("needle").count(), 200)
}

async fn files(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(call("c1", "write", json!({"path": "notes/a.txt", "content": "alpha\nbeta\n"})));
    seat.lane.say(call("c2", "edit", json!({"path": "notes/a.txt", "oldText": "beta", "newText": "gamma"})));
    seat.lane.say(call("c3", "read", json!({"path": "notes/a.txt"})));
    seat.lane.say(call("c4", "glob", json!({"pattern": "*.txt"})));
    seat.lane.say(text("Done."));
    seat.turn("Hello.").await?;
    let said = seat.asked(4).await?.last_of("tool");
    contains("the file as read", &said, "alpha")?;
    contains("the file as read", &said, "gamma")?;
    contains("the files found", &seat.asked(5).await?.last_of("tool"), "notes/a.txt")
}

async fn printed(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(bash("c1", &format!("echo secret-result # {}", "x".repeat(200))));
    seat.lane.say(call("c2", "read", json!({"path": "no/such/file"})));
    seat.lane.say(text("All\ndone."));
    seat.turn("Please print.").await?;
    // Its end flushes what it printed.
    stage.house.terminate().await?;
    stage.wait("the Harness to end", stage.house.exit()).await?;
    let out = stage.house.stdout().await?;
    let line = |start: &str| out.lines().find(|line| line.starts_with(start)).unwrap_or_default().to_owned();
    contains("the prompt's line", &line("[coder] [prompt] "), "Please print.")?;
    contains("the text's line", &line("[coder] [text] "), "All done.")?;
    contains("the read's line", &line("[coder] [read] "), "no/such/file")?;
    let call = line("[coder] [bash] ");
    contains("the call's line", &call, "echo secret-result")?;
    let shown = call.trim_start_matches("[coder] [bash] ").chars().count();
    ensure((90..=101).contains(&shown), || format!("{shown} characters of the call: {call}"))?;
    ensure(!out.lines().any(|line| line.starts_with("secret-result")), || format!("a result is shown: {out}"))
}

async fn results(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(bash("c1", "echo one"));
    seat.lane.say(bash("c2", "echo two"));
    seat.lane.say(text("Done."));
    seat.turn("Hello.").await?;
    for (n, results) in [(1, 0), (2, 1), (3, 2)] {
        same(&format!("results in request {n}"), seat.asked(n).await?.said_by("tool").len(), results)?;
    }
    let roles: Vec<Value> = seat.asked(3).await?.messages().iter().map(|message| message["role"].clone()).collect();
    same("roles", roles, ["system", "user", "assistant", "tool", "assistant", "tool"].map(|role| json!(role)).to_vec())
}

async fn tool_fails(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(call("c1", "read", json!({"path": "no-such-file"})));
    seat.lane.say(call("c2", "read", json!({"wrong": true})));
    seat.lane.say(call("c3", "grep", json!({"pattern": "("})));
    seat.lane.say(text("Done."));
    same("outcome", seat.turn("Hello.").await?["outcome"].clone(), json!("completed"))?;
    for n in 2..=4 {
        ensure(!seat.asked(n).await?.last_of("tool").trim().is_empty(), || format!("result {n} is empty"))?;
    }
    Ok(())
}
