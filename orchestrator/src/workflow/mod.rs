//! Workflow files: text → a checked [`Workflow`] (schema, references, expressions, diagnostics with line and column).
//!
//! `source` reads the text into a tree with places, `shape` holds the tree against the format's tables, `parse` turns it
//! into a [`Definition`], `check` finds what the shape cannot say, `lower` makes the [`Workflow`] the run host executes,
//! `catalog` joins files and `program` binds and pins them. All problems of all files are reported at once.

mod bindings;
mod catalog;
mod check;
pub mod codes;
mod definition;
pub(crate) mod diagnostic;
pub mod graph;
mod input;
mod lower;
mod menu;
mod model;
mod parse;
mod program;
mod render;
mod resolve;
mod schema;
pub(crate) mod shape;
pub(crate) mod source;
#[cfg(test)]
mod tests;

pub use bindings::{BINDING_MAX_BYTES, BINDINGS_MAX, Bindings};
pub use catalog::{CATALOG_MAX, Catalog, CatalogEntry, CheckReport, check_files};
pub use codes::{CODES, CodeInfo, Severity, explain};
pub use definition::Definition;
pub use diagnostic::{DIAGNOSTICS_MAX, Diagnostic, Diagnostics};
pub use input::Validators;
pub use model::*;
pub use program::PROGRAM_MAX;
pub use schema::{json_schema, schema_of};
pub use source::{FILE_MAX_BYTES, SourceText, Span};

use std::path::Path;
use std::sync::Arc;

/// One file with everything it runs, checked, nothing bound.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The file's own workflow.
    pub workflow: Arc<Workflow>,
    /// It and its children.
    pub catalog: Catalog,
}

/// Reads and checks one file and everything it runs.
pub fn load_file(path: &Path) -> Result<Loaded, Diagnostics> {
    let catalog = Catalog::from_files(&[path.to_owned()])?;
    let name = catalog::expected_name(path);
    match catalog.workflow(&name) {
        Some(workflow) => Ok(Loaded { workflow: workflow.clone(), catalog }),
        None => {
            let message = format!("the file holds no workflow `{name}`");
            Err(Diagnostics::one(Diagnostic::of_file(
                &codes::NOT_A_WORKFLOW,
                &path.display().to_string(),
                message,
                None,
            )))
        }
    }
}

/// Reads YAML or JSON text as JSON, within the bounds of workflow files; `None` when it cannot be read.
pub fn yaml_to_json(text: &str) -> Option<serde_json::Value> {
    let mut problems = diagnostic::Problems::new(Arc::new(SourceText::new("", text)));
    let root = source::read(&mut problems)?;
    problems.items.is_empty().then(|| root.to_value())
}
