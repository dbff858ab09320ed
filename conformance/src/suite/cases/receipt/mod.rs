//! What a pick's call returns, and how a pick is posted (spec 7.2, 7.11; decisions 13, 23, 34).

mod delivery;
mod posted;
mod refused;
mod words;

use crate::suite::case::Need::Shared;
use crate::suite::case::{Halt, failed};
use crate::suite::orchestrator::Reply;
use crate::suite::stage::{RequestExt, Seat, call, text};
use serde_json::json;

crate::suite_cases! {
    "receipt.001" "R4" Shared, "a pick that keeps the Turn open: R1, R4 and what is allowed after it" => words::still_open;
    "receipt.002" "R2" Shared, "a pick that moved nothing: R1, R2 and what is allowed" => words::not_moved;
    "receipt.003" "R3" Shared, "a pick that ends the Turn: R1 and R3 stand in the record" => words::over;
    "receipt.004" "A2" Shared, "with nothing allowed the receipt says so" => words::nothing_allowed;
    "receipt.005" "D-23" Shared, "an answer without `allowed` leaves that part out" => words::allowed_unsaid;
    "receipt.006" "E5" Shared, "a refused pick: the Orchestrator's words, and what is allowed" => refused::invalid;
    "receipt.007" "D-23" Shared, "a refusal without `allowed` is the Orchestrator's words alone" => refused::invalid_unsaid;
    "receipt.008" "E2" Shared, "a pick on a surface that is gone says that the Turn is over" => refused::gone;
    "receipt.009" "E3" Shared, "a stopping Orchestrator: the exact words" => refused::unavailable;
    "receipt.010" "E4" Shared, "a Custodian that cannot reach it: the exact words" => refused::custodian;
    "receipt.011" "E6" Shared, "any other status: the exact words" => refused::other;
    "receipt.012" "E1" Shared, "a pick whose answer breaks off: the words of E1" => refused::transport;
    "receipt.013" "P-8" Shared, "a pick that may have landed is never sent twice" => posted::once;
    "receipt.014" "P-4" Shared, "the body is the arguments, then `type`, which no argument can change" => posted::body;
    "receipt.015" "D-34" Shared, "where picks are keyed, an unknown outcome is sent again under the same pickId" => posted::keyed;
    "receipt.016" "D-34" Shared, "every pick of a Turn has a pickId of its own" => posted::own_ids;
    "receipt.017" "R8" Shared, "an outstanding pick's answer, by a party: the exact words" => delivery::party;
    "receipt.018" "R7" Shared, "an outstanding pick without a reply: the exact words" => delivery::no_reply;
    "receipt.019" "R6" Shared, "a pick that came straight back says that nothing ran" => delivery::nothing_ran;
    "receipt.020" "D-13" Shared, "the answer is asked for again after 204, 500, 502, 503 and half an answer" => delivery::asked_again;
    "receipt.021" "D-13" Shared, "a delivery that is gone ends the wait" => delivery::gone;
    "receipt.022" "D-34" Shared, "a receipt that an admission carries is worded behind its prompt" => words::carried;
    "receipt.023" "6.6" Shared, "calls behind a pick that ended the Turn do not run" => posted::behind;
    "receipt.024" "F26" Shared, "arguments that are no object are never a pick" => posted::no_object;
}

/// Picks `done` once with this answer; what the model is told.
async fn told(seat: &Seat<'_>, reply: Reply) -> Result<String, Halt> {
    seat.desk.answer_picks([reply]);
    seat.lane.say(call("c1", "mcp__jr2__done", json!({"note": "x"})));
    seat.lane.say(text("I see."));
    let settled = seat.turn("Hello.").await?;
    if settled["outcome"] != "completed" {
        return failed(format!("the Submission did not complete: {settled}"));
    }
    Ok(seat.asked(2).await?.last_of("tool"))
}
