//! Every problem a workflow file can have: its code, what it means and how it is fixed. `jr2 explain` and the pages of
//! `docs/errors/` are printed from this table, so a code is described once. A number is never used for something else.

use serde::Serialize;

/// How bad a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The file is refused.
    Error,
    /// The file runs, but probably not as meant.
    Warning,
}

impl Severity {
    /// The word people see.
    pub fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// One kind of problem.
#[derive(Debug, PartialEq, Eq)]
pub struct CodeInfo {
    /// `JR` and four digits.
    pub code: &'static str,
    /// Error or warning.
    pub severity: Severity,
    /// A few words.
    pub title: &'static str,
    /// One paragraph: what is wrong and why it matters.
    pub explanation: &'static str,
    /// What to do.
    pub fix: &'static str,
}

/// The description of a code, if there is one.
pub fn explain(code: &str) -> Option<&'static CodeInfo> {
    CODES.iter().copied().find(|info| info.code.eq_ignore_ascii_case(code))
}

/// The page of `docs/errors/` about one code.
pub fn page(info: &CodeInfo) -> String {
    format!(
        "# {}: {}\n\nSeverity: {}\n\n{}\n\n## How to fix it\n\n{}\n",
        info.code,
        info.title,
        info.severity.word(),
        info.explanation,
        info.fix
    )
}

macro_rules! codes {
    ($($name:ident $code:literal $severity:ident $title:literal $explanation:literal $fix:literal;)*) => {
        $(
            #[doc = $title]
            pub static $name: CodeInfo = CodeInfo {
                code: $code,
                severity: Severity::$severity,
                title: $title,
                explanation: $explanation,
                fix: $fix,
            };
        )*
        /// All codes in order.
        pub static CODES: &[&CodeInfo] = &[$(&$name),*];
    };
}

codes! {
    UNREADABLE "JR0001" Error "The file cannot be read"
        "The file does not exist, is not a plain file, or may not be read by this user."
        "Check the path and the file's permissions.";
    FILE_TOO_LARGE "JR0002" Error "The file is too large"
        "A workflow is text that a person reads before it runs. A file over 1 MiB is refused before it is parsed, so that a wrong file costs no time and no memory."
        "Check that this is the file you meant. Move data into the repository the workflow works on, and long tasks into several workflows joined by `run`.";
    NOT_YAML "JR0003" Error "The file is not well-formed YAML or JSON"
        "The text could not be read as YAML (JSON is YAML too). Reading stops at the first such place."
        "Look at the marked place: a missing colon, bracket or quote, or a line that is indented differently from its neighbours.";
    TOO_DEEP "JR0004" Error "Values are nested too deeply"
        "Mappings and lists may be nested 64 levels deep. No workflow a person can read comes near it."
        "Flatten the value, or split the workflow and join the parts with `run`.";
    TOO_MANY_VALUES "JR0005" Error "The file has too many values"
        "A file may hold 50,000 values, aliases counted as often as they are used."
        "Split the workflow and join the parts with `run`.";
    ALIAS_EXPANSION "JR0006" Error "Aliases expand to too much text"
        "Each alias is replaced by what its anchor holds. Aliases of aliases grow without measure, so their total is bounded at 4 MiB of text and 50,000 values."
        "Write the value out where it is used, or use fewer aliases.";
    DUPLICATE_KEY "JR0007" Error "A key stands twice in one mapping"
        "Two events, states, Agents or settings of one mapping have the same name. YAML readers differ in which one they keep, so none is kept silently."
        "Rename or remove one of the two.";
    TAB "JR0008" Error "A line is indented with a tab"
        "YAML allows spaces only for indentation."
        "Replace the tab by spaces.";
    SEVERAL_DOCUMENTS "JR0009" Error "The file holds several YAML documents"
        "One file is one workflow. A line `---` after the first document starts another one."
        "Move the second document into a file of its own.";
    KEY_NOT_TEXT "JR0010" Error "A key is not text"
        "Keys are names. A key such as `true`, `3` or `[a]` is another kind of value in YAML, and would be read differently by other tools."
        "Put the key in quotes if it is meant as a name. A duration needs its unit: `30s`, `14d`.";
    BAD_TAG "JR0011" Error "A YAML tag is not supported"
        "Only the core tags `!!str`, `!!int`, `!!float`, `!!bool`, `!!null`, `!!seq` and `!!map` have a meaning here, and only on values of their kind."
        "Remove the tag.";
    NOT_A_WORKFLOW "JR0012" Error "The file holds no workflow"
        "The file is empty, or its top level is not a mapping with the key `workflow`."
        "Start with `workflow: NAME`, or run `jr2 init` for an example.";
    NOT_UTF8 "JR0013" Error "The file is not UTF-8 text"
        "Workflow files are UTF-8."
        "Save the file as UTF-8.";
    NOT_JSON_NUMBER "JR0014" Error "A number has no place in JSON"
        "Infinity, not-a-number and numbers beyond the range of a double cannot be kept in a run."
        "Write an ordinary number, or put the word in quotes.";

    UNKNOWN_KEY "JR0101" Error "A key is not known here"
        "The mapping has a key that the format does not have at this place. It would be ignored, so it is refused."
        "Correct the spelling, or move the key to where it belongs; `jr2 schema` lists the keys of every mapping.";
    WRONG_TYPE "JR0102" Error "A value has the wrong type"
        "The format wants another kind of value at this place."
        "Write the value in the form the message names. A text that looks like a number or a boolean needs quotes.";
    MISSING_KEY "JR0103" Error "A key is missing"
        "The mapping needs a key that is not there."
        "Add the key.";
    NOT_A_CHOICE "JR0104" Error "A value is not one of the allowed words"
        "Only certain words have a meaning at this place."
        "Write one of the words the message lists.";
    BAD_NAME "JR0105" Error "A name has characters it may not have"
        "Names of workflows, Agents, events, states and slots are made of letters, digits, `_` and `-`; dots belong to the mechanism's own events. Context keys are identifiers, because expressions name them."
        "Rename it.";
    BAD_DURATION "JR0106" Error "A duration cannot be read"
        "Durations are numbers with units, as in `30s`, `5m`, `1h 30m`, `14d`; at most 366 days. A backoff is one duration or a range such as `1s..5m`."
        "Write a number with a unit.";
    BAD_SIZE "JR0107" Error "A Size cannot be read"
        "Memory and CPU are Kubernetes quantities: `512Mi`, `2Gi`, `500m`, `1`."
        "Write a quantity with a known suffix.";
    TEXT_TOO_LONG "JR0108" Error "A text is too long"
        "Prompts and instructions may have 64 KiB each, other texts less. A model reads the whole of it on every Turn."
        "Shorten it; let the Agent read long material from the repository.";
    KEYS_EXCLUDE "JR0109" Error "Two keys exclude each other"
        "A state is one kind of state and invokes one thing: a final state has no children and no transitions, a parallel one has no `initial`, and `agent`, `gate`, `run` and `do` stand in different states."
        "Remove one of the keys, or nest a second state.";
    KEY_WITHOUT_PARTNER "JR0110" Error "A key stands without the key it belongs to"
        "Keys such as `prompt`, `input`, `output` and `retry` say more about another key of the same state, which is not there."
        "Add the other key or remove this one.";
    RESERVED_NAME "JR0111" Error "A name is reserved"
        "The word has a meaning of its own at this place, so nothing else may be called by it."
        "Choose another name.";
    BAD_MODEL "JR0112" Error "A model is not written as provider/model"
        "A model is named by its provider and its own name, split at the first slash; `open` leaves it to whoever runs the workflow."
        "Write it as in `openai/gpt-5-mini`.";
    NAME_DIFFERS "JR0113" Error "The workflow's name differs from its file's"
        "A workflow is found by its file: `NAME.yaml`, or `NAME/workflow.yaml`. The key `workflow` repeats the name, so that a moved or copied file is noticed."
        "Rename the file or change the key `workflow`.";
    OUT_OF_RANGE "JR0114" Error "A number is out of range"
        "The number is smaller or larger than the format allows at this place."
        "Write a number within the range the message names.";
    NOT_BUILT "JR0115" Error "A key of the format is not built yet"
        "The format reserves this key, but this version does not run it."
        "Remove it, or use `run` for a fixed number of child runs.";
    TOO_MANY_STATES "JR0116" Error "The workflow has too many states"
        "A workflow may have 2,000 states. Checks and steps stay quick up to there."
        "Split the workflow and join the parts with `run`.";

    UNKNOWN_TARGET "JR0201" Error "A target does not exist"
        "A transition, an `initial` or a history default names a state that cannot be seen from there. A name is looked up among the state's own children, then among its siblings, then outwards; `a.b` names a child of `a`."
        "Correct the name, or write the path from the outermost state with dots.";
    UNDECLARED_EVENT "JR0202" Error "An event is handled but not declared"
        "Everything anyone may say to the machine stands under `events`. Names with dots are the mechanism's own: `agent.fault`, `agent.done`, `done.run`, `error.run`, `done.do`, `error.do`, `done.state.PATH`, `error.expression`, `workspace.lost`."
        "Declare the event under `events`, or correct its name.";
    UNKNOWN_AGENT "JR0203" Error "An Agent does not exist"
        "A state or an event names an Agent that is not under `agents`."
        "Declare the Agent, or correct its name.";
    UNKNOWN_WORKFLOW "JR0204" Error "A child workflow was not found"
        "`run: NAME` looks among the workflows loaded together, then beside the file: `NAME.yaml`, `NAME.yml`, `NAME.json`, `NAME/workflow.yaml`."
        "Correct the name, or put the file beside this one.";
    CYCLIC_RUN "JR0205" Error "Workflows run each other in a circle"
        "A workflow that runs itself, directly or through others, would never end starting."
        "Break the circle; use a transition back to an earlier state for repetition.";
    UNDECLARED_CONTEXT "JR0206" Error "`set` writes a context key that is not declared"
        "Every context key is declared under `context` with its first value, so that a reader sees all the memory a machine has."
        "Add the key under `context`, or correct its name.";
    TARGETS_CLASH "JR0207" Error "Targets cannot be active together"
        "A transition with several targets enters all of them; they must lie in different regions of one parallel state."
        "Name one target, or one in each region.";
    INITIAL_OUTSIDE "JR0208" Error "An initial or default state lies outside"
        "`initial` names a descendant of its own state; a history default names a descendant of the history state's parent."
        "Name a state inside.";
    DUPLICATE_WORKFLOW "JR0209" Error "Two files hold workflows of one name"
        "Workflows loaded together are found by name, so a name stands for one file."
        "Rename one of them.";

    BAD_EXPRESSION "JR0301" Error "An expression cannot be parsed"
        "Conditions and the values of `set`, `emit` and `raise` are CEL expressions; `{{ … }}` inside other texts holds one. A text inside an expression needs quotes of its own."
        "Correct the expression at the marked place. For a plain text write `\"'text'\"`.";
    UNKNOWN_NAME "JR0302" Error "An expression uses an unknown name"
        "An expression sees `input`, `context`, `event`, `run`, `workspace` and `actor`, and nothing else."
        "Start with one of these names; put text in quotes.";
    UNKNOWN_CONTEXT "JR0303" Error "An expression reads a context key that is not declared"
        "Every context key is declared under `context` with its first value."
        "Add the key under `context`, or correct its name.";
    UNKNOWN_INPUT "JR0304" Error "An expression reads an input field that cannot exist"
        "The input's schema is closed (`additionalProperties: false`) or absent of properties, and has no such field."
        "Declare the field under `input.properties`, or correct its name.";
    UNKNOWN_EVENT_FIELD "JR0305" Error "An expression reads a payload field that is not declared"
        "In a transition `event` is the payload of the event that enabled it, and `event.type` its name. None of the events this transition handles has the field."
        "Declare the field in the event's `payload`, or correct its name.";
    NO_EVENT_HERE "JR0306" Error "An expression uses a name that has no value at this place"
        "`event` exists inside a transition only; a Workspace is made before the machine starts, so its texts see `input` and `run` only."
        "Keep what you need with `set` in the transition, and read it from `context` here.";
    UNKNOWN_FIELD "JR0307" Error "An expression reads a field that does not exist"
        "`run` has `id`, `workflow` and `started`; `workspace` has `repos` and `branch`; `actor` has `path` and `id`."
        "Correct the field's name.";
    UNDECLARED_INPUT "JR0308" Warning "An expression reads an input field that is not declared"
        "The input's schema lets other fields pass, but does not name this one; a run started without it fails at this expression."
        "Declare the field under `input.properties`, or correct its name.";

    NOT_A_CONDITION "JR0309" Error "A condition is not true or false"
        "An `if` is an expression that is true or false; this one is always another value, so the transition is never taken."
        "Compare the value with something, as in `context.rounds > 0`.";

    PAYLOAD_NOT_OBJECT "JR0401" Error "A payload schema is not an object"
        "A payload is a set of named arguments, so its schema says `type: object`."
        "Write `payload: { type: object, properties: { … } }`.";
    BAD_SCHEMA "JR0402" Error "A JSON Schema is not valid"
        "The schema of an input or a payload does not follow JSON Schema (2020-12 unless `$schema` says otherwise), refers to something outside the file, or has a pattern that cannot be matched in linear time."
        "Correct the schema at the marked place.";
    BAD_DEFAULT "JR0403" Error "A default does not satisfy its own schema"
        "The default is filled in where a run is started without the field, and would be refused at once."
        "Change the default or the schema beside it.";
    PAYLOAD_TYPE_FIELD "JR0404" Error "A payload has a field called `type`"
        "`event.type` is the event's name; an argument of that name would be overwritten."
        "Rename the field.";

    UNREACHABLE_STATE "JR0501" Warning "A state is never reached"
        "No transition and no `initial` leads to it, from any state that can be reached."
        "Add the transition that should lead there, or remove the state.";
    STUCK_STATE "JR0502" Error "A state can never be left and never ends"
        "Once it is active no transition of its own, of its ancestors or of a region beside it can leave it, and it is not final: a run would stay there for ever."
        "Add a transition that leaves it, or make it `final: true`.";
    PICKS_OUT_OF_REACH "JR0503" Error "An Agent's picks can never be made"
        "The state invokes an Agent, but the events it may pick are handled only in states that are never active during its Turn."
        "Handle the event in the invoking state, in one of its ancestors, or in a substate that is reached.";
    NO_WAY_ON "JR0504" Error "An Agent's Turn can never end well here"
        "No event this Agent may send is handled around this state. An Agent with an empty Menu ends with `agent.done`; one that has picks in other states waits here for a pick that never opens."
        "Handle a pick, or `agent.done` when the Agent has no picks anywhere, or give the state an `after`.";
    GATE_ACCEPTS_NOTHING "JR0505" Error "A Gate accepts nothing"
        "A Gate waits for an event with `from: external` or `any` that the state or one of its ancestors handles. There is none, so nobody could ever answer."
        "Handle an external event in the Gate's state.";
    FAULT_LOOP "JR0506" Warning "A failure leads straight back without a retry policy"
        "The failure of an invocation enters the same state again, at once and for ever."
        "Add `retry: { max: 3, backoff: 1s..5m }` to the state, or lead the failure elsewhere.";
    EVENT_UNUSED "JR0507" Warning "An event is declared but never handled"
        "Nobody can make the machine move with it."
        "Handle it in a state, or remove it.";
    NEVER_ENDS "JR0508" Warning "The workflow never ends"
        "No final state of the top level can be reached, so every run lasts until it is cancelled."
        "Add a state with `final: true` if runs should end.";
    SHADOWED "JR0509" Warning "A transition can never be taken"
        "An earlier transition of the same state for the same event has no condition, so it is always chosen first; or the condition is `false`."
        "Give the earlier one an `if`, or remove the later one.";
    BRANCH_DEFAULT "JR0510" Error "The branch may not be called `default`"
        "`default` is the folder of the clone itself in a Workspace."
        "Choose another branch, such as `jr2/{{ run.id }}`.";
    AGENT_UNUSED "JR0511" Warning "An Agent is declared but never invoked"
        "No state has `agent:` with its name."
        "Invoke it, or remove it.";
    RAISED_UNHANDLED "JR0512" Warning "A raised event is handled nowhere"
        "`raise` puts the event into the machine's own queue, where nothing waits for it."
        "Handle it, or remove the `raise`; to tell watchers something use `emit`.";
    ENDLESS_ALWAYS "JR0513" Error "An eventless transition loops for ever"
        "An `always` without a condition that leads back into its own state is taken again and again within one macrostep, which is discarded after 1,000 microsteps."
        "Give it an `if` that becomes false, or another target.";
    NO_PROMPT "JR0514" Warning "An Agent is invoked without a prompt"
        "The Turn starts with nothing but the Agent's instructions."
        "Add `prompt: …` that says what this state wants done.";
    CWD_NEEDED "JR0515" Error "A state must say where it works"
        "The Workspace has several repositories, so there is no single place for the Agent or the command to start in."
        "Add `cwd: \"{{ workspace.repos.SLOT }}\"`.";
    BUFFER_NOT_EXTERNAL "JR0516" Error "Only external events can be buffered"
        "`buffer: true` keeps an event that comes from outside until a state handles it. An Agent's picks are offered only when they are allowed."
        "Remove `buffer`, or let the event come `from: external`.";

    OPEN_PART "JR0601" Error "An open part is not bound"
        "The workflow leaves this part to whoever runs it, and nothing was given for it."
        "Pass the `--bind` option the message prints, or put it into a bind file.";
    UNKNOWN_BINDING "JR0602" Error "A binding names no part of the workflow"
        "Parts that can be bound: `agents.NAME.model`, `agents.NAME.thinking`, `workspace.repos.SLOT`, `workspace.repos.SLOT.ref`, `workspace.size.memory`, `workspace.size.cpu`; `WORKFLOW/` before it names a child's part."
        "Correct the path.";
    BAD_BINDING "JR0603" Error "A binding's value does not fit"
        "The value is not of the form its part has in the file."
        "Write it as it would stand in the workflow file.";
    NEEDS_WORKSPACE "JR0604" Error "A part needs a Workspace and there is none"
        "Agents with `workspace: write` or `read`, commands and expressions over `workspace` work inside a Sandbox. Neither this workflow nor one that runs it declares a `workspace`."
        "Declare `workspace` here or in the parent, or give the Agent `workspace: none`.";
    BAD_PROGRAM_TEXT "JR0605" Error "A stored program text cannot be read"
        "The text under which a run started is not what this version writes."
        "The run's store may be damaged: `jr2 store verify` says more.";
    PROGRAM_TOO_LARGE "JR0606" Error "A program has too many workflows"
        "A workflow and all it runs may be 64 files."
        "Split the work into separate runs.";

    BAD_SETTING "JR0701" Error "A setting does not fit"
        "A value in `jr2.yaml` has the right type, but jr2 cannot work with it: an address that is none, or a URL that is neither http nor https."
        "Write the value as the message says; `jr2 schema --config` lists every setting.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_ascending_and_explained() {
        for pair in CODES.windows(2) {
            assert!(pair[0].code < pair[1].code, "{} before {}", pair[0].code, pair[1].code);
        }
        for info in CODES {
            assert!(info.explanation.ends_with('.') && info.fix.ends_with('.'), "{}", info.code);
        }
        assert_eq!(explain("jr0101").map(|i| i.title), Some("A key is not known here"));
        assert!(explain("JR9999").is_none());
    }
}
