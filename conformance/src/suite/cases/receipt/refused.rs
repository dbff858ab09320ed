//! What the model reads when a pick was not taken.

use super::told;
use crate::suite::case::{Outcome, ensure, same_text};
use crate::suite::orchestrator::Reply;
use crate::suite::stage::Stage;
use crate::suite::texts::{allowed, e2, e3, e4};
use serde_json::json;

pub async fn invalid(stage: &Stage) -> Outcome {
    let words = "invalid \"done\" payload: /note: 7 is not a string";
    let reply = Reply::Json(400, json!({"error": words, "allowed": ["more"]}));
    let said = told(&stage.seat("a"), reply).await?;
    same_text("the result", &said, &format!("{words} {}", allowed(&["more"])))
}

pub async fn invalid_unsaid(stage: &Stage) -> Outcome {
    let said = told(&stage.seat("a"), Reply::error(400, "a pick is outstanding")).await?;
    same_text("the result", &said, "a pick is outstanding")
}

pub async fn gone(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    let said = told(&seat, Reply::error(404, "no live agent surface")).await?;
    same_text("the result", &said, &e2(&seat.iid))
}

pub async fn unavailable(stage: &Stage) -> Outcome {
    let said = told(&stage.seat("a"), Reply::error(503, "stopping")).await?;
    same_text("the result", &said, &e3("stopping"))
}

pub async fn custodian(stage: &Stage) -> Outcome {
    let said = told(&stage.seat("a"), Reply::Unreachable("connection refused")).await?;
    same_text("the result", &said, &e4("connection refused"))
}

pub async fn other(stage: &Stage) -> Outcome {
    let said = told(&stage.seat("a"), Reply::error(418, "a teapot")).await?;
    same_text("the result", &said, "the Orchestrator answered HTTP 418")
}

pub async fn transport(stage: &Stage) -> Outcome {
    let said = told(&stage.seat("a"), Reply::Half).await?;
    let fits = said.starts_with("the pick never reached the Orchestrator (") && said.ends_with(") — try it again");
    ensure(fits, || format!("the result: {said}"))
}
