//! Texts with `{{ }}` parts.

use super::syntax::text_end;
use super::value::{Val, into_json};
use super::{Expression, ExpressionError, RESULT_BYTES_MAX, Reference, Scope, TEMPLATE_BYTES_MAX, evaluate};
use serde_json::Value;
use std::sync::Arc;

/// A text with `{{ }}` parts; one whole `{{ }}` keeps the value's type (decision 51). Two literal braces are written
/// `{{ "{{" }}`. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Template {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    source: Box<str>,
    parts: Vec<Part>,
}

#[derive(Debug)]
enum Part {
    Text(Box<str>),
    /// An expression, and where its text starts in the template's.
    Expression(Expression, usize),
}

impl Template {
    /// Parses `source`. Refuses what is too long, an unterminated or empty `{{ }}`, and what [`Expression::parse`] refuses;
    /// offsets are those of `source`.
    pub fn parse(source: &str) -> Result<Self, ExpressionError> {
        if source.len() > TEMPLATE_BYTES_MAX {
            return Err(ExpressionError::at(
                TEMPLATE_BYTES_MAX,
                format!("the text is {} bytes long; the most is {TEMPLATE_BYTES_MAX}", source.len()),
            ));
        }
        let mut parts = Vec::new();
        let mut rest = 0;
        while let Some(open) = source[rest..].find("{{").map(|at| rest + at) {
            if open > rest {
                parts.push(Part::Text(source[rest..open].into()));
            }
            let start = open + 2;
            let end = expression_end(source, start)
                .ok_or_else(|| ExpressionError::at(open, "`{{` is never closed by `}}`"))?;
            if source[start..end].trim().is_empty() {
                return Err(ExpressionError::at(open, "`{{ }}` holds no expression"));
            }
            let expression = Expression::parse(&source[start..end]).map_err(|error| error.shifted(start))?;
            parts.push(Part::Expression(expression, start));
            rest = end + 2;
        }
        if rest < source.len() {
            parts.push(Part::Text(source[rest..].into()));
        }
        Ok(Self { inner: Arc::new(Inner { source: source.into(), parts }) })
    }

    /// The text it was parsed from.
    pub fn source(&self) -> &str {
        &self.inner.source
    }

    /// Its expressions, each with the byte offset at which it starts in the template's text.
    pub fn expressions(&self) -> impl Iterator<Item = (&Expression, usize)> {
        self.inner.parts.iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Expression(expression, start) => Some((expression, *start)),
        })
    }

    /// Every name its expressions read, with offsets of the template's text.
    pub fn references(&self) -> Vec<Reference> {
        let shifted = |(expression, start): (&Expression, usize)| {
            let references = expression.references();
            references.into_iter().map(move |r| Reference { offset: r.offset + start, ..r })
        };
        self.expressions().flat_map(shifted).collect()
    }

    /// Does it mention `event` beyond `event.type`?
    pub fn reads_payload(&self) -> bool {
        self.expressions().any(|(expression, _)| expression.reads_payload())
    }

    /// Renders to a value: a single whole `{{ }}` keeps its type, anything else becomes text.
    pub fn render(&self, scope: &Scope<'_>) -> Result<Value, ExpressionError> {
        match self.inner.parts.as_slice() {
            [Part::Expression(expression, start)] => expression.evaluate(scope).map_err(|error| error.shifted(*start)),
            _ => self.render_text(scope).map(Value::String),
        }
    }

    /// Renders to text, of at most 64 KiB. Texts stand as they are, other values as JSON.
    pub fn render_text(&self, scope: &Scope<'_>) -> Result<String, ExpressionError> {
        let mut text = String::with_capacity(self.inner.source.len());
        for part in &self.inner.parts {
            match part {
                Part::Text(literal) => text.push_str(literal),
                Part::Expression(expression, start) => {
                    let value = evaluate::evaluate(&expression.inner.node, scope);
                    let pushed = value.and_then(|value| push(&mut text, &value));
                    pushed.map_err(|error| error.shifted(*start))?;
                }
            }
            if text.len() > RESULT_BYTES_MAX {
                return Err(ExpressionError {
                    message: format!("the rendered text is larger than {} KiB", RESULT_BYTES_MAX / 1024),
                    offset: None,
                });
            }
        }
        Ok(text)
    }
}

fn push(text: &mut String, value: &Val<'_>) -> Result<(), ExpressionError> {
    match value.scalar_text() {
        Some(scalar) => text.push_str(&scalar),
        None => text.push_str(&into_json(value)?.to_string()),
    }
    Ok(())
}

/// Where the expression that starts at `start` ends: at the first `}}` outside texts and inner braces.
fn expression_end(source: &str, start: usize) -> Option<usize> {
    let bytes = source.as_bytes();
    let (mut at, mut depth) = (start, 0usize);
    while at < bytes.len() {
        match bytes[at] {
            b'"' | b'\'' => {
                at = text_end(bytes, at);
                continue;
            }
            b'{' => depth += 1,
            b'}' if depth > 0 => depth -= 1,
            b'}' if bytes.get(at + 1) == Some(&b'}') => return Some(at),
            _ => {}
        }
        at += 1;
    }
    None
}
