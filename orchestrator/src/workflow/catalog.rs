//! Workflow files loaded together: each is read and checked once, and `run: NAME` finds its child among them or beside the
//! file.

use super::check::check;
use super::codes;
use super::definition::{Definition, InvokeDef};
use super::diagnostic::{Diagnostic, Diagnostics, Problems, suggest};
use super::model::Workflow;
use super::parse::parse;
use super::source::{self, SourceText, Spanned, clip};
use crate::workflow::codes::Severity;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Endings of workflow files, in the order they are tried.
pub const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];
/// The stem of a file whose folder has the workflow's name.
pub const FOLDER_STEM: &str = "workflow";
/// Most workflows of a catalog: far more than one installation has.
pub const CATALOG_MAX: usize = 1_000;

/// One file of a catalog.
#[derive(Clone, Debug)]
pub struct CatalogEntry {
    /// The file as written.
    pub definition: Arc<Definition>,
    /// The checked workflow, nothing bound yet.
    pub workflow: Arc<Workflow>,
    /// Where it was read; `None` from memory.
    pub path: Option<PathBuf>,
}

/// Checked workflows by name, with every workflow they run.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// They.
    pub entries: BTreeMap<String, CatalogEntry>,
    /// Their warnings.
    pub warnings: Diagnostics,
}

impl Catalog {
    /// Reads files and everything they run.
    pub fn from_files(files: &[PathBuf]) -> Result<Self, Diagnostics> {
        let mut loader = Loader::default();
        for file in files {
            loader.file(file);
        }
        loader.finish()
    }

    /// Reads every workflow of a folder, see [`Catalog::files_of`].
    pub fn from_dir(dir: &Path) -> Result<Self, Diagnostics> {
        Self::from_files(&Self::files_of(dir)?)
    }

    /// The workflow files of a folder: `NAME.yaml|yml|json` and `NAME/workflow.yaml|yml|json`. Files that are no mapping
    /// with `workflow` or `states`, such as settings, are passed over.
    pub fn files_of(dir: &Path) -> Result<Vec<PathBuf>, Diagnostics> {
        let unreadable = |error: std::io::Error| {
            let message = format!("cannot read the folder: {error}");
            Diagnostics::one(Diagnostic::of_file(&codes::UNREADABLE, &dir.display().to_string(), message, None))
        };
        let mut files = Vec::new();
        for entry in std::fs::read_dir(dir).map_err(unreadable)?.take(CATALOG_MAX * 4) {
            let path = entry.map_err(unreadable)?.path();
            if path.is_dir() {
                files.extend(ENDINGS.iter().map(|e| path.join(format!("{FOLDER_STEM}.{e}"))).find(|p| p.is_file()));
            } else if has_ending(&path) && looks_like_workflow(&path) {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
    }

    /// Reads texts from memory by name: what a stored program holds.
    pub fn from_texts(texts: &BTreeMap<String, Arc<str>>) -> Result<Self, Diagnostics> {
        let mut loader = Loader::default();
        for (name, text) in texts {
            loader.text(Arc::new(SourceText::new(name, text.clone())), name.clone(), None);
        }
        loader.finish()
    }

    /// The workflow of a name, nothing bound.
    pub fn workflow(&self, name: &str) -> Option<&Arc<Workflow>> {
        self.entries.get(name).map(|entry| &entry.workflow)
    }

    /// Workflows that no other one of the catalog runs.
    pub fn roots(&self) -> Vec<&str> {
        let run: BTreeSet<&str> =
            self.entries.values().flat_map(|e| runs(&e.definition)).map(|name| name.value.as_str()).collect();
        self.entries.keys().map(String::as_str).filter(|name| !run.contains(name)).collect()
    }
}

/// The children a definition runs, in document order.
pub fn runs(definition: &Definition) -> impl Iterator<Item = &Spanned<String>> {
    definition.states.iter().filter_map(|state| match &state.invoke {
        Some(InvokeDef::Run { workflow, .. }) => Some(workflow),
        _ => None,
    })
}

/// Reads and checks one text; the definition comes back even when it has errors.
pub fn read_text(source: Arc<SourceText>, expected: &str) -> (Option<Definition>, Option<Workflow>, Vec<Diagnostic>) {
    let mut problems = Problems::new(source);
    let root = source::read(&mut problems);
    let Some(root) = root else {
        if problems.items.is_empty() {
            let place = source::Span::default();
            problems.add(&codes::NOT_A_WORKFLOW, place, "the file is empty", "start with `workflow: NAME`");
        }
        return (None, None, problems.items);
    };
    let Some(definition) = parse(&root, &mut problems) else { return (None, None, problems.items) };
    if !definition.name.value.is_empty() && definition.name.value != expected {
        let message = format!("the workflow is called `{}`, its file `{expected}`", clip(&definition.name.value));
        let help = format!("write `workflow: {expected}`, or rename the file");
        problems.add(&codes::NAME_DIFFERS, definition.name.span, message, help);
    }
    let workflow = check(&definition, &mut problems);
    (Some(definition), workflow, problems.items)
}

/// The name a file's workflow must have.
pub fn expected_name(path: &Path) -> String {
    let stem = path.file_stem().and_then(|s| s.to_str()).unwrap_or_default();
    if stem != FOLDER_STEM {
        return stem.to_owned();
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    folder.file_name().and_then(|s| s.to_str()).unwrap_or(stem).to_owned()
}

fn has_ending(path: &Path) -> bool {
    path.extension().and_then(|e| e.to_str()).is_some_and(|e| ENDINGS.contains(&e))
}

fn looks_like_workflow(path: &Path) -> bool {
    // What cannot be read is loaded, so that it is reported.
    let Ok(source) = SourceText::load(path) else { return true };
    let mut problems = Problems::new(Arc::new(source));
    source::read(&mut problems).is_none_or(|root| root.get("workflow").is_some() || root.get("states").is_some())
}

/// The file of a child that stands beside its parent's.
fn beside(parent: &Path, name: &str) -> Option<PathBuf> {
    let dir = parent.parent()?;
    let mut folders = vec![dir.to_owned()];
    if parent.file_stem().is_some_and(|stem| stem == FOLDER_STEM) {
        folders.push(dir.join(".."));
    }
    let tries = folders.iter().flat_map(|folder| {
        let flat = ENDINGS.iter().map(move |e| folder.join(format!("{name}.{e}")));
        flat.chain(ENDINGS.iter().map(move |e| folder.join(name).join(format!("{FOLDER_STEM}.{e}"))))
    });
    tries.into_iter().find(|path| path.is_file())
}

#[derive(Default)]
struct Loader {
    read: BTreeMap<String, (Definition, Option<Workflow>, Option<PathBuf>)>,
    /// Names whose file could not be read at all.
    broken: BTreeSet<String>,
    diagnostics: Vec<Diagnostic>,
    queue: VecDeque<String>,
}

impl Loader {
    fn file(&mut self, path: &Path) {
        let name = expected_name(path);
        match SourceText::load(path) {
            Ok(source) => self.text(Arc::new(source), name, Some(path.to_owned())),
            Err(problem) => {
                self.broken.insert(name);
                self.diagnostics.push(problem);
            }
        }
    }

    fn text(&mut self, source: Arc<SourceText>, name: String, path: Option<PathBuf>) {
        if let Some((_, _, known)) = self.read.get(&name) {
            let same =
                |a: &Path, b: &Path| a == b || a.canonicalize().ok().is_some_and(|a| b.canonicalize().ok() == Some(a));
            if let (Some(known), Some(path)) = (known, &path)
                && !same(known, path)
            {
                let message = format!("this file and {} both hold the workflow `{}`", known.display(), clip(&name));
                let help = Some("rename one of them".to_owned());
                self.diagnostics.push(Diagnostic::of_file(&codes::DUPLICATE_WORKFLOW, &source.name, message, help));
            }
            return;
        }
        let (definition, workflow, diagnostics) = read_text(source, &name);
        self.diagnostics.extend(diagnostics);
        match definition {
            Some(definition) => {
                self.read.insert(name.clone(), (definition, workflow, path));
                self.queue.push_back(name);
            }
            None => {
                self.broken.insert(name);
            }
        }
    }

    /// Loads children, looks for circles, and gives the catalog or all problems.
    fn finish(mut self) -> Result<Catalog, Diagnostics> {
        while let Some(name) = self.queue.pop_front() {
            let (definition, _, path) = &self.read[&name];
            let (source, path) = (definition.source.clone(), path.clone());
            let children: Vec<Spanned<String>> = runs(definition).cloned().collect();
            for child in children {
                if self.read.contains_key(&child.value) || self.broken.contains(&child.value) {
                    continue;
                }
                let room = self.read.len() < CATALOG_MAX;
                match path.as_ref().and_then(|path| beside(path, &child.value)).filter(|_| room) {
                    Some(file) => self.file(&file),
                    None => self.unknown(&source, &child),
                }
            }
        }
        self.circles();
        let diagnostics = Diagnostics::new(self.diagnostics);
        if diagnostics.has_errors() {
            return Err(diagnostics);
        }
        let entry = |(definition, workflow, path): (Definition, Option<Workflow>, Option<PathBuf>)| {
            workflow.map(|w| CatalogEntry { definition: Arc::new(definition), workflow: Arc::new(w), path })
        };
        let entries = self.read.into_iter().filter_map(|(name, read)| Some((name, entry(read)?))).collect();
        Ok(Catalog { entries, warnings: diagnostics })
    }

    fn unknown(&mut self, source: &Arc<SourceText>, child: &Spanned<String>) {
        let message = format!("there is no workflow `{}`", clip(&child.value));
        let near = suggest(&child.value, self.read.keys().map(String::as_str).filter(|name| *name != child.value));
        let help =
            if near.starts_with("did") { near } else { format!("put `{}.yaml` beside this file", clip(&child.value)) };
        self.diagnostics.push(Diagnostic::at(&codes::UNKNOWN_WORKFLOW, source, child.span, message, Some(help)));
    }

    /// Reports each `run` that closes a circle.
    fn circles(&mut self) {
        let mut done: BTreeSet<&str> = BTreeSet::new();
        let mut found = Vec::new();
        for start in self.read.keys() {
            let mut path: Vec<&str> = Vec::new();
            self.walk(start, &mut path, &mut done, &mut found);
        }
        self.diagnostics.extend(found);
    }

    fn walk<'a>(
        &'a self,
        at: &'a str,
        path: &mut Vec<&'a str>,
        done: &mut BTreeSet<&'a str>,
        found: &mut Vec<Diagnostic>,
    ) {
        let Some((definition, ..)) = self.read.get(at) else { return };
        if !done.insert(at) {
            return;
        }
        path.push(at);
        for child in runs(definition) {
            let Some((name, _)) = self.read.get_key_value(&child.value) else { continue };
            match path.iter().position(|p| p == name) {
                Some(from) => {
                    let circle: Vec<String> =
                        path[from..].iter().chain([&name.as_str()]).map(|n| format!("`{n}`")).collect();
                    let message = format!("workflows run each other in a circle: {}", circle.join(" → "));
                    let help = Some("break the circle".to_owned());
                    found.push(Diagnostic::at(&codes::CYCLIC_RUN, &definition.source, child.span, message, help));
                }
                None => self.walk(name, path, done, found),
            }
        }
        path.pop();
    }
}

/// What `jr2 check` says about files.
#[derive(Clone, Debug, serde::Serialize)]
pub struct CheckReport {
    /// Names of the workflows that were read, children included; those with errors too.
    pub workflows: Vec<String>,
    /// Everything found.
    #[serde(flatten)]
    pub diagnostics: Diagnostics,
}

/// Checks files and everything they run. A workflow that only a parent with a Workspace can run is a warning here.
pub fn check_files(files: &[PathBuf]) -> CheckReport {
    match Catalog::from_files(files) {
        Err(diagnostics) => CheckReport { workflows: files.iter().map(|f| expected_name(f)).collect(), diagnostics },
        Ok(catalog) => {
            let mut placeless = Vec::new();
            for root in catalog.roots() {
                placeless.extend(super::program::placeless(&catalog, root));
            }
            for item in &mut placeless {
                item.severity = Severity::Warning;
            }
            CheckReport {
                workflows: catalog.entries.keys().cloned().collect(),
                diagnostics: catalog.warnings.clone().merge(Diagnostics::new(placeless)),
            }
        }
    }
}
