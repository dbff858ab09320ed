//! The functions: CEL's standard ones over JSON, and the common ones for texts and numbers. Nothing here knows the time.

use super::evaluate::{Outcome, Walk, fail, items, position, room};
use super::number::Number;
use super::value::Val;
use std::cmp::Ordering;

/// Most bytes one compiled pattern may take: it is kept as long as its workflow.
pub const PATTERN_BYTES_MAX: usize = 256 * 1024;

/// How a function is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// `f(x)`
    Global,
    /// `x.f()`
    Receiver,
    /// Both.
    Either,
}

/// One function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Function {
    Size,
    Int,
    Uint,
    Double,
    Text,
    Bool,
    Type,
    Dyn,
    Contains,
    StartsWith,
    EndsWith,
    LowerAscii,
    UpperAscii,
    Trim,
    Replace,
    Split,
    Join,
    IndexOf,
    LastIndexOf,
    Substring,
    CharAt,
    Greatest,
    Least,
    Abs,
    Ceil,
    Floor,
    Round,
}

/// Name, how it is called, fewest and most arguments with the receiver counted.
const TABLE: [(&str, Style, usize, usize, Function); 27] = [
    ("size", Style::Either, 1, 1, Function::Size),
    ("int", Style::Global, 1, 1, Function::Int),
    ("uint", Style::Global, 1, 1, Function::Uint),
    ("double", Style::Global, 1, 1, Function::Double),
    ("string", Style::Global, 1, 1, Function::Text),
    ("bool", Style::Global, 1, 1, Function::Bool),
    ("type", Style::Global, 1, 1, Function::Type),
    ("dyn", Style::Global, 1, 1, Function::Dyn),
    ("contains", Style::Receiver, 2, 2, Function::Contains),
    ("startsWith", Style::Receiver, 2, 2, Function::StartsWith),
    ("endsWith", Style::Receiver, 2, 2, Function::EndsWith),
    ("lowerAscii", Style::Receiver, 1, 1, Function::LowerAscii),
    ("upperAscii", Style::Receiver, 1, 1, Function::UpperAscii),
    ("trim", Style::Receiver, 1, 1, Function::Trim),
    ("replace", Style::Receiver, 3, 3, Function::Replace),
    ("split", Style::Receiver, 2, 2, Function::Split),
    ("join", Style::Receiver, 1, 2, Function::Join),
    ("indexOf", Style::Receiver, 2, 2, Function::IndexOf),
    ("lastIndexOf", Style::Receiver, 2, 2, Function::LastIndexOf),
    ("substring", Style::Receiver, 2, 3, Function::Substring),
    ("charAt", Style::Receiver, 2, 2, Function::CharAt),
    ("math.greatest", Style::Global, 1, 64, Function::Greatest),
    ("math.least", Style::Global, 1, 64, Function::Least),
    ("math.abs", Style::Global, 1, 1, Function::Abs),
    ("math.ceil", Style::Global, 1, 1, Function::Ceil),
    ("math.floor", Style::Global, 1, 1, Function::Floor),
    ("math.round", Style::Global, 1, 1, Function::Round),
];

/// Names that other dialects have and this one refuses, with the reason.
const REFUSED: [&str; 6] = ["now", "timestamp", "duration", "random", "uuid", "getDate"];

/// Chooses a function by name and count of arguments (the receiver counted).
pub fn find(name: &str, style: Style, count: usize) -> Result<Function, String> {
    if REFUSED.contains(&name) {
        return Err(format!(
            "`{name}` is not part of this language: an expression gives the same answer on replay, so it knows no time and no chance"
        ));
    }
    let named: Vec<_> = TABLE.iter().filter(|(known, ..)| *known == name).collect();
    let Some((_, known_style, least, most, function)) = named.first() else {
        return Err(format!("unknown function `{name}`"));
    };
    if *known_style != Style::Either && *known_style != style {
        return Err(match known_style {
            Style::Global => format!("`{name}` is called as {name}(x)"),
            _ => format!("`{name}` is called as x.{name}(…)"),
        });
    }
    if count < *least || count > *most {
        return Err(format!("`{name}` does not take this number of arguments"));
    }
    Ok(*function)
}

impl Function {
    fn name(self) -> &'static str {
        TABLE.iter().find(|(.., function)| *function == self).map_or("", |(name, ..)| name)
    }
}

/// Calls a function.
pub fn call<'a>(walk: &mut Walk<'a>, function: Function, arguments: &[Val<'a>], at: usize) -> Outcome<Val<'a>> {
    match (function, arguments) {
        (Function::Size, [value]) => size(walk, value, at),
        (Function::Int | Function::Uint, [value]) => {
            let number = integer(value, at)?;
            match number {
                Number::Int(n) if n < 0 && function == Function::Uint => fail(at, "uint() of a negative number"),
                number => Ok(Val::Number(number)),
            }
        }
        (Function::Double, [value]) => match value {
            Val::Number(Number::Int(n)) => Ok(Val::Number(Number::Double(*n as f64))),
            Val::Number(Number::Uint(n)) => Ok(Val::Number(Number::Double(*n as f64))),
            Val::Number(Number::Double(_)) => Ok(value.clone()),
            Val::Text(text) => match text.trim().parse() {
                Ok(n) => Ok(Val::Number(Number::Double(n))),
                Err(_) => fail(at, "this text is not a number"),
            },
            other => wrong(function, other, at),
        },
        (Function::Text, [value]) => match value.scalar_text() {
            Some(text) => {
                let text = text.into_owned();
                walk.built(at, text)
            }
            None => wrong(function, value, at),
        },
        (Function::Bool, [value]) => match value {
            Val::Bool(_) => Ok(value.clone()),
            Val::Text(text) => match &**text {
                "true" => Ok(Val::Bool(true)),
                "false" => Ok(Val::Bool(false)),
                _ => fail(at, "this text is neither true nor false"),
            },
            other => wrong(function, other, at),
        },
        (Function::Type, [value]) => Ok(Val::text(value.kind())),
        (Function::Dyn, [value]) => Ok(value.clone()),
        (Function::Greatest, numbers) => extreme(walk, numbers, Ordering::Greater, at),
        (Function::Least, numbers) => extreme(walk, numbers, Ordering::Less, at),
        (Function::Abs | Function::Ceil | Function::Floor | Function::Round, [value]) => math(function, value, at),
        (Function::Join, [Val::List(list), rest @ ..]) => {
            let separator = match rest {
                [] => "",
                [Val::Text(separator), ..] => separator,
                [other, ..] => return wrong(function, other, at),
            };
            let mut joined = String::new();
            for (index, item) in items(list).enumerate() {
                walk.charge(at, 1)?;
                let Val::Text(text) = &item else { return wrong(function, &item, at) };
                if index > 0 {
                    joined.push_str(separator);
                }
                joined.push_str(text);
                room(at, joined.len())?;
            }
            walk.built(at, joined)
        }
        (_, [Val::Text(text), rest @ ..]) => of_text(walk, function, text, rest, at),
        (_, [other, ..]) => wrong(function, other, at),
        (_, []) => fail(at, format!("`{}` needs an argument", function.name())),
    }
}

fn wrong<T>(function: Function, value: &Val<'_>, at: usize) -> Outcome<T> {
    fail(at, format!("`{}` does not work on {}", function.name(), value.kind_with_article()))
}

fn size<'a>(walk: &mut Walk<'a>, value: &Val<'a>, at: usize) -> Outcome<Val<'a>> {
    match value {
        Val::Text(text) => {
            walk.charge_bytes(at, text.len())?;
            Ok(Val::int(text.chars().count()))
        }
        Val::List(list) => Ok(Val::int(list.len())),
        Val::Map(fields) => Ok(Val::int(fields.len())),
        other => wrong(Function::Size, other, at),
    }
}

fn integer(value: &Val<'_>, at: usize) -> Outcome<Number> {
    let whole = match value {
        Val::Number(Number::Double(n)) if n.is_finite() && n.abs() < 1.8e19 => Number::from_whole(n.trunc() as i128),
        Val::Number(Number::Double(_)) => None,
        Val::Number(number) => return Ok(*number),
        Val::Text(text) => match text.trim().parse().ok().and_then(Number::from_whole) {
            Some(number) => return Ok(number),
            None => return fail(at, "this text is not an integer"),
        },
        other => return wrong(Function::Int, other, at),
    };
    whole.map_or_else(|| fail(at, "the number is too large for an integer"), Ok)
}

/// The greatest or least of numbers; one list stands for its items.
fn extreme<'a>(walk: &mut Walk<'a>, numbers: &[Val<'a>], wanted: Ordering, at: usize) -> Outcome<Val<'a>> {
    let candidates: Vec<Val<'a>> = match numbers {
        [Val::List(list)] => {
            walk.charge(at, list.len())?;
            items(list).collect()
        }
        numbers => numbers.to_vec(),
    };
    let mut best: Option<Number> = None;
    for candidate in &candidates {
        let Val::Number(number) = candidate else {
            return fail(at, format!("this compares numbers, not {}", candidate.kind_with_article()));
        };
        if best.is_none_or(|best| number.compare(best) == Some(wanted)) {
            best = Some(*number);
        }
    }
    best.map_or_else(|| fail(at, "an empty list has no greatest or least"), |number| Ok(Val::Number(number)))
}

fn math<'a>(function: Function, value: &Val<'a>, at: usize) -> Outcome<Val<'a>> {
    let Val::Number(number) = value else { return wrong(function, value, at) };
    let answer = match (function, *number) {
        (Function::Abs, Number::Int(n)) if n < 0 => number.negated(),
        (Function::Abs, Number::Double(n)) => Some(Number::Double(n.abs())),
        (Function::Ceil, Number::Double(n)) => Some(Number::Double(n.ceil())),
        (Function::Floor, Number::Double(n)) => Some(Number::Double(n.floor())),
        (Function::Round, Number::Double(n)) => Some(Number::Double(n.round())),
        _ => Some(*number),
    };
    answer.map_or_else(|| fail(at, "the number is too large"), |number| Ok(Val::Number(number)))
}

/// Functions whose receiver is a text; the others are texts or positions in characters.
fn of_text<'a>(walk: &mut Walk<'a>, function: Function, text: &str, rest: &[Val<'a>], at: usize) -> Outcome<Val<'a>> {
    walk.charge_bytes(at, text.len())?;
    match (function, rest) {
        (Function::LowerAscii, []) => walk.built(at, text.to_ascii_lowercase()),
        (Function::UpperAscii, []) => walk.built(at, text.to_ascii_uppercase()),
        (Function::Trim, []) => walk.built(at, text.trim().to_owned()),
        (Function::Contains, [Val::Text(part)]) => Ok(Val::Bool(text.contains(&**part))),
        (Function::StartsWith, [Val::Text(part)]) => Ok(Val::Bool(text.starts_with(&**part))),
        (Function::EndsWith, [Val::Text(part)]) => Ok(Val::Bool(text.ends_with(&**part))),
        (Function::Replace, [Val::Text(from), Val::Text(to)]) => {
            let found = text.matches(&**from).count();
            // The most it can grow to, known before it is built.
            room(at, text.len().saturating_add(found.saturating_mul(to.len())))?;
            walk.built(at, text.replace(&**from, to))
        }
        (Function::Split, [Val::Text(separator)]) => {
            let parts = text.split(&**separator).count();
            walk.charge(at, parts)?;
            Ok(Val::list(text.split(&**separator).map(Val::text).collect()))
        }
        (Function::IndexOf, [Val::Text(part)]) => Ok(found(text, text.find(&**part))),
        (Function::LastIndexOf, [Val::Text(part)]) => Ok(found(text, text.rfind(&**part))),
        (Function::CharAt, [Val::Number(index)]) => match position(*index).and_then(|index| text.chars().nth(index)) {
            Some(letter) => walk.built(at, letter.to_string()),
            None => fail(at, "there is no character at this position"),
        },
        (Function::Substring, [Val::Number(start), rest @ ..]) => {
            let end = match rest {
                [] => Some(text.chars().count()),
                [Val::Number(end), ..] => position(*end),
                [other, ..] => return wrong(function, other, at),
            };
            match (position(*start), end) {
                (Some(start), Some(end)) if start <= end && end <= text.chars().count() => {
                    walk.built(at, text.chars().skip(start).take(end - start).collect())
                }
                _ => fail(at, "the text has no such part"),
            }
        }
        (_, [other, ..]) => wrong(function, other, at),
        (_, []) => fail(at, format!("`{}` does not work on a string", function.name())),
    }
}

/// A byte position as a count of characters; -1 when there is none.
fn found<'a>(text: &str, at: Option<usize>) -> Val<'a> {
    match at {
        Some(at) => Val::int(text[..at].chars().count()),
        None => Val::Number(Number::Int(-1)),
    }
}
