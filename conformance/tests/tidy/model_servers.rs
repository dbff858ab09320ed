//! The page of model servers: every public report has a row, and every test that a row names exists and carries its number.

use crate::tables::{hold, missing, rows};
use std::collections::BTreeSet;

const PAGE: &str = "docs/model-servers.md";
/// The reports; the numbers between them were never given.
const REPORTS: [u32; 33] = [
    1, 2, 3, 4, 6, 7, 8, 9, 10, 12, 14, 15, 16, 18, 19, 20, 21, 23, 24, 26, 27, 28, 29, 30, 31, 32, 34, 35, 36, 37, 38,
    39, 40,
];

fn findings(page: &str, functions: &BTreeSet<String>) -> Vec<String> {
    let rows = rows(page, r"[FG]\d\d");
    let mut findings = Vec::new();
    for report in REPORTS.iter().map(|n| format!("F{n:02}")) {
        let tests: Vec<&str> =
            rows.iter().filter(|(id, _)| *id == report).flat_map(|(_, tests)| tests.clone()).collect();
        let number = report.to_lowercase();
        if !tests.iter().any(|test| test.split('_').any(|part| part == number)) {
            findings.push(format!("{PAGE}: {report} names no test that carries its number"));
        }
    }
    findings.extend(missing(PAGE, &rows, functions));
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

    hold(PAGE, findings);
}
