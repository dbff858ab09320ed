//! The tables: every key of the format with one line about it.

use super::{Key, NameRule, PROMPT_MAX_BYTES, Shape, TEXT_MAX_BYTES, Table};

/// Most attempts a `retry` may ask for.
pub const RETRY_MAX: u64 = 100;

const fn key(name: &'static str, shape: Shape, about: &'static str) -> Key {
    Key { name, about, shape, required: false }
}

const fn needed(name: &'static str, shape: Shape, about: &'static str) -> Key {
    Key { name, about, shape, required: true }
}

const fn table(noun: &'static str, name: &'static str, keys: &'static [Key]) -> Table {
    Table { noun, name, keys, rest: None }
}

/// What an Agent may touch.
pub const ACCESS_WORDS: &[&str] = &["write", "read", "none"];
/// How hard a model thinks.
pub const THINKING_WORDS: &[&str] = &["off", "minimal", "low", "medium", "high", "xhigh"];
/// Kinds of history.
pub const HISTORY_WORDS: &[&str] = &["shallow", "deep"];
/// Request methods of a `do` step.
pub const METHOD_WORDS: &[&str] = &["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];

const EMIT_FORMS: Shape = Shape::Either(&[Shape::Object(&MESSAGE), Shape::List(&ONE_MESSAGE)]);
const RAISE_FORMS: Shape =
    Shape::Either(&[Shape::Name(NameRule::Plain), Shape::Object(&RAISED), Shape::List(&ONE_RAISE)]);
const INITIAL_FORMS: Shape =
    Shape::Either(&[Shape::Name(NameRule::Path), Shape::List(&TARGET), Shape::Object(&INITIAL_TRANSITION)]);
const TARGETS: Shape = Shape::Either(&[Shape::Name(NameRule::Path), Shape::List(&TARGET)]);
const TRANSITION_FORMS: Shape =
    Shape::Either(&[Shape::Name(NameRule::Path), Shape::Object(&TRANSITION), Shape::List(&ONE_TRANSITION)]);
const ACTION_FORMS: Shape = Shape::Either(&[Shape::Object(&ACTIONS), Shape::List(&ONE_ACTIONS)]);
static TARGET: Shape = Shape::Name(NameRule::Path);
static ONE_TRANSITION: Shape = Shape::Either(&[Shape::Name(NameRule::Path), Shape::Object(&TRANSITION)]);
static TRANSITIONS: Shape = TRANSITION_FORMS;
static COMPUTED: Shape = Shape::Computed;
static ONE_MESSAGE: Shape = Shape::Object(&MESSAGE);
static ONE_RAISE: Shape = Shape::Either(&[Shape::Name(NameRule::Plain), Shape::Object(&RAISED)]);
static ONE_ACTIONS: Shape = Shape::Object(&ACTIONS);
static AGENT_SHAPE: Shape = Shape::Object(&AGENT);
static EVENT_SHAPE: Shape = Shape::Either(&[Shape::Object(&EVENT), Shape::Nothing]);
static STATE_SHAPE: Shape = Shape::Object(&STATE);
static REPO_SHAPE: Shape = Shape::Either(&[Shape::Template(TEXT_MAX_BYTES), Shape::Object(&REPO)]);
static TEXT_VALUE: Shape = Shape::Template(TEXT_MAX_BYTES);
static PLAIN_NAME: Shape = Shape::Name(NameRule::Plain);
static PREFIX: Shape = Shape::Text(256);
static LITERAL: Shape = Shape::Literal;

const SET: Key = key("set", Shape::Map(NameRule::Identifier, &COMPUTED), "Writes context: key → CEL.");
const EMIT_KEY: Key = key("emit", EMIT_FORMS, "Said to watchers; drives nothing.");
const RAISE_KEY: Key =
    key("raise", RAISE_FORMS, "An event for this machine itself: its name, or `{ type: name, field: CEL }`.");
const ON: Key =
    key("on", Shape::Map(NameRule::Events, &TRANSITIONS), "Transitions by event; the first whose `if` holds.");
const ALWAYS: Key = key("always", TRANSITION_FORMS, "Eventless transitions.");
const AFTER: Key = key("after", Shape::Map(NameRule::Duration, &TRANSITIONS), "Delayed transitions by duration.");
const ENTER: Key = key("enter", ACTION_FORMS, "Done on entry.");
const EXIT: Key = key("exit", ACTION_FORMS, "Done on exit.");
const INITIAL_KEY: Key = key("initial", INITIAL_FORMS, "The child to start in.");
const PARALLEL: Key = key("parallel", Shape::Flag, "All children are active at once.");

/// The file.
pub static WORKFLOW: Table = table(
    "a workflow (a mapping)",
    "workflow",
    &[
        needed("workflow", Shape::Name(NameRule::Plain), "The workflow's name; its file is called the same."),
        key("description", Shape::Text(TEXT_MAX_BYTES), "What it is for."),
        key("input", Shape::JsonSchema, "JSON Schema of what starts a run."),
        key("agents", Shape::Map(NameRule::Plain, &AGENT_SHAPE), "Agents by name."),
        key("events", Shape::Map(NameRule::Plain, &EVENT_SHAPE), "Everything anyone may say to this machine, by name."),
        key("workspace", Shape::Object(&WORKSPACE), "The Sandbox around the machine."),
        key("context", Shape::Map(NameRule::Identifier, &LITERAL), "The machine's memory: key → first value."),
        INITIAL_KEY,
        needed("states", Shape::Map(NameRule::Plain, &STATE_SHAPE), "The states by name."),
        PARALLEL,
        ON,
        ALWAYS,
        AFTER,
        ENTER,
        EXIT,
    ],
);

/// An Agent.
pub static AGENT: Table = table(
    "an Agent (a mapping)",
    "agent",
    &[
        needed("model", Shape::Model, "`provider/model`, or `open`: whoever runs it must bind it."),
        needed("instructions", Shape::Text(PROMPT_MAX_BYTES), "The first part of the system prompt."),
        key("description", Shape::Text(TEXT_MAX_BYTES), "For people; the model never sees it."),
        key("workspace", Shape::Choice(ACCESS_WORDS), "Working tools: all, no writing ones, none. Default: write."),
        key("thinking", Shape::Choice(THINKING_WORDS), "How hard the model thinks."),
        key("brain", Shape::Literal, "A brain surface offered beside the Working tools."),
    ],
);

/// An event.
pub static EVENT: Table = table(
    "an event (a mapping)",
    "event",
    &[
        key(
            "from",
            Shape::Either(&[Shape::Name(NameRule::Plain), Shape::List(&PLAIN_NAME)]),
            "Who may send it: agent, external, any (default), an Agent's name, or a list of names.",
        ),
        key("description", Shape::Text(TEXT_MAX_BYTES), "What it means, for the model and for people."),
        key("payload", Shape::JsonSchema, "JSON Schema of its arguments; its type is object."),
        key(
            "briefing",
            Shape::Text(TEXT_MAX_BYTES),
            "Said on a Turn that may make this pick; at most 2,000 characters.",
        ),
        key("buffer", Shape::Flag, "Keep it for the next state that handles it; external events only."),
    ],
);

/// The Sandbox.
pub static WORKSPACE: Table = table(
    "a Workspace (a mapping)",
    "workspace",
    &[
        needed(
            "repos",
            Shape::Either(&[Shape::Map(NameRule::Plain, &REPO_SHAPE), Shape::Choice(&["open"])]),
            "Repositories by slot: a URL or path, or `open`.",
        ),
        key("branch", Shape::Template(1024), "The branch the work goes to. Default: jr2/{{ run.id }}."),
        key("size", Shape::Object(&SIZE), "The Sandbox's ceiling."),
    ],
);

/// A repository.
pub static REPO: Table = table(
    "a repository (a mapping)",
    "repo",
    &[
        needed("url", Shape::Template(TEXT_MAX_BYTES), "URL or path, or `open`."),
        key("ref", Shape::Template(1024), "Commit, tag or branch to start from."),
    ],
);

/// A Size.
pub static SIZE: Table = table(
    "a Size (a mapping)",
    "size",
    &[key("memory", Shape::Memory, "Memory, as in 2Gi."), key("cpu", Shape::Cpu, "CPUs, as in 1 or 500m.")],
);

/// A state.
pub static STATE: Table = table(
    "a state (a mapping)",
    "state",
    &[
        key("description", Shape::Text(TEXT_MAX_BYTES), "What happens here."),
        INITIAL_KEY,
        key("states", Shape::Map(NameRule::Plain, &STATE_SHAPE), "Child states by name."),
        PARALLEL,
        key("history", Shape::Choice(HISTORY_WORDS), "Stands for where its parent was left; `to` is the default."),
        key("to", TARGETS, "The history's default."),
        key("final", Shape::Flag, "Ends its parent; a top-level one ends the run."),
        key("output", Shape::Value, "What a final state gives."),
        ON,
        ALWAYS,
        AFTER,
        ENTER,
        EXIT,
        key("agent", Shape::Name(NameRule::Plain), "Frames one Turn of this Agent."),
        key("prompt", Shape::Template(PROMPT_MAX_BYTES), "The Turn's task."),
        key("cwd", Shape::Template(1024), "Where the Agent works."),
        key("continue", Shape::Flag, "Go on in the Agent's standing conversation."),
        key("model", Shape::Template(256), "Another model for this Turn."),
        key("thinking", Shape::Choice(THINKING_WORDS), "Another thinking level for this Turn."),
        key("gate", Shape::Value, "Wait for a person or an outside system; the value is what they see."),
        key("run", Shape::Name(NameRule::Plain), "Run another workflow as a child."),
        key("input", Shape::Value, "The child's input."),
        key("do", Shape::Object(&DO), "One step without an Agent."),
        key("retry", Shape::Object(&RETRY), "How often the invocation is tried again."),
    ],
);

/// A step.
pub static DO: Table = table(
    "a step (a mapping)",
    "do",
    &[
        key("command", Shape::Template(TEXT_MAX_BYTES), "A shell command in the Workspace."),
        key("cwd", Shape::Template(1024), "Where it runs."),
        key("env", Shape::Map(NameRule::Variable, &TEXT_VALUE), "Extra environment."),
        key(
            "http",
            Shape::Either(&[Shape::Template(TEXT_MAX_BYTES), Shape::Object(&HTTP)]),
            "A request: its URL, or a mapping.",
        ),
        key("timeout", Shape::Duration, "How long it may take. Default: 10m for a command, 30s for a request."),
    ],
);

/// A request.
pub static HTTP: Table = table(
    "a request (a mapping)",
    "http",
    &[
        needed("url", Shape::Template(TEXT_MAX_BYTES), "Where."),
        key("method", Shape::Choice(METHOD_WORDS), "Default: GET, or POST when there is a body."),
        key("headers", Shape::Map(NameRule::Free, &TEXT_VALUE), "Headers."),
        key("body", Shape::Value, "JSON body."),
    ],
);

/// A retry policy.
pub static RETRY: Table = table(
    "a retry policy (a mapping)",
    "retry",
    &[
        needed("max", Shape::Count(1, RETRY_MAX), "Most attempts after the first."),
        key("backoff", Shape::Backoff, "Pause before an attempt, doubled up to the end of the range. Default: 1s..5m."),
        key(
            "on",
            Shape::Either(&[Shape::Text(256), Shape::List(&PREFIX)]),
            "Which failures: prefixes of their reasons. Default: all.",
        ),
    ],
);

/// A transition.
pub static TRANSITION: Table = table(
    "a transition (a mapping)",
    "transition",
    &[
        key("if", Shape::Condition, "It is taken only when this CEL condition holds."),
        key("to", TARGETS, "The target; without one nothing is left."),
        key("reenter", Shape::Flag, "Leave and enter again where a transition inside would not."),
        SET,
        EMIT_KEY,
        RAISE_KEY,
    ],
);

/// The transition of `initial`.
pub static INITIAL_TRANSITION: Table = table(
    "an initial transition (a mapping)",
    "initial",
    &[needed("to", TARGETS, "Where to start."), SET, EMIT_KEY, RAISE_KEY],
);

/// What `enter` and `exit` do.
pub static ACTIONS: Table = table("actions (a mapping of set, emit, raise)", "actions", &[SET, EMIT_KEY, RAISE_KEY]);

/// What `emit` says.
pub static MESSAGE: Table = Table {
    noun: "a message (a mapping with `type`)",
    name: "message",
    keys: &[needed("type", Shape::Text(256), "Its kind, as plain text.")],
    rest: Some((NameRule::Free, &COMPUTED)),
};

/// What `raise` raises.
pub static RAISED: Table = Table {
    noun: "an event (a mapping with `type`)",
    name: "raised",
    keys: &[needed("type", Shape::Name(NameRule::Plain), "The event's name, as plain text.")],
    rest: Some((NameRule::Identifier, &COMPUTED)),
};
