//! The whole way from text to program, in memory.

use super::*;
use crate::chart::{StateKind, Trigger};
use crate::expression::ValueSource;
use serde_json::{Value, json};
use std::collections::BTreeMap;

fn catalog(texts: &[(&str, &str)]) -> Result<Catalog, Diagnostics> {
    let texts: BTreeMap<String, Arc<str>> = texts.iter().map(|(n, t)| ((*n).to_owned(), Arc::from(*t))).collect();
    Catalog::from_texts(&texts)
}

fn workflow(text: &str) -> Arc<Workflow> {
    catalog(&[("w", text)]).unwrap_or_else(|problems| panic!("{problems}")).workflow("w").unwrap().clone()
}

fn codes_of(problems: &Diagnostics) -> Vec<&'static str> {
    problems.items.iter().map(|d| d.code).collect()
}

const FIX_TEST: &str = include_str!("../../tests/fixtures/workflows/right/fix-test.yaml");
const NESTED: &str = include_str!("../../tests/fixtures/workflows/right/nested-agents.yaml");

#[test]
fn the_example_of_the_format_page_lowers_as_written() {
    let catalog = catalog(&[("fix-test", FIX_TEST)]).unwrap();
    let workflow = catalog.workflow("fix-test").unwrap();
    let paths: Vec<&str> = workflow.chart.states.iter().map(|s| s.path.as_str()).collect();
    assert_eq!(paths, ["", "working", "review", "done", "lost"]);
    assert!(matches!(&workflow.chart.states[0].kind, StateKind::Compound { initial, .. } if *initial == [1]));
    assert_eq!(workflow.chart.states[0].last, 4);
    let review = &workflow.chart.states[2];
    let triggers: Vec<&Trigger> = review.transitions.iter().map(|t| &t.trigger).collect();
    assert_eq!(
        triggers,
        [
            &Trigger::Events(vec!["approve".into()]),
            &Trigger::Events(vec!["request_changes".into()]),
            &Trigger::Events(vec!["request_changes".into()]),
            &Trigger::After { delay_ms: 14 * 86_400_000 },
        ]
    );
    assert_eq!(review.transitions[1].guard.as_ref().unwrap().source(), "context.rounds < 3");
    assert_eq!(workflow.menus["coder"], ["finish"]);
    assert_eq!(workflow.derived[&1], ["finish"]);
    assert_eq!(workflow.accepts_external(2), ["approve", "request_changes"]);
    let InvocationKind::Gate { accepts, meta } = &workflow.invocations[&2].kind else { panic!("a Gate") };
    assert_eq!(accepts, &["approve", "request_changes"]);
    assert!(matches!(meta, ValueSource::Object(fields) if fields.len() == 2));
    let InvocationKind::Agent { continued, prompt, .. } = &workflow.invocations[&1].kind else { panic!("an Agent") };
    assert!(*continued && prompt.source().starts_with("The command"));
}

#[test]
fn menus_follow_parts_where_agents_nest() {
    let catalog = catalog(&[("nested-agents", NESTED)]).unwrap();
    let workflow = catalog.workflow("nested-agents").unwrap();
    assert_eq!(workflow.menus["lead"], ["ask", "finish", "review"]);
    assert_eq!(workflow.menus["reviewer"], ["verdict"]);
    let asking = workflow.chart.states.iter().position(|s| s.key == "asking").unwrap();
    assert_eq!(workflow.accepts_external(asking as u32), ["answer"]);
}

#[test]
fn the_door_fills_defaults_and_refuses_with_reasons() {
    let w = workflow(
        "workflow: w\ninput:\n  type: object\n  required: [repo]\n  additionalProperties: false\n  properties:\n    repo: { type: string }\n    test: { type: string, default: cargo test }\n    deep: { type: object, default: {}, properties: { n: { type: integer, default: 3 } } }\nevents: { go: {} }\ninitial: a\nstates: { a: { on: { go: z } }, z: { final: true } }\n",
    );
    assert_eq!(
        w.check_input(json!({"repo": "/r"})).unwrap(),
        json!({"repo": "/r", "test": "cargo test", "deep": {"n": 3}})
    );
    assert_eq!(w.check_input(Value::Null).unwrap_err(), ["\"repo\" is a required property"]);
    let many = w.check_input(json!({"repo": 1, "other": "x".repeat(5_000)})).unwrap_err();
    assert_eq!(many.len(), 2);
    assert!(many.iter().all(|m| m.chars().count() < 400), "{many:?}");
    let open =
        workflow("workflow: w\nevents: { go: {} }\ninitial: a\nstates: { a: { on: { go: z } }, z: { final: true } }\n");
    assert_eq!(open.check_input(json!([1])).unwrap(), json!([1]));
}

#[test]
fn p_05_a_payload_is_refused_in_the_specs_words() {
    let catalog = catalog(&[("fix-test", FIX_TEST)]).unwrap();
    let w = catalog.workflow("fix-test").unwrap();
    assert_eq!(w.check_payload("finish", &json!({"summary": "done"})), Ok(()));
    assert_eq!(
        w.check_payload("finish", &json!({})).unwrap_err(),
        "invalid \"finish\" payload: \"summary\" is a required property"
    );
    assert_eq!(
        w.check_payload("finish", &json!({"summary": 3})).unwrap_err(),
        "invalid \"finish\" payload: /summary: 3 is not of type \"string\""
    );
    assert_eq!(w.check_payload("approve", &json!({"x": 1})), Ok(()));
    assert_eq!(w.check_payload("approve", &json!(1)).unwrap_err(), "invalid \"approve\" payload: it is not an object");
}

const OPEN_PARENT: &str = "workflow: parent\nagents: { coder: { model: open, instructions: Work. } }\nevents: { finish: { from: agent } }\nworkspace: { repos: open }\ninitial: a\nstates:\n  a: { agent: coder, prompt: Go., on: { finish: b } }\n  b: { run: child, on: { done.run: z, error.run: z } }\n  z: { final: true }\n";
const OPEN_CHILD: &str = "workflow: child\nagents: { coder: { model: open, instructions: Work. }, other: { model: a/b, instructions: W. } }\nevents: { finish: { from: agent } }\ninitial: a\nstates:\n  a: { agent: coder, prompt: Go., on: { finish: b } }\n  b: { agent: other, prompt: Go., on: { finish: z } }\n  z: { final: true }\n";

fn bound(pairs: &[&str]) -> Result<Program, Diagnostics> {
    let catalog = catalog(&[("parent", OPEN_PARENT), ("child", OPEN_CHILD)]).unwrap();
    Program::build(&catalog, "parent", &Bindings::from_pairs(pairs).unwrap())
}

#[test]
fn w_05_open_parts_are_refused_with_the_line_that_binds_them() {
    let problems = bound(&[]).unwrap_err();
    insta::assert_snapshot!(problems.plain(), @r"
    child:2:27: error[JR0601]: the model of `coder` is open (fix: pass `--bind child/agents.coder.model=PROVIDER/MODEL`)
    parent:2:27: error[JR0601]: the model of `coder` is open (fix: pass `--bind agents.coder.model=PROVIDER/MODEL`)
    parent:4:21: error[JR0601]: the repositories are open (fix: pass `--bind workspace.repos.SLOT=URL`)
    ");
    let program = bound(&["agents.coder.model=x/y", "workspace.repos.target=/srv/r"]).unwrap();
    assert_eq!(program.workflows["child"].agents["coder"].model, "x/y", "an open part of a child takes it too");
    assert_eq!(program.workflows["parent"].workspace.as_ref().unwrap().repos[0].0, "target");
    let qualified = bound(&[
        "agents.coder.model=x/y",
        "child/agents.coder.model=x/z",
        "child/agents.other.thinking=high",
        "workspace.repos.t=/r",
    ])
    .unwrap();
    assert_eq!(qualified.workflows["child"].agents["coder"].model, "x/z");
    assert_eq!(qualified.workflows["parent"].agents["coder"].model, "x/y");
    assert_ne!(qualified.hash, program.hash);
}

#[test]
fn wrong_bindings_are_refused() {
    for (pair, code) in [
        ("agents.codr.model=x/y", "JR0602"),
        ("agents.coder.modl=x/y", "JR0602"),
        ("nobody/agents.coder.model=x/y", "JR0602"),
        ("agents.coder.model=fast", "JR0603"),
        ("agents.coder.thinking=lots", "JR0603"),
        ("workspace.size.memory=lots", "JR0603"),
        ("workspace.repos.t={{ input.x }}", "JR0603"),
    ] {
        let problems = bound(&["agents.coder.model=x/y", "workspace.repos.t=/r", pair]).unwrap_err();
        assert_eq!(codes_of(&problems), [code], "{pair}: {problems}");
    }
    assert_eq!(codes_of(&Bindings::from_pairs(&["nothing"]).unwrap_err()), ["JR0603"]);
}

#[test]
fn a_bind_file_nests_or_names_whole_paths() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bind.yaml");
    std::fs::write(
        &path,
        "agents: { coder: { model: x/y } }\nworkspace.size.cpu: 2\nchild/agents: { coder: { model: a/b } }\n",
    )
    .unwrap();
    let bindings = Bindings::from_file(&path).unwrap();
    let values: Vec<(&str, &str)> = bindings.values.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(
        values,
        [("agents.coder.model", "x/y"), ("child/agents.coder.model", "a/b"), ("workspace.size.cpu", "2")]
    );
    std::fs::write(&path, "agents: [1]\n").unwrap();
    assert_eq!(codes_of(&Bindings::from_file(&path).unwrap_err()), ["JR0603"]);
}

#[test]
fn a_program_reads_back_from_its_canonical_text_and_nothing_else() {
    let program = bound(&["agents.coder.model=x/y", "workspace.repos.target=/srv/r"]).unwrap();
    let again = Program::from_canonical(&program.canonical).unwrap();
    assert_eq!((again.hash.as_str(), again.canonical.as_ref()), (program.hash.as_str(), program.canonical.as_ref()));
    assert_eq!(again.workflows["child"].agents, program.workflows["child"].agents);
    assert_eq!(program.hash.len(), 64);
    for wrong in ["", "{}", "[1]", &program.canonical.replace("\"format\":1", "\"format\":9")] {
        assert_eq!(codes_of(&Program::from_canonical(wrong).unwrap_err()), ["JR0605"], "{wrong}");
    }
    let broken = program.canonical.replace("initial: a", "initial: q");
    assert_eq!(codes_of(&Program::from_canonical(&broken).unwrap_err()), ["JR0201", "JR0201"]);
}

#[test]
fn a_program_without_a_place_to_work_is_refused_for_its_root_only() {
    let catalog = catalog(&[("parent", OPEN_PARENT), ("child", OPEN_CHILD)]).unwrap();
    let bindings = Bindings::from_pairs(&["agents.coder.model=x/y"]).unwrap();
    let problems = Program::build(&catalog, "child", &bindings).unwrap_err();
    assert_eq!(codes_of(&problems), ["JR0604", "JR0604"]);
    assert_eq!(codes_of(&Program::build(&catalog, "nobody", &bindings).unwrap_err()), ["JR0204"]);
    assert_eq!(catalog.roots(), ["parent"]);
}

#[test]
fn a_program_is_bounded() {
    let texts: Vec<(String, String)> = (0..=PROGRAM_MAX)
        .map(|n| {
            let next = if n == PROGRAM_MAX {
                "do: {}, on: { done.do: z }".to_owned()
            } else {
                format!("run: w{}, on: {{ done.run: z }}", n + 1)
            };
            (
                format!("w{n}"),
                format!("workflow: w{n}\ninitial: a\nstates: {{ a: {{ {next} }}, z: {{ final: true }} }}\n"),
            )
        })
        .collect();
    let texts: Vec<(&str, &str)> = texts.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    let catalog = catalog(&texts).unwrap();
    assert_eq!(codes_of(&Program::build(&catalog, "w0", &Bindings::default()).unwrap_err()), ["JR0606"]);
    assert!(Program::build(&catalog, "w1", &Bindings::default()).is_ok());
}

#[test]
fn too_many_states_are_refused_once() {
    let states: Vec<String> = (0..2_500).map(|n| format!("  s{n}: {{ final: true }}")).collect();
    let states = states.join("\n");
    let problems = catalog(&[("w", &format!("workflow: w\ninitial: s0\nstates:\n{states}"))]).unwrap_err();
    assert_eq!(codes_of(&problems), ["JR0116"]);
}

#[test]
fn folders_hold_workflows_and_other_files() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    };
    let body = "initial: a\nstates: { a: { do: {}, on: { done.do: z } }, z: { final: true } }\n";
    write("jr2.yaml", "listen: 1\n");
    write("one.yaml", &format!("workflow: one\n{body}"));
    write("two/workflow.yaml", &format!("workflow: two\n{body}"));
    let catalog = Catalog::from_dir(dir.path()).unwrap();
    assert_eq!(catalog.entries.keys().collect::<Vec<_>>(), ["one", "two"]);
    let three = write(
        "three.yaml",
        "workflow: three\ninitial: a\nstates: { a: { run: two, on: { done.run: z } }, z: { final: true } }\n",
    );
    let loaded = load_file(&three).unwrap();
    assert_eq!(loaded.workflow.name, "three");
    assert_eq!(loaded.catalog.entries.keys().collect::<Vec<_>>(), ["three", "two"]);
    let other = write("other/one.yaml", &format!("workflow: one\n{body}"));
    let problems = Catalog::from_files(&[dir.path().join("one.yaml"), other]).unwrap_err();
    assert_eq!(codes_of(&problems), ["JR0209"]);
    assert_eq!(codes_of(&Catalog::from_dir(&dir.path().join("none")).unwrap_err()), ["JR0001"]);
    assert_eq!(codes_of(&load_file(&dir.path().join("none.yaml")).unwrap_err()), ["JR0001"]);
}

#[test]
fn the_report_underlines_the_text() {
    let text = FIX_TEST.replace("to: review, set: { summary", "to: reveiw, set: { summary");
    let problems = catalog(&[("fix-test", &text)]).unwrap_err();
    insta::assert_snapshot!(problems.report(false));
    assert_eq!(
        problems.json()["items"][0],
        json!({"code": "JR0201", "severity": "error", "message": "there is no state `reveiw` here", "file": "fix-test",
               "line": 46, "column": 21, "length": 6, "help": "did you mean `review`?"})
    );
}

#[test]
fn targets_resolve_from_inside_out() {
    let w = workflow(
        "workflow: w\nevents: { go: {}, up: {} }\ninitial: a\nstates:\n  a:\n    initial: a\n    states:\n      a: { on: { go: b, up: z } }\n      b: { on: { go: a, up: c.b } }\n    on: { go: b }\n  b: { on: { go: z } }\n  c: { initial: b, states: { b: { on: { go: z } } } }\n  z: { final: true }\n",
    );
    let target = |path: &str, n: usize| {
        let state = w.chart.states.iter().find(|s| s.path == path).unwrap();
        w.chart.states[state.transitions[n].targets[0] as usize].path.as_str()
    };
    assert_eq!((target("a.a", 0), target("a.a", 1)), ("a.b", "z"));
    assert_eq!((target("a.b", 0), target("a.b", 1)), ("a.a", "c.b"));
    assert_eq!(target("a", 0), "a.b", "a compound's own children come first");
}

#[test]
fn a_hostile_file_is_answered_with_a_bounded_report() {
    let states: Vec<String> = (0..1_900)
        .map(|n| format!("state-with-a-long-name-{n}: {{ on: {{ go: [nowhere-{n}, else-{n}, x-{n}], e{n}: state-with-a-long-name-{n} }} }}"))
        .collect();
    let text = format!("{{ workflow: w, initial: nobody, states: {{ {} }} }}", states.join(", "));
    let problems = catalog(&[("w", &text)]).unwrap_err();
    assert_eq!(problems.items.len(), DIAGNOSTICS_MAX);
    assert!(problems.dropped > 0 && problems.plain().len() < 100_000);
    let (long, other) = ("x".repeat(200_000), "y".repeat(200_000));
    let text =
        format!("workflow: w\n{long}: 1\nagents: {{ {long}: 3 }}\ninitial: {other}\nstates: {{ {long}: {{}} }}\n");
    let problems = catalog(&[("w", &text)]).unwrap_err();
    assert!(problems.plain().len() < 20_000, "{}", problems.plain().len());
}
