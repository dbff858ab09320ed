//! From text to crate `cel`'s syntax tree, with its complaints put into plain words.

use super::{EXPRESSION_BRACKETS_MAX, EXPRESSION_BYTES_MAX, ExpressionError};
use cel::common::ast::{IdedExpr, SourceInfo};
use cel::{Env, ParseError};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A syntax tree and where its nodes stand in the text.
pub struct Tree {
    /// The tree; macros are calls as written.
    pub root: IdedExpr,
    info: SourceInfo,
    source: Box<str>,
    /// Byte offset of every character, and of the end.
    bytes: Vec<usize>,
}

impl Tree {
    /// Byte offset of the node `id`.
    pub fn offset(&self, id: u64) -> usize {
        let character = self.info.offset_for(id).map_or(0, |(start, _)| start as usize);
        self.bytes.get(character).or(self.bytes.last()).copied().unwrap_or(0)
    }

    /// Where the function name stands whose call's bracket is at `bracket`.
    pub fn name_offset(&self, bracket: usize, name: &str) -> usize {
        let before = self.source.get(..bracket).unwrap_or("");
        if before.ends_with(name) { bracket - name.len() } else { bracket }
    }
}

/// Parses one expression.
pub fn parse(source: &str) -> Result<Tree, ExpressionError> {
    if source.len() > EXPRESSION_BYTES_MAX {
        return Err(ExpressionError::at(
            EXPRESSION_BYTES_MAX,
            format!("the expression is {} bytes long; the most is {EXPRESSION_BYTES_MAX}", source.len()),
        ));
    }
    if source.trim().is_empty() {
        return Err(ExpressionError::at(0, "the expression is empty"));
    }
    check_brackets(source)?;
    let bytes = source.char_indices().map(|(at, _)| at).chain([source.len()]).collect();
    // A parser that panics on some odd text must cost an error, never the process.
    let parsed = catch_unwind(AssertUnwindSafe(|| {
        // An empty environment: no macros, so `has`, `map` and the others stay the calls they are written as.
        let parser = Env::default().with_optional_support(false).parser();
        parser.enable_ident_escape_syntax(true).error_recovery_limit(1).parse_with_source_info(source)
    }));
    match parsed {
        Ok(Ok((root, info))) => Ok(Tree { root, info, source: source.into(), bytes }),
        Ok(Err(errors)) => Err(errors.errors.first().map_or_else(unreadable, |error| plain(source, error))),
        Err(_) => Err(unreadable()),
    }
}

fn unreadable() -> ExpressionError {
    ExpressionError { message: "this is not a CEL expression".to_owned(), offset: None }
}

/// Refuses deep nesting before the recursive parser sees it. Texts may hold brackets: they are skipped.
fn check_brackets(source: &str) -> Result<(), ExpressionError> {
    let bytes = source.as_bytes();
    let (mut at, mut depth) = (0, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'"' | b'\'' => {
                at = text_end(bytes, at);
                continue;
            }
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth -= 1,
            _ => {}
        }
        if depth > i32::from(EXPRESSION_BRACKETS_MAX) {
            return Err(ExpressionError::at(at, format!("brackets nest deeper than {EXPRESSION_BRACKETS_MAX}")));
        }
        at += 1;
    }
    Ok(())
}

/// The index after the text literal whose opening quote is at `open`; the length when it never ends.
pub fn text_end(bytes: &[u8], open: usize) -> usize {
    let quote = bytes[open];
    let before = |back: usize| open.checked_sub(back).map(|at| bytes[at]);
    let is_prefix = before(2).is_none_or(|byte| !byte.is_ascii_alphanumeric() || matches!(byte, b'b' | b'B'));
    let raw = matches!(before(1), Some(b'r' | b'R')) && is_prefix;
    let triple = bytes[open..].starts_with(&[quote; 3]);
    let mut at = if triple { open + 3 } else { open + 1 };
    while at < bytes.len() {
        if bytes[at] == b'\\' && !raw {
            at += 2;
        } else if triple && bytes[at..].starts_with(&[quote; 3]) {
            return at + 3;
        } else if !triple && bytes[at] == quote {
            return at + 1;
        } else {
            at += 1;
        }
    }
    bytes.len()
}

/// One complaint of the parser in plain words.
fn plain(source: &str, error: &ParseError) -> ExpressionError {
    let raw = error.msg.strip_prefix("Syntax error: ").unwrap_or(&error.msg);
    let message = if raw.contains("'<EOF>'") && !raw.starts_with("extraneous") {
        "the expression ends too early".to_owned()
    } else if let Some(rest) = raw.strip_prefix("token recognition error at: ") {
        format!("unexpected character {}", ticked(rest))
    } else if let Some(rest) = ["extraneous input ", "mismatched input ", "no viable alternative at input "]
        .iter()
        .find_map(|p| raw.strip_prefix(p))
    {
        format!("unexpected {}", ticked(rest.split(" expecting ").next().unwrap_or(rest)))
    } else if raw.starts_with("error recovery") || raw.starts_with("Recursion") || raw == "UNKNOWN" {
        "this is not a CEL expression".to_owned()
    } else {
        raw.to_owned()
    };
    ExpressionError { message, offset: offset_of(source, error.pos) }
}

fn ticked(quoted: &str) -> String {
    format!("`{}`", quoted.trim_matches('\'').trim())
}

/// The byte offset of a line and column, both counted from one, in characters.
fn offset_of(source: &str, (line, column): (isize, isize)) -> Option<usize> {
    let line_index = usize::try_from(line).ok()?.checked_sub(1)?;
    let column_index = usize::try_from(column).ok()?.checked_sub(1)?;
    let start: usize = source.split_inclusive('\n').take(line_index).map(str::len).sum();
    let rest = &source[start..];
    Some(start + rest.char_indices().nth(column_index).map_or(rest.len(), |(at, _)| at))
}
