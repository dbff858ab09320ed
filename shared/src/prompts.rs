//! The re-prompts an Orchestrator sends as an admission's `message`: nudge, wake and re-admission.
//!
//! They stand here and not in the Harness because they travel on the wire as plain prompts: any Harness build must be
//! able to serve them, ours or another's.

/// The wake (decision 5): sent when picks open while the Turn's model is idle.
pub const WAKE: &str = "The workflow's state changed: a pick is open now. Continue your task.";
/// Re-admission after a Harness restart that kept the conversation (decision 6).
pub const READMIT_KEPT: &str =
    "Your Turn was cut because the Harness restarted. What this conversation holds is intact. Continue your task.";
/// Re-admission after a Harness restart that lost the conversation; the task follows (decision 6).
pub const READMIT_LOST: &str =
    "Your Turn was cut because the Harness restarted, and this conversation's earlier messages are gone. Your task:";

/// The nudge (spec 7.11 N1) naming the tools that are allowed now, in Menu order.
pub fn nudge(allowed_events: &[String]) -> String {
    let names: Vec<String> = allowed_events.iter().map(|e| crate::ids::menu_tool_name(e)).collect();
    format!(
        "Your previous turn ended without calling one of the required workflow tools. You MUST end your turn by calling \
         exactly one of: {}. Pick the one that matches the true state of your work and call it now.",
        names.join(", ")
    )
}

/// The re-admission of a lost conversation: the fixed text, a blank line, the task.
pub fn readmit_lost(task: &str) -> String {
    format!("{READMIT_LOST}\n\n{task}")
}
