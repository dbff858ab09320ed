//! What a pick's tool call answers the model (spec 7.11, R1 to R8 and E1 to E7).

use super::{Menu, PickRefusal};
use crate::briefing::{NO_REPLY, allowed_line, answer_words};
use crate::mutation::{self, Mutation};
use jr2_shared::surface::PickAnswer;

/// R2's own words.
const NOT_MOVED: &str = " Your turn is not over. Do not repeat this call unchanged — change the arguments, pick a different \
    tool, or do more work first.";
/// R3's own words.
const TURN_OVER: &str = " The workflow consumed it and moved on: your turn is over. Stop here — do not call this or any other \
    tool again.";
/// R4's own words.
const STILL_OPEN: &str = " The workflow is still in the state that asked for this turn, so it is not over yet.";
/// R6.
const NOTHING_RAN: &str = "it moved the workflow, and nothing ran";

/// The receipt of a pick that was delivered. The Menu words the Allowed picks; a missing list is never "none"
/// (decision 23).
pub fn receipt(menu: &Menu, answer: &PickAnswer) -> String {
    let event = &answer.event;
    let delivered = format!("Delivered \"{event}\" to the workflow (delivery {}).", answer.delivery_id);
    // A pick that moved nothing asked nobody, whatever else its answer says.
    let answered = if !answer.moved {
        String::new()
    } else if answer.nothing_ran {
        format!(" The pick came straight back: {NOTHING_RAN}.")
    } else if let Some(reply) = &answer.reply {
        format!(" {}", answer_words(reply))
    } else if answer.answered {
        format!(" {NO_REPLY}")
    } else {
        String::new()
    };
    if answer.turn_complete {
        let over = if mutation::is(Mutation::ReceiptWords) { " Your turn is over." } else { TURN_OVER };
        return format!("{delivered}{answered}{over}");
    }
    let acted = if answer.moved {
        STILL_OPEN.to_owned()
    } else {
        format!(
            " The workflow did NOT act on it: no transition in its current state accepts \"{event}\" with these \
             arguments.{NOT_MOVED}"
        )
    };
    format!("{delivered}{answered}{acted}{}", allowed_part(menu, answer.allowed.as_deref()))
}

/// What the model reads when a pick was not taken (E1 to E6).
pub fn refusal(menu: &Menu, iid: &str, refusal: &PickRefusal) -> String {
    match refusal {
        PickRefusal::Transport { detail } => {
            format!("the pick never reached the Orchestrator ({detail}) — try it again")
        }
        PickRefusal::Gone => format!("no live surface for agent \"{iid}\" — this turn is over"),
        PickRefusal::Unavailable { error } => {
            format!("the Orchestrator is unavailable ({error}), so the pick was not taken — try it again")
        }
        PickRefusal::Custodian { detail } => format!("the Custodian could not reach it ({detail})"),
        PickRefusal::Invalid { error, allowed } => {
            format!("{error}{}", allowed_part(menu, allowed.as_deref()))
        }
        PickRefusal::Other { status } => format!("the Orchestrator answered HTTP {status}"),
    }
}

/// E7.
pub(super) fn unsupported_semantics(event: &str, semantics: &str) -> String {
    format!(
        "event \"{event}\" is `{semantics}`, which the Harness does not implement (ADR-0013: reserved, not built — an \
         Agent must not be handed a tool whose contract is a lie)"
    )
}

/// R5, or nothing when the answer does not say what is allowed.
fn allowed_part(menu: &Menu, allowed: Option<&[String]>) -> String {
    allowed.map(|events| format!(" {}", allowed_line(&menu.tools_of(events)))).unwrap_or_default()
}
