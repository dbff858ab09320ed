//! What the step loop itself tells a model: calls that did not run, empty answers, cuts.

/// Closes a call that was open when the Harness died (decision 32).
pub const CALL_OPEN_AT_RESTART: &str = "The Harness restarted while this call ran. It may or may not have taken effect: check \
    before you repeat it.";
/// Closes a call that never started because the Submission was stopped.
pub const CALL_NOT_RUN_STOPPED: &str = "This call did not run: your Turn was stopped before it.";
/// Closes a call that never started because an earlier pick of the same answer ended the Turn.
pub const CALL_NOT_RUN_OVER: &str = "This call did not run: your Turn was over before it.";
/// Closes the call that tripped the runaway watch, and those behind it (spec H-30).
pub const CALL_NOT_RUN_RUNAWAY: &str = "This call did not run: an identical call was made again and again.";
/// Closes a pick whose answer the Submission no longer waits for.
pub const PICK_STOPPED: &str =
    "Your Turn was stopped while this pick was outstanding. Its answer did not reach this call.";
/// Asks again after an answer with neither text nor a call.
pub const EMPTY_ANSWER: &str =
    "Your last answer was empty. Continue your task: call a tool, or say in plain text that you are done.";

/// Answers a call whose arguments the output limit cut (F23): what to do differently, or the same call comes again.
pub const CALL_CUT: &str = "The call did not run: your answer was cut at the output limit, so its arguments are incomplete. \
    Send less at once.";

/// Longest part of unparsable arguments kept in the conversation, in characters: enough to see what went wrong.
const BAD_ARGUMENTS_KEPT_CHARS: usize = 200;

/// Answers a call of a tool that does not exist.
pub fn no_such_tool(name: &str, tools: &[&str]) -> String {
    let name: String = name.chars().take(100).collect();
    let have = if tools.is_empty() { "no tools".to_owned() } else { tools.join(", ") };
    format!("There is no tool \"{}\"; you have: {have}.", super::one_line(&name))
}

/// Answers a call whose arguments are wrong (F26).
pub fn call_invalid(why: &str) -> String {
    format!("The call did not run: {why}. Send it again.")
}

/// What the conversation keeps in place of arguments that do not parse: servers refuse a history that holds them.
pub fn bad_arguments_stub(raw: &str) -> String {
    let head: String = raw.chars().take(BAD_ARGUMENTS_KEPT_CHARS).collect();
    serde_json::json!({ "unparsable_arguments": head }).to_string()
}

/// What a Menu tool says when its event has no description.
pub fn pick_description(event: &str) -> String {
    format!("Tells the workflow \"{event}\".")
}

/// What the result of a `bash` call that the memory guard killed ends with (spec M-5).
pub fn memory_verdict(peak: &str, limit: &str) -> String {
    format!("killed: memory limit (peak {peak} of {limit}); use fewer workers or a larger Size")
}

/// R7.
pub const NO_REPLY: &str = "No reply came back for it.";
