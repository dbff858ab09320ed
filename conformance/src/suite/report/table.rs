//! A report for people: a line a claim, then what was seen where a result was not expected.

use super::{Report, Verdict};
use crate::suite::Case;
use std::fmt::Write as _;

/// One claim's line.
pub fn line(verdict: &Verdict) -> String {
    let case = verdict.case;
    let word = verdict.word();
    let why = if word == "not run" { format!(" ({})", verdict.words()) } else { String::new() };
    format!("{word:<8} {:<15} {:<12} {:>6} ms  {}{why}", case.id, case.rule, verdict.took.as_millis(), case.says)
}

/// The whole table, and the sum.
pub fn table(report: &Report) -> String {
    let mut out = String::new();
    for verdict in &report.verdicts {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{}", line(verdict));
    }
    for verdict in report.unexpected() {
        let _ = write!(
            out,
            "\n=== {} ({}) {}: {}\n",
            verdict.case.id,
            verdict.case.rule,
            verdict.word(),
            verdict.case.says
        );
        let _ = writeln!(out, "{}", verdict.words().trim_end());
    }
    let counts = report.counts();
    let _ = writeln!(
        out,
        "\n{} claims in {:.1} s: {} hold, {} do not, {} not run; {} unexpected",
        report.verdicts.len(),
        report.took.as_secs_f64(),
        counts.passed,
        counts.failed,
        counts.not_run,
        counts.unexpected
    );
    out
}

/// The claims themselves.
pub fn list(cases: &[&Case]) -> String {
    cases.iter().fold(String::new(), |mut out, case| {
        let _ = writeln!(out, "{:<15} {:<12} {}", case.id, case.rule, case.says);
        out
    })
}
