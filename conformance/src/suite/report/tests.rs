#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // A test fails by panicking.

use super::*;
use crate::suite::cases;
use std::collections::HashSet;

fn verdict(at: usize, outcome: Outcome, expected: bool) -> Verdict {
    Verdict { case: cases::all()[at], outcome, expected, took: Duration::from_millis(12) }
}

fn failed() -> Outcome {
    Err(Halt::Failed("got <a> & \"b\"\n\u{1b}[0m it's\u{0} so".to_owned()))
}

fn report() -> Report {
    let not_run = Err(Halt::NotRun("needs --command".to_owned()));
    let verdicts = vec![
        verdict(0, Ok(()), false),
        verdict(1, Ok(()), true),
        verdict(2, failed(), false),
        verdict(3, failed(), true),
        verdict(4, not_run, false),
    ];
    Report { verdicts, took: Duration::from_secs(1) }
}

#[test]
fn an_expected_failure_that_holds_is_as_unexpected_as_a_failure_nobody_expected() {
    let report = report();
    let unexpected: Vec<&str> = report.unexpected().map(|verdict| verdict.case.id).collect();
    assert_eq!(unexpected, [cases::all()[1].id, cases::all()[2].id]);
    assert_eq!(report.counts(), Counts { passed: 2, failed: 2, not_run: 1, unexpected: 2 });
    assert!(!report.is_as_expected());
    let calm = Report { verdicts: vec![verdict(0, Ok(()), false), verdict(3, failed(), true)], ..report };
    assert!(calm.is_as_expected());
}

#[test]
fn a_list_of_expected_failures_holds_ids_and_comments_and_nothing_unknown() {
    let id = cases::all()[0].id;
    let list = Expected::parse(&format!("# known\n\n  {id}  # since June\n")).unwrap();
    assert!(list.has(id) && !list.has(cases::all()[1].id));
    let unknown = Expected::parse("\nwire.999\n").unwrap_err();
    assert_eq!(unknown, ExpectedError::Unknown { line: 2, id: "wire.999".to_owned() });
}

#[test]
fn junit_is_well_formed_and_says_what_was_seen() {
    let xml = junit(&report());
    let document = roxmltree::Document::parse(&xml).unwrap();
    let root = document.root_element();
    assert_eq!((root.attribute("tests"), root.attribute("failures")), (Some("5"), Some("2")));
    let count = |name: &str| document.descendants().filter(|node| node.has_tag_name(name)).count();
    assert_eq!((count("testcase"), count("failure"), count("skipped")), (5, 2, 2));
    let failure = document.descendants().filter(|node| node.has_tag_name("failure")).nth(1).unwrap();
    assert_eq!(failure.text(), Some("got <a> & \"b\"\n[0m it's so"));
}

#[test]
fn json_and_the_table_say_the_same() {
    let (json, table) = (json(&report()), table(&report()));
    assert_eq!((&json["passed"], &json["unexpected"]), (&2.into(), &2.into()));
    assert_eq!(json["cases"][4]["result"], "notRun");
    assert_eq!(json["cases"][1]["unexpected"], true);
    assert!(table.contains("OK, BUT EXPECTED TO FAIL") && table.contains("got <a> & \"b\""), "{table}");
    assert!(table.contains("not run") && table.contains("(needs --command)"), "{table}");
    assert!(table.ends_with("5 claims in 1.0 s: 2 hold, 2 do not, 1 not run; 2 unexpected\n"), "{table}");
}

#[test]
fn ids_are_unique_numbered_and_grouped_and_every_claim_names_its_rule() {
    let all = cases::all();
    let ids: HashSet<&str> = all.iter().map(|case| case.id).collect();
    assert_eq!(ids.len(), all.len());
    assert!(all.len() >= 80, "{} claims", all.len());
    for case in all {
        let number = case.number();
        assert!(number.len() == 3 && number.bytes().all(|b| b.is_ascii_digit()), "{}", case.id);
        assert!(!case.rule.is_empty() && !case.says.is_empty(), "{}", case.id);
        assert!(case.says.len() <= 120, "{}: a claim is one line", case.id);
    }
}

#[test]
fn the_page_names_every_group_and_how_many_claims_there_are() {
    let page = include_str!("../../../../docs/conformance.md");
    for case in cases::all() {
        assert!(
            page.contains(&format!("\n| `{}` |", case.group())),
            "docs/conformance.md has no row for {}",
            case.group()
        );
    }
    let count = cases::all().len();
    assert!(page.contains(&format!("checks {count} numbered claims")), "docs/conformance.md: {count} claims");
    let promises = include_str!("../../../../docs/specification.md");
    assert!(promises.contains(&format!("| {count} claims |")), "docs/specification.md: {count} claims");
}
