//! YAML or JSON text → a tree in which every value knows its place, within bounds.

mod node;
mod reader;
mod scalar;
mod surrogates;

pub use node::{Entry, Node, NodeKind, Spanned};
pub use reader::{clip, read};

use super::codes;
use super::diagnostic::Diagnostic;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// Largest workflow file in bytes: far more than a person reads, little enough to refuse a wrong file at once.
pub const FILE_MAX_BYTES: usize = 1 << 20;

/// A piece of a source text in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// First byte.
    pub start: usize,
    /// Byte after the last.
    pub end: usize,
}

/// One file's text and where its lines start.
#[derive(PartialEq, Eq)]
pub struct SourceText {
    /// The file as it was named.
    pub name: String,
    /// Its text.
    pub text: Arc<str>,
    lines: Vec<usize>,
}

/// The name only: the text would drown everything around it.
impl std::fmt::Debug for SourceText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SourceText").field("name", &self.name).finish_non_exhaustive()
    }
}

impl SourceText {
    /// Takes a text that is already in memory.
    pub fn new(name: &str, text: impl Into<Arc<str>>) -> Self {
        let text: Arc<str> = text.into();
        let lines = std::iter::once(0).chain(text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(i, _)| i + 1));
        Self { name: name.to_owned(), lines: lines.collect(), text }
    }

    /// Reads a file within [`FILE_MAX_BYTES`].
    pub fn load(path: &Path) -> Result<Self, Diagnostic> {
        let name = path.display().to_string();
        let unreadable = |error: std::io::Error| {
            Diagnostic::of_file(&codes::UNREADABLE, &name, format!("cannot read the file: {error}"), None)
        };
        let file = std::fs::File::open(path).map_err(unreadable)?;
        if !file.metadata().map_err(unreadable)?.is_file() {
            let help = Some("name a file that ends in .yaml, .yml or .json".to_owned());
            return Err(Diagnostic::of_file(&codes::UNREADABLE, &name, "this is not a plain file".to_owned(), help));
        }
        let mut bytes = Vec::new();
        file.take(FILE_MAX_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() > FILE_MAX_BYTES {
            let message = format!("the file is larger than {FILE_MAX_BYTES} bytes");
            let help = Some("check that this is a workflow file; split a real one with `run`".to_owned());
            return Err(Diagnostic::of_file(&codes::FILE_TOO_LARGE, &name, message, help));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let message = format!("byte {} is not UTF-8", error.utf8_error().valid_up_to() + 1);
            Diagnostic::of_file(&codes::NOT_UTF8, &name, message, Some("save the file as UTF-8".to_owned()))
        })?;
        Ok(Self::new(&name, text.strip_prefix('\u{feff}').unwrap_or(&text)))
    }

    /// Line and column of a byte, both from 1, the column in characters.
    pub fn position(&self, offset: usize) -> (usize, usize) {
        let line = self.lines.partition_point(|start| *start <= offset).max(1);
        let start = self.lines[line - 1];
        let end = self.boundary(offset);
        (line, self.text[start..end.max(start)].chars().count() + 1)
    }

    /// The part of a span on its first line, without the spaces after it.
    pub fn first_line(&self, span: Span) -> Span {
        let start = self.boundary(span.start);
        let end = self.boundary(span.end).max(start);
        let text = self.text[start..end].lines().next().unwrap_or_default().trim_end();
        Span { start, end: start + text.len() }
    }

    /// Where a piece of a scalar's decoded `value` stands in the file: the scalar lies at `span`, the piece is
    /// `value[offset..offset + length]`. Falls back to the whole scalar where escapes or folding hide it.
    pub fn locate(&self, span: Span, value: &str, offset: usize, length: usize) -> Span {
        let raw = &self.text[self.boundary(span.start)..self.boundary(span.end)];
        if let Some(base) = raw.find(value) {
            let start = span.start + base + offset.min(value.len());
            return Span { start, end: (start + length).min(span.end) };
        }
        let Some(rest) = value.get(offset..) else { return span };
        let piece = match rest.get(..length) {
            Some(piece) if !piece.trim().is_empty() => piece,
            _ => rest.lines().next().unwrap_or_default().trim_end(),
        };
        if piece.is_empty() {
            return span;
        }
        let before = value[..offset].matches(piece).count();
        match raw.match_indices(piece).nth(before) {
            Some((at, _)) => Span { start: span.start + at, end: span.start + at + piece.len() },
            None => span,
        }
    }

    /// The nearest character boundary at or before `offset`, within the text.
    fn boundary(&self, offset: usize) -> usize {
        let mut at = offset.min(self.text.len());
        while !self.text.is_char_boundary(at) {
            at -= 1;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_of_a_block_is_found_in_the_file() {
        let text = "p: |\n  first x\n  then context.y here\n";
        let source = SourceText::new("f", text.to_owned());
        let value = "first x\nthen context.y here\n";
        let at = value.find("context.y").unwrap();
        let span = source.locate(Span { start: 3, end: text.len() }, value, at, "context.y".len());
        assert_eq!(&text[span.start..span.end], "context.y");
        assert_eq!(source.position(span.start), (3, 8));
    }

    #[test]
    fn a_file_over_the_bound_and_one_that_is_missing_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let big = dir.path().join("big.yaml");
        std::fs::write(&big, vec![b'a'; 10 << 20]).unwrap();
        assert_eq!(SourceText::load(&big).unwrap_err().code, "JR0002");
        assert_eq!(SourceText::load(&dir.path().join("none.yaml")).unwrap_err().code, "JR0001");
        assert_eq!(SourceText::load(dir.path()).unwrap_err().code, "JR0001");
        std::fs::write(&big, [b'a', 0xff]).unwrap();
        assert_eq!(SourceText::load(&big).unwrap_err().code, "JR0013");
    }
}
