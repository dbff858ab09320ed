//! Routes that exist, and those that do not.

use crate::suite::case::{Outcome, ensure, same};
use crate::suite::harness::Bearer;
use crate::suite::stage::{Stage, text};
use jr2_shared::harness::HEADER_OWNER_EPOCH;
use serde_json::json;

pub async fn healthz(stage: &Stage) -> Outcome {
    for who in [Bearer::None, Bearer::Wrong, Bearer::Right] {
        let answer = stage.wire().send(who, "GET", "/healthz", None).await?;
        same(&format!("GET /healthz with bearer {who:?}"), answer.status, 204)?;
        same("its body", answer.text.as_str(), "")?;
    }
    Ok(())
}

pub async fn other_methods(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let abort = format!("{}/abort", seat.path());
    let known = [
        ("DELETE", seat.path()),
        ("GET", abort),
        ("GET", "/agents".to_owned()),
        ("GET", "/echo".to_owned()),
        ("POST", "/memory-kills".to_owned()),
    ];
    for (method, path) in known {
        let answer = stage.wire().call(method, &path, None).await?;
        same(&format!("{method} {path}"), answer.status, 405)?;
    }
    Ok(())
}

pub async fn unknown_paths(stage: &Stage) -> Outcome {
    for path in ["/", "/agent", "/agents/coder", "/no/such/path", "/healthz/x"] {
        same(&format!("GET {path}"), stage.wire().call("GET", path, None).await?.status, 404)?;
    }
    Ok(())
}

pub async fn unknown_conversation(stage: &Stage) -> Outcome {
    let seat = stage.seat("never-admitted");
    for view in ["updates", "history"] {
        let answer = stage.wire().call("GET", &format!("{}?view={view}", seat.path()), None).await?;
        same(&format!("view={view} of a conversation that was never admitted"), answer.status, 404)?;
    }
    Ok(())
}

pub async fn echo(stage: &Stage) -> Outcome {
    let body = json!({"events": ["conformance says hello", {"a": 1}, "three"]});
    let answer = stage.wire().call("POST", "/echo", Some(&body)).await?.expect(200, "POST /echo")?;
    same("its answer", answer.value, json!({"printed": 3}))?;
    let bad = stage.wire().call("POST", "/echo", Some(&json!({"events": 3}))).await?;
    ensure((400..500).contains(&bad.status), || format!("events that are no list: HTTP {}", bad.status))
}

pub async fn epoch(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let history = format!("{}?view=history", seat.path());
    let ask = async |epoch: u64, method: &str, path: &str, body: Option<String>| {
        let header = Some((HEADER_OWNER_EPOCH, epoch.to_string()));
        stage.wire().send_with(Bearer::Right, method, path, body, header).await
    };
    let body = Some(seat.body("Hello.")?.to_string());
    same("an admission of epoch 7", ask(7, "POST", &seat.path(), body.clone()).await?.status, 200)?;
    seat.lane.say(text("Done."));
    same("an admission of epoch 6", ask(6, "POST", &seat.path(), body).await?.status, 409)?;
    let abort = format!("{}/abort", seat.path());
    for (method, path) in [("GET", history.as_str()), ("POST", abort.as_str()), ("GET", "/memory-kills")] {
        same(&format!("{method} {path} of epoch 6"), ask(6, method, path, None).await?.status, 409)?;
    }
    same("the history by epoch 8", ask(8, "GET", &history, None).await?.status, 200)?;
    same("the history by epoch 7", ask(7, "GET", &history, None).await?.status, 409)?;
    same("the history without an epoch", stage.wire().call("GET", &history, None).await?.status, 200)
}
