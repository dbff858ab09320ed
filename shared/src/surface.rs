//! An Agent's surface: the Menu, the Allowed picks, and the answer to a pick (spec 7.2).

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Longest briefing of a pick in characters (decision 8).
pub const PICK_BRIEFING_MAX_CHARS: usize = 2_000;

/// `GET /agents/:iid/surface` (spec P-2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Surface {
    /// The conversation this surface belongs to.
    pub instance_id: String,
    /// The run.
    #[serde(default)]
    pub run_id: String,
    /// The Sandbox the registration is scoped to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// The fixed Menu, in its order. Absent from older Orchestrators (spec P-16).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub menu: Option<Vec<MenuItem>>,
    /// Names allowed now, in Menu order. Absent from older Orchestrators (spec P-16).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<Vec<String>>,
    /// What an older Orchestrator sends instead of `menu`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepts: Option<Vec<MenuItem>>,
    /// `keyed` when this Orchestrator dedupes picks by `pickId` (decision 34).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub picks: Option<String>,
}

/// The value of [`Surface::picks`] that promises deduplication by `pickId` (decision 34).
pub const PICKS_KEYED: &str = "keyed";

/// One event of a Menu.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MenuItem {
    /// The event's name.
    pub name: String,
    /// What the pick means.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON Schema of the payload, an object, without `$schema` (decision 22).
    #[serde(default = "empty_object_schema")]
    pub input: Value,
    /// `ack`; anything else fails the surface read (spec P-17).
    #[serde(default = "ack")]
    pub semantics: String,
    /// Author text said on a Turn that may make this pick (decision 8).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub briefing: Option<String>,
}

fn ack() -> String {
    "ack".to_owned()
}

/// The schema of an event without a payload.
pub fn empty_object_schema() -> Value {
    serde_json::json!({"type": "object", "properties": {}})
}

/// `POST /agents/:iid/events` answers this when the pick was taken (spec P-4, decision 13).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PickAnswer {
    /// Always true in an answer.
    pub delivered: bool,
    /// The event's name.
    pub event: String,
    /// A transition accepted the event with these arguments (spec P-7).
    pub moved: bool,
    /// The registration that took the pick is gone (spec P-6).
    pub turn_complete: bool,
    /// The delivery's id, for the receipt and for the long poll.
    pub delivery_id: String,
    /// Allowed picks read after the delivery; empty when the Turn is complete. `None` = not said (decision 23).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<Vec<String>>,
    /// The pick asks: its answer is read at `GET /agents/:iid/events/:deliveryId` (decision 13).
    #[serde(default, skip_serializing_if = "is_false")]
    pub outstanding: bool,
    /// The last reply, when the route came back (spec P-32).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<PickReply>,
    /// The pick moved the machine, came straight back, and nothing ran (spec P-37).
    #[serde(default, skip_serializing_if = "is_false")]
    pub nothing_ran: bool,
    /// The pick was outstanding and its route came back: the receipt carries an answer or says none came.
    #[serde(default, skip_serializing_if = "is_false")]
    pub answered: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_false(b: &bool) -> bool {
    !*b
}

/// A reply to a pick: a party's event with its payload, or a child's output (spec P-32).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PickReply {
    /// A Gate or another party answered.
    Party {
        /// Who, as the workflow names it.
        party: String,
        /// The event it sent.
        event: String,
        /// Its payload.
        #[serde(default)]
        payload: Value,
    },
    /// A child run ended.
    Child {
        /// The child's name.
        child: String,
        /// Its output.
        #[serde(default)]
        output: Value,
    },
}

/// The body of a refused pick or event (spec P-5).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Why.
    pub error: String,
    /// Allowed picks now, when the Orchestrator can say them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed: Option<Vec<String>>,
}
