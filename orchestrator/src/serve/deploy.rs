//! Which workflows may be started: the files of a folder, each on its own, so that a bad one stops no other.

use crate::workflow::{Bindings, Catalog, Diagnostics, Program, codes};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a folder or some files gave.
#[derive(Clone, Debug, Default)]
pub struct Deployment {
    /// Workflows that may be started, by name.
    pub programs: BTreeMap<String, Arc<Program>>,
    /// What is wrong with the others.
    pub problems: Diagnostics,
    /// Workflows that need `--bind`, or a parent with a Workspace: sound, but not started by name alone.
    pub unbound: Vec<String>,
}

/// Every workflow of a folder. A folder that is not there has none.
pub fn deploy(folder: &Path, sizes: &Sizes) -> Deployment {
    if !folder.exists() {
        return Deployment::default();
    }
    match Catalog::files_of(folder) {
        Ok(files) => deploy_files(&files, sizes),
        Err(problems) => Deployment { problems, ..Deployment::default() },
    }
}

/// Ceilings for workflows that say none, as written: memory and CPUs.
pub type Sizes = (Option<String>, Option<String>);

/// Every workflow of these files and what they run.
pub fn deploy_files(files: &[PathBuf], sizes: &Sizes) -> Deployment {
    let mut deployment = Deployment::default();
    match Catalog::from_files(files) {
        Ok(catalog) => add(&catalog, sizes, &mut deployment),
        // Each for itself: the sound ones are served.
        Err(_) => {
            for file in files {
                match Catalog::from_files(std::slice::from_ref(file)) {
                    Ok(catalog) => add(&catalog, sizes, &mut deployment),
                    Err(problems) => deployment.problems = std::mem::take(&mut deployment.problems).merge(problems),
                }
            }
        }
    }
    deployment
}

/// A folder read again: files that are wrong now keep what they gave before.
pub fn redeploy(folder: &Path, sizes: &Sizes, before: &BTreeMap<String, Arc<Program>>) -> Deployment {
    let mut deployment = deploy(folder, sizes);
    if deployment.problems.has_errors() {
        for (name, program) in before {
            deployment.programs.entry(name.clone()).or_insert_with(|| program.clone());
        }
    }
    deployment
}

fn add(catalog: &Catalog, sizes: &Sizes, deployment: &mut Deployment) {
    deployment.problems = std::mem::take(&mut deployment.problems).merge(catalog.warnings.clone());
    for name in catalog.entries.keys() {
        match Program::build(catalog, name, &size_bindings(catalog, name, sizes)) {
            Ok(program) => {
                deployment.programs.insert(name.clone(), Arc::new(program));
            }
            Err(problems) => {
                let needs_more = [codes::OPEN_PART.code, codes::NEEDS_WORKSPACE.code];
                if problems.items.iter().all(|p| needs_more.contains(&p.code)) {
                    deployment.unbound.push(name.clone());
                } else {
                    deployment.problems = std::mem::take(&mut deployment.problems).merge(problems);
                }
            }
        }
    }
}

/// The Instance's default Size as bindings for a workflow that writes none, so that it is pinned with the text.
pub fn size_bindings(catalog: &Catalog, root: &str, (memory, cpu): &Sizes) -> Bindings {
    let mut bindings = Bindings::default();
    let workspace = catalog.entries.get(root).and_then(|e| e.definition.workspace.as_ref());
    if workspace.is_none_or(|w| w.sized) {
        return bindings;
    }
    for (part, value) in [("memory", memory), ("cpu", cpu)] {
        if let Some(value) = value {
            bindings.values.insert(format!("workspace.size.{part}"), value.clone());
        }
    }
    bindings
}
