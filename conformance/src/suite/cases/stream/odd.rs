//! Answers that are whole, each odd in its way.

use crate::model::Answer;
use crate::suite::case::{Outcome, contains, ensure, same};
use crate::suite::stage::{RequestExt, Seat, Stage, call, events, raw, reasoning, text};
use serde_json::{Value, json};

/// A chunk of the first choice.
pub fn chunk(delta: Value, finish: Value) -> Value {
    json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
           "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
}

fn fragment(fields: Value) -> Value {
    chunk(json!({"tool_calls": [fields]}), Value::Null)
}

fn whole(index: Value, id: Value, command: &str) -> Value {
    let arguments = json!({ "command": command }).to_string();
    let mut call = json!({"type": "function", "function": {"name": "bash", "arguments": arguments}});
    if !index.is_null() {
        call["index"] = index;
    }
    if !id.is_null() {
        call["id"] = id;
    }
    call
}

fn usage() -> Value {
    json!({"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12})
}

/// This stream completes a Turn with the text.
async fn says(stage: &Stage, values: &[Value], want: &str) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(raw(events(values)));
    let settled = seat.turn("Hello.").await?;
    same("outcome", settled["outcome"].clone(), json!("completed"))?;
    same("text", settled["text"].clone(), json!(want))
}

/// This stream's calls run: what they appended, in order.
async fn runs(stage: &Stage, values: &[Value], want: &str) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(raw(events(values)));
    seat.lane.say(text("Done."));
    same("outcome", seat.turn("Hello.").await?["outcome"].clone(), json!("completed"))?;
    ran(&seat, want)
}

fn ran(seat: &Seat<'_>, want: &str) -> Outcome {
    same("what ran", std::fs::read_to_string(seat.cwd()?.join("ran")).unwrap_or_default().as_str(), want)
}

pub async fn no_choices(stage: &Stage) -> Outcome {
    let values = [
        json!({"id": "c", "choices": []}),
        json!({"id": "c", "choices": null}),
        chunk(json!({"content": "Here."}), Value::Null),
        chunk(json!({}), json!("stop")),
        json!({"id": "c", "choices": [], "usage": usage()}),
        json!({"id": "c", "choices": null, "usage": usage()}),
    ];
    says(stage, &values, "Here.").await
}

pub async fn no_finish(stage: &Stage) -> Outcome {
    says(stage, &[chunk(json!({"role": "assistant", "content": "No end."}), Value::Null)], "No end.").await
}

pub async fn calls_with_stop(stage: &Stage) -> Outcome {
    let values = [fragment(whole(json!(0), json!("a"), "echo one >> ran")), chunk(json!({}), json!("stop"))];
    runs(stage, &values, "one\n").await
}

pub async fn index_zero(stage: &Stage) -> Outcome {
    let values = [
        fragment(whole(json!(0), json!("a"), "echo one >> ran")),
        fragment(whole(json!(0), json!("b"), "echo two >> ran")),
        chunk(json!({}), json!("tool_calls")),
    ];
    runs(stage, &values, "one\ntwo\n").await
}

pub async fn no_index(stage: &Stage) -> Outcome {
    let values = [fragment(whole(Value::Null, Value::Null, "echo one >> ran")), chunk(json!({}), json!("tool_calls"))];
    runs(stage, &values, "one\n").await
}

pub async fn interleaved(stage: &Stage) -> Outcome {
    let head = |index: u64, id: &str| json!({"index": index, "id": id, "type": "function", "function": {"name": "bash", "arguments": ""}});
    let more = |index: u64, part: &str| fragment(json!({"index": index, "function": {"arguments": part}}));
    let values = [
        chunk(json!({"tool_calls": [head(0, "a"), head(1, "b")]}), Value::Null),
        more(0, "{\"command\": \"echo "),
        more(1, "{\"command\": \"echo "),
        more(0, "one >> ran\"}"),
        more(1, "two >> ran\"}"),
        chunk(json!({}), json!("tool_calls")),
    ];
    runs(stage, &values, "one\ntwo\n").await
}

pub async fn no_type(stage: &Stage) -> Outcome {
    let mut call = whole(json!(0), json!("a"), "echo one >> ran");
    if let Some(call) = call.as_object_mut() {
        call.remove("type");
    }
    runs(stage, &[fragment(call), chunk(json!({}), json!("tool_calls"))], "one\n").await
}

pub async fn no_usage(stage: &Stage) -> Outcome {
    let values = [chunk(json!({"content": "Free."}), Value::Null), chunk(json!({}), json!("stop"))];
    says(stage, &values, "Free.").await
}

pub async fn usage_everywhere(stage: &Stage) -> Outcome {
    let with = |mut value: Value| {
        value["usage"] = usage();
        value
    };
    let values = [
        with(chunk(json!({"content": "Coun"}), Value::Null)),
        with(chunk(json!({"content": "ted."}), Value::Null)),
        with(chunk(json!({}), json!("stop"))),
        json!({"id": "c", "choices": [], "usage": null}),
    ];
    says(stage, &values, "Counted.").await
}

pub async fn length_cut(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let first = call("c1", "write", json!("{\"path\": \"written\", \"content\": \"xxxx"));
    seat.lane.say(Answer { finish_reason: Some("length".to_owned()), ..first });
    let second = call("c2", "bash", json!(""));
    seat.lane.say(Answer { finish_reason: Some("length".to_owned()), ..second });
    seat.lane.say(text("Done."));
    same("outcome", seat.turn("Hello.").await?["outcome"].clone(), json!("completed"))?;
    ensure(!seat.cwd()?.join("written").exists(), || "the cut call ran".to_owned())?;
    for n in [2, 3] {
        contains("what the model is told", &seat.asked(n).await?.last_of("tool"), "cut at the output limit")?;
    }
    Ok(())
}

pub async fn empty_arguments(stage: &Stage) -> Outcome {
    for (n, arguments) in ["", "null", "{}"].into_iter().enumerate() {
        let seat = stage.seat(&format!("a{n}"));
        seat.lane.say(call("c1", "mcp__jr2__done", json!(arguments)));
        seat.turn("Hello.").await?;
        let picks: Vec<Value> = seat.desk.picks().into_iter().map(|pick| pick.body).collect();
        same(&format!("the pick of arguments {arguments:?}"), picks, vec![json!({"type": "done"})])?;
    }
    Ok(())
}

pub async fn thinking_only(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(reasoning("I should answer.", None));
    seat.lane.say(text("Here it is."));
    let settled = seat.turn("Hello.").await?;
    same("text", settled["text"].clone(), json!("Here it is."))?;
    same("requests", seat.lane.count(), 2)
}

pub async fn blank_before_call(stage: &Stage) -> Outcome {
    let values = [
        chunk(json!({"role": "assistant", "content": "\n\n  "}), Value::Null),
        fragment(whole(json!(0), json!("a"), "echo one >> ran")),
        chunk(json!({}), json!("tool_calls")),
    ];
    runs(stage, &values, "one\n").await
}

pub async fn thinking_hidden(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(reasoning("SECRET THOUGHT", Some("An answer.")));
    same("text", seat.turn("Hello.").await?["text"].clone(), json!("An answer."))?;
    let history = seat.history().await?.to_string();
    ensure(!history.contains("SECRET THOUGHT"), || format!("the history: {history}"))
}

pub async fn empty_for_ever(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.always(|_| raw(events(&[chunk(json!({"content": "  "}), Value::Null), chunk(json!({}), json!("stop"))])));
    seat.turn("Hello.").await?;
    let asked = seat.lane.count();
    ensure((1..=8).contains(&asked), || format!("the model was asked {asked} times"))
}
