//! Who may speak to the Harness, and how it speaks to the Custodian (spec H-1, H-7, 6.5).

use crate::suite::case::Need::{Process, Shared};
use crate::suite::case::{Outcome, ensure, same, same_text};
use crate::suite::harness::{Bearer, STAND_IN};
use crate::suite::stage::{Stage, call, text};
use serde_json::json;

crate::suite_cases! {
    "auth.001" "H-1" Shared, "without a bearer every route is 401 {\"error\":\"unauthorized\"}" => no_bearer;
    "auth.002" "H-1" Shared, "with another bearer every route is the same 401" => wrong_bearer;
    "auth.003" "H-1" Shared, "without a bearer an unknown path or method cannot be told from a known one" => not_routed;
    "auth.004" "H-1" Shared, "an unauthorised admission seats nothing" => seats_nothing;
    "auth.005" "H-1" Shared, "an unauthorised abort ends nothing" => ends_nothing;
    "auth.006" "H-7" Process(&[("JR2_MENU_ONLY", "1")]), "the Instance Harness refuses an Agent with Working tools with 403" => menu_only;
    "auth.007" "H-19" Shared, "control routes are sent the Stand-in as bearer" => stand_in;
}

async fn refused(stage: &Stage, who: Bearer) -> Outcome {
    let seat = stage.seat("a");
    let routes = [
        ("POST", seat.path()),
        ("GET", format!("{}?view=history", seat.path())),
        ("GET", format!("{}?view=updates", seat.path())),
        ("POST", format!("{}/abort", seat.path())),
        ("PUT", "/agents".to_owned()),
        ("POST", "/echo".to_owned()),
        ("GET", "/memory-kills".to_owned()),
    ];
    for (method, path) in routes {
        let answer = stage.wire().send(who, method, &path, Some("{}".to_owned())).await?;
        same(&format!("{method} {path}"), answer.status, 401)?;
        same_text(&format!("the body of {method} {path}"), &answer.text, "{\"error\":\"unauthorized\"}")?;
    }
    Ok(())
}

async fn no_bearer(stage: &Stage) -> Outcome {
    refused(stage, Bearer::None).await
}

async fn wrong_bearer(stage: &Stage) -> Outcome {
    refused(stage, Bearer::Wrong).await
}

async fn not_routed(stage: &Stage) -> Outcome {
    for who in [Bearer::None, Bearer::Wrong] {
        for (method, path) in [("GET", "/no/such/path"), ("DELETE", "/agents"), ("GET", "/echo"), ("POST", "/healthz")]
        {
            let answer = stage.wire().send(who, method, path, None).await?;
            same(&format!("{method} {path} with bearer {who:?}"), answer.status, 401)?;
            same_text("its body", &answer.text, "{\"error\":\"unauthorized\"}")?;
        }
    }
    Ok(())
}

async fn seats_nothing(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let body = seat.body("Hello.")?.to_string();
    let answer = stage.wire().send(Bearer::Wrong, "POST", &seat.path(), Some(body)).await?;
    same("its status", answer.status, 401)?;
    same("the conversation is held", seat.is_held().await?, false)?;
    same("reads of its surface", seat.desk.surface_reads().len(), 0)
}

async fn ends_nothing(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let admitted = seat.prompt("Hello.").await?;
    seat.asked(1).await?;
    let answer = stage.wire().send(Bearer::None, "POST", &format!("{}/abort", seat.path()), None).await?;
    same("its status", answer.status, 401)?;
    seat.lane.say(text("Done."));
    same("the Submission", seat.settled(&admitted).await?["outcome"].clone(), json!("completed"))
}

async fn menu_only(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    for access in ["write", "read"] {
        let mut body = seat.body("Hello.")?;
        body["definition"]["workspace"] = json!(access);
        same(&format!("an Agent with access {access}"), seat.post(&body).await?.status, 403)?;
    }
    same("an Agent that does not say its access", seat.post(&seat.body("Hello.")?).await?.status, 403)?;
    same("the conversation is held", seat.is_held().await?, false)?;
    let mut body = seat.body("Hello.")?;
    body["definition"]["workspace"] = json!("none");
    seat.lane.say(text("Done."));
    same("an Agent with access none", seat.turn_of(&body).await?["outcome"].clone(), json!("completed"))
}

async fn stand_in(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(call("c1", "mcp__jr2__done", json!({})));
    seat.turn("Hello.").await?;
    let want = format!("Bearer {STAND_IN}");
    let reads = seat.desk.surface_reads();
    ensure(!reads.is_empty(), || "the surface was not read".to_owned())?;
    if stage.house.port().is_err() {
        // Somebody else started this Harness with a Stand-in of their own.
        return ensure(reads[0].authorization.starts_with("Bearer "), || format!("authorization: {:?}", reads[0]));
    }
    same("authorization of the surface read", reads[0].authorization.as_str(), want.as_str())?;
    let picks = seat.desk.picks();
    same("authorization of the pick", picks.first().map(|pick| pick.authorization.clone()), Some(want))
}
