//! What an admission may hold, and what it is answered with.

use crate::suite::case::{Outcome, contains, ensure, failed, same, same_text};
use crate::suite::harness::PROVIDER;
use crate::suite::stage::{RequestExt, Seat, Stage, encoded, text};
use crate::suite::texts;
use serde_json::{Value, json};

pub async fn shape(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(text("Done."));
    let answer = seat.prompt("Hello.").await?;
    let id = answer["submissionId"].as_str().unwrap_or_default();
    let parts: Vec<&str> = id.split('-').collect();
    let fits = matches!(parts.as_slice(), ["s", n, random] if n.parse::<u64>().is_ok() && random.chars().count() == 6);
    ensure(fits, || format!("submissionId {id:?} is not s-<n>-<6 random>"))?;
    ensure(!answer["offset"].is_null(), || format!("no offset: {answer}"))?;
    ensure(answer["streamUrl"].is_string(), || format!("no streamUrl: {answer}"))?;
    same("it settles", seat.settled(&answer).await?["outcome"].clone(), json!("completed"))
}

pub async fn stream_url(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(text("Done."));
    let answer = seat.prompt("Hello.").await?;
    let url = answer["streamUrl"].as_str().unwrap_or_default();
    let path = match url.strip_prefix("http://").or_else(|| url.strip_prefix("https://")) {
        Some(rest) => rest.find('/').map(|at| rest[at..].to_owned()).unwrap_or_default(),
        None => return failed(format!("streamUrl {url:?} is not absolute")),
    };
    ensure(path.ends_with(&encoded(&seat.iid)), || {
        format!("streamUrl {url:?} does not end in {}", encoded(&seat.iid))
    })?;
    let read = stage.wire().call("GET", &path, None).await?;
    same("reading streamUrl", read.status, 200)
}

pub async fn no_message(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(text("Done."));
    let mut body = seat.body("")?;
    if let Some(object) = body.as_object_mut() {
        object.remove("message");
    }
    seat.turn_of(&body).await?;
    let said = seat.asked(1).await?.last_of("user");
    let cwd = format!("Working directory: {}", seat.cwd()?.display());
    same_text(
        "the message of an admission without a prompt",
        &said,
        &texts::turn_part(&[&cwd, &texts::allowed(&["done"])]),
    )
}

pub async fn dropped(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(text("Done."));
    let notices = json!([7, "x", null, {"kind": "of-a-later-build"}, {"no": "kind"}, {"kind": "conversation-new"},
                         {"kind": "conversation-new", "reason": "kept"}]);
    let body = seat.body_with("Hello.", json!({"model": 7, "thinkingLevel": ["high"], "notices": notices}))?;
    same("it settles", seat.turn_of(&body).await?["outcome"].clone(), json!("completed"))?;
    let said = seat.asked(1).await?.last_of("user");
    let cwd = format!("Working directory: {}", seat.cwd()?.display());
    let part = texts::turn_part(&[&cwd, &texts::nt5("kept"), &texts::allowed(&["done"])]);
    same_text("the message", &said, &format!("Hello.\n\n{part}"))
}

/// Refused, with words that start with the slot, and nothing seated.
async fn refused(seat: &Seat<'_>, body: &Value) -> Outcome {
    let answer = seat.post(body).await?.expect(400, &format!("an admission with {body}"))?;
    let words = answer.value["error"].as_str().unwrap_or_default();
    ensure(words.starts_with(&seat.agent), || {
        format!("its error does not start with {:?}: {}", seat.agent, answer.text)
    })?;
    same("the conversation is held after a refusal", seat.is_held().await?, false)
}

pub async fn bad_definition(stage: &Stage) -> Outcome {
    let seat = stage.seat_of("builder", "a");
    for definition in [json!(null), json!(7), json!({"model": 7, "instructions": "x"}), json!({"instructions": "x"})] {
        refused(&seat, &json!({"message": "Hello.", "definition": definition})).await?;
    }
    refused(&seat, &json!({"message": "Hello."})).await
}

pub async fn bad_frame(stage: &Stage) -> Outcome {
    let seat = stage.seat_of("builder", "a");
    for cwd in [json!("relative/path"), json!(3)] {
        refused(&seat, &seat.body_with("Hello.", json!({"cwd": cwd}))?).await?;
    }
    Ok(())
}

pub async fn bad_model(stage: &Stage) -> Outcome {
    let seat = stage.seat_of("builder", "a");
    for model in ["nowhere/model", "no-slash"] {
        let definition = json!({"model": model, "instructions": "x"});
        refused(&seat, &seat.body_with("Hello.", json!({"definition": definition}))?).await?;
    }
    Ok(())
}

pub async fn names(stage: &Stage) -> Outcome {
    let iid = format!("{}/root/coder é/wire 018", stage.world.tag);
    let seat = stage.seat_at("coder é", &iid);
    seat.lane.say(text("Done."));
    same("it settles", seat.turn("Hello.").await?["outcome"].clone(), json!("completed"))?;
    same("conversationId", seat.history().await?["conversationId"].clone(), json!(iid))?;
    ensure(!seat.desk.surface_reads().is_empty(), || "its surface was not read under its own name".to_owned())
}

pub async fn unknown_keys(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(text("Done."));
    let mut body = seat.body("Hello.")?;
    body["definition"]["cwd"] = json!("not/looked/at");
    body["definition"]["description"] = json!("Builds things.");
    body["definition"]["later"] = json!({"a": 1});
    body["later"] = json!(true);
    same("it settles", seat.turn_of(&body).await?["outcome"].clone(), json!("completed"))
}

pub async fn read_again(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(text("One."));
    seat.lane.say(text("Two."));
    seat.turn("First.").await?;
    let mut body = seat.body("Second.")?;
    body["definition"]["instructions"] = json!("You are a reviewer.");
    seat.turn_of(&body).await?;
    let (first, second) = (seat.asked(1).await?.last_of("system"), seat.asked(2).await?.last_of("system"));
    ensure(first.starts_with("You are a coder.\n"), || format!("the first system prompt: {first}"))?;
    ensure(second.starts_with("You are a reviewer.\n"), || format!("the second system prompt: {second}"))
}

pub async fn dial(stage: &Stage) -> Outcome {
    let (seat, other) = (stage.seat("a"), stage.seat("b"));
    other.lane.say(text("The other model."));
    seat.lane.say(text("The usual model."));
    let dialled = seat.body_with("First.", json!({"model": format!("{PROVIDER}/{}", other.model)}))?;
    same("the text of the dialled Turn", seat.turn_of(&dialled).await?["outcome"].clone(), json!("completed"))?;
    same("requests to the dialled model", other.lane.count(), 1)?;
    seat.turn("Second.").await?;
    same("requests to the dialled model after the next Turn", other.lane.count(), 1)?;
    same("requests to the usual model", seat.lane.count(), 1)
}

pub async fn bounds(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let long = "x".repeat((1 << 20) + 1);
    let answer = seat.post(&seat.body(&long)?).await?;
    same("a prompt of 1 MiB and a byte", answer.status, 400)?;
    let huge = seat.body_with("Hello.", json!({"padding": "x".repeat((4 << 20) + 1)}))?;
    same("a body of over 4 MiB", seat.post(&huge).await?.status, 413)?;
    same("the conversation is held", seat.is_held().await?, false)
}

pub async fn repeated(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let notices = json!([{"kind": "conversation-new", "reason": "x", "id": "n-1"}, {"kind": "later", "id": "n-2"}]);
    let body = seat.body_with("Hello.", json!({"admissionId": seat.admission(1), "notices": notices}))?;
    let first = seat.admit(&body).await?;
    seat.asked(1).await?;
    let again = seat.admit(&body).await?;
    for key in ["submissionId", "offset"] {
        same(&format!("{key} of the repeat"), again[key].clone(), first[key].clone())?;
    }
    same("carried", again["carried"].clone(), json!(["n-1"]))?;
    seat.lane.say(text("Done."));
    seat.settled(&first).await?;
    same("carried, after it settled", seat.admit(&body).await?["carried"].clone(), json!(["n-1"]))?;
    let history = seat.history().await?;
    same("settlements", history["settlements"].as_array().map(Vec::len), Some(1))?;
    same("requests to the model", seat.lane.count(), 1)
}

pub async fn too_many_notices(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(text("Done."));
    let notice =
        |n: usize| json!({"kind": "conversation-new", "reason": format!("reason {n}"), "id": format!("n-{n}")});
    let notices: Vec<Value> = (0..40).map(notice).collect();
    let admitted = seat.admit(&seat.body_with("Hello.", json!({ "notices": notices }))?).await?;
    let taken: Vec<String> = (0..32).map(|n| format!("n-{n}")).collect();
    same("carried", admitted["carried"].clone(), json!(taken))?;
    seat.settled(&admitted).await?;
    let said = seat.asked(1).await?.last_of("user");
    contains("the Turn part", &said, "(reason 31)")?;
    ensure(!said.contains("(reason 32)"), || format!("a notice that was not taken was said: {said}"))
}
