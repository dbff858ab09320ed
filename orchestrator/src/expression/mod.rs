//! CEL expressions and `{{ }}` templates: parsed once, evaluated with bounds, no clock, no random, no I/O
//! (workflow format, "One expression language"; decision 51).
//!
//! The grammar is crate `cel`'s. Evaluation is our own walk over JSON that is borrowed, never copied: it counts its steps,
//! computes integers and doubles together, and knows no function that could answer differently on replay.

mod compile;
mod evaluate;
mod functions;
mod number;
mod source;
mod syntax;
mod template;
#[cfg(test)]
mod tests;
mod value;

pub use source::ValueSource;
pub use template::Template;

use compile::Node;
use serde_json::{Map, Value};
use std::sync::Arc;

/// Most bytes of one expression's text: a page of code; longer logic belongs into states.
pub const EXPRESSION_BYTES_MAX: usize = 4 * 1024;
/// Most nested brackets in one expression: the parser recurses on them.
pub const EXPRESSION_BRACKETS_MAX: u16 = 24;
/// Deepest syntax tree of one expression: evaluation recurses on it. A chain of `+` is one level an operand.
pub const EXPRESSION_DEPTH_MAX: usize = 128;
/// Most steps of one evaluation (decision 51). A node, a list item, and every 128 bytes of text looked at are a step.
pub const STEPS_MAX: u32 = 10_000;
/// Most bytes of one result (decision 51), counted as compact JSON without escapes.
pub const RESULT_BYTES_MAX: usize = 64 * 1024;
/// Deepest nesting of one result: what is saved must be readable again, and JSON readers stop at 128.
pub const RESULT_DEPTH_MAX: usize = 64;
/// Most bytes of one template's text: its literal part alone could not be rendered within [`RESULT_BYTES_MAX`].
pub const TEMPLATE_BYTES_MAX: usize = 64 * 1024;

/// Why an expression could not be parsed or evaluated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ExpressionError {
    /// What is wrong, in plain words.
    pub message: String,
    /// Byte offset in the expression's (or template's) own text, when known.
    pub offset: Option<usize>,
}

impl ExpressionError {
    /// An error at a byte offset.
    pub(crate) fn at(offset: usize, message: impl Into<String>) -> Self {
        Self { message: message.into(), offset: Some(offset) }
    }

    /// The same error seen from a text in which this expression starts at `start`.
    fn shifted(mut self, start: usize) -> Self {
        self.offset = Some(self.offset.unwrap_or(0) + start);
        self
    }
}

/// What an expression can see. Everything is data; absent parts read as unknown names.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// The run's input.
    pub input: &'a Value,
    /// The context.
    pub context: &'a Map<String, Value>,
    /// The event, inside a transition: its payload's fields and `type`.
    pub event: Option<&'a Value>,
    /// `{id, workflow, started}`.
    pub run: &'a Value,
    /// `{repos, branch}` inside a Workspace.
    pub workspace: Option<&'a Value>,
    /// `{path, id}`.
    pub actor: Option<&'a Value>,
}

/// One name an expression reads: the longest chain of fields from a name of the [`Scope`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The name of the scope first, then fields: `["context", "rounds"]`.
    pub path: Vec<String>,
    /// Byte offset of its first letter in the expression's (or template's) own text.
    pub offset: usize,
}

impl Reference {
    /// Does it read more of the event than `event.type`?
    fn is_payload(&self) -> bool {
        self.path[0] == "event" && self.path.get(1).is_none_or(|field| field != "type")
    }
}

/// One CEL expression. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Expression {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    source: Box<str>,
    node: Node,
    references: Vec<Reference>,
    reads_payload: bool,
}

impl Expression {
    /// Parses `source`. Refuses what is longer or deeper than the bounds, names that are never in scope, functions that do
    /// not exist, and a constant that can only fail.
    pub fn parse(source: &str) -> Result<Self, ExpressionError> {
        let tree = syntax::parse(source)?;
        let (node, references) = compile::compile(&tree)?;
        let reads_payload = references.iter().any(Reference::is_payload);
        Ok(Self { inner: Arc::new(Inner { source: source.into(), node, references, reads_payload }) })
    }

    /// The text it was parsed from.
    pub fn source(&self) -> &str {
        &self.inner.source
    }

    /// Evaluates within the bounds of decision 51. A field that is not there is an error; `has(event.x)` asks first.
    pub fn evaluate(&self, scope: &Scope<'_>) -> Result<Value, ExpressionError> {
        match self.constant() {
            Some(value) => Ok(value.clone()),
            None => value::into_json(&evaluate::evaluate(&self.inner.node, scope)?),
        }
    }

    /// Evaluates a guard: anything but true or false is an error.
    pub fn holds(&self, scope: &Scope<'_>) -> Result<bool, ExpressionError> {
        match evaluate::evaluate(&self.inner.node, scope)? {
            value::Val::Bool(answer) => Ok(answer),
            other => Err(ExpressionError::at(
                self.inner.node.at,
                format!("a condition must be true or false, this is {}", other.kind_with_article()),
            )),
        }
    }

    /// Every name it reads, in order of the text; variables of `map`, `filter`, `all`, `exists` are not names.
    pub fn references(&self) -> Vec<Reference> {
        self.inner.references.clone()
    }

    /// Does it mention `event` beyond `event.type`? Decides whether a guard may refuse a pick before its payload exists.
    pub fn reads_payload(&self) -> bool {
        self.inner.reads_payload
    }

    /// Its value when it reads nothing.
    pub fn constant(&self) -> Option<&Value> {
        match &self.inner.node.kind {
            compile::Kind::Literal(value) => Some(value),
            _ => None,
        }
    }
}
