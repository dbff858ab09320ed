//! What whoever runs a workflow fills in: `--bind PATH=VALUE` and bind files (spec W-5).

use super::codes;
use super::diagnostic::{Diagnostic, Diagnostics, Problems, suggest};
use super::model::{OPEN, RepoSource, Workflow, model_parts};
use super::source::{self, Node, NodeKind, SourceText, clip};
use crate::expression::Template;
use jr2_shared::size::{parse_cpu, parse_memory};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Most bindings of one program: more than any workflow has parts.
pub const BINDINGS_MAX: usize = 1_000;
/// Longest value of one binding in bytes.
pub const BINDING_MAX_BYTES: usize = 4 << 10;

/// Values by path: `agents.coder.model`, `workspace.repos.target`, `CHILD/agents.coder.model`.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Bindings {
    /// They.
    pub values: BTreeMap<String, String>,
}

/// One part of a workflow that can be bound.
enum Part<'p> {
    Model(&'p str),
    Thinking(&'p str),
    Repo(&'p str),
    RepoRef(&'p str),
    Memory,
    Cpu,
}

impl Bindings {
    /// Reads `PATH=VALUE` texts; later ones win.
    pub fn from_pairs<S: AsRef<str>>(pairs: &[S]) -> Result<Self, Diagnostics> {
        let mut bindings = Self::default();
        for pair in pairs.iter().map(AsRef::as_ref) {
            let Some((path, value)) = pair.split_once('=') else {
                let message = format!("`--bind {}` has no `=`", clip(pair));
                return Err(refused(&codes::BAD_BINDING, message, "write `--bind PATH=VALUE`".to_owned()));
            };
            bindings.values.insert(path.trim().to_owned(), value.trim().to_owned());
        }
        Ok(bindings)
    }

    /// Reads a bind file: YAML or JSON with nested keys (`agents: { coder: { model: … } }`) or whole paths as keys.
    pub fn from_file(path: &Path) -> Result<Self, Diagnostics> {
        let source = Arc::new(SourceText::load(path).map_err(Diagnostics::one)?);
        let mut problems = Problems::new(source);
        let mut bindings = Self::default();
        if let Some(root) = source::read(&mut problems) {
            bindings.flatten("", &root, &mut problems);
        }
        if problems.items.is_empty() { Ok(bindings) } else { Err(Diagnostics::new(problems.items)) }
    }

    fn flatten(&mut self, prefix: &str, node: &Node, problems: &mut Problems) {
        match &node.kind {
            NodeKind::Map(entries) => {
                for entry in entries {
                    let joined = if prefix.is_empty() {
                        entry.key.value.clone()
                    } else {
                        format!("{prefix}.{}", entry.key.value)
                    };
                    self.flatten(&joined, &entry.value, problems);
                }
            }
            NodeKind::Text(text) if !prefix.is_empty() => {
                self.values.insert(prefix.to_owned(), text.clone());
            }
            NodeKind::Number(number) if !prefix.is_empty() => {
                self.values.insert(prefix.to_owned(), number.to_string());
            }
            _ => {
                let message = format!("a binding is a text, not {}", node.noun());
                problems.add(&codes::BAD_BINDING, node.span, message, "write the value as in the workflow file");
            }
        }
    }

    /// Both; `other` wins.
    pub fn merge(mut self, other: Self) -> Self {
        self.values.extend(other.values);
        self
    }

    /// Applies all of them to the workflows of a program.
    pub(super) fn apply(&self, root: &str, workflows: &mut BTreeMap<String, Workflow>) -> Vec<Diagnostic> {
        if self.values.len() > BINDINGS_MAX {
            let message = format!("there are more than {BINDINGS_MAX} bindings");
            return vec![Diagnostic::of_file(&codes::BAD_BINDING, "", message, Some("remove some".to_owned()))];
        }
        let mut problems = Vec::new();
        for (path, value) in &self.values {
            let (only, local) = match path.split_once('/') {
                Some((workflow, local)) => (Some(workflow), local),
                None => (None, path.as_str()),
            };
            let applies = |workflow: &Workflow, part: &Part<'_>| match only {
                Some(name) => workflow.name == name && exists(workflow, part),
                None => (workflow.name == root && exists(workflow, part)) || is_open(workflow, part),
            };
            let part = part_of(local);
            let mut found = false;
            for workflow in workflows.values_mut() {
                let Some(part) = part.as_ref().filter(|part| applies(workflow, part)) else { continue };
                found = true;
                if let Err(why) = bind(workflow, part, value) {
                    let message = format!("`{}={}`: {why}", clip(path), clip(value));
                    let help = "write the value as in the workflow file".to_owned();
                    problems.push(Diagnostic::of_file(&codes::BAD_BINDING, "", message, Some(help)));
                    break;
                }
            }
            if !found {
                let paths = all_paths(root, workflows);
                let message = format!("no part of the workflow is called `{}`", clip(path));
                let help = suggest(path, paths.iter().map(String::as_str));
                problems.push(Diagnostic::of_file(&codes::UNKNOWN_BINDING, "", message, Some(help)));
            }
        }
        problems
    }
}

fn refused(info: &codes::CodeInfo, message: String, help: String) -> Diagnostics {
    Diagnostics::one(Diagnostic::of_file(info, "", message, Some(help)))
}

fn part_of(path: &str) -> Option<Part<'_>> {
    let parts: Vec<&str> = path.split('.').collect();
    match parts.as_slice() {
        ["agents", name, "model"] => Some(Part::Model(name)),
        ["agents", name, "thinking"] => Some(Part::Thinking(name)),
        ["workspace", "repos", slot] | ["workspace", "repos", slot, "url"] => Some(Part::Repo(slot)),
        ["workspace", "repos", slot, "ref"] => Some(Part::RepoRef(slot)),
        ["workspace", "size", "memory"] => Some(Part::Memory),
        ["workspace", "size", "cpu"] => Some(Part::Cpu),
        _ => None,
    }
}

fn exists(workflow: &Workflow, part: &Part<'_>) -> bool {
    match part {
        Part::Model(name) | Part::Thinking(name) => workflow.agents.contains_key(*name),
        Part::Repo(slot) | Part::RepoRef(slot) => workflow
            .workspace
            .as_ref()
            .is_some_and(|w| workflow.repos_open || w.repos.iter().any(|(name, _)| name == slot)),
        Part::Memory | Part::Cpu => workflow.workspace.is_some(),
    }
}

fn is_open(workflow: &Workflow, part: &Part<'_>) -> bool {
    match part {
        Part::Model(name) => workflow.agents.get(*name).is_some_and(|a| a.model == OPEN),
        Part::Repo(slot) => workflow.workspace.as_ref().is_some_and(|w| {
            workflow.repos_open || w.repos.iter().any(|(name, repo)| name == slot && repo.url.source() == OPEN)
        }),
        _ => false,
    }
}

fn bind(workflow: &mut Workflow, part: &Part<'_>, value: &str) -> Result<(), String> {
    if value.is_empty() || value.len() > BINDING_MAX_BYTES || value.contains("{{") {
        return Err(format!("a value is a plain text of 1 to {BINDING_MAX_BYTES} bytes"));
    }
    let template = |text: &str| Template::parse(text).map_err(|error| error.to_string());
    match part {
        Part::Model(name) => {
            model_parts(value).ok_or("a model is written as provider/model")?;
            if let Some(agent) = workflow.agents.get_mut(*name) {
                value.clone_into(&mut agent.model);
            }
        }
        Part::Thinking(name) => {
            let level = serde_json::from_value(value.into()).map_err(|_| "it is no thinking level".to_owned())?;
            if let Some(agent) = workflow.agents.get_mut(*name) {
                agent.thinking = Some(level);
            }
        }
        Part::Repo(slot) | Part::RepoRef(slot) => {
            let template = template(value)?;
            let Some(workspace) = &mut workflow.workspace else { return Ok(()) };
            let found = workspace.repos.iter_mut().find(|(name, _)| name == slot);
            match (part, found) {
                (Part::RepoRef(_), Some((_, repo))) => repo.reference = Some(template),
                (Part::RepoRef(_), None) => return Err("bind the repository itself first".to_owned()),
                (_, Some((_, repo))) => repo.url = template,
                (_, None) => {
                    workspace.repos.push(((*slot).to_owned(), RepoSource { url: template, reference: None }));
                }
            }
        }
        Part::Memory | Part::Cpu => {
            let Some(workspace) = &mut workflow.workspace else { return Ok(()) };
            if matches!(part, Part::Memory) {
                workspace.size.memory_bytes = parse_memory(value).map_err(|e| e.to_string())?;
            } else {
                workspace.size.cpu_millis = parse_cpu(value).map_err(|e| e.to_string())?;
            }
        }
    }
    Ok(())
}

/// Every path that could be bound, for suggestions.
fn all_paths(root: &str, workflows: &BTreeMap<String, Workflow>) -> Vec<String> {
    let mut paths = Vec::new();
    for (name, workflow) in workflows {
        let prefix = if name == root { String::new() } else { format!("{name}/") };
        paths.extend(workflow.agents.keys().map(|agent| format!("{prefix}agents.{agent}.model")));
        let slots = workflow.workspace.iter().flat_map(|w| &w.repos);
        paths.extend(slots.map(|(slot, _)| format!("{prefix}workspace.repos.{slot}")));
    }
    paths
}
