//! Workflow files: text → a checked [`Workflow`] (schema, references, expressions, diagnostics with line and column).

mod model;

pub use model::*;
