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
fn bad_input_is_1_and_loses_nothing() {
    let rig = Rig::asking();
    rig.run(&["run", "ask", "--input", "count=many"]).expect(1).says("does not fit");
    rig.run(&["runs"]).expect(0).says("There are no runs.");
    rig.run(&["run", "ask"]).expect(3);
    let runs = rig.run(&["runs", "--json"]).expect(0).json();
    let run = runs["runs"][0]["runId"].as_str().unwrap().to_owned();
    rig.run(&["send", &run, "--gate", "asking", "--event", "refuse"]).expect(1).says("invalid \"refuse\" payload");
    rig.run(&["send", &run, "--gate", "asking", "--event", "nothing"]).expect(1).says("accepts: agree, refuse");
    rig.run(&["send", &run, "--gate", "other", "--event", "agree"]).expect(5).says("no open gate");
    rig.run(&["send", &run, "--event", "agree", "--activation", "asking#7"]).expect(1).says("asking#1");
    rig.run(&["send", &run, "--event", "agree"]).expect(0);
}

#[test]
fn a_malformed_run_is_2_and_an_unknown_one_5() {
    let rig = Rig::asking();
    for command in ["status", "logs", "history", "replay", "adopt", "cancel"] {
        for bad in ["abc", "", "ABCD", "abc1", "../..", "%ff%ff", &"a".repeat(27)] {
            assert_eq!(rig.run(&[command, bad]).code, Some(2), "{command} {bad}");
        }
    }
    rig.run(&["status", "abc"]).expect(2).says("too short");
    rig.run(&["status", "abcd"]).expect(5);
    // The command line is read before the run is looked for.
    rig.run(&["send", "abcd", "--event", "agree", "--payload", "{"]).expect(2).says("no JSON");
    rig.run(&["send", "abcd", "--event", "agree", "--field", "x"]).expect(2).says("has no `=`");
}

#[test]
fn results_that_stdout_does_not_take_are_a_failure() {
    let rig = Rig::asking();
    let folder = super::rig::programs();
    let jr2 = folder.join("jr2");
    for line in ["runs --json", "schema", "check workflows/ask.yaml --json", "version"] {
        let ended = rig.shell(&format!("{} {line} > /dev/full", jr2.display())).expect(1);
        assert!(ended.err.contains("could not be written to stdout"), "{line}: {}", ended.err);
    }
    // Nobody reads: as quiet as other tools, and no success.
    let closed = rig.shell(&format!("(sleep 0.2; {} schema; echo $? >&2) | true", jr2.display()));
    assert_eq!(closed.err.trim(), "141");
    // A code that says more stays.
    rig.shell(&format!("{} run ask --json > /dev/full", jr2.display())).expect(1).says("stdout");
}

#[test]
fn what_is_no_file_is_not_checked() {
    let rig = Rig::asking();
    rig.shell("mkfifo pipe").expect(0);
    rig.run(&["check", "pipe"]).expect(2).says("pipe is no regular file");
    rig.run(&["check", "workflows"]).expect(2).says("no regular file");
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

/// Commands in a Workspace of its own.
fn keeping(command: &str) -> String {
    format!(
        "workflow: keep\n\
         input: {{ type: object, required: [repo], properties: {{ repo: {{ type: string }} }} }}\n\
         workspace: {{ repos: {{ target: '{{{{ input.repo }}}}' }}, branch: 'jr2/{{{{ run.id }}}}' }}\n\
         initial: work\n\
         states:\n  \
           work: {{ do: {{ command: '{command}', timeout: 60s }}, on: {{ done.do: done, error.do: failed }} }}\n  \
           done: {{ final: true }}\n  \
           failed: {{ final: true, output: {{ failed: true }} }}\n"
    )
}

#[test]
fn a_kept_workspace_is_shown_with_its_place_and_the_reason() {
    let rig = Rig::new();
    let repo = rig.dir().join("repo");
    let make = "mkdir repo && cd repo && git init -q -b main && git -c user.name=t -c user.email=t@t commit -q --allow-empty -m one";
    rig.shell(make).expect(0);
    let input = format!("repo={}", repo.display());
    rig.write("workflows/keep.yaml", &keeping("git init -q nested && echo x > beside.txt"));
    let status = rig.run(&["run", "keep", "--input", &input, "--json"]).expect(0).json();
    let run = status["runId"].as_str().unwrap();
    let last = status["branches"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(last["leftOut"], serde_json::json!(["nested"]), "{status:#}");
    let place = last["kept"].as_str().unwrap();
    assert!(std::path::Path::new(place).is_dir());
    let shown = rig.run(&["status", run]).expect(0);
    shown.says("without nested: a git repository of its own").says(place);
    // Nothing can be saved: the source went away while the run was at its Gate.
    let gone =
        keeping("true").replace("done: { final: true }", "done: { gate: {}, on: { go: end } }\n  end: { final: true }");
    rig.write("workflows/keep.yaml", &format!("{gone}events: {{ go: {{ from: external }} }}\n"));
    let run =
        rig.run(&["run", "keep", "--input", &input, "--json"]).expect(3).json()["runId"].as_str().unwrap().to_owned();
    std::fs::rename(&repo, rig.dir().join("away")).unwrap();
    rig.run(&["send", &run, "--event", "go"]).expect(0);
    let status = rig.run(&["status", &run, "--json"]).expect(0).json();
    let why = status["keptWorkspaces"][0].as_str().unwrap_or_else(|| panic!("{status:#}"));
    assert!(why.contains("could not be saved") && why.contains(".jr2/workspaces/"), "{why}");
    rig.run(&["status", &run]).expect(0).says("a Workspace is kept: ");
}
