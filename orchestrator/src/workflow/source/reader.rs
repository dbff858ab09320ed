//! Parser events → tree. The first thing that cannot be read stops the reading; wrong keys are reported and skipped.

use super::scalar::resolve;
use super::surrogates;
use super::{Entry, Node, NodeKind, SourceText, Span, Spanned};
use crate::workflow::codes;
use crate::workflow::diagnostic::Problems;
use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Tag};
use std::collections::HashMap;

/// Deepest nesting; recursion over the tree relies on it.
pub const DEPTH_MAX: usize = 64;
/// Most values of one file, aliases expanded.
pub const NODES_MAX: usize = 50_000;
/// Most bytes of text that aliases may add.
pub const ALIAS_BYTES_MAX: usize = 4 << 20;

/// Reads the one document of a file; `None` after a problem that stops the reading.
pub fn read(problems: &mut Problems) -> Option<Node> {
    let source = problems.source.clone();
    let joined = surrogates::joined(&source.text);
    let (text, offsets) = match &joined {
        Some((text, places)) => (text.as_str(), Offsets(Some(places.clone()), source.text.len())),
        None => (&*source.text, Offsets::of(&source.text)),
    };
    let mut reader =
        Reader { problems, offsets, stack: Vec::new(), anchors: HashMap::new(), nodes: 0, alias_bytes: 0, root: None };
    let mut documents = 0;
    for event in Parser::new_from_str(text) {
        let (event, span) = match event {
            Ok(event) => event,
            Err(error) => {
                reader.scan_error(&source, &error);
                return None;
            }
        };
        let span = Span { start: reader.offsets.byte(span.start.index()), end: reader.offsets.byte(span.end.index()) };
        if matches!(event, Event::DocumentStart(_)) {
            documents += 1;
            if documents > 1 {
                let help = "move it into a file of its own";
                reader.problems.add(&codes::SEVERAL_DOCUMENTS, span, "a second document starts here", help);
                return None;
            }
        }
        reader.event(event, span)?;
    }
    reader.root
}

/// Character indexes → byte offsets.
struct Offsets(Option<Vec<u32>>, usize);

impl Offsets {
    fn of(text: &str) -> Self {
        let table = (!text.is_ascii()).then(|| text.char_indices().map(|(at, _)| at as u32).collect());
        Self(table, text.len())
    }
    fn byte(&self, index: usize) -> usize {
        match &self.0 {
            None => index.min(self.1),
            Some(table) => table.get(index).map_or(self.1, |at| *at as usize),
        }
    }
}

/// A collection whose end has not come yet.
struct Open {
    start: usize,
    anchor: usize,
    nodes_before: usize,
    content: Content,
}

enum Content {
    List(Vec<Node>),
    Map { entries: Vec<Entry>, places: HashMap<String, Span>, key: Option<Key> },
}

/// A key that waits for its value.
enum Key {
    Name(Spanned<String>),
    /// Already reported: its value is dropped.
    Wrong,
}

struct Reader<'p> {
    problems: &'p mut Problems,
    offsets: Offsets,
    stack: Vec<Open>,
    anchors: HashMap<usize, Anchor>,
    nodes: usize,
    alias_bytes: usize,
    root: Option<Node>,
}

/// What an alias repeats, and what that costs.
struct Anchor {
    node: Node,
    nodes: usize,
    bytes: usize,
}

impl Reader<'_> {
    /// `None` = stop.
    fn event(&mut self, event: Event<'_>, span: Span) -> Option<()> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.count(1, span)?;
                let kind = self.scalar(&text, style, tag.as_deref(), span)?;
                self.finished(Node { span, kind }, anchor, 1);
                Some(())
            }
            Event::SequenceStart(anchor, tag) => {
                self.open(Content::List(Vec::new()), anchor, tag.as_deref(), "seq", span)
            }
            Event::MappingStart(anchor, tag) => {
                let content = Content::Map { entries: Vec::new(), places: HashMap::new(), key: None };
                self.open(content, anchor, tag.as_deref(), "map", span)
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let open = self.stack.pop()?;
                let kind = match open.content {
                    Content::List(items) => NodeKind::List(items),
                    Content::Map { entries, .. } => NodeKind::Map(entries),
                };
                let span = Span { start: open.start, end: span.end.max(open.start) };
                let nodes = self.nodes - open.nodes_before;
                self.finished(Node { span, kind }, open.anchor, nodes);
                Some(())
            }
            Event::Alias(id) => self.alias(id, span),
            _ => Some(()),
        }
    }

    fn open(&mut self, content: Content, anchor: usize, tag: Option<&Tag>, suffix: &str, span: Span) -> Option<()> {
        if tag.is_some_and(|t| !(t.is_yaml_core_schema() && t.suffix == suffix)) {
            self.problems.add(&codes::BAD_TAG, span, "this tag has no meaning here", "remove the tag");
            return None;
        }
        if self.stack.len() >= DEPTH_MAX {
            let message = format!("values are nested more than {DEPTH_MAX} levels deep");
            self.problems.add(&codes::TOO_DEEP, span, message, "flatten the value");
            return None;
        }
        let nodes_before = self.nodes;
        self.count(1, span)?;
        self.stack.push(Open { start: span.start, anchor, nodes_before, content });
        Some(())
    }

    fn count(&mut self, more: usize, span: Span) -> Option<()> {
        self.nodes += more;
        if self.nodes <= NODES_MAX {
            return Some(());
        }
        let message = format!("the file has more than {NODES_MAX} values");
        self.problems.add(&codes::TOO_MANY_VALUES, span, message, "split the workflow and join the parts with `run`");
        None
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, tag: Option<&Tag>, span: Span) -> Option<NodeKind> {
        let resolved = match tag {
            None if style == ScalarStyle::Plain => resolve(text),
            None => Ok(NodeKind::Text(text.to_owned())),
            Some(tag) if tag.is_yaml_core_schema() => match (tag.suffix.as_str(), resolve(text)) {
                ("str", _) => Ok(NodeKind::Text(text.to_owned())),
                ("int", Ok(NodeKind::Number(n))) if !n.is_f64() => Ok(NodeKind::Number(n)),
                ("float", Ok(NodeKind::Number(n))) => Ok(NodeKind::Number(n)),
                ("bool", Ok(NodeKind::Bool(b))) => Ok(NodeKind::Bool(b)),
                ("null", Ok(NodeKind::Null)) => Ok(NodeKind::Null),
                _ => {
                    let message = format!("`{}` is not a value for this tag", clip(text));
                    self.problems.add(&codes::BAD_TAG, span, message, "remove the tag");
                    return None;
                }
            },
            Some(_) => {
                self.problems.add(&codes::BAD_TAG, span, "this tag has no meaning here", "remove the tag");
                return None;
            }
        };
        match resolved {
            Ok(kind) => Some(kind),
            Err(()) => {
                let message = format!("`{}` is no number that JSON can hold", clip(text));
                self.problems.add(
                    &codes::NOT_JSON_NUMBER,
                    span,
                    message,
                    "write an ordinary number, or quote the word",
                );
                Some(NodeKind::Null)
            }
        }
    }

    fn alias(&mut self, id: usize, span: Span) -> Option<()> {
        let Some(anchor) = self.anchors.get(&id) else {
            self.problems.add(&codes::NOT_YAML, span, "this alias stands inside its own anchor", "write the value out");
            return None;
        };
        let (nodes, bytes) = (anchor.nodes, anchor.bytes);
        self.alias_bytes += bytes;
        self.nodes += nodes;
        if self.alias_bytes > ALIAS_BYTES_MAX || self.nodes > NODES_MAX {
            let message = "the file's aliases expand to too much".to_owned();
            self.problems.add(&codes::ALIAS_EXPANSION, span, message, "write the value out where it is used");
            return None;
        }
        let node = self.anchors[&id].node.clone();
        if self.stack.len() + depth(&node) > DEPTH_MAX {
            let message = format!("with this alias values are nested more than {DEPTH_MAX} levels deep");
            self.problems.add(&codes::TOO_DEEP, span, message, "flatten the value");
            return None;
        }
        self.finished(node, 0, nodes);
        Some(())
    }

    /// Puts a complete value where it belongs.
    fn finished(&mut self, node: Node, anchor: usize, nodes: usize) {
        if anchor > 0 {
            let bytes = text_bytes(&node);
            self.anchors.insert(anchor, Anchor { node: node.clone(), nodes, bytes });
        }
        let Some(top) = self.stack.last_mut() else {
            self.root = Some(node);
            return;
        };
        match &mut top.content {
            Content::List(items) => items.push(node),
            Content::Map { entries, places, key } => match key.take() {
                Some(Key::Name(name)) => entries.push(Entry { key: name, value: node }),
                Some(Key::Wrong) => {}
                None => *key = Some(take_key(self.problems, node, places)),
            },
        }
    }

    fn scan_error(&mut self, source: &SourceText, error: &ScanError) {
        let at = self.offsets.byte(error.marker().index());
        let (line, _) = source.position(at);
        // The scanner often stops one line after the tab that confused it.
        let tab = [line, line.saturating_sub(1)].into_iter().find_map(|n| tab_in_indentation(source, n));
        if let Some(span) = tab {
            self.problems.add(&codes::TAB, span, "this line is indented with a tab", "use spaces");
            return;
        }
        let end = source.text[at..].chars().next().map_or(at, |c| at + c.len_utf8());
        let help = "look for a missing colon, quote or bracket; inside `{ }` a text with `,` or `[` needs quotes";
        self.problems.add(
            &codes::NOT_YAML,
            Span { start: at, end },
            format!("cannot read this: {}", error.info()),
            help,
        );
    }
}

/// Checks that a key is a text that stands once.
fn take_key(problems: &mut Problems, node: Node, places: &mut HashMap<String, Span>) -> Key {
    let span = node.span;
    let name = match node.kind {
        NodeKind::Text(text) => text,
        NodeKind::List(_) | NodeKind::Map(_) => {
            problems.add(&codes::KEY_NOT_TEXT, span, "a list or mapping cannot be a key", "write a name");
            return Key::Wrong;
        }
        _ => {
            let raw = problems.source.text.get(span.start..span.end).unwrap_or_default().to_owned();
            let message = format!("the key `{}` is {}, not a text", clip(&raw), node.noun());
            let unit =
                if matches!(node.kind, NodeKind::Number(_)) { ", or add a unit if it is a duration" } else { "" };
            let help = format!("put it in quotes: \"{}\"{unit}", clip(&raw));
            problems.add(&codes::KEY_NOT_TEXT, span, message, help);
            raw
        }
    };
    if let Some(first) = places.get(&name) {
        let (line, _) = problems.source.position(first.start);
        let message = format!("`{}` stands here a second time", clip(&name));
        problems.add(
            &codes::DUPLICATE_KEY,
            span,
            message,
            format!("rename or remove one; the first is on line {line}"),
        );
        return Key::Wrong;
    }
    places.insert(name.clone(), span);
    Key::Name(Spanned::new(name, span))
}

/// The indentation of line `line` when it holds a tab.
fn tab_in_indentation(source: &SourceText, line: usize) -> Option<Span> {
    let start = source.text.split_inclusive('\n').take(line.checked_sub(1)?).map(str::len).sum::<usize>();
    let blank = source.text[start..].bytes().take_while(|b| matches!(b, b' ' | b'\t')).count();
    let tab = source.text[start..start + blank].find('\t')?;
    Some(Span { start: start + tab, end: start + blank })
}

fn depth(node: &Node) -> usize {
    match &node.kind {
        NodeKind::List(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        NodeKind::Map(entries) => 1 + entries.iter().map(|e| depth(&e.value)).max().unwrap_or(0),
        _ => 0,
    }
}

fn text_bytes(node: &Node) -> usize {
    match &node.kind {
        NodeKind::Text(text) => text.len(),
        NodeKind::List(items) => items.iter().map(text_bytes).sum(),
        NodeKind::Map(entries) => entries.iter().map(|e| e.key.value.len() + text_bytes(&e.value)).sum(),
        _ => 0,
    }
}

/// A piece of outside text short enough for a message.
pub fn clip(text: &str) -> String {
    /// Characters of outside text a message repeats.
    const CLIP_CHARS: usize = 60;
    if text.chars().count() <= CLIP_CHARS {
        return text.to_owned();
    }
    text.chars().take(CLIP_CHARS).chain("…".chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;
    use std::sync::Arc;

    fn tree(text: &str) -> (Option<Node>, Vec<&'static str>) {
        let mut problems = Problems::new(Arc::new(SourceText::new("f", text.to_owned())));
        let node = read(&mut problems);
        (node, problems.items.iter().map(|d| d.code).collect())
    }

    #[test]
    fn yaml_and_json_give_the_same_tree() {
        let yaml = "a: [1, two, ~]\nb: { c: true }\nd: |\n  x\n  y\n";
        let (node, codes) = tree(yaml);
        assert_eq!(codes, Vec::<&str>::new());
        let value = node.unwrap().to_value();
        assert_eq!(value, json!({"a": [1, "two", null], "b": {"c": true}, "d": "x\ny\n"}));
        assert_eq!(tree(&serde_json::to_string_pretty(&value).unwrap()).0.unwrap().to_value(), value);
    }

    #[test]
    fn places_count_characters_of_any_width() {
        let text = "a: é\nbß: [x, 'ü y']\n";
        let (node, _) = tree(text);
        let node = node.unwrap();
        let item = &node.entries()[1].value.one_or_many()[1];
        assert_eq!(&text[item.span.start..item.span.end], "'ü y'");
    }

    #[test]
    fn a_billion_laughs_are_refused_quickly() {
        let mut text = "a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n".to_owned();
        for n in 1..12 {
            let item = format!("*a{}", n - 1);
            let line = format!("a{n}: &a{n} [{}]\n", vec![item; 9].join(", "));
            text.push_str(&line);
        }
        assert_eq!(tree(&text).1, ["JR0006"]);
        let long = format!("a: &a {}\nb: [{}]\n", "x".repeat(100_000), vec!["*a"; 60].join(", "));
        assert_eq!(tree(&long).1, ["JR0006"]);
    }

    #[test]
    fn bounds_and_wrong_keys_are_reported() {
        assert_eq!(tree(&"[".repeat(200)).1, ["JR0004"]);
        assert_eq!(tree(&format!("[{}]", "1,".repeat(60_000))).1, ["JR0005"]);
        assert_eq!(tree("a: 1\na: 2\n").1, ["JR0007"]);
        assert_eq!(tree("a:\n\tb: 1\n").1, ["JR0008"]);
        assert_eq!(tree("a: 1\n---\nb: 1\n").1, ["JR0009"]);
        assert_eq!(tree("1: x\n[a]: y\n? {b: c}\n: z\n").1, ["JR0010"; 3]);
        assert_eq!(tree("a: !foo x\n").1, ["JR0011"]);
        assert_eq!(tree("a: &a [*a]\n").1.len(), 1);
        assert_eq!(tree("a: .inf\n").1, ["JR0014"]);
        assert_eq!(tree("a: [1\n").1, ["JR0003"]);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_reported(text in "[a-c:\\-\\[\\]{}&*!|>'\"?#, \t\n%é]{0,80}") {
            let mut problems = Problems::new(Arc::new(SourceText::new("f", text)));
            let _ = read(&mut problems);
            for item in &problems.items {
                prop_assert!(item.line >= 1 && item.column >= 1, "{item}");
            }
        }
    }
}
