//! The small programs that are proved, and what may go wrong in them.

use jr2_orchestrator::workflow::{Bindings, Catalog, Program};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How often each kind of fault may happen on one path, and how many in all. The kinds are never bounded away: every
/// scene allows each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Faults of any kind on one path.
    pub faults: u8,
    /// Kills by a guard.
    pub guard_kills: u8,
    /// Harness ends that the kernel's OOM killer caused.
    pub kernel_kills: u8,
    /// Other ends of a Harness, its conversations kept.
    pub harness_crashes: u8,
    /// Ends of a Harness whose conversations are lost with it.
    pub losses: u8,
    /// Ends of the Orchestrator.
    pub orchestrator_crashes: u8,
    /// Requests whose answer is lost on the way, and events that come twice.
    pub wire: u8,
    /// List reads that fail.
    pub blind_reads: u8,
    /// Events from outside that end a state under its Turn. They are no fault.
    pub exits: u8,
    /// Working-tool calls of the model. They are no fault.
    pub tools: u8,
    /// Times a model stops without a pick. They are no fault.
    pub silences: u8,
    /// Picks that ask. They are no fault.
    pub asks: u8,
}

/// One program to prove.
#[derive(Clone)]
pub struct Scene {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is for.
    pub about: &'static str,
    /// The program.
    pub program: Arc<Program>,
}

const AGENTS: &str = "
agents:
  a: { model: p/m, instructions: i, workspace: write }
  b: { model: p/m, instructions: i, workspace: read }
events:
  finish: { from: agent }
  skip: { from: external }
";

const ON: &str = "finish: TO, skip: TO, agent.fault: TO, workspace.lost: end";

fn turn(state: &str, agent: &str, more: &str, to: &str) -> String {
    let on = ON.replace("TO", to);
    format!("  {state}: {{ agent: {agent}, prompt: do {state}, {more} on: {{ {on} }} }}\n")
}

fn in_turn() -> String {
    let states = [
        turn("one", "a", "continue: true,", "two"),
        turn("two", "b", "", "three"),
        turn("three", "a", "continue: true,", "end"),
    ];
    format!(
        "workflow: in-turn\n{AGENTS}workspace: {{ repos: {{ target: x }}, branch: b }}\ninitial: one\nstates:\n{}  end: {{ final: \
         true }}\n",
        states.concat()
    )
}

fn fresh() -> String {
    let states = [turn("one", "a", "", "two"), turn("two", "a", "", "end")];
    format!(
        "workflow: fresh\n{AGENTS}workspace: {{ repos: {{ target: x }}, branch: b }}\ninitial: one\nstates:\n{}  end: {{ final: \
         true }}\n",
        states.concat()
    )
}

fn beside() -> String {
    // Only the right one is ended from outside: what it carried may be free again while the left one works.
    let region = |name: &str, agent: &str, more: &str, skip: &str| {
        format!(
            "      {name}:\n        initial: work\n        states:\n          work: {{ agent: {agent}, prompt: p, {more} on: {{ finish: \
             done, {skip}agent.fault: done }} }}\n          done: {{ final: true }}\n"
        )
    };
    format!(
        "workflow: beside\n{AGENTS}workspace: {{ repos: {{ target: x }}, branch: b }}\ninitial: both\nstates:\n  both:\n    parallel: \
         true\n    states:\n{}{}    on: {{ done.state.both: last, workspace.lost: end }}\n{}  end: {{ final: true }}\n",
        region("left", "a", "continue: true,", ""),
        region("right", "b", "", "skip: done, "),
        turn("last", "a", "continue: true,", "end")
    )
}

fn two_workspaces() -> Vec<(&'static str, String)> {
    let child = format!(
        "workflow: child\n{AGENTS}workspace: {{ repos: {{ target: x }}, branch: b }}\ninitial: one\nstates:\n{}  end: {{ final: true \
         }}\n",
        turn("one", "a", "", "end")
    );
    let region = |name: &str| {
        format!(
            "      {name}:\n        initial: work\n        states:\n          work: {{ run: child, on: {{ done.run: done, error.run: done }} }}\n          done: {{ final: true }}\n"
        )
    };
    let parent = format!(
        "workflow: two-workspaces\ninitial: both\nstates:\n  both:\n    parallel: true\n    states:\n{}{}    on: {{ done.state.both: end \
         }}\n  end: {{ final: true }}\n",
        region("left"),
        region("right")
    );
    vec![("two-workspaces", parent), ("child", child)]
}

fn menu_only() -> String {
    let text = format!(
        "workflow: menu-only\n{AGENTS}initial: one\nstates:\n{}{}  end: {{ final: true }}\n",
        turn("one", "a", "continue: true,", "two").replace(", workspace.lost: end", ""),
        turn("two", "a", "continue: true,", "end").replace(", workspace.lost: end", "")
    );
    text.replace("workspace: write", "workspace: none").replace("workspace: read", "workspace: none")
}

/// Agents and events of the scenes in which a pick asks.
const ASKING: &str = "
agents:
  a: { model: p/m, instructions: i, workspace: write }
  b: { model: p/m, instructions: i, workspace: read }
events:
  ask: { from: agent }
  consult: { from: a }
  finish: { from: a }
  verdict: { from: b }
  approve: { from: external }
  leave: { from: external }
  skip: { from: external }
";

/// A state whose Agent may ask a person inside it: the route comes back, leaves, or is stopped.
fn asking_state(state: &str, more: &str, to: &str) -> String {
    let on = ON.replace("TO", to);
    format!(
        "  {state}:\n    agent: a\n    prompt: do {state}\n{more}    initial: idle\n    states:\n      idle: {{ on: {{ ask: \
         review }} }}\n      review: {{ gate: {{ question: good? }}, on: {{ approve: idle, leave: {to} }} }}\n    on: {{ {on} \
         }}\n"
    )
}

fn asking() -> String {
    format!(
        "workflow: asking\n{ASKING}workspace: {{ repos: {{ target: x }}, branch: b }}\ninitial: one\nstates:\n{}{}  end: {{ final: \
         true }}\n",
        asking_state("one", "    continue: true\n", "two"),
        turn("two", "a", "continue: true,", "end")
    )
}

fn asking_fresh() -> String {
    let text = format!(
        "workflow: asking-fresh\n{ASKING}initial: one\nstates:\n{}{}  end: {{ final: true }}\n",
        asking_state("one", "", "two"),
        turn("two", "a", "", "end")
    );
    text.replace(", workspace.lost: end", "")
        .replace("workspace: write", "workspace: none")
        .replace("workspace: read", "workspace: none")
}

fn asking_each_other() -> String {
    let b = "      hearing:\n        agent: b\n        prompt: p\n        initial: think\n        states:\n          think: { on: { \
             ask: review } }\n          review: { gate: { question: good? }, on: { approve: think, leave: two } }\n        on: { \
             verdict: idle, agent.fault: idle }\n";
    let on = ON.replace("TO", "two");
    format!(
        "workflow: asking-each-other\n{ASKING}workspace: {{ repos: {{ target: x }}, branch: b }}\ninitial: one\nstates:\n  one:\n    \
         agent: a\n    prompt: p\n    continue: true\n    initial: idle\n    states:\n      idle: {{ on: {{ consult: hearing \
         }} }}\n{b}    on: {{ {on} }}\n{}  end: {{ final: true }}\n",
        turn("two", "a", "continue: true,", "end")
    )
}

/// Builds a program from its texts, the first of which is its root.
///
/// # Panics
/// When a text of this file is no workflow: the tests build every scene.
#[allow(clippy::panic)] // a scene is part of the program text
pub fn program(texts: &[(&str, String)]) -> Arc<Program> {
    let all: BTreeMap<String, Arc<str>> = texts.iter().map(|(n, t)| ((*n).to_owned(), Arc::from(t.as_str()))).collect();
    let catalog = Catalog::from_texts(&all).unwrap_or_else(|e| panic!("{}", e.plain()));
    Arc::new(Program::build(&catalog, texts[0].0, &Bindings::default()).unwrap_or_else(|e| panic!("{}", e.plain())))
}

/// Every scene.
pub fn all() -> Vec<Scene> {
    let one = |name: &'static str, about, text| Scene { name, about, program: program(&[(name, text)]) };
    vec![
        one("in-turn", "three Turns of two Agents in one Workspace, the first conversation continued", in_turn()),
        one("fresh", "two fresh Turns of one Agent", fresh()),
        one("beside", "two Agents at once in one Workspace, then one of them again", beside()),
        one("menu-only", "two continued Turns on the Instance Harness", menu_only()),
        Scene {
            name: "two-workspaces",
            about: "two child runs at once, each with a Workspace of its own",
            program: program(&two_workspaces()),
        },
        one("asking", "a continued Turn that asks a person from inside its state, and the Turn after it", asking()),
        one("asking-fresh", "a fresh Turn on the Instance Harness that asks a person", asking_fresh()),
        one("asking-each-other", "an Agent that asks another one, which asks a person", asking_each_other()),
    ]
}
