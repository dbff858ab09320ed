//! Pictures of a workflow: Mermaid (`stateDiagram-v2`) and DOT.

use super::model::{InvocationKind, Workflow};
use crate::chart::{State, StateIx, StateKind, Transition, Trigger};
use std::collections::HashMap;

/// Most characters of a label; a picture is for the overview.
const LABEL_MAX_CHARS: usize = 60;

/// A workflow with the identifiers of its states.
struct Picture<'w> {
    workflow: &'w Workflow,
    ids: Vec<String>,
}

impl<'w> Picture<'w> {
    fn of(workflow: &'w Workflow) -> Self {
        Self { workflow, ids: node_ids(workflow) }
    }

    fn id(&self, ix: StateIx) -> &str {
        &self.ids[ix as usize]
    }

    fn node(&self, ix: StateIx) -> String {
        if ix == 0 { "start".to_owned() } else { format!("s_{}", self.id(ix)) }
    }
}

/// The workflow as a Mermaid state diagram.
pub fn mermaid(workflow: &Workflow) -> String {
    let picture = &Picture::of(workflow);
    let mut out = vec![format!("---\ntitle: {}\n---\nstateDiagram-v2", workflow.name)];
    mermaid_children(picture, 0, 1, &mut out);
    for (ix, state) in workflow.chart.states.iter().enumerate() {
        for transition in &state.transitions {
            let label = mermaid_text(&transition_label(transition));
            let from = picture.id(ix as StateIx);
            if ix == 0 || transition.targets.is_empty() {
                let note = if ix == 0 { "    note_root".to_owned() } else { format!("    {from}") };
                let targets: Vec<&str> =
                    transition.targets.iter().map(|t| workflow.chart.states[*t as usize].path.as_str()).collect();
                let arrow = if targets.is_empty() { String::new() } else { format!(" → {}", targets.join(", ")) };
                out.push(format!("{note} : {label}{arrow}"));
            } else {
                for target in &transition.targets {
                    out.push(format!("    {from} --> {} : {label}", picture.id(*target)));
                }
            }
        }
    }
    if workflow.chart.states.first().is_some_and(|root| !root.transitions.is_empty()) {
        out.push("    state \"anywhere\" as note_root".to_owned());
    }
    out.join("\n") + "\n"
}

fn mermaid_children(picture: &Picture<'_>, ix: StateIx, depth: usize, out: &mut Vec<String>) {
    let indent = "    ".repeat(depth);
    let state = &picture.workflow.chart.states[ix as usize];
    let parallel = matches!(state.kind, StateKind::Parallel);
    if let StateKind::Compound { initial, .. } = &state.kind {
        for target in initial {
            out.push(format!("{indent}[*] --> {}", picture.id(*target)));
        }
    }
    for (n, child) in state.children.iter().enumerate() {
        if parallel && n > 0 {
            out.push(format!("{indent}--"));
        }
        let id = picture.id(*child);
        let below = &picture.workflow.chart.states[*child as usize];
        let label = mermaid_text(&state_label(picture.workflow, *child));
        if below.children.is_empty() {
            out.push(format!("{indent}state \"{label}\" as {id}"));
        } else {
            out.push(format!("{indent}state \"{label}\" as {id} {{"));
            mermaid_children(picture, *child, depth + 1, out);
            out.push(format!("{indent}}}"));
        }
        if matches!(below.kind, StateKind::Final { .. }) {
            out.push(format!("{indent}{id} --> [*]"));
        }
    }
}

/// The workflow as a DOT digraph; states with children are clusters.
pub fn dot(workflow: &Workflow) -> String {
    let picture = &Picture::of(workflow);
    let mut out = vec![format!("digraph \"{}\" {{", dot_text(&workflow.name))];
    out.push("    compound=true;\n    rankdir=LR;\n    node [shape=box, style=rounded];".to_owned());
    dot_children(picture, 0, 1, &mut out);
    for (ix, state) in workflow.chart.states.iter().enumerate() {
        for transition in &state.transitions {
            let label = dot_text(&transition_label(transition));
            let from = ix as StateIx;
            let own = [from];
            let targets = if transition.targets.is_empty() { own.as_slice() } else { transition.targets.as_slice() };
            for target in targets.iter().filter(|t| ix > 0 || **t != from) {
                out.push(dot_edge(picture, from, *target, &label, transition.targets.is_empty()));
            }
        }
    }
    out.push("}\n".to_owned());
    out.join("\n")
}

fn dot_children(picture: &Picture<'_>, ix: StateIx, depth: usize, out: &mut Vec<String>) {
    let indent = "    ".repeat(depth);
    let state = &picture.workflow.chart.states[ix as usize];
    out.push(format!("{indent}{} [shape=point, label=\"\"];", picture.node(ix)));
    if let StateKind::Compound { initial, .. } = &state.kind {
        for target in initial {
            out.push(dot_edge(picture, ix, *target, "", false).replacen("    ", &indent, 1));
        }
    }
    for child in &state.children {
        let below = &picture.workflow.chart.states[*child as usize];
        let label = dot_text(&state_label(picture.workflow, *child));
        if below.children.is_empty() {
            let shape = match below.kind {
                StateKind::Final { .. } => ", peripheries=2",
                StateKind::History { .. } => ", shape=circle",
                _ => "",
            };
            out.push(format!("{indent}{} [label=\"{label}\"{shape}];", picture.node(*child)));
        } else {
            let style = if matches!(below.kind, StateKind::Parallel) { "dashed" } else { "rounded" };
            out.push(format!("{indent}subgraph cluster_{} {{", picture.id(*child)));
            out.push(format!("{indent}    label=\"{label}\";\n{indent}    style={style};"));
            dot_children(picture, *child, depth + 1, out);
            out.push(format!("{indent}}}"));
        }
    }
}

fn dot_edge(picture: &Picture<'_>, from: StateIx, to: StateIx, label: &str, dashed: bool) -> String {
    let cluster = |ix: StateIx| ix > 0 && !picture.workflow.chart.states[ix as usize].children.is_empty();
    let mut attributes = Vec::new();
    if !label.is_empty() {
        attributes.push(format!("label=\"{label}\""));
    }
    let outside = |a: StateIx, b: StateIx| !(a < b && b <= picture.workflow.chart.states[a as usize].last);
    if cluster(from) && outside(from, to) {
        attributes.push(format!("ltail=cluster_{}", picture.id(from)));
    }
    if cluster(to) && outside(to, from) {
        attributes.push(format!("lhead=cluster_{}", picture.id(to)));
    }
    if dashed {
        attributes.push("style=dashed".to_owned());
    }
    let attributes = if attributes.is_empty() { String::new() } else { format!(" [{}]", attributes.join(", ")) };
    format!("    {} -> {}{attributes};", picture.node(from), picture.node(to))
}

/// Paths as identifiers; the index keeps two that read alike apart.
fn node_ids(workflow: &Workflow) -> Vec<String> {
    let flat: Vec<String> = workflow.chart.states.iter().map(|s| s.path.replace(['.', '-'], "_")).collect();
    let mut count: HashMap<&str, usize> = HashMap::new();
    for id in &flat {
        *count.entry(id).or_default() += 1;
    }
    // A bare word such as `end` or `note` means something to Mermaid.
    let reserved = |id: &str| matches!(id, "state" | "note" | "end" | "direction" | "as" | "note_root" | "default");
    let unique = |id: &String| count[id.as_str()] == 1 && !reserved(id);
    flat.iter().enumerate().map(|(ix, id)| if unique(id) { id.clone() } else { format!("{id}_{ix}") }).collect()
}

fn state_label(workflow: &Workflow, ix: StateIx) -> String {
    let state: &State = &workflow.chart.states[ix as usize];
    let invoked = workflow.invocations.get(&ix).map(|invocation| match &invocation.kind {
        InvocationKind::Agent { agent, .. } => format!("agent {agent}"),
        InvocationKind::Gate { .. } => "gate".to_owned(),
        InvocationKind::Run { workflow, .. } => format!("run {workflow}"),
        InvocationKind::Do(_) => "do".to_owned(),
    });
    match (&state.kind, invoked) {
        (StateKind::History { deep: true, .. }, _) => format!("{} (H*)", state.key),
        (StateKind::History { .. }, _) => format!("{} (H)", state.key),
        (_, Some(invoked)) => format!("{}: {invoked}", state.key),
        _ => state.key.clone(),
    }
}

fn transition_label(transition: &Transition) -> String {
    let trigger = match &transition.trigger {
        Trigger::Events(events) => events.join(" "),
        Trigger::Always => "always".to_owned(),
        Trigger::After { delay_ms } => {
            format!("after {}", humantime::format_duration(std::time::Duration::from_millis(*delay_ms)))
        }
    };
    let label = match &transition.guard {
        Some(guard) => format!("{trigger} [{}]", guard.source()),
        None => trigger,
    };
    if label.chars().count() <= LABEL_MAX_CHARS {
        return label;
    }
    label.chars().take(LABEL_MAX_CHARS).chain("…".chars()).collect()
}

/// Without what ends a Mermaid statement or text.
fn mermaid_text(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '"' => '\'',
            ';' => ',',
            '\n' | '\r' => ' ',
            c => c,
        })
        .collect()
}

fn dot_text(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace(['\n', '\r'], " ")
}
