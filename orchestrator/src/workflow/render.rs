//! Problems as a report for people: the source line with the offending text underlined.

use super::codes::Severity;
use super::diagnostic::{Diagnostic, Diagnostics};
use miette::{GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, SourceCode};
use std::fmt;
use std::sync::Arc;

/// Columns of a report when the terminal does not say.
pub const REPORT_WIDTH: usize = 100;

impl Diagnostics {
    /// All of them as a report, with colours when `colour`.
    pub fn report(&self, colour: bool) -> String {
        let theme = if colour { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
        let handler = GraphicalReportHandler::new_themed(theme).with_links(false).with_width(REPORT_WIDTH);
        let mut out = String::new();
        for item in &self.items {
            if handler.render_report(&mut out, &View::of(item)).is_err() {
                out.push_str(&item.to_string());
            }
            out.push('\n');
        }
        if self.dropped > 0 {
            out.push_str("… and ");
            out.push_str(&self.dropped.to_string());
            out.push_str(" more\n");
        }
        out
    }

    /// All of them as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::to_value(self).unwrap_or_default()
    }
}

/// One problem as the report library sees it.
#[derive(Debug)]
struct View<'a> {
    item: &'a Diagnostic,
    source: Option<NamedSource<Arc<str>>>,
}

impl<'a> View<'a> {
    fn of(item: &'a Diagnostic) -> Self {
        let source = item.source.as_ref().map(|s| NamedSource::new(&item.file, s.text.clone()));
        Self { item, source }
    }
}

impl fmt::Display for View<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.item.line == 0 && !self.item.file.is_empty() {
            write!(f, "{}: ", self.item.file)?;
        }
        f.write_str(&self.item.message)
    }
}

impl std::error::Error for View<'_> {}

impl miette::Diagnostic for View<'_> {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(self.item.code))
    }
    fn severity(&self) -> Option<miette::Severity> {
        Some(match self.item.severity {
            Severity::Error => miette::Severity::Error,
            Severity::Warning => miette::Severity::Warning,
        })
    }
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.item.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }
    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.source.as_ref().map(|source| source as &dyn SourceCode)
    }
    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        self.source.as_ref()?;
        let span = self.item.span;
        let label = LabeledSpan::new_primary_with_span(Some("here".to_owned()), (span.start, span.end - span.start));
        Some(Box::new(std::iter::once(label)))
    }
}
