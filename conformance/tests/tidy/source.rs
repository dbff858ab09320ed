//! Rules about source texts.

use crate::{Text, hold, prove, texts};
use regex::Regex;
use std::sync::LazyLock;

/// Most lines of a Rust file; 500 is the aim.
const LINES_MAX: usize = 600;
/// Longer files, each with the reason why it is one job all the same.
const LONG_FILES: [(&str, &str); 0] = [];
/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 9] = ["util", "utils", "helper", "helpers", "common", "manager", "managers", "misc", "stuff"];
/// How far above an `unsafe` its reason may stand, in lines.
const SAFETY_WITHIN: usize = 5;

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).unwrap()
}

/// The part of a Rust file before its unit tests, and the tests.
fn split_tests(text: &Text) -> (&str, &str) {
    static TESTS: LazyLock<Regex> = LazyLock::new(|| regex(r"(?m)^#\[cfg\(test\)\]\s*(#\[.*\]\s*)*mod \w+ \{"));
    if is_test_file(&text.path) {
        return ("", &text.text);
    }
    text.text.split_at(TESTS.find(&text.text).map_or(text.text.len(), |found| found.start()))
}

/// A file of tests alone: below a `tests` folder, or a `tests.rs` or `…_tests.rs` of a room.
fn is_test_file(path: &str) -> bool {
    path.contains("/tests/")
        || path.ends_with("/tests.rs")
        || path.ends_with("_tests.rs")
        || path.ends_with("/properties.rs")
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

fn starts_with_a_doc(text: &Text) -> Vec<String> {
    // Tests in a file of their own are about the file beside them.
    if text.is_rust() && !is_test_file(&text.path) && !text.text.starts_with("//!") {
        return vec![format!("{}: start with `//!` and what the file decides", text.path)];
    }
    Vec::new()
}

#[test]
fn every_rust_file_says_what_it_is() {
    prove(starts_with_a_doc, "a/src/lib.rs", &["fn main() {}", "// x\n"], &["//! x\n"]);
    hold(starts_with_a_doc);
}

fn is_short(text: &Text) -> Vec<String> {
    let lines = text.text.lines().count();
    if text.is_rust() && lines > LINES_MAX && !LONG_FILES.iter().any(|(path, _)| *path == text.path) {
        return vec![format!("{}: {lines} lines, at most {LINES_MAX}: split it by job", text.path)];
    }
    Vec::new()
}

#[test]
fn files_have_one_job() {
    let (long, whole) = ("x\n".repeat(LINES_MAX + 1), "x\n".repeat(LINES_MAX));
    prove(is_short, "a/src/b.rs", &[&long], &[&whole]);
    hold(is_short);
    for (path, _) in LONG_FILES {
        let text = texts()
            .into_iter()
            .find(|t| t.path == path)
            .unwrap_or_else(|| panic!("{path} is gone: take it off the list"));
        assert!(text.text.lines().count() > LINES_MAX, "{path} is short now: take it off the list");
    }
}

fn prints_nothing(text: &Text) -> Vec<String> {
    static PRINT: LazyLock<Regex> = LazyLock::new(|| regex(r"\b(e?println|e?print|dbg)!\s*[(\[{]"));
    let may_print = ["/src/cli/", "/src/bin/", "/benches/"].iter().any(|room| text.path.contains(room))
        || text.path.ends_with("/build.rs");
    if !text.is_rust() || may_print {
        return Vec::new();
    }
    let code = Text::sample(&text.path, split_tests(text).0);
    code.lines(|line| {
        (!is_comment(line) && PRINT.is_match(line)).then(|| "print only in `cli`; log an event instead".to_owned())
    })
}

#[test]
fn only_the_command_line_prints() {
    prove(
        prints_nothing,
        "a/src/b.rs",
        &["    println!(\"x\");", "eprint!(\"\")", "dbg!(x)"],
        &["// println!(x)", "#[cfg(test)]\nmod tests {\n println!(\"skipped: x\");\n}"],
    );
    prove(prints_nothing, "a/src/cli/b.rs", &[], &["println!()"]);
    hold(prints_nothing);
}

fn is_finished(text: &Text) -> Vec<String> {
    static OPEN: LazyLock<Regex> = LazyLock::new(|| regex(r"\b(todo|unimplemented)!|#\[ignore|\b(TODO|FIXME|XXX)\b"));
    if !text.is_rust() {
        return Vec::new();
    }
    text.lines(|line| OPEN.find(line).map(|found| format!("`{}`: finish it or leave it out", found.as_str())))
}

#[test]
fn nothing_is_left_open() {
    prove(
        is_finished,
        "a/src/b.rs",
        &["todo!()", "unimplemented!(\"x\")", "#[ignore]", "#[ignore = \"slow\"]", "// TODO"],
        &["todos"],
    );
    hold(is_finished);
}

fn has_a_name(text: &Text) -> Vec<String> {
    let part = |part: &str| part.split('.').next().unwrap_or(part).to_lowercase();
    let empty = text.path.split('/').find(|p| EMPTY_NAMES.contains(&part(p).as_str()));
    empty.map(|name| format!("{}: `{name}` says nothing about what is inside", text.path)).into_iter().collect()
}

#[test]
fn names_say_what_is_inside() {
    for bad in ["a/src/utils.rs", "a/src/helpers/x.rs", "a/tests/common/mod.rs", "a/src/Manager.rs"] {
        prove(has_a_name, bad, &[""], &[]);
    }
    prove(has_a_name, "a/src/communicate.rs", &[], &[""]);
    hold(has_a_name);
}

fn ends_cleanly(text: &Text) -> Vec<String> {
    let mut findings = text.lines(|line| line.ends_with([' ', '\t', '\r']).then(|| "trailing whitespace".to_owned()));
    if !text.text.is_empty() && !text.text.ends_with('\n') {
        findings.push(format!("{}: no line end at the end", text.path));
    }
    findings
}

#[test]
fn lines_end_cleanly() {
    prove(ends_cleanly, "a.md", &["x \n", "x\t\n", "x\r\n", "x"], &["x\n", ""]);
    hold(ends_cleanly);
}

fn explains_unsafe(text: &Text) -> Vec<String> {
    static UNSAFE: LazyLock<Regex> = LazyLock::new(|| regex(r"\bunsafe\s*(\{|fn\b|impl\b|extern\b|trait\b)"));
    if !text.is_rust() {
        return Vec::new();
    }
    let lines: Vec<&str> = text.text.lines().collect();
    let explained = |at: usize| {
        lines[at.saturating_sub(SAFETY_WITHIN)..=at].iter().any(|l| l.contains("SAFETY:") || l.contains("# Safety"))
    };
    let bad = |(at, line): (usize, &&str)| !is_comment(line) && UNSAFE.is_match(line) && !explained(at);
    let findings = lines.iter().enumerate().filter(|(at, line)| bad((*at, line)));
    findings.map(|(at, _)| format!("{}:{}: `unsafe` without a SAFETY line", text.path, at + 1)).collect()
}

#[test]
fn unsafe_says_why_it_is_sound() {
    let far = format!("// SAFETY: far\n{}unsafe {{ }}", "x\n".repeat(SAFETY_WITHIN));
    prove(
        explains_unsafe,
        "a/src/b.rs",
        &["unsafe { f() }", "unsafe fn x() {}", &far],
        &["// SAFETY: x\nunsafe { f() }", "#![deny(unsafe_code)]"],
    );
    hold(explains_unsafe);
}

fn names_no_machine(text: &Text) -> Vec<String> {
    static PATH: LazyLock<Regex> = LazyLock::new(|| {
        regex(
            r#"(^|[\s"'`(=])(/work/(main|wt|shared|target|\.library)\b|/root/|/home/\w)|\.\./shared/(design|spec|goldens|seeds|tools)"#,
        )
    });
    text.lines(|line| PATH.find(line).map(|found| format!("`{}` exists on one machine only", found.as_str().trim())))
}

#[test]
fn no_path_of_one_machine() {
    prove(
        names_no_machine,
        "a/src/b.rs",
        &["\"/work/target/debug\"", "see /root/.cargo", "(/home/me)", "`../shared/spec/x.md`"],
        &["\"r/root/coder\"", "cwd: \"/work/repo\"", "shared/src/lib.rs"],
    );
    hold(names_no_machine);
}

fn speaks_of_itself(text: &Text) -> Vec<String> {
    static WORDS: LazyLock<Regex> = LazyLock::new(|| {
        regex(
            r"(?i)\b(issue #?\d|the issue (says|asks|wants)|(this|another|a later|an earlier|next) (issue|session)\b|crates\.io|npmjs|pypi\.org|files\.pythonhosted)",
        )
    });
    if text.path.ends_with("Cargo.lock") {
        return Vec::new();
    }
    text.lines(|line| WORDS.find(line).map(|found| format!("`{}`: the project speaks of itself alone", found.as_str())))
}

#[test]
fn the_project_speaks_of_itself_alone() {
    prove(
        speaks_of_itself,
        "docs/a.md",
        &[
            "see issue #2",
            "Issue 12",
            "in another issue",
            "a later session does it",
            "from crates.io",
            "registry.npmjs.org",
        ],
        &["issues a warning", "its own session", "the npm package"],
    );
    hold(speaks_of_itself);
}

/// A test may sleep only between two looks at a condition (`// Poll: …`), or where slowness itself is under test
/// (`// Pause: …`), and says so on the line or the one above.
fn waits_on_conditions(text: &Text) -> Vec<String> {
    static SLEEP: LazyLock<Regex> = LazyLock::new(|| regex(r"\bsleep\("));
    if !text.is_rust() {
        return Vec::new();
    }
    let (code, tests) = split_tests(text);
    let offset = code.lines().count();
    let lines: Vec<&str> = tests.lines().collect();
    let excused = |at: usize| {
        lines[at.saturating_sub(1)..=at].iter().any(|l| l.contains("// Poll: ") || l.contains("// Pause: "))
    };
    let bad = |at: usize| SLEEP.is_match(lines[at]) && !is_comment(lines[at]) && !excused(at);
    (0..lines.len())
        .filter(|at| bad(*at))
        .map(|at| {
            format!(
                "{}:{}: wait on a condition with a deadline, and mark the pause `// Poll: …`",
                text.path,
                offset + at + 1
            )
        })
        .collect()
}

#[test]
fn tests_do_not_sleep() {
    prove(
        waits_on_conditions,
        "a/tests/b.rs",
        &["sleep(Duration::from_secs(1));", "tokio::time::sleep(x).await;"],
        &["// Poll: until the port answers.\nsleep(x);", "sleep(x); // Poll: the file"],
    );
    prove(
        waits_on_conditions,
        "a/src/b.rs",
        &["fn a() {}\n#[cfg(test)]\nmod tests {\n    sleep(x);\n}"],
        &["fn a() { sleep(x); }"],
    );
    hold(waits_on_conditions);
}
