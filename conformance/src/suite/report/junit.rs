//! A report for build servers: JUnit's XML, a suite a group.

use super::{Report, Verdict};
use crate::suite::case::Halt;
use std::fmt::Write as _;

/// The report as JUnit XML. An expected failure counts as skipped; a claim that holds though it was expected to fail is a
/// failure.
pub fn junit(report: &Report) -> String {
    let mut groups: Vec<&str> = Vec::new();
    for verdict in &report.verdicts {
        if !groups.contains(&verdict.case.group()) {
            groups.push(verdict.case.group());
        }
    }
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let failures = report.counts().unexpected;
    let seconds = report.took.as_secs_f64();
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "<testsuites name=\"jr2-conformance\" tests=\"{}\" failures=\"{failures}\" time=\"{seconds:.3}\">",
        report.verdicts.len()
    );
    for group in groups {
        let mine: Vec<&Verdict> = report.verdicts.iter().filter(|verdict| verdict.case.group() == group).collect();
        let failures = mine.iter().filter(|verdict| verdict.is_unexpected()).count();
        let skipped = mine.iter().filter(|verdict| !verdict.is_unexpected() && verdict.outcome.is_err()).count();
        let _ = writeln!(
            out,
            "  <testsuite name=\"{group}\" tests=\"{}\" failures=\"{failures}\" skipped=\"{skipped}\">",
            mine.len()
        );
        for verdict in mine {
            one(&mut out, verdict);
        }
        out.push_str("  </testsuite>\n");
    }
    out.push_str("</testsuites>\n");
    out
}

fn one(out: &mut String, verdict: &Verdict) {
    let case = verdict.case;
    let name = escaped(&format!("{} {}: {}", case.id, case.rule, case.says));
    let seconds = verdict.took.as_secs_f64();
    let _ = write!(out, "    <testcase classname=\"{}\" name=\"{name}\" time=\"{seconds:.3}\"", case.group());
    let words = escaped(verdict.words());
    let _ = match (&verdict.outcome, verdict.is_unexpected()) {
        (Ok(()), false) => writeln!(out, "/>"),
        (Ok(()), true) => {
            writeln!(out, "><failure message=\"it holds, but was expected to fail\"></failure></testcase>")
        }
        (Err(Halt::Failed(_)), true) => {
            let first = escaped(verdict.words().lines().next().unwrap_or_default());
            writeln!(out, "><failure message=\"{first}\">{words}</failure></testcase>")
        }
        (Err(Halt::Failed(_)), false) => {
            writeln!(out, "><skipped message=\"expected to fail\"/><system-out>{words}</system-out></testcase>")
        }
        (Err(Halt::NotRun(_)), _) => writeln!(out, "><skipped message=\"{words}\"/></testcase>"),
    };
}

/// A text that XML can hold: its five signs escaped, control characters it forbids left out.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {}
            c => out.push(c),
        }
    }
    out
}
