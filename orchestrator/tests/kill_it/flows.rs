//! What runs under the kills: one workflow for each way in which a run can be under way, and the model of its Agents.

use serde_json::{Value, json};

/// Three requests under three keys; the run carries what each was answered.
const LEDGER: &str = r#"
workflow: ledger
input: { type: object, required: [url], properties: { url: { type: string } } }
context: { n: 0, seen: [] }
initial: count
states:
  count:
    do: { http: { url: "{{ input.url }}", method: POST, body: { n: "{{ context.n }}" } }, timeout: 20s }
    retry: { max: 20, backoff: 20ms..100ms }
    on:
      done.do:
        - { if: context.n < 2, to: count, set: { n: context.n + 1, seen: "context.seen + [event.result.body.entry]" } }
        - { to: done, set: { n: context.n + 1, seen: "context.seen + [event.result.body.entry]" } }
      error.do: broken
  done: { final: true, output: { n: "{{ context.n }}", seen: "{{ context.seen }}" } }
  broken: { final: true, output: { broken: true } }
"#;

/// Commands that do nothing when they run a second time under the same key, and a commit at the end.
const COMMANDS: &str = r#"
workflow: commands
input: { type: object, required: [repo], properties: { repo: { type: string } } }
workspace: { repos: { target: "{{ input.repo }}" }, branch: "jr2/{{ run.id }}", size: { memory: 256Mi, cpu: 1 } }
context: { n: 0, keys: "" }
initial: note
states:
  note:
    do: { command: 'grep -qxF "$JR2_STEP_KEY" keys.txt 2>/dev/null || echo "$JR2_STEP_KEY" >> keys.txt', timeout: 60s }
    retry: { max: 20, backoff: 20ms..100ms }
    on:
      done.do:
        - { if: context.n < 2, to: note, set: { n: context.n + 1 } }
        - { to: keep, set: { n: context.n + 1 } }
      error.do: { to: broken, set: { keys: event.reason } }
  keep:
    do:
      command: |
        find "$(git rev-parse --git-common-dir)" -name '*.lock' -delete
        git add -A
        git diff --cached --quiet || git -c user.name=step -c user.email=step@example.invalid commit -qm Steps || exit 1
        cat keys.txt
      timeout: 60s
    retry: { max: 20, backoff: 20ms..100ms }
    on:
      done.do: { to: done, set: { keys: event.result.output } }
      error.do: { to: broken, set: { keys: "event.reason + string(event.output)" } }
  done: { final: true, output: { n: "{{ context.n }}", keys: "{{ context.keys }}" } }
  broken: { final: true, output: { broken: "{{ context.keys }}" } }
"#;

/// Three answers, counted.
const GATES: &str = r#"
workflow: gates
events: { answer: { from: external, payload: { type: object, required: [n], properties: { n: { type: integer } } } } }
context: { taken: 0, seen: [] }
initial: ask
states:
  ask:
    gate: { asked: "{{ context.taken }}" }
    on:
      answer:
        - { if: context.taken < 2, to: ask, set: { taken: context.taken + 1, seen: "context.seen + [event.n]" } }
        - { to: done, set: { taken: context.taken + 1, seen: "context.seen + [event.n]" } }
  done: { final: true, output: { taken: "{{ context.taken }}", seen: "{{ context.seen }}" } }
"#;

/// Delays that only count, beside the ones that move on: a delay that fires twice is seen.
const TIMERS: &str = r#"
workflow: timers
context: { first: 0, second: 0, again: 0 }
initial: one
states:
  one:
    after:
      200ms: { set: { first: context.first + 1 } }
      300ms: { set: { second: context.second + 1 } }
      600ms: two
  two:
    after:
      300ms: { set: { again: context.again + 1 } }
      500ms: done
  done: { final: true, output: { first: "{{ context.first }}", second: "{{ context.second }}", again: "{{ context.again }}" } }
"#;

/// One child, then two at once.
const FAMILY: &str = r#"
workflow: family
input: { type: object, required: [url], properties: { url: { type: string } } }
context: { seen: [] }
initial: first
states:
  first:
    run: member
    input: { url: "{{ input.url }}" }
    on: { done.run: { to: both, set: { seen: "context.seen + [event.output.entry]" } }, error.run: broken }
  both:
    parallel: true
    states:
      left:
        initial: work
        states:
          work:
            run: member
            input: { url: "{{ input.url }}" }
            on: { done.run: { to: over, set: { seen: "context.seen + [event.output.entry]" } } }
          over: { final: true }
      right:
        initial: work
        states:
          work:
            run: member
            input: { url: "{{ input.url }}" }
            on: { done.run: { to: over, set: { seen: "context.seen + [event.output.entry]" } } }
          over: { final: true }
    on: { done.state.both: done, error.run: broken }
  done: { final: true, output: { seen: "{{ context.seen }}" } }
  broken: { final: true, output: { broken: true } }
"#;

const MEMBER: &str = r#"
workflow: member
input: { type: object, required: [url], properties: { url: { type: string } } }
context: { entry: 0, waits: 0 }
initial: ask
states:
  ask:
    do: { http: { url: "{{ input.url }}", method: POST, body: { a: 1 } }, timeout: 20s }
    retry: { max: 20, backoff: 20ms..100ms }
    on: { done.do: { to: rest, set: { entry: event.result.body.entry } }, error.do: broken }
  rest:
    after: { 50ms: { set: { waits: context.waits + 1 } }, 100ms: over }
  over: { final: true, output: { entry: "{{ context.entry * context.waits }}" } }
  broken: { final: true, output: { entry: -1 } }
"#;

/// An Agent without a Workspace: a pick that keeps its Turn open, then one that ends it.
const JUDGE: &str = r#"
workflow: judge
agents: { judge: { model: scripted/judge, instructions: Note once and then give a verdict., workspace: none } }
events:
  note: { from: agent, description: Something worth a note. }
  verdict: { from: agent, payload: { type: object, required: [word], properties: { word: { type: string } } } }
context: { notes: 0, word: "", fault: "" }
initial: judging
states:
  judging:
    agent: judge
    prompt: Judge {{ run.id }}.
    on:
      note: { set: { notes: context.notes + 1 } }
      verdict: { to: done, set: { word: event.word } }
      agent.fault: { to: faulted, set: { fault: event.reason } }
  done: { final: true, output: { notes: "{{ context.notes }}", word: "{{ context.word }}" } }
  faulted: { final: true, output: { fault: "{{ context.fault }}" } }
"#;

/// An Agent that edits, commits and picks.
const WORK: &str = r#"
workflow: work
input: { type: object, required: [repo], properties: { repo: { type: string } } }
agents: { worker: { model: scripted/worker, instructions: Do the work and commit it., workspace: write } }
events: { finish: { from: agent } }
workspace: { repos: { target: "{{ input.repo }}" }, branch: "jr2/{{ run.id }}", size: { memory: 256Mi, cpu: 1 } }
context: { finished: 0, fault: "" }
initial: working
states:
  working:
    agent: worker
    prompt: Work on {{ run.id }}, commit, then finish.
    on:
      finish: { to: done, set: { finished: context.finished + 1 } }
      agent.fault: { to: faulted, set: { fault: event.reason } }
      workspace.lost: { to: faulted, set: { fault: event.message } }
  done: { final: true, output: { finished: "{{ context.finished }}" } }
  faulted: { final: true, output: { fault: "{{ context.fault }}" } }
"#;

/// Events that come before anybody handles them.
const HINTS: &str = r#"
workflow: hints
events:
  hint:
    from: external
    buffer: true
    payload: { type: object, required: [n], properties: { n: { type: integer } } }
context: { seen: [] }
initial: wait
states:
  wait: { after: { 400ms: take } }
  take:
    on:
      hint:
        - { if: size(context.seen) < 2, set: { seen: "context.seen + [event.n]" } }
        - { to: done, set: { seen: "context.seen + [event.n]" } }
  done: { final: true, output: { seen: "{{ context.seen }}" } }
"#;

/// Every workflow by its name.
pub const WORKFLOWS: [(&str, &str); 9] = [
    ("hints", HINTS),
    ("ledger", LEDGER),
    ("commands", COMMANDS),
    ("gates", GATES),
    ("timers", TIMERS),
    ("family", FAMILY),
    ("member", MEMBER),
    ("judge", JUDGE),
    ("work", WORK),
];

/// The Agent's commit is made once, whatever was cut before.
const COMMIT: &str = "if git log --format=%s -n 9 | grep -qx 'The work'; then echo COMMITTED before; else \
    find \"$(git rev-parse --git-common-dir)\" -name '*.lock' -delete; \
    git add -A && git -c user.name=worker -c user.email=worker@example.invalid commit -qm 'The work' && echo COMMITTED; fi";

/// The model of both Agents. It decides on the conversation alone, so a cut and a restart change nothing.
pub fn model() -> Value {
    let call = |name: &str, arguments: Value| json!({ "toolCalls": [{ "name": name, "arguments": arguments }] });
    let judge = |when: Value, answer: Value| rule("judge", when, answer);
    let worker = |when: Value, answer: Value| rule("worker", when, answer);
    let noted = json!({ "regex": "note|The Harness restarted" });
    json!({
        "models": ["judge", "worker"],
        "rules": [
            judge(json!({ "lastCall": { "name": "mcp__jr2__verdict" } }), json!({ "text": "That is my verdict." })),
            judge(json!({ "anyTool": noted }), call("mcp__jr2__verdict", json!({ "word": "fine" }))),
            judge(json!({}), call("mcp__jr2__note", json!({}))),
            worker(json!({ "ends": "user" }), call("write", json!({ "path": "work.txt", "content": "a draft\n" }))),
            worker(
                json!({ "lastCall": { "name": "write" } }),
                call("edit", json!({ "path": "work.txt", "oldText": "a draft", "newText": "the work" })),
            ),
            worker(json!({ "lastCall": { "name": "edit" } }), call("bash", json!({ "command": COMMIT }))),
            worker(
                json!({ "lastCall": { "name": "bash" }, "lastTool": "COMMITTED" }),
                call("mcp__jr2__finish", json!({})),
            ),
            worker(json!({ "lastCall": { "name": "bash" } }), call("bash", json!({ "command": COMMIT }))),
            worker(json!({}), json!({ "text": "My turn is over." })),
        ],
    })
}

fn rule(model: &str, mut when: Value, answer: Value) -> Value {
    when["model"] = json!({ "equals": model });
    json!({ "when": when, "answer": answer })
}
