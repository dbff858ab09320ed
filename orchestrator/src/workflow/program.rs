//! A workflow with everything it runs, bound and pinned (decision 40).

use super::bindings::Bindings;
use super::catalog::{Catalog, runs};
use super::codes;
use super::definition::{Definition, InvokeDef, Sight};
use super::diagnostic::{Diagnostic, Diagnostics, suggest};
use super::model::{DoStep, OPEN, Program, Workflow};
use super::source::{Span, clip};
use jr2_shared::harness::Access;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most workflows of one program: they are pinned together in one text.
pub const PROGRAM_MAX: usize = 64;
/// The number of the canonical text's form.
const CANONICAL_FORMAT: u32 = 1;

/// The canonical text.
#[derive(Serialize, Deserialize)]
struct Canonical {
    format: u32,
    root: String,
    sources: BTreeMap<String, Arc<str>>,
    bindings: Bindings,
}

impl Program {
    /// A program of no workflow: for reading a row whose text is gone.
    pub fn empty(root: &str) -> Self {
        Self { root: root.to_owned(), workflows: BTreeMap::new(), hash: String::new(), canonical: Arc::from("") }
    }

    /// Builds the program that starts with `root`. Refused with an open part left, with the `--bind` line that fills it
    /// (spec W-5), and where a part needs a Workspace that is nowhere.
    pub fn build(catalog: &Catalog, root: &str, bindings: &Bindings) -> Result<Self, Diagnostics> {
        let names = closure(catalog, root)?;
        let entries = names.iter().filter_map(|name| catalog.entries.get_key_value(*name));
        let mut workflows: BTreeMap<String, Workflow> =
            entries.clone().map(|(name, entry)| (name.clone(), Workflow::clone(&entry.workflow))).collect();
        let mut problems = bindings.apply(root, &mut workflows);
        // A binding that was refused leaves its part open: one problem is enough.
        let bound = problems.is_empty();
        for (name, entry) in entries.clone().filter(|_| bound) {
            problems.extend(open_parts(&entry.definition, &workflows[name], name == root));
        }
        problems.extend(placeless(catalog, root));
        if !problems.is_empty() {
            return Err(Diagnostics::new(problems));
        }
        let canonical = Canonical {
            format: CANONICAL_FORMAT,
            root: root.to_owned(),
            sources: entries.map(|(name, e)| (name.clone(), e.definition.source.text.clone())).collect(),
            bindings: bindings.clone(),
        };
        let canonical = serde_json::to_string(&canonical).map_err(|error| unreadable(&error.to_string()))?;
        Ok(Self {
            root: root.to_owned(),
            workflows: workflows.into_iter().map(|(name, workflow)| (name, Arc::new(workflow))).collect(),
            hash: hex(&Sha256::digest(canonical.as_bytes())),
            canonical: canonical.into(),
        })
    }

    /// Reads a program back from [`Program::canonical`]: the same program, whatever lies on disk now.
    pub fn from_canonical(text: &str) -> Result<Self, Diagnostics> {
        let canonical: Canonical = serde_json::from_str(text).map_err(|error| unreadable(&error.to_string()))?;
        if canonical.format != CANONICAL_FORMAT {
            return Err(unreadable(&format!("its form is {}, known is {CANONICAL_FORMAT}", canonical.format)));
        }
        let catalog = Catalog::from_texts(&canonical.sources)?;
        Self::build(&catalog, &canonical.root, &canonical.bindings)
    }

    /// The workflow a run starts with.
    pub fn root_workflow(&self) -> Option<&Arc<Workflow>> {
        self.workflows.get(&self.root)
    }
}

fn unreadable(why: &str) -> Diagnostics {
    let message = format!("the program's text cannot be read: {}", clip(why));
    let help = Some("look at the store with `jr2 store verify`".to_owned());
    Diagnostics::one(Diagnostic::of_file(&codes::BAD_PROGRAM_TEXT, "", message, help))
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The root and everything it runs.
fn closure<'c>(catalog: &'c Catalog, root: &'c str) -> Result<BTreeSet<&'c str>, Diagnostics> {
    let mut names = BTreeSet::new();
    let mut queue = vec![root];
    while let Some(name) = queue.pop() {
        let Some(entry) = catalog.entries.get(name) else {
            let message = format!("there is no workflow `{}`", clip(name));
            let help = suggest(name, catalog.entries.keys().map(String::as_str));
            return Err(Diagnostics::one(Diagnostic::of_file(&codes::UNKNOWN_WORKFLOW, "", message, Some(help))));
        };
        if names.insert(name) {
            queue.extend(runs(&entry.definition).map(|child| child.value.as_str()));
        }
        if names.len() > PROGRAM_MAX {
            let message = format!("`{root}` and what it runs are more than {PROGRAM_MAX} workflows");
            let help = Some("split the work into separate runs".to_owned());
            return Err(Diagnostics::one(Diagnostic::of_file(&codes::PROGRAM_TOO_LARGE, "", message, help)));
        }
    }
    Ok(names)
}

/// What is still open, each with the option that binds it.
fn open_parts(definition: &Definition, workflow: &Workflow, is_root: bool) -> Vec<Diagnostic> {
    let prefix = if is_root { String::new() } else { format!("{}/", workflow.name) };
    let mut problems = Vec::new();
    let mut open = |span: Span, what: String, option: String| {
        let help = Some(format!("pass `--bind {prefix}{option}`"));
        problems.push(Diagnostic::at(&codes::OPEN_PART, &definition.source, span, what, help));
    };
    for (name, agent) in &definition.agents {
        if workflow.agents.get(&name.value).is_some_and(|a| a.model == OPEN) {
            let what = format!("the model of `{}` is open", name.value);
            open(agent.model, what, format!("agents.{}.model=PROVIDER/MODEL", name.value));
        }
    }
    let (Some(written), Some(bound)) = (&definition.workspace, &workflow.workspace) else { return problems };
    if let (Some(span), true) = (written.repos_open, bound.repos.is_empty()) {
        open(span, "the repositories are open".to_owned(), "workspace.repos.SLOT=URL".to_owned());
    }
    for (slot, repo) in &written.repos {
        if bound.repos.iter().any(|(name, repo)| *name == slot.value && repo.url.source() == OPEN) {
            let what = format!("the repository `{}` is open", slot.value);
            open(repo.text.span, what, format!("workspace.repos.{}=URL", slot.value));
        }
    }
    problems
}

/// Parts that need a Workspace where neither the workflow nor one that runs it has one.
pub(super) fn placeless(catalog: &Catalog, root: &str) -> Vec<Diagnostic> {
    let mut problems = Vec::new();
    let mut seen = BTreeSet::new();
    let mut queue = vec![root];
    while let Some(name) = queue.pop() {
        let Some(entry) = catalog.entries.get(name) else { continue };
        // Inside a Workspace everything below has a place.
        if entry.definition.workspace.is_some() || !seen.insert(name) {
            continue;
        }
        let definition = &entry.definition;
        for (span, what) in needs(definition) {
            let message = format!("{what} needs a Workspace, and there is none");
            let help = Some("declare `workspace`, here or in the workflow that runs this one".to_owned());
            problems.push(Diagnostic::at(&codes::NEEDS_WORKSPACE, &definition.source, span, message, help));
        }
        queue.extend(runs(definition).map(|child| child.value.as_str()));
    }
    problems
}

fn needs(definition: &Definition) -> Vec<(Span, String)> {
    let mut needs = Vec::new();
    let works = |agent: &str| {
        definition.agents.iter().any(|(name, def)| name.value == agent && def.agent.workspace != Access::None)
    };
    for state in &definition.states {
        match &state.invoke {
            Some(InvokeDef::Agent { agent, .. }) if works(&agent.value) => {
                needs.push((agent.span, format!("the Agent `{}`", agent.value)));
            }
            Some(InvokeDef::Do { span, step: DoStep::Command { .. } }) => {
                needs.push((*span, "this command".to_owned()));
            }
            _ => {}
        }
    }
    for site in definition.sites.iter().filter(|site| site.sight != Sight::Workspace) {
        if let Some((_, offset)) = site.names.iter().find(|(path, _)| path.first().is_some_and(|p| p == "workspace")) {
            let span = definition.source.locate(site.span, &site.text, *offset, "workspace".len());
            needs.push((span, "`workspace`".to_owned()));
        }
    }
    needs
}
