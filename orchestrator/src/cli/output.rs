//! What a command prints: data on stdout, the rest on stderr.

use serde::Serialize;
use std::io::{IsTerminal, Write};
use std::sync::OnceLock;

/// Is there a person at a terminal who sees stderr and can type?
pub fn interactive() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// May stderr carry colours and rewritten lines?
pub fn fancy() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

/// Text for a terminal: a model or a repository wrote some of it, so nothing in it may move the cursor, clear what a
/// person decides on, or turn the direction of the text around it.
pub fn plain(text: &str) -> String {
    let turns = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let bad = |c: char| (c.is_control() && c != '\n' && c != '\t') || turns(c);
    text.chars().map(|c| if bad(c) { '\u{fffd}' } else { c }).collect()
}

/// A line of activity.
pub fn say(line: &str) {
    // Nobody reads it any more: the work goes on.
    let _ = writeln!(std::io::stderr().lock(), "{}", line.trim_end());
}

/// Why data could not be written, the first time.
static UNWRITTEN: OnceLock<std::io::Error> = OnceLock::new();

/// Data, with a line end. What could not be written is told by [`unwritten`] at the end of the command.
pub fn data(text: &str) {
    raw(format!("{}\n", text.trim_end()).as_bytes());
}

/// Data as it is.
pub fn raw(bytes: &[u8]) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = out.write_all(bytes).and_then(|()| out.flush()) {
        // The first failure is the reason; later ones follow from it.
        let _ = UNWRITTEN.set(error);
    }
}

/// Results were lost: stdout did not take them.
pub fn unwritten() -> Option<&'static std::io::Error> {
    UNWRITTEN.get()
}

/// Data as JSON for programs.
pub fn json(value: &impl Serialize) {
    data(&serde_json::to_string_pretty(value).unwrap_or_default());
}

/// Columns padded to the widest, two spaces between.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|r| r.get(column)).map(|c| c.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Active states for people: `working`, `a.b`, `a.b + a.c`.
pub fn states(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::String(name) => name.clone(),
        serde_json::Value::Object(parts) => {
            let each = parts.iter().map(|(name, below)| {
                let below = states(below);
                if below.is_empty() { name.clone() } else { format!("{name}.{below}") }
            });
            each.collect::<Vec<_>>().join(" + ")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tables_are_aligned_and_states_read_as_paths() {
        let rows = [vec!["a".into(), "bb".into()], vec!["ccc".into(), "d".into()]];
        assert_eq!(table(&rows), "a    bb\nccc  d");
        assert_eq!(states(&json!({"a": {"b": "c", "d": {}}})), "a.b.c + d");
    }

    #[test]
    fn what_a_model_wrote_cannot_steer_a_terminal() {
        assert_eq!(plain("a\u{1b}[2Jb\rc\u{202e}d\n\te"), "a\u{fffd}[2Jb\u{fffd}c\u{fffd}d\n\te");
    }
}
