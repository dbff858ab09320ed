//! Names of OpenTelemetry's semantic conventions for generative AI (development status, 1.38), and of jr2's own attributes.

/// What was done: [`CHAT`], [`EXECUTE_TOOL`], [`INVOKE_AGENT`], [`INVOKE_WORKFLOW`].
pub const OPERATION: &str = "gen_ai.operation.name";
/// One question to a model.
pub const CHAT: &str = "chat";
/// One call of a tool.
pub const EXECUTE_TOOL: &str = "execute_tool";
/// One Turn of an Agent.
pub const INVOKE_AGENT: &str = "invoke_agent";
/// One run.
pub const INVOKE_WORKFLOW: &str = "invoke_workflow";
/// Who serves the model.
pub const PROVIDER: &str = "gen_ai.provider.name";
/// The model that was asked for.
pub const REQUEST_MODEL: &str = "gen_ai.request.model";
/// Why it stopped; a list of one.
pub const FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
/// Tokens of the question; absent when the server does not say.
pub const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
/// Tokens of the answer.
pub const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
/// Tokens of the question that came from the server's cache.
pub const CACHED_TOKENS: &str = "gen_ai.usage.cache_read.input_tokens";
/// The conversation: jr2's iid.
pub const CONVERSATION: &str = "gen_ai.conversation.id";
/// The Agent's name.
pub const AGENT: &str = "gen_ai.agent.name";
/// The workflow's name.
pub const WORKFLOW: &str = "gen_ai.workflow.name";
/// The tool's name.
pub const TOOL: &str = "gen_ai.tool.name";
/// The call's id.
pub const TOOL_CALL: &str = "gen_ai.tool.call.id";
/// The prompt, only when asked for.
pub const INPUT_MESSAGES: &str = "gen_ai.input.messages";
/// The answer, only when asked for.
pub const OUTPUT_MESSAGES: &str = "gen_ai.output.messages";
/// What went wrong, as a short word.
pub const ERROR_TYPE: &str = "error.type";
/// jr2's run.
pub const RUN: &str = "jr2.run.id";
/// How a run or a Turn ended.
pub const OUTCOME: &str = "jr2.outcome";

/// Says that prompts and answers may be in spans (the conventions' own switch).
pub const CAPTURE_VARIABLE: &str = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT";
/// Longest text of a message in a span, in bytes: collectors refuse more sooner or later.
const CAPTURED_MAX_BYTES: usize = 16 << 10;

/// Whether prompts and answers are wanted in spans.
pub fn captures() -> bool {
    std::env::var(CAPTURE_VARIABLE).is_ok_and(|value| value.eq_ignore_ascii_case("true"))
}

/// A message as a span may hold it.
pub fn captured(text: &str) -> String {
    text[..text.floor_char_boundary(CAPTURED_MAX_BYTES)].to_owned()
}
