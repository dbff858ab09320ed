//! Tree → [`Definition`]. The tables report what does not fit; this reads what does and leaves the rest out, so that one
//! check shows the problems of all later stages too.

mod state;
mod value;

use super::codes;
use super::definition::{AgentDef, Definition, EventDef, RepoDef, Sight, Site, WorkspaceDef};
use super::diagnostic::Problems;
use super::model::{Agent, Audience, OPEN};
use super::shape::{self, WORKFLOW};
use super::source::{Node, Span, Spanned};
use crate::expression::Template;
use jr2_shared::harness::{Access, ThinkingLevel};
use jr2_shared::size::{Size, parse_cpu, parse_memory};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Words of `from` that no Agent may be called.
pub const AUDIENCE_WORDS: [&str; 3] = ["agent", "external", "any"];
/// The branch when none is written.
pub const DEFAULT_BRANCH: &str = "jr2/{{ run.id }}";

/// Checks the tree's shape and reads it; `None` when it is no workflow at all.
pub fn parse(root: &Node, problems: &mut Problems) -> Option<Definition> {
    if root.entries().is_empty() {
        let message = format!("a workflow is a mapping, and this is {}", root.noun());
        problems.add(&codes::NOT_A_WORKFLOW, root.span, message, "start with `workflow: NAME`");
        return None;
    }
    shape::check(&shape::Shape::Object(&WORKFLOW), root, "the workflow", problems);
    let mut parser = Parser { problems, sites: Vec::new(), sets: Vec::new(), raises: Vec::new(), states: Vec::new() };
    let agents = named(root.get("agents")).filter_map(|(name, node)| Some((name, agent(node)?))).collect();
    let events = named(root.get("events")).map(|(name, node)| event(name, node)).collect();
    let workspace = root.entry("workspace").map(|e| parser.workspace(&e.value, e.key.span));
    let context = named(root.get("context")).map(|(name, node)| (name.value, node.to_value())).collect::<Map<_, _>>();
    parser.state(None, Spanned::new(String::new(), root.entry("states").map_or(root.span, |e| e.key.span)), root);
    let Parser { sites, sets, raises, states, .. } = parser;
    Some(Definition {
        source: problems.source.clone(),
        name: root.get("workflow").and_then(Node::name).unwrap_or_else(|| Spanned::new(String::new(), root.span)),
        description: root.get("description").and_then(Node::text).map(str::to_owned),
        input: root.get("input").filter(|n| matches!(n.kind, super::source::NodeKind::Map(_))).cloned(),
        agents,
        events,
        workspace,
        context,
        states,
        sites,
        sets,
        raises,
    })
}

/// Reads one file; collects what expressions name on the way.
struct Parser<'p> {
    problems: &'p mut Problems,
    sites: Vec<Site>,
    sets: Vec<Spanned<String>>,
    raises: Vec<Spanned<String>>,
    states: Vec<super::definition::StateDef>,
}

impl Parser<'_> {
    fn workspace(&mut self, node: &Node, span: Span) -> WorkspaceDef {
        let repos = node.get("repos");
        let slots = named(repos).filter_map(|(slot, node)| Some((slot, self.repo(node)?))).collect();
        let branch_text = node.get("branch").and_then(Node::name);
        let written = branch_text.as_ref().and_then(|text| self.template_text(text, &Sight::Workspace));
        let size = node.get("size");
        let mut ceiling = Size::default();
        if let Some(bytes) = size.and_then(|s| s.get("memory")).and_then(|n| parse_memory(&plain(n)).ok()) {
            ceiling.memory_bytes = bytes;
        }
        if let Some(millis) = size.and_then(|s| s.get("cpu")).and_then(|n| parse_cpu(&plain(n)).ok()) {
            ceiling.cpu_millis = millis;
        }
        WorkspaceDef {
            span,
            repos: slots,
            repos_open: repos.filter(|n| n.text() == Some(OPEN)).map(|n| n.span),
            branch: written.unwrap_or_else(|| literal_template(DEFAULT_BRANCH)),
            branch_text,
            size: ceiling,
            sized: size.is_some(),
        }
    }

    fn repo(&mut self, node: &Node) -> Option<RepoDef> {
        let text = node.name().or_else(|| node.get("url").and_then(Node::name))?;
        let url = self.template_text(&text, &Sight::Workspace)?;
        let reference = node.get("ref").and_then(|n| self.template(n, &Sight::Workspace));
        Some(RepoDef { url, text, reference })
    }
}

/// A template that is known to parse: one of ours, or one that was parsed before.
pub(super) fn literal_template(text: &str) -> Template {
    #[allow(clippy::expect_used)] // texts of this module only
    Template::parse(text).expect("a fixed template")
}

fn agent(node: &Node) -> Option<AgentDef> {
    if node.entries().is_empty() {
        return None;
    }
    let model = node.get("model");
    let text = |key: &str| node.get(key).and_then(Node::text).unwrap_or_default().to_owned();
    Some(AgentDef {
        model: model.map_or(node.span, |n| n.span),
        agent: Agent {
            model: text("model"),
            instructions: text("instructions"),
            workspace: word::<Access>(node.get("workspace")).unwrap_or_default(),
            thinking: word::<ThinkingLevel>(node.get("thinking")),
            brain: node.get("brain").map(Node::to_value),
        },
    })
}

fn event(name: Spanned<String>, node: &Node) -> EventDef {
    let senders: Vec<Spanned<String>> =
        node.get("from").map(|from| from.one_or_many().iter().filter_map(Node::name).collect()).unwrap_or_default();
    let from = match (node.get("from").and_then(Node::text), senders.as_slice()) {
        (Some("agent"), _) => Audience::Agent,
        (Some("external"), _) => Audience::External,
        (Some("any"), _) | (_, []) => Audience::Any,
        _ => Audience::Agents(senders.iter().map(|s| s.value.clone()).collect()),
    };
    let senders = if matches!(from, Audience::Agents(_)) { senders } else { Vec::new() };
    EventDef {
        name,
        from,
        senders,
        description: node.get("description").and_then(Node::text).map(str::to_owned),
        payload: node.get("payload").filter(|n| matches!(n.kind, super::source::NodeKind::Map(_))).cloned(),
        briefing: node.get("briefing").and_then(Node::name),
        buffer: node.get("buffer").filter(|n| n.flag() == Some(true)).map(|n| n.span),
    }
}

/// The named values of a mapping.
fn named(node: Option<&Node>) -> impl Iterator<Item = (Spanned<String>, &Node)> {
    node.map(Node::entries).unwrap_or_default().iter().map(|e| (e.key.clone(), &e.value))
}

/// A word of one of the wire's enums.
fn word<T: DeserializeOwned>(node: Option<&Node>) -> Option<T> {
    node.and_then(Node::text).and_then(|text| serde_json::from_value(Value::String(text.to_owned())).ok())
}

/// A text, or a number as text.
fn plain(node: &Node) -> String {
    match node.to_value() {
        Value::String(text) => text,
        other => other.to_string(),
    }
}
