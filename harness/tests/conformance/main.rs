//! The conformance suite against our own Harness: all of it holds, and each of 25 deviations is caught.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test fails by panicking.

mod elsewhere;

use jr2_conformance::suite::{Expected, Halt, Options, Report, Target, Verdict, run};
use jr2_harness::mutation::Mutation;
use std::collections::BTreeMap;
use std::time::Duration;

/// Deviations looked for at once: each is a run of its own, and most of a run is waiting.
const RUNS_AT_ONCE: usize = 2;
/// Longest single check of a run with a deviation: what fails by waiting costs no more than this.
const DEVIANT_DEADLINE: Duration = Duration::from_secs(20);

fn ours() -> Options {
    let expected = include_str!("../../../conformance/expected-failures.txt");
    let expected = Expected::parse(expected).expect("the list of expected failures names claims");
    Options { expected, ..Options::new(Target::Command(env!("CARGO_BIN_EXE_jr2-harness").to_owned())) }
}

fn deviant(number: usize) -> Options {
    let env = vec![("JR2_MUTATION".to_owned(), number.to_string())];
    Options { env, deadline: DEVIANT_DEADLINE, quick: true, stop_at_first: true, ..ours() }
}

fn unexpected(report: &Report) -> String {
    let one = |v: &Verdict| [v.case.id, " (", v.case.rule, ")\n", v.words(), "\n"].concat();
    report.unexpected().map(one).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_claim_holds_for_our_harness() {
    let report = run(&ours(), |_| {}).await.unwrap();
    assert!(report.is_as_expected(), "{}", unexpected(&report));
    let not_run: Vec<&str> =
        report.verdicts.iter().filter(|v| matches!(v.outcome, Err(Halt::NotRun(_)))).map(|v| v.case.id).collect();
    assert!(not_run.is_empty(), "with --command and the test hooks everything can be checked: {not_run:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_deviation_is_caught() {
    assert_eq!(Mutation::ALL.len(), 25);
    let mut left: Vec<usize> = (1..=Mutation::ALL.len()).rev().collect();
    let mut runs = tokio::task::JoinSet::new();
    let mut caught: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    loop {
        while runs.len() < RUNS_AT_ONCE
            && let Some(number) = left.pop()
        {
            runs.spawn(async move { (number, run(&deviant(number), |_| {}).await.unwrap()) });
        }
        let Some(ended) = runs.join_next().await else { break };
        let (number, report) = ended.unwrap();
        let by: Vec<&str> = report.unexpected().map(|verdict| verdict.case.id).collect();
        println!("{number:>2} {}: {by:?} in {:.1} s", Mutation::ALL[number - 1].1, report.took.as_secs_f64());
        caught.insert(number, by);
    }
    let missed: Vec<&str> =
        caught.iter().filter(|(_, by)| by.is_empty()).map(|(number, _)| Mutation::ALL[number - 1].1).collect();
    assert!(missed.is_empty(), "nobody noticed that {missed:?}");
}
