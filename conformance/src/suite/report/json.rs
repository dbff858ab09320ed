//! A report for programs.

use super::{Report, Verdict};
use crate::suite::case::Halt;
use serde_json::{Value, json};

/// The report as one JSON object.
pub fn json(report: &Report) -> Value {
    let counts = report.counts();
    json!({
        "passed": counts.passed,
        "failed": counts.failed,
        "notRun": counts.not_run,
        "unexpected": counts.unexpected,
        "milliseconds": report.took.as_millis() as u64,
        "cases": report.verdicts.iter().map(one).collect::<Vec<_>>(),
    })
}

fn one(verdict: &Verdict) -> Value {
    let result = match &verdict.outcome {
        Ok(()) => "passed",
        Err(Halt::Failed(_)) => "failed",
        Err(Halt::NotRun(_)) => "notRun",
    };
    let mut value = json!({
        "id": verdict.case.id,
        "rule": verdict.case.rule,
        "claim": verdict.case.says,
        "result": result,
        "expectedToFail": verdict.expected,
        "unexpected": verdict.is_unexpected(),
        "milliseconds": verdict.took.as_millis() as u64,
    });
    if !verdict.words().is_empty() {
        value["saw"] = json!(verdict.words());
    }
    value
}
