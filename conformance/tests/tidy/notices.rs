//! The page of notices: every rule has a row, and every test that a row names exists.

use crate::{ITSELF, texts};
use regex::Regex;
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// Rules of the specification's section on notices.
const RULES: u32 = 88;
const PAGE: &str = "docs/notices.md";

/// Rows of the page: first cell and the tests that the last one names.
fn rows(page: &str) -> Vec<(&str, Vec<&str>)> {
    static ROW: LazyLock<Regex> =
        LazyLock::new(|| Regex::new(r"(?m)^\| (N-\d+|[A-C]\d\d) \|.*\| ([^|]*) \|$").unwrap());
    static NAME: LazyLock<Regex> = LazyLock::new(|| Regex::new("`([^`]*)`").unwrap());
    let names = |cell| NAME.captures_iter(cell).map(|found| found.get(1).unwrap().as_str()).collect();
    ROW.captures_iter(page).map(|row| (row.get(1).unwrap().as_str(), names(row.get(2).unwrap().as_str()))).collect()
}

fn findings(page: &str, functions: &BTreeSet<String>) -> Vec<String> {
    let rows = rows(page);
    let mut findings = Vec::new();
    for rule in (1..=RULES).map(|n| format!("N-{n}")) {
        match rows.iter().filter(|(id, _)| *id == rule).collect::<Vec<_>>()[..] {
            [(_, tests)] if tests.is_empty() => findings.push(format!("{PAGE}: {rule} names no test")),
            [_] => {}
            [] => findings.push(format!("{PAGE}: {rule} has no row")),
            _ => findings.push(format!("{PAGE}: {rule} has two rows")),
        }
    }
    for (id, tests) in rows {
        let missing = tests.into_iter().filter(|test| !functions.contains(*test));
        findings.extend(missing.map(|test| format!("{PAGE}: {id} names `{test}`, which is no function here")));
    }
    findings
}

#[test]
fn every_rule_of_notices_has_a_test_that_exists() {
    let known = BTreeSet::from(["n_01_x".to_owned()]);
    let row = |n: u32, test: &str| format!("| N-{n} | a | b | {test} |\n");
    let whole: String = (1..=RULES).map(|n| row(n, "`n_01_x`")).collect();
    assert_eq!(findings(&whole, &known), Vec::<String>::new());
    for bad in [
        whole.replace(&row(7, "`n_01_x`"), ""),
        whole.replace(&row(7, "`n_01_x`"), &row(7, "–")),
        whole.replace(&row(7, "`n_01_x`"), &row(7, "`n_01_x`, `n_07_y`")),
        format!("{whole}{}", row(7, "`n_01_x`")),
        format!("{whole}| B06 | a | `b06_y` |\n"),
    ] {
        assert_eq!(findings(&bad, &known).len(), 1, "{bad}");
    }

    static FUNCTION: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\bfn\s+([a-z_][a-z0-9_]*)").unwrap());
    let texts = texts();
    let rust = texts.iter().filter(|text| text.is_rust() && !text.path.starts_with(ITSELF));
    let functions: BTreeSet<String> =
        rust.flat_map(|text| FUNCTION.captures_iter(&text.text).map(|found| found[1].to_owned())).collect();
    let page = texts.iter().find(|text| text.path == PAGE).map_or("", |text| text.text.as_str());
    let findings = findings(page, &functions);
    assert!(findings.is_empty(), "{} findings:\n{}", findings.len(), findings.join("\n"));
}
