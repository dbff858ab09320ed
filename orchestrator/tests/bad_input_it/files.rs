//! A workflows folder with files that no server should choke on.

use crate::server::Folder;
use crate::{ASK, SETTINGS, start};
use serde_json::json;
use std::fmt::Write as _;

const CHILD: &str = "workflow: child\ninitial: over\nstates: { over: { final: true, output: { ok: true } } }\n";
const PARENT: &str = "workflow: parent\ninitial: work\nstates:\n  work: { run: child, on: { done.run: done, error.run: done } }\n  \
    done: { final: true }\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_files_are_told_and_the_others_are_served() {
    let cycle = |own: &str, other: &str| {
        format!(
            "workflow: {own}\ninitial: a\nstates: {{ a: {{ run: {other}, on: {{ done.run: b, error.run: b }} }}, b: {{ final: true }} }}\n"
        )
    };
    let mut aliases = "workflow: aliases\ncontext:\n  a: &a [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (this, last) in ('b'..='k').zip('a'..) {
        let ten = vec![format!("*{last}"); 10].join(", ");
        let _ = writeln!(aliases, "  {this}: &{this} [{ten}]");
    }
    aliases.push_str("initial: a\nstates: { a: { final: true } }\n");
    let huge = format!(
        "workflow: huge\ndescription: \"{}\"\ninitial: a\nstates: {{ a: {{ final: true }} }}\n",
        "x".repeat(10 << 20)
    );
    let deep = format!(
        "workflow: deep\ncontext: {{ a: {}1{} }}\ninitial: a\nstates: {{ a: {{ final: true }} }}\n",
        "[".repeat(50_000),
        "]".repeat(50_000)
    );
    let (one, two) = (cycle("one", "two"), cycle("two", "one"));
    let files = [
        ("huge", huge.as_str()),
        ("aliases", aliases.as_str()),
        ("deep", deep.as_str()),
        ("one", one.as_str()),
        ("two", two.as_str()),
        ("broken", "workflow: broken\nstates: [\n"),
        ("ask", ASK),
        ("parent", PARENT),
        ("child", CHILD),
    ];
    let folder = Folder::new(SETTINGS, &files);
    std::fs::write(folder.dir.join("workflows/binary.yaml"), [0xff, 0xfe, 0, 1, 2]).unwrap();
    let begun = std::time::Instant::now();
    let _server = folder.start().await;
    assert!(begun.elapsed().as_secs() < 20, "bad files hold the start up: {:?}", begun.elapsed());
    let (_, served) = folder.stranger("GET", "/workflows").await;
    let names: Vec<&str> =
        served["workflows"].as_array().unwrap().iter().map(|w| w["name"].as_str().unwrap()).collect();
    let log = folder.log();
    assert_eq!(names, ["ask", "child", "parent"], "{}", crate::server::tail(&log));
    for name in ["huge", "aliases", "deep", "two", "broken", "binary"] {
        assert!(log.lines().any(|l| l.contains(&format!("{name}.yaml"))), "{name} is not told:\n{log}");
    }
    assert!(log.contains("`one` → `two` → `one`"), "{log}");
    assert!(log.len() < 64 << 10, "the report is {} bytes long", log.len());
    let run = start(&folder, "parent", &json!({})).await;
    folder.until(&run, "done", |s| s["status"] == "done").await;
}
