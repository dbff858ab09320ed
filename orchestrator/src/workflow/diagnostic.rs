//! Problems found in workflow files, with their places, sorted and bounded.

use super::codes::{CodeInfo, Severity};
use super::source::{SourceText, Span};
use serde::Serialize;
use std::fmt;
use std::sync::Arc;

/// Most problems kept of one check: more than a person fixes in one go.
pub const DIAGNOSTICS_MAX: usize = 200;
/// Most problems of one severity collected from one file: a hostile file must not cost a search for each.
const PROBLEMS_MAX: usize = 2 * DIAGNOSTICS_MAX;
/// Longest message or fix in characters: both may repeat names of the file.
const MESSAGE_MAX_CHARS: usize = 600;
/// Most names looked at for a near one.
const CANDIDATES_MAX: usize = 1_000;

/// One problem.
#[derive(Clone, Debug, Serialize)]
pub struct Diagnostic {
    /// `JR` and four digits.
    pub code: &'static str,
    /// Error or warning.
    pub severity: Severity,
    /// What is wrong, in one sentence without a full stop.
    pub message: String,
    /// The file as it was named; empty when the problem lies in no file.
    pub file: String,
    /// Line from 1; 0 when the problem lies in no file.
    pub line: usize,
    /// Column in characters from 1.
    pub column: usize,
    /// Characters of the offending text on that line.
    pub length: usize,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// The file's text.
    #[serde(skip)]
    pub(super) source: Option<Arc<SourceText>>,
    /// The offending text in it.
    #[serde(skip)]
    pub(super) span: Span,
}

impl Diagnostic {
    /// A problem at a place of a file.
    pub fn at(info: &CodeInfo, source: &Arc<SourceText>, span: Span, message: String, help: Option<String>) -> Self {
        let span = source.first_line(span);
        let (line, column) = source.position(span.start);
        Self {
            code: info.code,
            severity: info.severity,
            message: bounded(message),
            file: source.name.clone(),
            line,
            column,
            length: source.text[span.start..span.end].chars().count().max(1),
            help: help.map(bounded),
            source: Some(source.clone()),
            span,
        }
    }

    /// A problem of a whole file, or of none when `file` is empty.
    pub fn of_file(info: &CodeInfo, file: &str, message: String, help: Option<String>) -> Self {
        Self {
            code: info.code,
            severity: info.severity,
            message,
            file: file.to_owned(),
            line: 0,
            column: 0,
            length: 0,
            help,
            source: None,
            span: Span::default(),
        }
    }
}

/// `file:line:col: error[JR0103]: message (fix: …)`.
impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.file.is_empty(), self.line) {
            (true, _) => {}
            (false, 0) => write!(f, "{}: ", self.file)?,
            (false, line) => write!(f, "{}:{line}:{}: ", self.file, self.column)?,
        }
        write!(f, "{}[{}]: {}", self.severity.word(), self.code, self.message)?;
        match &self.help {
            Some(help) => write!(f, " (fix: {help})"),
            None => Ok(()),
        }
    }
}

/// Problems in the order of their places, at most [`DIAGNOSTICS_MAX`].
#[derive(Clone, Debug, Default, Serialize)]
pub struct Diagnostics {
    /// They.
    pub items: Vec<Diagnostic>,
    /// How many more there were.
    #[serde(skip_serializing_if = "is_zero")]
    pub dropped: usize,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
fn is_zero(n: &usize) -> bool {
    *n == 0
}

impl Diagnostics {
    /// Sorts and bounds; errors survive the bound before warnings do.
    pub fn new(mut items: Vec<Diagnostic>) -> Self {
        let place = |d: &Diagnostic| (d.file.clone(), d.line, d.column, d.code);
        items.sort_by(|a, b| (a.severity, place(a)).cmp(&(b.severity, place(b))));
        items.dedup_by(|a, b| a.severity == b.severity && place(a) == place(b) && a.message == b.message);
        let dropped = items.len().saturating_sub(DIAGNOSTICS_MAX);
        items.truncate(DIAGNOSTICS_MAX);
        items.sort_by_cached_key(|d| (place(d), d.severity));
        Self { items, dropped }
    }

    /// One problem.
    pub fn one(diagnostic: Diagnostic) -> Self {
        Self { items: vec![diagnostic], dropped: 0 }
    }

    /// Both, sorted and bounded anew.
    pub fn merge(self, other: Self) -> Self {
        let dropped = self.dropped + other.dropped;
        let mut merged = Self::new(self.items.into_iter().chain(other.items).collect());
        merged.dropped += dropped;
        merged
    }

    /// Is any of them an error?
    pub fn has_errors(&self) -> bool {
        self.errors() > 0
    }

    /// How many errors are kept.
    pub fn errors(&self) -> usize {
        self.items.iter().filter(|d| d.severity == Severity::Error).count()
    }

    /// How many warnings are kept.
    pub fn warnings(&self) -> usize {
        self.items.len() - self.errors()
    }

    /// Nothing to say.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// One line each, ending in a newline; a last line says how many were left out.
    pub fn plain(&self) -> String {
        let mut out: Vec<String> = self.items.iter().map(ToString::to_string).collect();
        if self.dropped > 0 {
            out.push(format!("… and {} more", self.dropped));
        }
        out.into_iter().map(|line| line + "\n").collect()
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.plain().trim_end())
    }
}

impl std::error::Error for Diagnostics {}

/// Collects the problems of one file.
#[derive(Debug)]
pub struct Problems {
    /// The file.
    pub source: Arc<SourceText>,
    /// What was found, in order of finding.
    pub items: Vec<Diagnostic>,
    errors: usize,
    warnings: usize,
}

impl Problems {
    /// None yet.
    pub fn new(source: Arc<SourceText>) -> Self {
        Self { source, items: Vec::new(), errors: 0, warnings: 0 }
    }

    /// Adds one with a fix.
    pub fn add(&mut self, info: &CodeInfo, span: Span, message: impl Into<String>, help: impl Into<String>) {
        let count = match info.severity {
            Severity::Error => &mut self.errors,
            Severity::Warning => &mut self.warnings,
        };
        *count += 1;
        if *count <= PROBLEMS_MAX {
            self.items.push(Diagnostic::at(info, &self.source, span, message.into(), Some(help.into())));
        }
    }

    /// Has so much been found that searching for fixes is no use?
    pub fn is_full(&self) -> bool {
        self.errors.max(self.warnings) >= PROBLEMS_MAX
    }

    /// [`suggest`], while it is of use.
    pub fn suggest<'a>(&self, wrong: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
        if self.is_full() { String::new() } else { suggest(wrong, candidates) }
    }

    /// Was one of these codes reported?
    pub fn any(&self, found: impl Fn(&Diagnostic) -> bool) -> bool {
        self.items.iter().any(found)
    }
}

fn bounded(text: String) -> String {
    if text.len() <= MESSAGE_MAX_CHARS || text.chars().count() <= MESSAGE_MAX_CHARS {
        return text;
    }
    text.chars().take(MESSAGE_MAX_CHARS).chain("…".chars()).collect()
}

/// ``did you mean `x`?`` when a candidate is near, else what there is.
pub fn suggest<'a>(wrong: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    /// Most names listed when none is near.
    const LISTED_MAX: usize = 12;
    let mut all: Vec<&str> = candidates.into_iter().take(CANDIDATES_MAX).collect();
    all.sort_unstable();
    all.dedup();
    if let Some(near) = nearest(wrong, &all) {
        return format!("did you mean `{near}`?");
    }
    if all.is_empty() {
        return "there is none".to_owned();
    }
    let listed: Vec<String> = all.iter().take(LISTED_MAX).map(|n| format!("`{n}`")).collect();
    let rest = if all.len() > LISTED_MAX { ", …" } else { "" };
    format!("there is {}{rest}", listed.join(", "))
}

/// The candidate a typing mistake away, if any.
fn nearest<'a>(wrong: &str, all: &[&'a str]) -> Option<&'a str> {
    /// Longest name compared: comparing costs the product of both lengths, and longer ones are no typing mistakes.
    const COMPARED_MAX: usize = 100;
    let length = wrong.chars().count();
    if length > COMPARED_MAX {
        return None;
    }
    let allowed = (length / 3).clamp(1, 3).min(length.saturating_sub(1));
    let lower = wrong.to_lowercase();
    let alike = all.iter().filter(|name| name.len().abs_diff(wrong.len()) <= 4 * allowed);
    let best = alike.map(|name| (strsim::osa_distance(&lower, &name.to_lowercase()), *name)).min();
    match best.filter(|(distance, _)| *distance <= allowed) {
        Some((_, name)) => Some(name),
        None => all.iter().copied().find(|name| length >= 3 && name.starts_with(wrong)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workflow::codes;

    #[test]
    fn a_near_name_is_suggested_and_a_far_one_is_not() {
        assert_eq!(suggest("promt", ["prompt", "model"]), "did you mean `prompt`?");
        assert_eq!(suggest("zzz", ["prompt", "model"]), "there is `model`, `prompt`");
        assert_eq!(suggest("x", []), "there is none");
    }

    #[test]
    fn problems_are_sorted_bounded_and_counted() {
        let source = Arc::new(SourceText::new("f.yaml", "a\n".repeat(400)));
        let all: Vec<Diagnostic> = (0..300)
            .rev()
            .map(|n| {
                let info = if n % 2 == 0 { &codes::UNKNOWN_KEY } else { &codes::SHADOWED };
                Diagnostic::at(info, &source, Span { start: n * 2, end: n * 2 + 1 }, "m".into(), None)
            })
            .collect();
        let sorted = Diagnostics::new(all);
        assert_eq!((sorted.items.len(), sorted.dropped, sorted.errors()), (200, 100, 150));
        assert!(sorted.items.windows(2).all(|w| w[0].line < w[1].line));
        assert!(sorted.plain().ends_with("… and 100 more\n"));
    }

    #[test]
    fn the_plain_line_has_place_code_and_fix() {
        let source = Arc::new(SourceText::new("f.yaml", "aé: b\n".to_owned()));
        let d =
            Diagnostic::at(&codes::UNKNOWN_KEY, &source, Span { start: 5, end: 6 }, "no".into(), Some("yes".into()));
        assert_eq!(d.to_string(), "f.yaml:1:5: error[JR0101]: no (fix: yes)");
    }
}
