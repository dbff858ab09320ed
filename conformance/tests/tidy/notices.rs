//! The page of notices: every rule has a row, and every test that a row names exists.

use crate::tables::{hold, missing, rows};
use std::collections::BTreeSet;

/// Rules of the specification's section on notices.
const RULES: u32 = 88;
const PAGE: &str = "docs/notices.md";

/// What the first cell of a row may be: a rule, or a row of the public faults.
const ID: &str = r"N-\d+|[A-C]\d\d";

fn findings(page: &str, functions: &BTreeSet<String>) -> Vec<String> {
    let rows = rows(page, ID);
    let mut findings = Vec::new();
    for rule in (1..=RULES).map(|n| format!("N-{n}")) {
        match rows.iter().filter(|(id, _)| *id == rule).collect::<Vec<_>>()[..] {
            [(_, tests)] if tests.is_empty() => findings.push(format!("{PAGE}: {rule} names no test")),
            [_] => {}
            [] => findings.push(format!("{PAGE}: {rule} has no row")),
            _ => findings.push(format!("{PAGE}: {rule} has two rows")),
        }
    }
    findings.extend(missing(PAGE, &rows, functions));
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

    hold(PAGE, findings);
}
