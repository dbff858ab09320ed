//! The words of the specification, byte for byte: the suite's own copies, so that it judges any build (spec 7.11, 8, 10).

/// ST1.
pub const ST1: &str = "jr2 runs the workflow you are part of. These are facts about your seat, not your task.";
/// ST2.
pub const ST2: &str = "- You act on the workflow by picking from your Menu: a call to one of the workflow's tools that the newest \"Allowed now\" lists. Each pick's answer says if your Turn is over. If it is over, stop and call no other tool. If it is not, continue. If nothing is allowed, stop: the workflow prompts you again when something is.";
/// ST3.
pub const ST3: &str = "- You have no Working tools: no shell and no files. You act only by picking from your Menu.";
/// ST6.
pub const ST6: &str =
    "- Every process you start shares that memory. At the limit your processes are killed and `/dev/shm` is cleared.";
/// ST6 where `/dev/shm` is not the Sandbox's own.
pub const ST6_NO_SHM: &str = "- Every process you start shares that memory. At the limit your processes are killed.";
/// A2.
pub const A2: &str =
    "Allowed now: none — the workflow's current state accepts no pick yet, so any pick is refused or does nothing.";
/// What a restatement begins with (spec 8.4).
pub const RESTATED: &str = "The workflow's state changed since you last read the Allowed picks. ";
/// How a settlement of a Turn that was over says so (spec P-14).
pub const OVER_BEFORE_START: &str =
    "the Turn was over before it started: its state exited, so the surface is gone (ADR-0026)";
/// H-28.
pub const RUNAWAY_SAME: &str = "repeated an identical tool call 4 times";
/// H-29.
pub const RUNAWAY_LONG: &str = "exceeded 256 steps";
/// What closes a call that was open when the Harness died (decision 32).
pub const OPEN_AT_RESTART: &str =
    "The Harness restarted while this call ran. It may or may not have taken effect: check before you repeat it.";
/// R7.
pub const R7: &str = "No reply came back for it.";
/// NT6's words.
pub const NT6: &str = "the workflow left the state of your last turn while your pick was outstanding";
/// NT7's words.
pub const NT7: &str = "your pick did not finish: the workflow left the state that asked for your last turn while it ran, and that stopped it";
/// How a summary begins (spec H-36).
pub const COMPACTED: &str = "The conversation history before this point was compacted";

/// ST4, from what is known.
pub fn st4(cpus: Option<u64>, memory: Option<&str>) -> Option<String> {
    let cpus = cpus.map(cpus_words);
    let memory = memory.map(|memory| format!("{memory} of memory"));
    let has: Vec<String> = cpus.into_iter().chain(memory).collect();
    (!has.is_empty()).then(|| format!("- This Sandbox has {}.", has.join(" and ")))
}

/// ST5.
pub fn st5(cpus: u64) -> String {
    format!(
        "- The node's core count is not your budget: `os.cpus()` and `/proc/cpuinfo` report the node, not this Sandbox. Size parallel work (test workers, build jobs) to {}.",
        cpus_words(cpus)
    )
}

fn cpus_words(n: u64) -> String {
    if n == 1 { "1 CPU".to_owned() } else { format!("{n} CPUs") }
}

/// The standing part of these lines.
pub fn standing(lines: &[String]) -> String {
    format!("<jr2-briefing>\n{}\n</jr2-briefing>", lines.join("\n"))
}

/// A Turn part of these lines.
pub fn turn_part(lines: &[&str]) -> String {
    format!("<jr2-turn>\n{}\n</jr2-turn>", lines.join("\n"))
}

/// A1 over these events, A2 without.
pub fn allowed(events: &[&str]) -> String {
    if events.is_empty() {
        return A2.to_owned();
    }
    let names: Vec<String> = events.iter().map(|event| format!("`mcp__jr2__{event}`")).collect();
    format!("Allowed now: {}.", names.join(", "))
}

/// R1, of the delivery `d-1`.
pub fn r1(event: &str) -> String {
    format!("Delivered \"{event}\" to the workflow (delivery d-1).")
}

/// R2 without R5.
pub fn r2(event: &str) -> String {
    format!(
        "{} The workflow did NOT act on it: no transition in its current state accepts \"{event}\" with these arguments. Your turn is not over. Do not repeat this call unchanged — change the arguments, pick a different tool, or do more work first.",
        r1(event)
    )
}

/// R3.
pub fn r3(event: &str) -> String {
    format!(
        "{} The workflow consumed it and moved on: your turn is over. Stop here — do not call this or any other tool again.",
        r1(event)
    )
}

/// What stands between R1 and R5 in R4.
pub const R4: &str = " The workflow is still in the state that asked for this turn, so it is not over yet.";

/// E2.
pub fn e2(iid: &str) -> String {
    format!("no live surface for agent \"{iid}\" — this turn is over")
}

/// E3.
pub fn e3(error: &str) -> String {
    format!("the Orchestrator is unavailable ({error}), so the pick was not taken — try it again")
}

/// E4.
pub fn e4(detail: &str) -> String {
    format!("the Custodian could not reach it ({detail})")
}

/// E7.
pub fn e7(event: &str, semantics: &str) -> String {
    format!(
        "event \"{event}\" is `{semantics}`, which the Harness does not implement (ADR-0013: reserved, not built — an Agent must not be handed a tool whose contract is a lie)"
    )
}

/// NT1 to NT4: the size is ` (peak X of Y)`, ` of Y` or nothing. Where `/dev/shm` is not the Sandbox's own, the words about
/// it are left out; a build that always clears it says the first.
pub fn memory(size: &str, agent: Option<&str>) -> [String; 2] {
    let during = agent.map(|agent| format!(" during `{agent}`'s Turn")).unwrap_or_default();
    let line = |shm: &str| {
        format!(
            "Notice: the Sandbox's processes were killed at its memory limit{size}{during}{shm}. Anything that was running in the Sandbox at that time is gone."
        )
    };
    [line("; /dev/shm was cleared"), line("")]
}

/// NT5.
pub fn nt5(reason: &str) -> String {
    format!("Notice: This conversation is new; earlier context is gone ({reason}).")
}

/// M-5.
pub fn verdict(peak: &str, limit: &str) -> String {
    format!("killed: memory limit (peak {peak} of {limit}); use fewer workers or a larger Size")
}
