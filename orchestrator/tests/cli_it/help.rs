//! The help texts, all of them, as people read them.

use super::rig::Rig;

const COMMANDS: [&str; 19] = [
    "try",
    "init",
    "check",
    "run",
    "send",
    "cancel",
    "runs",
    "status",
    "logs",
    "serve",
    "history",
    "replay",
    "adopt",
    "store",
    "schema",
    "graph",
    "explain",
    "completions",
    "version",
];

#[test]
fn help_texts() {
    let rig = Rig::new();
    let mut all = rig.run(&["--help"]).expect(0).out;
    for command in COMMANDS {
        let text = rig.run(&[command, "--help"]).expect(0).out;
        all.push_str(&format!("\n==== jr2 {command} ====\n{text}"));
    }
    insta::assert_snapshot!(all);
}
