//! What a compacted conversation says, and how the summariser is asked (spec H-34, H-36).

use crate::model::ChatMessage;

/// What the summary message starts with (spec H-36); a prompt cache ends here once and grows again behind it.
pub const COMPACTED_OPEN: &str = "The conversation history before this point was compacted";

/// System prompt of the summariser.
pub const SUMMARY_SYSTEM: &str = "You summarise the first part of a conversation between a workflow and an AI agent, so that \
    the agent can go on with its task from your summary alone. You do not continue the conversation and do not answer what \
    is asked in it. You write the summary and nothing else.";

/// What is asked of it, behind the transcript.
pub const SUMMARY_REQUEST: &str = "Summarise the conversation above in this form:\n\n\
    ## Task\nWhat the agent was asked to do: every requirement, and what it was told not to do.\n\n\
    ## Workflow\nWhat the workflow said last: the working directory, the newest \"Allowed now\" line word for word, and every \
    notice that still matters.\n\n\
    ## Done\nWhat is done and how it is known.\n\n\
    ## Now\nWhat was under way, and what failed and why.\n\n\
    ## Next\nThe next steps in order.\n\n\
    ## Facts\nExact file paths, names, commands, error texts and values that are needed to go on.\n\n\
    Keep what an earlier summary says unless the conversation changed it. Be brief; leave nothing out that the task needs.";

/// Stands where items of a transcript were left out.
pub const TRANSCRIPT_GAP: &str = "[… older messages left out …]";

/// The user-side message that stands in for everything before a cut (spec H-36).
pub fn compacted(summary: &str) -> String {
    format!("{COMPACTED_OPEN} into this summary:\n\n<summary>\n{summary}\n</summary>")
}

/// The summariser's user message.
pub fn summary_request(transcript: &str) -> String {
    format!("<conversation>\n{transcript}\n</conversation>\n\n{SUMMARY_REQUEST}")
}

/// One message of a transcript; calls and results are cut at `clip` characters. Thoughts are left out.
pub fn transcript_item(message: &ChatMessage, clip: usize) -> Option<String> {
    match message {
        ChatMessage::System(_) => None,
        ChatMessage::User(text) => Some(format!("[User]: {text}")),
        ChatMessage::Tool { content, .. } => Some(format!("[Tool result]: {}", clipped(content, clip))),
        ChatMessage::Assistant { text, tool_calls, .. } => {
            let spoken = (!text.is_empty()).then(|| format!("[Agent]: {text}"));
            let calls = tool_calls
                .iter()
                .map(|call| format!("[Agent calls]: {} {}", call.name, clipped(&call.arguments, clip)));
            let parts: Vec<String> = spoken.into_iter().chain(calls).collect();
            (!parts.is_empty()).then(|| parts.join("\n"))
        }
    }
}

fn clipped(text: &str, clip: usize) -> String {
    match text.char_indices().nth(clip) {
        Some((end, _)) => format!("{}… ({} bytes in all)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}
