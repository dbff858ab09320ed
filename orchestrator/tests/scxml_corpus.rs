//! The public SCXML test corpus, converted and driven. Which charts are skipped, and why, is pinned in
//! `tests/fixtures/scxml-skipped.tsv`; `JR2_UPDATE_SCXML_SKIPPED=1` writes it anew.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

mod scxml;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Charts of the corpus that run and have neither data nor conditions nor scripts.
const PLAIN_CHARTS: usize = 115;

#[test]
fn the_public_corpus_passes() {
    // Where .ci/fetch-scxml-corpus puts it: beside cargo's own folder for test files.
    let default = || Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("scxml-corpus");
    let folder = std::env::var_os("JR2_SCXML_CORPUS").map_or_else(default, PathBuf::from);
    if !folder.is_dir() {
        let required = std::env::var("JR2_REQUIRE_SCXML").is_ok_and(|value| value == "1");
        assert!(!required, "the scxml corpus is required: run .ci/fetch-scxml-corpus");
        println!("skipped: scxml corpus not fetched (run .ci/fetch-scxml-corpus)");
        return;
    }
    let base = folder.join("package/test");
    let mut charts = Vec::new();
    collect(&base, &mut charts);
    charts.sort();
    assert!(charts.len() > 300, "only {} charts in {}", charts.len(), base.display());

    let (mut skipped, mut failed, mut passed, mut plain) = (BTreeMap::new(), Vec::new(), 0, 0);
    for path in &charts {
        let name = path.strip_prefix(&base).unwrap().display().to_string();
        match scxml::convert(&std::fs::read_to_string(path).unwrap()) {
            Err(reason) => drop(skipped.insert(name, reason.replace(['\n', '\t'], " "))),
            Ok(converted) => {
                let script = std::fs::read_to_string(path.with_extension("json")).unwrap();
                match scxml::drive(&converted, &script) {
                    Ok(()) => {
                        passed += 1;
                        plain += usize::from(converted.is_plain);
                    }
                    Err(difference) => failed.push(format!("{name}: {difference}")),
                }
            }
        }
    }
    println!("{passed} charts passed, {plain} of them without data; {} skipped", skipped.len());
    assert!(failed.is_empty(), "{} charts fail:\n{}", failed.len(), failed.join("\n"));
    assert!(plain >= PLAIN_CHARTS, "{plain} charts without data passed, expected {PLAIN_CHARTS}");
    compare_skipped(&skipped);
}

/// Every chart that has an event script.
fn collect(folder: &Path, charts: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, charts);
        } else if path.extension().is_some_and(|end| end == "scxml") && path.with_extension("json").is_file() {
            charts.push(path);
        }
    }
}

fn compare_skipped(skipped: &BTreeMap<String, String>) {
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/scxml-skipped.tsv");
    let lines: Vec<String> = skipped.iter().map(|(name, reason)| format!("{name}\t{reason}")).collect();
    let text = lines.join("\n") + "\n";
    if std::env::var_os("JR2_UPDATE_SCXML_SKIPPED").is_some() {
        std::fs::write(&list, &text).unwrap();
    }
    let pinned = std::fs::read_to_string(&list).unwrap_or_default();
    let (pinned, now): (BTreeSet<&str>, BTreeSet<&str>) = (pinned.lines().collect(), text.lines().collect());
    let drift: Vec<_> = pinned.difference(&now).collect();
    let fresh: Vec<_> = now.difference(&pinned).collect();
    assert!(drift.is_empty() && fresh.is_empty(), "the list drifts: no longer {drift:#?}, new {fresh:#?}");
}
