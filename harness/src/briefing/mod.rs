//! Every word jr2 itself says to a model: the standing part, the Turn part, restatements and the loop's own remarks.
//!
//! One place for the words (spec B-5). All of it is pure: the same facts give the same bytes, because a changed byte in
//! the system prompt throws the provider's prefix cache away (spec B-6).

mod compaction;
mod notices;
mod words;

pub use compaction::{
    COMPACTED_OPEN, SUMMARY_REQUEST, SUMMARY_SYSTEM, TRANSCRIPT_GAP, compacted, summary_request, transcript_item,
};
pub use notices::{answer_words, notice_line};
pub use words::*;

use crate::config::Facts;
use crate::mutation::{self, Mutation};
use jr2_shared::harness::Access;
use jr2_shared::notice::{NOTICES_MAX, Notice, TURN_PART_MAX_BYTES};
use jr2_shared::size::format_memory;

/// ST1.
const STANDING_OPEN: &str = "jr2 runs the workflow you are part of. These are facts about your seat, not your task.";
/// ST2.
const STANDING_PICKS: &str = "- You act on the workflow by picking from your Menu: a call to one of the workflow's tools \
    that the newest \"Allowed now\" lists. Each pick's answer says if your Turn is over. If it is over, stop and call no \
    other tool. If it is not, continue. If nothing is allowed, stop: the workflow prompts you again when something is.";
/// ST3.
const STANDING_NO_TOOLS: &str =
    "- You have no Working tools: no shell and no files. You act only by picking from your Menu.";
/// ST6, with the words about `/dev/shm` (decision 45).
const STANDING_MEMORY_SHM: &str = "- Every process you start shares that memory. At the limit your processes are killed \
    and `/dev/shm` is cleared.";
/// ST6 where `/dev/shm` is left alone (decision 45).
const STANDING_MEMORY: &str = "- Every process you start shares that memory. At the limit your processes are killed.";
/// A2.
const ALLOWED_NONE: &str =
    "Allowed now: none — the workflow's current state accepts no pick yet, so any pick is refused or does nothing.";
/// What a restatement opens with (spec 8.4).
const RESTATED: &str = "The workflow's state changed since you last read the Allowed picks. ";

/// Bytes that every line of a Turn part keeps: each memory notice is shorter, so it is never cut.
const LINE_KEPT_BYTES: usize = 384;
/// What ends a line that was cut.
const CUT: &str = "… (cut)";

/// The system prompt: instructions, a blank line, the standing part (spec 6.6, 8.3).
pub fn system_prompt(instructions: &str, access: Access, facts: Facts) -> String {
    let standing = standing_part(access, facts);
    if instructions.is_empty() { standing } else { format!("{instructions}\n\n{standing}") }
}

/// The standing part (spec 8.3): the same bytes on every Turn of a seat.
pub fn standing_part(access: Access, facts: Facts) -> String {
    let mut lines = vec![STANDING_OPEN.to_owned(), STANDING_PICKS.to_owned()];
    if access == Access::None {
        lines.push(STANDING_NO_TOOLS.to_owned());
    } else {
        let cpus = facts.cpus.map(|n| if n == 1 { "1 CPU".to_owned() } else { format!("{n} CPUs") });
        let memory = facts.memory.map(|bytes| format!("{} of memory", format_memory(bytes)));
        let has: Vec<&str> = [&cpus, &memory].into_iter().filter_map(Option::as_deref).collect();
        if !has.is_empty() {
            lines.push(format!("- This Sandbox has {}.", has.join(" and ")));
        }
        if let Some(cpus) = &cpus {
            lines.push(format!(
                "- The node's core count is not your budget: `os.cpus()` and `/proc/cpuinfo` report the node, not this \
                 Sandbox. Size parallel work (test workers, build jobs) to {cpus}."
            ));
        }
        if memory.is_some() {
            lines.push(if facts.shm_private { STANDING_MEMORY_SHM } else { STANDING_MEMORY }.to_owned());
        }
    }
    if mutation::is(Mutation::StandingPartCounts) {
        lines.push(format!("- Briefing {}.", mutation::count()));
    }
    format!("<jr2-briefing>\n{}\n</jr2-briefing>", lines.join("\n"))
}

/// What a Turn part says (spec 8.4).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TurnPart<'a> {
    /// Absent for access `none`.
    pub cwd: Option<&'a str>,
    /// In ledger order.
    pub notices: &'a [Notice],
    /// Decision 45.
    pub shm_private: bool,
    /// Briefings of the Allowed picks that have one, in Menu order.
    pub picks: Vec<&'a str>,
    /// Tool names allowed now, in Menu order.
    pub allowed: Vec<&'a str>,
}

/// The user message of a Submission: the prompt, a blank line, the Turn part; the Allowed picks last (spec B-9).
pub fn user_message(prompt: &str, part: &TurnPart<'_>) -> String {
    let mut said: Vec<String> = Vec::new();
    let skipped = usize::from(mutation::is(Mutation::NoticeDropped));
    for notice in part.notices.iter().take(NOTICES_MAX).skip(skipped) {
        // Two notices with the same words are said once (spec N-16).
        if let Some(line) = notice_line(notice, part.shm_private)
            .filter(|line| !said.contains(line) || mutation::is(Mutation::NoticeTwice))
        {
            said.push(line);
        }
    }
    said.extend(part.picks.iter().map(|text| pick_briefing(text)));
    let cwd = part.cwd.map(|cwd| format!("Working directory: {}", one_line(cwd)));
    let block = bounded_block(cwd, said, allowed_line(&part.allowed));
    if prompt.is_empty() { block } else { format!("{prompt}\n\n{block}") }
}

/// The block appended when the Allowed picks changed for another reason than the Agent's own pick (spec B-10):
/// the briefings of the picks it opens, then the Allowed picks.
pub fn restatement(opened: &[&str], allowed: &[&str]) -> String {
    let lines = opened.iter().map(|text| pick_briefing(text)).collect();
    bounded_block(None, lines, format!("{RESTATED}{}", allowed_line(allowed)))
}

/// A1 or A2 over tool names (spec 7.11).
pub fn allowed_line(tools: &[&str]) -> String {
    if tools.is_empty() {
        return ALLOWED_NONE.to_owned();
    }
    let names: Vec<String> = tools.iter().map(|tool| format!("`{tool}`")).collect();
    format!("Allowed now: {}.", names.join(", "))
}

/// A Turn part within its bound: the directory and the Allowed picks stand whole, the longest lines between them are cut.
fn bounded_block(first: Option<String>, mut middle: Vec<String>, last: String) -> String {
    let fixed = turn_block(&[first.clone().unwrap_or_default(), last.clone()]).len();
    fit(&mut middle, TURN_PART_MAX_BYTES.saturating_sub(fixed));
    let mut lines: Vec<String> = first.into_iter().chain(middle).chain([last]).collect();
    if mutation::is(Mutation::AllowedFirst) {
        lines.rotate_right(1);
    }
    turn_block(&lines)
}

/// Cuts the longest lines until all of them, with their line ends, fit `budget` bytes; none below [`LINE_KEPT_BYTES`], so
/// that no notice is lost for a long one beside it.
fn fit(lines: &mut [String], budget: usize) {
    let mut over = lines.iter().map(|line| line.len() + 1).sum::<usize>().saturating_sub(budget);
    while over > 0 {
        let longest = lines.iter_mut().max_by_key(|line| line.len());
        let Some(line) = longest.filter(|line| line.len() > LINE_KEPT_BYTES) else { return };
        let keep = (line.len().saturating_sub(over)).max(LINE_KEPT_BYTES) - CUT.len();
        let before = line.len();
        line.truncate(line.floor_char_boundary(keep));
        line.push_str(CUT);
        over = over.saturating_sub(before - line.len());
    }
}

fn turn_block(lines: &[String]) -> String {
    format!("<jr2-turn>\n{}\n</jr2-turn>", lines.join("\n"))
}

/// Author text of a pick, cut at its bound (decision 8).
fn pick_briefing(text: &str) -> String {
    text.trim().chars().take(jr2_shared::surface::PICK_BRIEFING_MAX_CHARS).collect()
}

/// A value that must stay on its line: anything a reader could take for a new line becomes a space.
pub(crate) fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() || c == '\u{2028}' || c == '\u{2029}' { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod texts;
