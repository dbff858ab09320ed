//! What the documentation shows is true: every workflow in a page and below `examples/` checks without a word.
#![allow(clippy::unwrap_used, clippy::panic)] // A test fails by panicking.

use jr2_orchestrator::workflow::check_files;
use std::path::{Path, PathBuf};

/// How a block of a page begins that holds a whole workflow.
const FENCE: &str = "```yaml\nworkflow: ";
/// Fewest workflows the pages and examples hold together.
const WORKFLOWS_MIN: usize = 10;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The files below a folder with an ending, sorted.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, ending));
        } else if path.extension().is_some_and(|e| e == ending) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The workflows of a page: name and text.
fn workflows(page: &str) -> Vec<(String, String)> {
    page.match_indices(FENCE)
        .map(|(at, _)| {
            let text = &page[at + "```yaml\n".len()..];
            let text = &text[..=text.find("\n```").unwrap()];
            let name = text["workflow: ".len()..].split_whitespace().next().unwrap();
            (name.to_owned(), text.to_owned())
        })
        .collect()
}

#[test]
fn every_workflow_that_is_shown_checks() {
    let mut pages = files(&root().join("docs"), "md");
    pages.push(root().join("README.md"));
    let mut said = String::new();
    let mut count = 0;
    for page in pages {
        // Workflows of one page lie beside each other, so that one may run another.
        let folder = tempfile::tempdir().unwrap();
        let shown = workflows(&std::fs::read_to_string(&page).unwrap());
        let paths: Vec<PathBuf> = shown.iter().map(|(name, _)| folder.path().join(format!("{name}.yaml"))).collect();
        for (path, (_, text)) in paths.iter().zip(&shown) {
            assert!(!path.exists(), "{} holds two workflows of one name: {}", page.display(), path.display());
            std::fs::write(path, text).unwrap();
        }
        count += paths.len();
        said.push_str(&check_files(&paths).diagnostics.plain().replace(&folder.path().display().to_string(), "page"));
    }
    let examples: Vec<PathBuf> = files(&root().join("examples"), "yaml");
    count += examples.len();
    said.push_str(&check_files(&examples).diagnostics.plain());
    assert_eq!(said, "");
    assert!(count >= WORKFLOWS_MIN, "only {count} workflows are shown");
}
