//! Workflow files in, reports out: every file of `fixtures/workflows/wrong` has the plain report it must give beside it,
//! every file of `fixtures/workflows/right` must pass. `JR2_BLESS=1` rewrites the reports.

#![allow(clippy::unwrap_used, clippy::panic)] // a test may

use jr2_orchestrator::workflow::{Bindings, CODES, Catalog, Program, check_files, codes, graph, json_schema};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Fewest wrong files the suite holds.
const WRONG_MIN: usize = 40;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/workflows").join(name)
}

fn files(name: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder(name)).unwrap().map(|entry| entry.unwrap().path());
    let is_workflow = |path: &PathBuf| path.extension().is_some_and(|e| e == "yaml" || e == "yml" || e == "json");
    let mut files: Vec<PathBuf> = entries.filter(is_workflow).collect();
    files.sort();
    files
}

fn blessing() -> bool {
    std::env::var_os("JR2_BLESS").is_some()
}

/// The report without the folder's own path.
fn report(file: &Path) -> String {
    let prefix = format!("{}/", file.parent().unwrap().display());
    check_files(&[file.to_owned()]).diagnostics.plain().replace(&prefix, "")
}

fn compare(file: &Path, expected: &Path, found: &str) -> Option<String> {
    if blessing() {
        std::fs::write(expected, found).unwrap();
        return None;
    }
    let wanted = std::fs::read_to_string(expected).unwrap_or_default();
    (wanted != found).then(|| format!("{}:\n--- expected\n{wanted}--- found\n{found}", file.display()))
}

#[test]
fn every_wrong_file_gives_its_report() {
    let files = files("wrong");
    assert!(files.len() >= WRONG_MIN, "only {} wrong files", files.len());
    let mut differences = Vec::new();
    for file in &files {
        let found = report(file);
        assert!(found.contains(": error[JR") || found.contains(": warning[JR"), "{} passes", file.display());
        assert!(found.lines().all(|line| line.contains("(fix: ")), "{} lacks a fix:\n{found}", file.display());
        differences.extend(compare(file, &file.with_extension("expected"), &found));
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn every_right_file_passes_and_every_program_restores() {
    for file in files("right") {
        assert_eq!(report(&file), "", "{}", file.display());
        let catalog = Catalog::from_files(std::slice::from_ref(&file)).unwrap();
        for entry in catalog.entries.values() {
            assert_eq!(entry.workflow.chart.check(), Ok(()), "{}", file.display());
        }
        let name = file.file_stem().unwrap().to_str().unwrap();
        let open = Bindings::from_pairs(&["agents.coder.model=test/model"]).unwrap();
        let bound =
            Program::build(&catalog, name, &Bindings::default()).or_else(|_| Program::build(&catalog, name, &open));
        let program = bound.unwrap_or_else(|problems| panic!("{}: {problems}", file.display()));
        let restored = Program::from_canonical(&program.canonical).unwrap();
        assert_eq!(restored.hash, program.hash);
        assert_eq!(restored.canonical, program.canonical);
        assert_eq!(format!("{:?}", restored.workflows), format!("{:?}", program.workflows), "{}", file.display());
    }
}

#[test]
fn every_right_file_draws() {
    let mut differences = Vec::new();
    for file in files("right") {
        let catalog = Catalog::from_files(std::slice::from_ref(&file)).unwrap();
        let workflow = catalog.workflow(file.file_stem().unwrap().to_str().unwrap()).unwrap();
        differences.extend(compare(&file, &file.with_extension("mmd"), &graph::mermaid(workflow)));
        differences.extend(compare(&file, &file.with_extension("dot"), &graph::dot(workflow)));
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn every_code_has_its_page_and_a_fixture_or_a_reason() {
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/errors");
    if blessing() {
        std::fs::create_dir_all(&pages).unwrap();
    }
    let reports: String = files("wrong").iter().map(|file| report(file)).collect();
    // Codes that no single file can show; unit tests beside the code do.
    let elsewhere =
        ["JR0001", "JR0002", "JR0005", "JR0013", "JR0116", "JR0209", "JR0601", "JR0602", "JR0603", "JR0605", "JR0606"];
    for info in CODES {
        let page = pages.join(format!("{}.md", info.code));
        assert_eq!(compare(&page, &page, &codes::page(info)), None, "run with JR2_BLESS=1 to rewrite the pages");
        let shown = reports.contains(&format!("[{}]", info.code));
        // From here on codes are not about workflow files.
        if info.code >= "JR0700" {
            continue;
        }
        assert!(shown != elsewhere.contains(&info.code), "{}: shown by a wrong file is {shown}", info.code);
    }
    let names = std::fs::read_dir(&pages).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    for name in names.filter(|name| name.starts_with("JR0")) {
        assert!(CODES.iter().any(|info| format!("{}.md", info.code) == name), "docs/errors/{name} is of no code");
    }
}

/// YAML → JSON by way of the reader under test: a workflow's canonical text holds its source only.
fn json_of(file: &Path) -> Option<Value> {
    let text = std::fs::read_to_string(file).unwrap();
    jr2_orchestrator::workflow::yaml_to_json(&text)
}

#[test]
fn the_json_schema_takes_right_files_and_refuses_wrong_ones() {
    let schema = json_schema();
    let validator = jsonschema::validator_for(&schema).unwrap();
    for file in files("right") {
        let value = json_of(&file).unwrap();
        let errors: Vec<String> =
            validator.iter_errors(&value).map(|e| format!("{}: {e}", e.instance_path())).collect();
        assert_eq!(errors, Vec::<String>::new(), "{}", file.display());
    }
    let shapes =
        ["unknown-keys", "wrong-types", "missing-keys", "choices", "bad-names", "bad-model", "ranges", "pool", "sizes"];
    for name in shapes {
        let value = json_of(&folder("wrong").join(format!("{name}.yaml"))).unwrap();
        assert!(!validator.is_valid(&value), "the schema takes {name}");
    }
}
