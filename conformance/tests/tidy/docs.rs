//! Rules about documentation.

use crate::{Text, hold, prove, root};
use regex::Regex;
use std::path::Path;
use std::sync::LazyLock;

fn links_resolve(text: &Text) -> Vec<String> {
    static LINK: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\]\(([^()\s]+)\)").unwrap());
    if !text.is_markdown() {
        return Vec::new();
    }
    let folder = root().join(Path::new(&text.path).parent().unwrap_or(Path::new("")));
    let mut fenced = false;
    let mut findings = Vec::new();
    for (at, line) in text.text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        for link in LINK.captures_iter(line).filter(|_| !fenced) {
            let target = link[1].split('#').next().unwrap_or_default();
            let outside = target.contains("://") || target.starts_with("mailto:") || target.is_empty();
            if !outside && !folder.join(target).exists() {
                findings.push(format!("{}:{}: `{target}` does not exist", text.path, at + 1));
            }
        }
    }
    findings
}

#[test]
fn links_lead_somewhere() {
    prove(
        links_resolve,
        "conformance/a.md",
        &["see [x](no-such.md)", "[y](../no/such#part)"],
        &["[x](https://example.org/a)", "[a](#here)", "[c](../Cargo.toml#x)", "```\n[x](no-such.md)\n```"],
    );
    hold(links_resolve);
}

fn has_a_title(text: &Text) -> Vec<String> {
    let titled = text.text.lines().next().is_some_and(|line| line.starts_with("# ") && line.len() > 2);
    if text.is_markdown() && text.path.starts_with("docs/") && !titled {
        return vec![format!("{}: the first line is the title: `# …`", text.path)];
    }
    Vec::new()
}

#[test]
fn pages_have_a_title() {
    prove(has_a_title, "docs/decisions/1.md", &["", "text\n", "## Part\n", "# \n"], &["# Title\n"]);
    prove(has_a_title, "conformance/README.md", &[], &["text\n"]);
    hold(has_a_title);
}
