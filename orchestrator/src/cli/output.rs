//! What a command prints: data on stdout, the rest on stderr.

use serde::Serialize;
use std::io::{IsTerminal, Write};

/// Is there a person at a terminal who sees stderr and can type?
pub fn interactive() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// May stderr carry colours and rewritten lines?
pub fn fancy() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none()
}

/// A line of activity.
pub fn say(line: &str) {
    // Nobody reads it any more: the work goes on.
    let _ = writeln!(std::io::stderr().lock(), "{}", line.trim_end());
}

/// Data, with a line end.
pub fn data(text: &str) {
    // A closed pipe (`jr2 runs | head`) is no failure.
    let _ = writeln!(std::io::stdout().lock(), "{}", text.trim_end());
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
}
