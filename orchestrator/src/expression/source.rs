//! JSON whose leaves may be expressions or templates.

use super::{Expression, ExpressionError, RESULT_DEPTH_MAX, Reference, Scope, Template};
use serde_json::{Map, Value};

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
    pub fn evaluate(&self, scope: &Scope<'_>) -> Result<Value, ExpressionError> {
        self.evaluate_at(scope, 0)
    }

    fn evaluate_at(&self, scope: &Scope<'_>, depth: usize) -> Result<Value, ExpressionError> {
        if depth > RESULT_DEPTH_MAX {
            return Err(ExpressionError {
                message: format!("the value nests deeper than {RESULT_DEPTH_MAX} levels"),
                offset: None,
            });
        }
        match self {
            Self::Literal(value) => Ok(value.clone()),
            Self::Expression(expression) => expression.evaluate(scope),
            Self::Template(template) => template.render(scope),
            Self::Array(items) => {
                let items: Result<Vec<_>, _> = items.iter().map(|item| item.evaluate_at(scope, depth + 1)).collect();
                items.map(Value::Array)
            }
            Self::Object(fields) => {
                let mut object = Map::with_capacity(fields.len());
                for (key, source) in fields {
                    object.insert(key.clone(), source.evaluate_at(scope, depth + 1)?);
                }
                Ok(Value::Object(object))
            }
        }
    }

    /// Every name its leaves read; offsets are those of each leaf's own text.
    pub fn references(&self) -> Vec<Reference> {
        match self {
            Self::Literal(_) => Vec::new(),
            Self::Expression(expression) => expression.references(),
            Self::Template(template) => template.references(),
            Self::Array(items) => items.iter().flat_map(Self::references).collect(),
            Self::Object(fields) => fields.iter().flat_map(|(_, source)| source.references()).collect(),
        }
    }

    /// Does any leaf mention `event` beyond `event.type`?
    pub fn reads_payload(&self) -> bool {
        match self {
            Self::Literal(_) => false,
            Self::Expression(expression) => expression.reads_payload(),
            Self::Template(template) => template.reads_payload(),
            Self::Array(items) => items.iter().any(Self::reads_payload),
            Self::Object(fields) => fields.iter().any(|(_, source)| source.reads_payload()),
        }
    }
}
