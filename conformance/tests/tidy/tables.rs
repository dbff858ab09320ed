//! Pages whose tables name tests: what a page's rows are, and whether the tests that they name exist.

use crate::{ITSELF, texts};
use regex::Regex;
use std::collections::BTreeSet;
use std::sync::LazyLock;

/// A row: its first cell, and the tests that its last cell names.
pub type Row<'a> = (&'a str, Vec<&'a str>);

/// Rows of a page whose first cell matches `id` whole.
pub fn rows<'a>(page: &'a str, id: &str) -> Vec<Row<'a>> {
    static NAME: LazyLock<Regex> = LazyLock::new(|| Regex::new("`([^`]*)`").unwrap());
    let row = Regex::new(&format!(r"(?m)^\| ({id}) \|.*\| ([^|]*) \|$")).unwrap();
    let names = |cell| NAME.captures_iter(cell).map(|found| found.get(1).unwrap().as_str()).collect();
    row.captures_iter(page).map(|row| (row.get(1).unwrap().as_str(), names(row.get(2).unwrap().as_str()))).collect()
}

/// A finding for each named test that is no function here.
pub fn missing(path: &str, rows: &[Row<'_>], functions: &BTreeSet<String>) -> Vec<String> {
    let named = rows.iter().flat_map(|(id, tests)| tests.iter().map(move |test| (id, test)));
    let missing = named.filter(|(_, test)| !functions.contains(**test));
    missing.map(|(id, test)| format!("{path}: {id} names `{test}`, which is no function here")).collect()
}

/// Shows a rule the page at `path` and every function of the repository; fails with its findings.
pub fn hold(path: &str, findings: impl Fn(&str, &BTreeSet<String>) -> Vec<String>) {
    static FUNCTION: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\bfn\s+([a-z_][a-z0-9_]*)").unwrap());
    let texts = texts();
    let rust = texts.iter().filter(|text| text.is_rust() && !text.path.starts_with(ITSELF));
    let functions: BTreeSet<String> =
        rust.flat_map(|text| FUNCTION.captures_iter(&text.text).map(|found| found[1].to_owned())).collect();
    let page = texts.iter().find(|text| text.path == path).map_or("", |text| text.text.as_str());
    let found = findings(page, &functions);
    assert!(found.is_empty(), "{} findings:\n{}", found.len(), found.join("\n"));
}
