//! The live set.

use crate::suite::case::{Outcome, ensure, same};
use crate::suite::stage::{Stage, text};
use serde_json::json;

pub async fn frees(stage: &Stage) -> Outcome {
    let (live, dead, busy) = (stage.seat("live"), stage.seat("dead"), stage.seat("busy"));
    for seat in [&live, &dead] {
        seat.lane.say(text("Done."));
        seat.turn("Hello.").await?;
    }
    let running = busy.prompt("Hello.").await?;
    busy.asked(1).await?;
    let body = json!({"live": [{"agent": live.agent, "instanceId": live.iid}]});
    let answer = stage.wire().call("PUT", "/agents", Some(&body)).await?.expect(200, "PUT /agents")?;
    let freed = answer.value["freed"].as_u64();
    ensure(freed.is_some_and(|n| n >= 1), || format!("freed: {}", answer.text))?;
    same("the live one is held", live.is_held().await?, true)?;
    same("the dead one is held", dead.is_held().await?, false)?;
    same("the busy one is held", busy.is_held().await?, true)?;
    busy.lane.say(text("Done."));
    same("the busy one settles", busy.settled(&running).await?["outcome"].clone(), json!("completed"))
}

pub async fn whole_body(stage: &Stage) -> Outcome {
    let seat = stage.seat("a");
    seat.lane.say(text("Done."));
    seat.turn("Hello.").await?;
    for body in [json!({"live": [{"agent": "other"}]}), json!({"live": 7}), json!({}), json!([])] {
        let answer = stage.wire().call("PUT", "/agents", Some(&body)).await?;
        same(&format!("PUT /agents with {body}"), answer.status, 400)?;
    }
    same("it is held", seat.is_held().await?, true)
}
