//! Holds a tree against the tables and reports everything that does not fit.

use super::{EXPRESSION_MAX_BYTES, NAME_MAX_BYTES, NameRule, Shape, Table, parse_backoff, parse_duration_ms};
use crate::workflow::codes;
use crate::workflow::diagnostic::Problems;
use crate::workflow::source::{Node, NodeKind, Span, clip};
use crate::workflow::{OPEN, model_parts};

/// Holds `node` against `shape`. `label` is what the value is called: a key in backticks.
pub fn check(shape: &Shape, node: &Node, label: &str, problems: &mut Problems) {
    match shape {
        Shape::Either(shapes) => match shapes.iter().find(|s| s.admits(node)) {
            Some(fitting) => check(fitting, node, label, problems),
            None => wrong_type(shape, node, label, problems),
        },
        _ if !shape.admits(node) => wrong_type(shape, node, label, problems),
        Shape::Object(table) => object(table, node, problems),
        Shape::Map(rule, inner) => {
            for entry in node.entries() {
                name(*rule, &entry.key.value, entry.key.span, problems);
                check(inner, &entry.value, &format!("`{}`", clip(&entry.key.value)), problems);
            }
        }
        Shape::List(inner) => node.one_or_many().iter().for_each(|item| check(inner, item, label, problems)),
        Shape::Count(min, max) => count(*min, *max, node, label, problems),
        _ => match &node.kind {
            NodeKind::Text(text) => text_rules(shape, text, node.span, label, problems),
            NodeKind::Number(number) => text_rules(shape, &number.to_string(), node.span, label, problems),
            _ => {}
        },
    }
}

impl Shape {
    /// Has the value the type the shape asks for?
    fn admits(&self, node: &Node) -> bool {
        match (self, &node.kind) {
            (Self::Value | Self::Computed | Self::Literal, _) | (Self::Nothing, NodeKind::Null) => true,
            (Self::Condition | Self::Flag, NodeKind::Bool(_)) => true,
            (Self::Count(..) | Self::Memory | Self::Cpu, NodeKind::Number(_)) => true,
            (Self::List(_), NodeKind::List(_)) => true,
            (Self::Object(_) | Self::Map(..) | Self::JsonSchema, NodeKind::Map(_)) => true,
            (
                Self::Text(_)
                | Self::Template(_)
                | Self::Condition
                | Self::Name(_)
                | Self::Duration
                | Self::Backoff
                | Self::Memory
                | Self::Cpu
                | Self::Model
                | Self::Choice(_),
                NodeKind::Text(_),
            ) => true,
            (Self::Either(shapes), _) => shapes.iter().any(|s| s.admits(node)),
            _ => false,
        }
    }
}

fn wrong_type(shape: &Shape, node: &Node, label: &str, problems: &mut Problems) {
    let wanted = shape.noun();
    let message = format!("{label} must be {wanted}, not {}", node.noun());
    let quotable = matches!(node.kind, NodeKind::Bool(_) | NodeKind::Number(_)) && wanted.contains("text");
    let help = match (quotable, node.noun()) {
        (true, _) => format!("put it in quotes: \"{}\"", clip(&problems.source.text[node.span.start..node.span.end])),
        (false, "nothing") => format!("write {wanted}, or remove {label}"),
        (false, _) if wanted.ends_with("(a mapping)") => "write a mapping: `{ key: value }`".to_owned(),
        (false, _) => format!("write {wanted}"),
    };
    problems.add(&codes::WRONG_TYPE, node.span, message, help);
}

fn object(table: &Table, node: &Node, problems: &mut Problems) {
    for entry in node.entries() {
        let found = &entry.key.value;
        if let Some(key) = table.keys.iter().find(|k| k.name == *found) {
            check(&key.shape, &entry.value, &format!("`{found}`"), problems);
        } else if let Some((rule, shape)) = &table.rest {
            name(*rule, found, entry.key.span, problems);
            check(shape, &entry.value, &format!("`{}`", clip(found)), problems);
        } else if table.name == "state" && found == "pool" {
            let message = "`pool` is not built yet";
            problems.add(&codes::NOT_BUILT, entry.key.span, message, "use `run` for a fixed number of child runs");
        } else {
            let message = format!("`{}` is not a key of {}", clip(found), table.noun.trim_end_matches(" (a mapping)"));
            problems.add(
                &codes::UNKNOWN_KEY,
                entry.key.span,
                message,
                problems.suggest(found, table.keys.iter().map(|k| k.name)),
            );
        }
    }
    for key in table.keys.iter().filter(|k| k.required && node.get(k.name).is_none()) {
        let noun = table.noun.trim_end_matches(" (a mapping)");
        let message = format!("{noun} needs the key `{}`", key.name);
        let help = format!("add `{}`: {}", key.name, key.about.trim_end_matches('.'));
        problems.add(&codes::MISSING_KEY, node.span, message, help);
    }
}

fn count(min: u64, max: u64, node: &Node, label: &str, problems: &mut Problems) {
    let NodeKind::Number(number) = &node.kind else { return };
    if number.as_u64().is_some_and(|n| (min..=max).contains(&n)) {
        return;
    }
    let message = format!("{label} is {number}, which is not a whole number from {min} to {max}");
    problems.add(&codes::OUT_OF_RANGE, node.span, message, format!("write a number from {min} to {max}"));
}

fn name(rule: NameRule, found: &str, span: Span, problems: &mut Problems) {
    // A key that is no text was reported by the reader.
    if problems.any(|d| d.code == codes::KEY_NOT_TEXT.code && d.span.start == span.start) {
        return;
    }
    if rule == NameRule::Duration {
        if let Err(why) = parse_duration_ms(found) {
            problems.add(&codes::BAD_DURATION, span, why, rule.wants());
        }
    } else if !rule.admits(found) {
        problems.add(&codes::BAD_NAME, span, format!("`{}` is not a name here", clip(found)), rule.wants());
    } else if found.len() > NAME_MAX_BYTES && !matches!(rule, NameRule::Path | NameRule::Events | NameRule::Free) {
        let message = format!("`{}` is longer than {NAME_MAX_BYTES} bytes", clip(found));
        problems.add(&codes::BAD_NAME, span, message, "shorten it");
    }
}

/// Checks a text (or a number that stands for one) against the shapes that have rules of their own.
fn text_rules(shape: &Shape, found: &str, span: Span, label: &str, problems: &mut Problems) {
    match shape {
        Shape::Text(max) | Shape::Template(max) => too_long(*max, found, span, label, problems),
        Shape::Condition => too_long(EXPRESSION_MAX_BYTES, found, span, label, problems),
        Shape::Name(rule) => name(*rule, found, span, problems),
        Shape::Choice(words) if !words.contains(&found) => {
            let message = format!("{label} cannot be `{}`", clip(found));
            problems.add(&codes::NOT_A_CHOICE, span, message, problems.suggest(found, words.iter().copied()));
        }
        Shape::Duration => {
            if let Err(why) = parse_duration_ms(found) {
                problems.add(&codes::BAD_DURATION, span, why, NameRule::Duration.wants());
            }
        }
        Shape::Backoff => {
            if let Err(why) = parse_backoff(found) {
                problems.add(&codes::BAD_DURATION, span, why, "write a duration or a range such as `1s..5m`");
            }
        }
        Shape::Memory => {
            if let Err(why) = jr2_shared::size::parse_memory(found) {
                problems.add(&codes::BAD_SIZE, span, why.to_string(), "write memory as in `2Gi` or `512Mi`");
            }
        }
        Shape::Cpu => {
            if let Err(why) = jr2_shared::size::parse_cpu(found) {
                problems.add(&codes::BAD_SIZE, span, why.to_string(), "write CPUs as in `1` or `500m`");
            }
        }
        Shape::Model if found != OPEN && model_parts(found).is_none() => {
            let message = format!("`{}` is not written as provider/model", clip(found));
            problems.add(&codes::BAD_MODEL, span, message, "write it as in `openai/gpt-5-mini`, or `open`");
        }
        _ => {}
    }
}

fn too_long(max: usize, found: &str, span: Span, label: &str, problems: &mut Problems) {
    if found.len() > max {
        let message = format!("{label} is {} bytes long; at most {max} are allowed", found.len());
        problems.add(&codes::TEXT_TOO_LONG, span, message, "shorten it");
    }
}
