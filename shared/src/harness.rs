//! The Harness wire: admissions, streams, history, settlements (spec section 6).

use crate::notice::CarriedNotice;
use serde::{Deserialize, Serialize};

/// Longest prompt of one admission in bytes: a bigger one is refused with 400, because no model window holds it.
pub const PROMPT_MAX_BYTES: usize = 1 << 20;
/// Largest admission body in bytes: prompt, instructions and notices together.
pub const ADMIT_BODY_MAX_BYTES: usize = 4 << 20;
/// How long a long poll is held before 204 (spec 6.2).
pub const LONG_POLL_SECS: u64 = 25;
/// Response header: the offset to ask from next.
pub const HEADER_NEXT_OFFSET: &str = "stream-next-offset";
/// Response header: `true` when nothing newer is recorded.
pub const HEADER_UP_TO_DATE: &str = "stream-up-to-date";
/// Header of a Custodian's own 502 (spec P-11): value `unreachable`.
pub const HEADER_CUSTODIAN: &str = "x-jr2-custodian";
/// Header that carries the Orchestrator's owner epoch on every outgoing effect (decision 4).
pub const HEADER_OWNER_EPOCH: &str = "x-jr2-owner-epoch";

/// What an Agent may touch (spec 3.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// All Working tools.
    #[default]
    Write,
    /// No `write` and no `edit`.
    Read,
    /// No Working tools; runs on the Instance Harness.
    None,
}

/// How hard the model thinks (spec 3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ThinkingLevel {
    /// No thinking.
    Off,
    /// As little as the provider offers.
    Minimal,
    /// Low.
    Low,
    /// Medium.
    Medium,
    /// High.
    High,
    /// As much as the provider offers.
    Xhigh,
}

/// The Agent as an admission carries it; re-read at each Submission (spec H-10). Unknown keys are ignored (decision 28).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentDefinition {
    /// `<provider>/<model>`, split at the first slash.
    pub model: String,
    /// First part of the system prompt.
    pub instructions: String,
    /// Working tools and placement.
    #[serde(default)]
    pub workspace: Access,
    /// Default thinking level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking_level: Option<ThinkingLevel>,
    /// Most tokens one model answer may have; the provider's own default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Sampling temperature; the provider's own default when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
}

/// `POST /agents/:name/:id` (spec 6.2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmitRequest {
    /// The prompt; missing is empty (spec H-5).
    #[serde(default)]
    pub message: String,
    /// Absolute working directory of the Frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The Agent.
    pub definition: AgentDefinition,
    /// Dial: another model for this Turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Dial: another thinking level for this Turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking_level: Option<ThinkingLevel>,
    /// Notices to word.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<CarriedNotice>,
    /// The answer of a pick whose call the restart cut: the Harness words it after the re-admit text (decision 34).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<crate::surface::PickAnswer>,
    /// The Orchestrator believes the conversation is held; refuse otherwise (spec H-8).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub kept: bool,
    /// `<iid>#<n>`: a repeat seats nothing (decision 31).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admission_id: Option<String>,
}

/// The answer to an admission.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AdmitAnswer {
    /// Absolute URL of the updates stream, the iid percent-encoded as one segment (decision 26).
    pub stream_url: String,
    /// Opaque log position to wait from.
    pub offset: String,
    /// `s-<n>-<6 random>`.
    pub submission_id: String,
    /// Ids of the notices the recorded admission carried; present when it was already held (decision 31).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carried: Option<Vec<String>>,
}

/// `POST /agents/:name/:id/abort` (decision 33). An empty body ends everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AbortRequest {
    /// Ends the Submission of this admission and earlier ones only; remembered if it has not arrived yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_to: Option<String>,
}

/// The answer to an abort.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AbortAnswer {
    /// Whether anything ended.
    pub aborted: bool,
    /// Admissions that this abort ended, now or before they arrived, and no model was asked with (decision 32).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unprompted: Vec<String>,
}

/// How a Submission ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The model stopped.
    Completed,
    /// It could not go on.
    Failed,
    /// It was told to stop.
    Aborted,
}

/// Settlement error types (spec 6.3).
pub mod error_type {
    /// An abort ended it.
    pub const ABORTED: &str = "submission_aborted";
    /// Any failure without a type of its own.
    pub const FAILED: &str = "submission_failed";
    /// It repeated itself or ran too long (spec 6.8).
    pub const RUNAWAY: &str = "runaway";
    /// The Harness died under it (spec H-14).
    pub const HARNESS_RESTARTED: &str = "harness_restarted";
}

/// Why a Submission did not complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettlementError {
    /// One of [`error_type`].
    #[serde(rename = "type")]
    pub kind: String,
    /// For people, and for fault reasons.
    pub message: String,
}

/// The end of one Submission.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Settlement {
    /// Which.
    pub submission_id: String,
    /// How.
    pub outcome: Outcome,
    /// Why not, when it did not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<SettlementError>,
    /// Of one that did not complete: whether the rendered message had been made durable, so that a model may have been
    /// asked (decision 32). Absent = not said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompted: Option<bool>,
    /// The last assistant text of a completed Submission, at most 16 KiB: what `agent.done` carries (decision 38).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// Longest `text` of a settlement in bytes (decision 38).
pub const DONE_TEXT_MAX_BYTES: usize = 16 << 10;

/// Where an event stands in its conversation's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Position {
    /// The write that recorded it.
    pub batch: u64,
    /// Its place in that write.
    pub index: u64,
}

/// One entry of `view=updates`; every event carries its conversation and position (decision 25).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StreamEvent {
    /// The iid.
    pub conversation_id: String,
    /// Place in the log.
    pub position: Position,
    /// What happened.
    #[serde(flatten)]
    pub event: StreamEventKind,
}

/// What a stream event says (spec 6.3). Readers skip types they do not know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum StreamEventKind {
    /// A message joined the conversation.
    MessageAppended {
        /// It.
        message: StreamMessage,
    },
    /// A Submission ended.
    SubmissionSettled(Settlement),
    /// The memory guard killed the Agent's processes.
    MemoryLimit {
        /// Peak as a Size is written.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        peak: Option<String>,
        /// Limit as a Size is written.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<String>,
        /// The kill's id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        /// When, RFC 3339.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<String>,
    },
}

/// A message of the stream.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamMessage {
    /// Its id in the conversation.
    pub id: String,
    /// `user`, `assistant` or `tool`.
    pub role: String,
    /// Its text parts.
    pub parts: Vec<TextPart>,
}

/// A finished text part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TextPart {
    /// Always `text`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The text.
    pub text: String,
    /// Always `done`.
    pub state: String,
}

/// `GET …?view=history`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct History {
    /// Version of the shape: 1.
    pub v: u32,
    /// The iid.
    pub conversation_id: String,
    /// Where the log ends.
    pub offset: String,
    /// User and assistant texts in order.
    pub messages: Vec<HistoryMessage>,
    /// Every settlement so far.
    pub settlements: Vec<Settlement>,
}

/// A message of the history view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryMessage {
    /// `user` or `assistant`.
    pub role: String,
    /// Its text.
    pub text: String,
}

/// `PUT /agents`: which conversations live (spec S-18).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LiveSet {
    /// All of them.
    pub live: Vec<LiveConversation>,
}

/// One live conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LiveConversation {
    /// The Agent's name.
    pub agent: String,
    /// The iid.
    pub instance_id: String,
}

/// The answer to `PUT /agents`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Freed {
    /// Conversations dropped.
    pub freed: usize,
}

/// The 404 body of a refused `kept: true` (spec H-8, decision 27), or any other error body.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// What happened.
    pub error: String,
    /// `Some(false)` = the conversation is not held and nothing was seated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<bool>,
}

/// `JR2_HARNESS_JSON`: the provider the Harness talks to (spec H-19).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HarnessConfig {
    /// Every provider an Agent's `model` may name.
    pub providers: Vec<Provider>,
}

/// One model provider.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Provider {
    /// What stands before the first slash of a model.
    pub id: String,
    /// The wire: `chat-completions`.
    #[serde(default = "chat_completions")]
    pub api: String,
    /// Where: an absolute URL, or a path that starts with `/` and is resolved against `JR2_CUSTODIAN_URL`.
    pub base_url: String,
    /// Which row of the quirk table: `openai`, `vllm`, `llama.cpp`, `ollama`, `mlx`, `litellm`, `generic`.
    #[serde(default = "generic")]
    pub quirk: String,
    /// The bearer the Harness sends: a Stand-in, never a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stand_in: Option<String>,
    /// Context window in tokens, when known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
    /// Default for the answer's most tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// Longest silence between two bytes of an answer, and before the first, in seconds; 300 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_seconds: Option<u64>,
}

fn chat_completions() -> String {
    "chat-completions".to_owned()
}

fn generic() -> String {
    "generic".to_owned()
}

/// base64url (no padding) of sha256: what `JR2_HARNESS_TOKEN_SHA256` holds (spec 2.3).
pub fn token_digest(token: &str) -> String {
    use sha2::{Digest, Sha256};
    base64url(&Sha256::digest(token.as_bytes()))
}

/// base64url without padding (RFC 4648 section 5).
pub fn base64url(bytes: &[u8]) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn stream_events_have_the_shape_of_spec_6_3() {
        let event = StreamEvent {
            conversation_id: "r/root/coder".into(),
            position: Position { batch: 3, index: 0 },
            event: StreamEventKind::SubmissionSettled(Settlement {
                submission_id: "s-1-abcdef".into(),
                outcome: Outcome::Failed,
                error: Some(SettlementError { kind: error_type::RUNAWAY.into(), message: "exceeded 256 steps".into() }),
                prompted: None,
                text: None,
            }),
        };
        let value = serde_json::to_value(&event).unwrap();
        assert_eq!(
            value,
            json!({"conversationId": "r/root/coder", "position": {"batch": 3, "index": 0}, "type": "submission-settled",
                   "submissionId": "s-1-abcdef", "outcome": "failed",
                   "error": {"type": "runaway", "message": "exceeded 256 steps"}})
        );
        assert_eq!(serde_json::from_value::<StreamEvent>(value).unwrap(), event);
    }

    #[test]
    fn a_definition_ignores_unknown_keys_and_defaults_to_write() {
        let d: AgentDefinition =
            serde_json::from_value(json!({"model": "p/m", "instructions": "i", "cwd": "/x", "description": "d"}))
                .unwrap();
        assert_eq!(d.workspace, Access::Write);
    }

    #[test]
    fn the_digest_is_base64url_of_sha256() {
        assert_eq!(token_digest("abc"), "ungWv48Bz-pBQUDeXa4iI7ADYaOWF3qctBD_YfIAFa0");
    }
}
