//! CEL expressions and `{{ }}` templates: parsed once, evaluated with bounds, no clock, no random, no I/O
//! (workflow format, "One expression language"; decision 51).

use serde_json::{Map, Value};

/// Why an expression could not be parsed or evaluated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ExpressionError {
    /// What is wrong, in plain words.
    pub message: String,
    /// Byte offset in the expression's (or template's) own text, when known.
    pub offset: Option<usize>,
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

/// One CEL expression.
#[derive(Clone, Debug)]
pub struct Expression {
    source: std::sync::Arc<str>,
}

impl Expression {
    /// Parses `source`.
    pub fn parse(source: &str) -> Result<Self, ExpressionError> {
        Ok(Self { source: source.into() })
    }
    /// The text it was parsed from.
    pub fn source(&self) -> &str {
        &self.source
    }
    /// Evaluates within the bounds of decision 51.
    pub fn evaluate(&self, _scope: &Scope<'_>) -> Result<Value, ExpressionError> {
        todo!()
    }
    /// Does it mention `event` beyond `event.type`? Decides whether a guard may refuse a pick before its payload exists.
    pub fn reads_payload(&self) -> bool {
        todo!()
    }
}

/// A text with `{{ }}` parts; one whole `{{ }}` keeps the value's type (decision 51).
#[derive(Clone, Debug)]
pub struct Template {
    source: std::sync::Arc<str>,
}

impl Template {
    /// Parses `source`.
    pub fn parse(source: &str) -> Result<Self, ExpressionError> {
        Ok(Self { source: source.into() })
    }
    /// The text it was parsed from.
    pub fn source(&self) -> &str {
        &self.source
    }
    /// Renders to a value: a single whole `{{ }}` keeps its type, anything else becomes text.
    pub fn render(&self, _scope: &Scope<'_>) -> Result<Value, ExpressionError> {
        todo!()
    }
    /// Renders to text.
    pub fn render_text(&self, _scope: &Scope<'_>) -> Result<String, ExpressionError> {
        todo!()
    }
}

/// A JSON value whose leaves may be expressions or templates.
#[derive(Clone, Debug)]
pub enum ValueSource {
    /// A literal.
    Literal(Value),
    /// A CEL expression (the values of `set`, `emit`, `raise`).
    Expression(Expression),
    /// A text with `{{ }}` (`gate` meta, `input`, `output`, `do`).
    Template(Template),
    /// An array of sources.
    Array(Vec<ValueSource>),
    /// An object of sources.
    Object(Vec<(String, ValueSource)>),
}

impl ValueSource {
    /// Evaluates every leaf.
    pub fn evaluate(&self, _scope: &Scope<'_>) -> Result<Value, ExpressionError> {
        todo!()
    }
}
