//! Every exit code, each with words that help.

use super::rig::{Rig, eventually};
use rustix::process::Signal;

/// Waits for something nobody sends.
const WAIT: &str = "\
workflow: wait
initial: waiting
states:
  waiting: { after: { 1h: done } }
  done: { final: true }
";

/// Ends in fault at once.
const FAULT: &str = "\
workflow: fault
context: { n: 0 }
initial: a
states:
  a: { always: { to: b, set: { n: '1 / context.n' } } }
  b: { final: true }
";

#[test]
fn not_found_is_5() {
    let rig = Rig::asking();
    for args in [
        &["status", "zzzz"][..],
        &["send", "zzzz", "--event", "agree"],
        &["history", "zzzz"],
        &["run", "nothing"],
        &["explain", "JR9999"],
        &["check", "none.yaml"],
        &["store", "verify", "--dir", "/nonexistent"],
    ] {
        let ended = rig.run(args);
        assert_eq!(ended.code, Some(5), "{args:?}: {}", ended.err);
        assert!(ended.err.starts_with("jr2: "), "{args:?}: {}", ended.err);
    }
}

#[test]
fn usage_is_2() {
    let rig = Rig::asking();
    for args in [&["run"][..], &["run", "ask", "--input", "no-equals"], &["nonsense"], &["run", "ask", "--detach"]] {
        assert_eq!(rig.run(args).code, Some(2), "{args:?}");
    }
    rig.run(&["try", "--repo", ".", "--test", "true", "--dir", "t"]).expect(2).says("needs a real one");
}

#[test]
fn bad_input_and_short_prefixes_are_1_and_lose_nothing() {
    let rig = Rig::asking();
    rig.run(&["run", "ask", "--input", "count=many"]).expect(1).says("does not fit");
    rig.run(&["runs"]).expect(0).says("There are no runs.");
    rig.run(&["run", "ask"]).expect(3);
    let runs = rig.run(&["runs", "--json"]).expect(0).json();
    let run = runs["runs"][0]["runId"].as_str().unwrap().to_owned();
    rig.run(&["status", &run[..3]]).expect(1).says("too short");
    rig.run(&["send", &run, "--gate", "asking", "--event", "refuse"]).expect(1).says("invalid \"refuse\" payload");
    rig.run(&["send", &run, "--gate", "asking", "--event", "nothing"]).expect(1).says("accepts: agree, refuse");
    rig.run(&["send", &run, "--gate", "other", "--event", "agree"]).expect(5).says("no open gate");
    rig.run(&["send", &run, "--event", "agree", "--activation", "asking#7"]).expect(1).says("asking#1");
    rig.run(&["send", &run, "--event", "agree"]).expect(0);
}

#[test]
fn a_fault_is_4() {
    let rig = Rig::new();
    rig.write("workflows/fault.yaml", FAULT);
    let status = rig.run(&["run", "fault", "--json"]).expect(4).json();
    assert_eq!(status["status"], "error");
    assert!(status["fault"].as_str().unwrap().starts_with("error.expression"), "{status:#}");
}

#[test]
fn a_store_of_another_process_is_75() {
    let rig = Rig::asking();
    rig.run(&["run", "ask"]).expect(3);
    let options = jr2_orchestrator::store::StoreOptions::new(rig.dir().join(".jr2/store"));
    let _held = jr2_orchestrator::store::SledStore::open(options).unwrap();
    rig.run(&["runs"]).expect(75).says("another jr2 process owns the store");
    rig.run(&["run", "ask"]).expect(75);
    rig.run(&["serve", "--listen", "127.0.0.1:0"]).expect(75);
}

#[test]
fn a_port_in_use_is_said_before_anything_is_touched() {
    let rig = Rig::asking();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ended = rig.run(&["serve", "--listen", &address]).expect(1);
    ended.says(&format!("cannot listen on {address}")).says("--listen");
    assert!(!rig.dir().join(".jr2/token").exists());
}

#[test]
fn a_store_directory_that_cannot_be_used_is_1() {
    let rig = Rig::asking();
    std::fs::create_dir(rig.dir().join(".jr2")).unwrap();
    rig.write(".jr2/store", "a file in its place");
    rig.run(&["serve", "--listen", "127.0.0.1:0"]).expect(1).says(".jr2/store");
    let other = Rig::asking();
    other.write(".jr2", "a file in the state folder's place");
    other.run(&["run", "ask"]).expect(1).says(".jr2");
}

#[test]
fn bad_workflow_files_and_settings_are_told_with_their_places() {
    let rig = Rig::asking();
    rig.write("bad.yaml", "workflow: bad\ninitial: a\nstates:\n  a: { nonsense: 1 }\n");
    rig.run(&["check", "bad.yaml"]).expect(1).says("bad.yaml:4:8: error[JR0101]");
    rig.run(&["run", "./bad.yaml"]).expect(1).says("bad.yaml:4:8");
    rig.run(&["serve", "bad.yaml"]).expect(1).says("bad.yaml:4:8");
    let report = rig.run(&["check", "bad.yaml", "--json"]).expect(1).json();
    assert_eq!(report["items"][0]["code"], "JR0101");
    rig.run(&["check", "workflows/ask.yaml"]).expect(0).says("1 workflow checked: 0 errors");
    rig.write("jr2.yaml", "listen: nowhere\nlisten2: x\n");
    rig.run(&["runs"]).expect(1).says("jr2.yaml:1:9: error[JR0701]").says("jr2.yaml:2:1: error[JR0101]");
}

#[test]
fn a_deadline_is_124_and_an_interrupt_130_and_the_run_keeps_its_place() {
    let rig = Rig::new();
    rig.write("workflows/wait.yaml", WAIT);
    rig.run(&["run", "wait", "--deadline", "300ms"]).expect(124).says("keeps its place");
    let running = rig.start(&["run", "wait"]);
    running.until("● waiting");
    running.signal(Signal::INT);
    running.wait().expect(130);
    let live = eventually("both live", || {
        let runs = rig.run(&["runs", "--json"]).expect(0).json();
        let live = runs["runs"].as_array().unwrap().iter().filter(|r| r["status"] == "live").count();
        (live > 0).then_some(live)
    });
    assert_eq!(live, 2);
}

#[test]
fn init_writes_a_folder_that_checks_and_overwrites_nothing() {
    let rig = Rig::new();
    rig.run(&["init", "new"]).expect(0);
    rig.run(&["check", "new/workflows/fix-test.yaml"]).expect(0);
    rig.run(&["runs", "--dir", "new"]).expect(0);
    rig.run(&["init", "new"]).expect(1).says("is there already");
    assert_eq!(std::fs::read_to_string(rig.dir().join("new/.gitignore")).unwrap(), ".jr2/\n");
    rig.run(&["graph", "new/workflows/fix-test.yaml", "--format", "dot"]).expect(0).says("digraph");
    rig.run(&["schema"]).expect(0).says("jr2 workflow");
    rig.run(&["schema", "--config"]).expect(0).says("baseUrl");
    rig.run(&["completions", "bash"]).expect(0).says("_jr2");
    rig.run(&["version"]).expect(0).says("semantics");
}

#[test]
fn a_store_is_exported_and_imported() {
    let rig = Rig::asking();
    rig.run(&["run", "ask"]).expect(3);
    rig.run(&["store", "export", "out.jsonl"]).expect(0).says("1 rows exported");
    rig.run(&["store", "export", "out.jsonl"]).expect(1);
    std::fs::create_dir(rig.dir().join("b")).unwrap();
    rig.run(&["store", "import", "out.jsonl", "--dir", "b"]).expect(0).says("1 rows imported");
    rig.run(&["runs", "--dir", "b"]).expect(0).says("ask");
    rig.run(&["store", "verify", "--dir", "b"]).expect(0);
}
