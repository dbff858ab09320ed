//! The page of model servers: every public report has a row, and every test that a row names exists and carries its number.

use crate::{ITSELF, texts};
use regex::Regex;
use std::collections::BTreeSet;
use std::sync::LazyLock;

const PAGE: &str = "docs/model-servers.md";
/// The reports; the numbers between them were never given.
const REPORTS: [u32; 33] = [
    1, 2, 3, 4, 6, 7, 8, 9, 10, 12, 14, 15, 16, 18, 19, 20, 21, 23, 24, 26, 27, 28, 29, 30, 31, 32, 34, 35, 36, 37, 38,
    39, 40,
];

/// Rows of the page: the report and the tests that the last cell names.
fn rows(page: &str) -> Vec<(&str, Vec<&str>)> {
    static ROW: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(?m)^\| ([FG]\d\d) \|.*\| ([^|]*) \|$").unwrap());
    static NAME: LazyLock<Regex> = LazyLock::new(|| Regex::new("`([^`]*)`").unwrap());
    let names = |cell| NAME.captures_iter(cell).map(|found| found.get(1).unwrap().as_str()).collect();
    ROW.captures_iter(page).map(|row| (row.get(1).unwrap().as_str(), names(row.get(2).unwrap().as_str()))).collect()
}

fn findings(page: &str, functions: &BTreeSet<String>) -> Vec<String> {
    let rows = rows(page);
    let mut findings = Vec::new();
    for report in REPORTS.iter().map(|n| format!("F{n:02}")) {
        let tests: Vec<&str> =
            rows.iter().filter(|(id, _)| *id == report).flat_map(|(_, tests)| tests.clone()).collect();
        let number = report.to_lowercase();
        if !tests.iter().any(|test| test.split('_').any(|part| part == number)) {
            findings.push(format!("{PAGE}: {report} names no test that carries its number"));
        }
    }
    for (id, tests) in rows {
        let missing = tests.into_iter().filter(|test| !functions.contains(*test));
        findings.extend(missing.map(|test| format!("{PAGE}: {id} names `{test}`, which is no function here")));
    }
    findings
}

#[test]
fn every_report_of_a_model_server_has_a_test_that_exists() {
    let test = |n: u32| format!("f{n:02}_x");
    let known: BTreeSet<String> = REPORTS.iter().map(|n| test(*n)).collect();
    let row = |n: u32, test: &str| format!("| F{n:02} | a | b | `{test}` |\n");
    let whole: String = REPORTS.iter().map(|n| row(*n, &test(*n))).collect();
    assert_eq!(findings(&whole, &known), Vec::<String>::new());
    for bad in [
        whole.replace(&row(7, "f07_x"), ""),
        whole.replace(&row(7, "f07_x"), "| F07 | a | b | – |\n"),
        whole.replace(&row(7, "f07_x"), &row(7, "f08_x")),
        format!("{whole}| G01 | a | b | `g01_y` |\n"),
    ] {
        assert_eq!(findings(&bad, &known).len(), 1, "{bad}");
    }

    static FUNCTION: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\bfn\s+([a-z_][a-z0-9_]*)").unwrap());
    let texts = texts();
    let rust = texts.iter().filter(|text| text.is_rust() && !text.path.starts_with(ITSELF));
    let functions: BTreeSet<String> =
        rust.flat_map(|text| FUNCTION.captures_iter(&text.text).map(|found| found[1].to_owned())).collect();
    let page = texts.iter().find(|text| text.path == PAGE).map_or("", |text| text.text.as_str());
    let found = findings(page, &functions);
    assert!(found.is_empty(), "{}", found.join("\n"));
}
