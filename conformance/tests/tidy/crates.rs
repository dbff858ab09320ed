//! Rules about crates: who may depend on whom, and under which licences.

use crate::root;
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Command;

/// The architecture table: crate, folder, the house crates it may link, and those its tests may link besides.
const TABLE: [(&str, &str, &[&str], &[&str]); 8] = [
    ("jr2-shared", "shared", &[], &[]),
    ("jr2-telemetry", "telemetry", &[], &[]),
    // The tests of these two link them with their test hooks.
    ("jr2-orchestrator", "orchestrator", &["jr2-shared", "jr2-telemetry"], &["jr2-conformance", "jr2-orchestrator"]),
    ("jr2-harness", "harness", &["jr2-shared", "jr2-telemetry"], &["jr2-conformance", "jr2-harness"]),
    ("jr2-operator", "operator", &["jr2-shared"], &["jr2-conformance"]),
    ("jr2-brain", "brain", &["jr2-shared"], &["jr2-conformance"]),
    ("jr2-conformance", "conformance", &["jr2-shared"], &[]),
    ("jr2-proof", "conformance/proof", &["jr2-shared", "jr2-orchestrator", "jr2-harness", "jr2-conformance"], &[]),
];
/// What the words of a wire never need: a runtime, a socket, a clock.
const NOT_IN_SHARED: [&str; 8] = ["tokio", "hyper", "axum", "reqwest", "sled", "futures-util", "rustix", "tracing"];
/// Where third-party crates come from, as cargo names it.
const SOURCE_PREFIX: &str = "registry+";

fn metadata(more: &[&str]) -> Value {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["metadata", "--format-version", "1", "--offline"]).args(more).current_dir(root());
    let output = command.output().unwrap();
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn breaks_the_table(package: &Value) -> Vec<String> {
    let name = package["name"].as_str().unwrap();
    let Some((_, folder, links, tests)) = TABLE.iter().find(|(n, ..)| *n == name) else {
        return vec![format!("{name} is not in the architecture table")];
    };
    let mut findings = Vec::new();
    if !package["manifest_path"].as_str().unwrap().ends_with(&format!("/{folder}/Cargo.toml")) {
        findings.push(format!("{name} does not live in {folder}/"));
    }
    for dependency in package["dependencies"].as_array().unwrap() {
        let other = dependency["name"].as_str().unwrap();
        let for_tests = dependency["kind"] == "dev";
        if other.starts_with("jr2-") && !links.contains(&other) && !(for_tests && tests.contains(&other)) {
            findings.push(format!("{name} may not depend on {other}"));
        }
        if name == "jr2-shared" && !for_tests && NOT_IN_SHARED.contains(&other) {
            findings.push(format!("{name} is data and pure functions: no {other}"));
        }
    }
    findings
}

#[test]
fn arrows_point_only_downwards() {
    let sample = |name: &str, folder: &str, other: &str, kind: Value| {
        let package = serde_json::json!({"name": name, "manifest_path": format!("/x/{folder}/Cargo.toml"),
                                         "dependencies": [{"name": other, "kind": kind}]});
        breaks_the_table(&package).len()
    };
    assert_eq!(sample("jr2-harness", "harness", "jr2-orchestrator", Value::Null), 1);
    assert_eq!(sample("jr2-harness", "harness", "jr2-conformance", Value::Null), 1);
    assert_eq!(sample("jr2-harness", "harness", "jr2-conformance", "dev".into()), 0);
    assert_eq!(sample("jr2-shared", "shared", "tokio", Value::Null), 1);
    assert_eq!(sample("jr2-other", "other", "serde", Value::Null), 1);
    assert_eq!(sample("jr2-brain", "mind", "serde", Value::Null), 1);

    let packages = metadata(&["--no-deps"]);
    let findings: Vec<String> = packages["packages"].as_array().unwrap().iter().flat_map(breaks_the_table).collect();
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn every_crate_takes_the_house_s_lints_and_licence() {
    for package in metadata(&["--no-deps"])["packages"].as_array().unwrap() {
        let path = package["manifest_path"].as_str().unwrap();
        let manifest = std::fs::read_to_string(path).unwrap();
        assert!(manifest.contains("[lints]\nworkspace = true"), "{path} has its own lints");
        assert_eq!(package["license"], "MIT OR Apache-2.0", "{path}");
        assert!(package["description"].is_string(), "{path} has no description");
    }
}

/// Whether a licence expression can be met with the allowed licences. `OR` binds weaker than `AND`; `/` is an old `OR`.
fn allowed(expression: &str, list: &BTreeSet<String>) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ").replace(" WITH ", "+WITH+");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut at = 0;
    let met = any_of(&tokens, &mut at, list);
    met && at == tokens.len()
}

fn any_of(tokens: &[&str], at: &mut usize, list: &BTreeSet<String>) -> bool {
    let mut met = all_of(tokens, at, list);
    while tokens.get(*at) == Some(&"OR") {
        *at += 1;
        met |= all_of(tokens, at, list);
    }
    met
}

fn all_of(tokens: &[&str], at: &mut usize, list: &BTreeSet<String>) -> bool {
    let mut met = one(tokens, at, list);
    while tokens.get(*at) == Some(&"AND") {
        *at += 1;
        met &= one(tokens, at, list);
    }
    met
}

fn one(tokens: &[&str], at: &mut usize, list: &BTreeSet<String>) -> bool {
    let Some(token) = tokens.get(*at) else { return false };
    *at += 1;
    if *token != "(" {
        return list.contains(&token.replace("+WITH+", " WITH "));
    }
    let met = any_of(tokens, at, list);
    let closed = tokens.get(*at) == Some(&")");
    *at += 1;
    met && closed
}

/// The quoted words of `allow = [ … ]` in `deny.toml`.
fn allow_list() -> BTreeSet<String> {
    let text = std::fs::read_to_string(root().join("deny.toml")).unwrap();
    let start = text.find("\nallow = [").expect("deny.toml has an allow list");
    let list = text[start..].split(']').next().unwrap();
    list.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn licences_are_on_the_list() {
    let list = BTreeSet::from(["MIT".to_owned(), "ISC".to_owned(), "Apache-2.0 WITH LLVM-exception".to_owned()]);
    for good in ["MIT", "GPL-3.0 OR MIT", "GPL-3.0/MIT", "(GPL-3.0 OR MIT) AND ISC", "Apache-2.0 WITH LLVM-exception"] {
        assert!(allowed(good, &list), "{good}");
    }
    for bad in ["GPL-3.0", "MIT AND GPL-3.0", "(MIT", "", "GPL-3.0 OR", "Apache-2.0"] {
        assert!(!allowed(bad, &list), "{bad}");
    }

    let host = Command::new("rustc").arg("-vV").output().unwrap();
    let host = String::from_utf8(host.stdout).unwrap();
    let host = host.lines().find_map(|line| line.strip_prefix("host: ")).unwrap().to_owned();
    let list = allow_list();
    assert!(list.contains("MIT"));
    let mut used = 0;
    for package in metadata(&["--locked", "--filter-platform", &host])["packages"].as_array().unwrap() {
        let (name, licence) = (&package["name"], package["license"].as_str().unwrap_or("none"));
        assert!(allowed(licence, &list), "{name} is under `{licence}`, which deny.toml does not allow");
        let source = package["source"].as_str().unwrap_or(SOURCE_PREFIX);
        assert!(source.starts_with(SOURCE_PREFIX), "{name} comes from {source}");
        used += 1;
    }
    assert!(used > 50, "only {used} packages seen");
}
