//! Expressions, templates, values with either in their leaves, and executable content.

use super::Parser;
use crate::chart::Action;
use crate::expression::{Expression, ExpressionError, Reference, TEMPLATE_BYTES_MAX, Template, ValueSource};
use crate::workflow::check::ROOTS;
use crate::workflow::codes;
use crate::workflow::definition::{Sight, Site};
use crate::workflow::input::clip_message;
use crate::workflow::shape::EXPRESSION_MAX_BYTES;
use crate::workflow::source::{Node, NodeKind, Spanned, clip};
use serde_json::Value;

/// Most faulty `{{ }}` reported of one text.
const FAULTS_MAX: usize = 20;

/// What a text in a value is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Texts {
    /// CEL.
    Computed,
    /// Plain with `{{ }}`.
    Interpolated,
}

impl Parser<'_> {
    /// A condition: CEL or a boolean.
    pub(super) fn condition(&mut self, node: &Node, sight: &Sight) -> Option<Expression> {
        let text = match &node.kind {
            NodeKind::Bool(flag) => Spanned::new(flag.to_string(), node.span),
            _ => node.name().filter(|text| text.value.len() <= EXPRESSION_MAX_BYTES)?,
        };
        let expression = self.expression(&text, sight)?;
        if let Some(constant) = expression.constant().filter(|value| !value.is_boolean()) {
            let message =
                format!("this condition is always {}, which is neither true nor false", clip(&constant.to_string()));
            let help = "compare it with something, as in `context.rounds > 0`";
            self.problems.add(&codes::NOT_A_CONDITION, text.span, message, help);
        }
        Some(expression)
    }

    fn expression(&mut self, text: &Spanned<String>, sight: &Sight) -> Option<Expression> {
        match Expression::parse(&text.value) {
            Ok(expression) => {
                self.site(text, expression.references(), sight);
                Some(expression)
            }
            Err(error) => {
                self.bad_expression(text, &error);
                None
            }
        }
    }

    /// A text with `{{ }}`.
    pub(super) fn template(&mut self, node: &Node, sight: &Sight) -> Option<Template> {
        self.template_text(&node.name()?, sight)
    }

    /// The same from its text.
    pub(super) fn template_text(&mut self, text: &Spanned<String>, sight: &Sight) -> Option<Template> {
        // A text over the bound was reported with its shape.
        if text.value.len() > TEMPLATE_BYTES_MAX {
            return None;
        }
        let mut rest = text.value.clone();
        for round in 0..=FAULTS_MAX {
            match Template::parse(&rest) {
                Ok(template) => {
                    self.site(text, template.references(), sight);
                    return (round == 0).then_some(template);
                }
                Err(error) => {
                    self.bad_expression(text, &error);
                    blank_part(&mut rest, error.offset?)?;
                }
            }
        }
        None
    }

    fn site(&mut self, text: &Spanned<String>, references: Vec<Reference>, sight: &Sight) {
        if references.is_empty() {
            return;
        }
        self.sites.push(Site {
            span: text.span,
            text: text.value.clone(),
            names: references.into_iter().map(|r| (r.path, r.offset)).collect(),
            sight: sight.clone(),
        });
    }

    fn bad_expression(&mut self, text: &Spanned<String>, error: &ExpressionError) {
        let span = match error.offset {
            Some(offset) => self.problems.source.locate(text.span, &text.value, offset, 1),
            None => text.span,
        };
        if error.message.starts_with("unknown name `") {
            let name = error.message.split('`').nth(1).unwrap_or_default();
            let span = match error.offset {
                Some(offset) => self.problems.source.locate(text.span, &text.value, offset, name.len()),
                None => text.span,
            };
            let near = self.problems.suggest(name, ROOTS);
            let help = if near.starts_with("did") {
                near
            } else {
                format!("{near}; a text needs quotes: `\"'{}'\"`", clip(name))
            };
            let message = format!("`{}` is not a name an expression can see", clip(name));
            self.problems.add(&codes::UNKNOWN_NAME, span, message, help);
            return;
        }
        let message = format!("this expression cannot be parsed: {}", clip_message(&error.message));
        self.problems.add(
            &codes::BAD_EXPRESSION,
            span,
            message,
            "correct it; a text inside an expression needs quotes",
        );
    }

    /// A value whose texts are CEL or hold `{{ }}`.
    pub(super) fn value(&mut self, node: &Node, texts: Texts, sight: &Sight) -> ValueSource {
        match &node.kind {
            NodeKind::Text(text) => {
                let text = Spanned::new(text.clone(), node.span);
                let parsed = match texts {
                    Texts::Computed => self.expression(&text, sight).map(ValueSource::Expression),
                    Texts::Interpolated if !text.value.contains("{{") => None,
                    Texts::Interpolated => self.template_text(&text, sight).map(ValueSource::Template),
                };
                parsed.unwrap_or(ValueSource::Literal(Value::String(text.value)))
            }
            NodeKind::List(items) => {
                ValueSource::Array(items.iter().map(|item| self.value(item, texts, sight)).collect())
            }
            NodeKind::Map(entries) => ValueSource::Object(
                entries.iter().map(|e| (e.key.value.clone(), self.value(&e.value, texts, sight))).collect(),
            ),
            _ => ValueSource::Literal(node.to_value()),
        }
    }

    /// The `set`, `emit` and `raise` of a mapping (or of each mapping of a list) in the order written.
    pub(super) fn actions(&mut self, node: &Node, sight: &Sight) -> Vec<Action> {
        let mut actions = Vec::new();
        for entry in node.one_or_many().iter().flat_map(Node::entries) {
            match entry.key.value.as_str() {
                "set" => {
                    let writes = entry.value.entries();
                    self.sets.extend(writes.iter().map(|e| e.key.clone()));
                    let value = |e: &crate::workflow::source::Entry, parser: &mut Self| {
                        (e.key.value.clone(), parser.value(&e.value, Texts::Computed, sight))
                    };
                    actions.push(Action::Set(writes.iter().map(|e| value(e, self)).collect()));
                }
                "emit" => {
                    for message in entry.value.one_or_many() {
                        actions.push(Action::Emit(self.message(message, sight)));
                    }
                }
                "raise" => {
                    for event in entry.value.one_or_many() {
                        actions.extend(self.raise(event, sight));
                    }
                }
                _ => {}
            }
        }
        actions
    }

    /// `{type: word, field: CEL}`.
    fn message(&mut self, node: &Node, sight: &Sight) -> ValueSource {
        let field = |e: &crate::workflow::source::Entry, parser: &mut Self| {
            let value = match e.key.value.as_str() {
                "type" => ValueSource::Literal(e.value.to_value()),
                _ => parser.value(&e.value, Texts::Computed, sight),
            };
            (e.key.value.clone(), value)
        };
        ValueSource::Object(node.entries().iter().map(|e| field(e, self)).collect())
    }

    fn raise(&mut self, node: &Node, sight: &Sight) -> Option<Action> {
        let event = node.name().or_else(|| node.get("type").and_then(Node::name))?;
        let payload = match self.message(node, sight) {
            ValueSource::Object(fields) => fields.into_iter().filter(|(name, _)| name != "type").collect::<Vec<_>>(),
            _ => Vec::new(),
        };
        self.raises.push(event.clone());
        let payload = (!payload.is_empty()).then_some(ValueSource::Object(payload));
        Some(Action::Raise { event: event.value, payload })
    }
}

/// Blanks the `{{ }}` around `offset`, so that the others can be looked at.
fn blank_part(text: &mut String, offset: usize) -> Option<()> {
    let open = text.get(..text.len().min(offset + 2)).or_else(|| text.get(..offset))?.rfind("{{")?;
    let end = text[open..].find("}}").map_or(text.len(), |at| open + at + 2);
    let blanks = " ".repeat(end - open);
    text.replace_range(open..end, &blanks);
    Some(())
}
