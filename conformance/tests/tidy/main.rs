//! The house rules as ordinary tests. Each rule is a pure function from a text to findings, and is shown a bad sample, so
//! that it can fail; then it is shown the repository.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test fails by panicking.

mod crates;
mod docs;
mod model_servers;
mod notices;
mod source;
mod tables;

use std::path::{Path, PathBuf};

/// Folders that hold nothing of ours: build output, git, run state, and recorded data that stays as it came.
const SKIPPED_FOLDERS: [&str; 6] = [".git", "target", ".jr2", "node_modules", "fixtures", "snapshots"];
/// Kinds of text that people write here.
const TEXT_ENDINGS: [&str; 9] = ["rs", "md", "toml", "yaml", "yml", "json", "sh", "js", "css"];
/// This test names what it forbids.
const ITSELF: &str = "conformance/tests/tidy/";

/// One text of the repository.
struct Text {
    /// Path from the root, with `/`.
    path: String,
    text: String,
}

impl Text {
    fn sample(path: &str, text: &str) -> Self {
        Self { path: path.to_owned(), text: text.to_owned() }
    }

    fn is_rust(&self) -> bool {
        Path::new(&self.path).extension().is_some_and(|e| e == "rs")
    }

    fn is_markdown(&self) -> bool {
        Path::new(&self.path).extension().is_some_and(|e| e == "md")
    }

    /// Findings of a rule that looks at lines, with the line's number.
    fn lines(&self, bad: impl Fn(&str) -> Option<String>) -> Vec<String> {
        let find = |(at, line)| bad(line).map(|what| format!("{}:{}: {what}", self.path, at + 1));
        self.text.split('\n').enumerate().filter_map(find).collect()
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Every text of the repository.
fn texts() -> Vec<Text> {
    let mut found = Vec::new();
    walk(&root(), "", &mut found);
    assert!(found.len() > 20, "only {} texts found below {}", found.len(), root().display());
    found
}

fn walk(folder: &Path, prefix: &str, found: &mut Vec<Text>) {
    let mut entries: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap()).collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let name = entry.file_name().into_string().unwrap();
        let path = format!("{prefix}{name}");
        let kind = entry.file_type().unwrap();
        if kind.is_dir() && !SKIPPED_FOLDERS.contains(&name.as_str()) {
            walk(&entry.path(), &format!("{path}/"), found);
        } else if kind.is_file() && is_text(&path) {
            let text = std::fs::read_to_string(entry.path()).unwrap_or_else(|e| panic!("{path}: {e}"));
            found.push(Text { path, text });
        }
    }
}

fn is_text(path: &str) -> bool {
    path.starts_with(".ci/") || Path::new(path).extension().is_some_and(|e| TEXT_ENDINGS.iter().any(|t| e == *t))
}

/// Fails with every finding of a rule in the repository.
fn hold(rule: impl Fn(&Text) -> Vec<String>) {
    let findings: Vec<String> = texts().iter().filter(|t| !t.path.starts_with(ITSELF)).flat_map(rule).collect();
    assert!(findings.is_empty(), "{} findings:\n{}", findings.len(), findings.join("\n"));
}

/// Fails when a rule does not see each bad sample, or sees something in a good one.
fn prove(rule: impl Fn(&Text) -> Vec<String>, path: &str, bad: &[&str], good: &[&str]) {
    for text in bad {
        assert!(!rule(&Text::sample(path, text)).is_empty(), "not seen in {path}: {text}");
    }
    for text in good {
        assert_eq!(rule(&Text::sample(path, text)), Vec::<String>::new(), "seen in {path}: {text}");
    }
}
