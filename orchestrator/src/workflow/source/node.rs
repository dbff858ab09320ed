//! The tree.

use super::Span;
use serde_json::{Map, Number, Value};

/// Something with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spanned<T> {
    /// It.
    pub value: T,
    /// Where it stands.
    pub span: Span,
}

impl<T> Spanned<T> {
    /// Puts a value at a place.
    pub fn new(value: T, span: Span) -> Self {
        Self { value, span }
    }
}

/// One value of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// Where it stands.
    pub span: Span,
    /// What it is.
    pub kind: NodeKind,
}

/// What a value is.
#[derive(Clone, Debug, PartialEq)]
pub enum NodeKind {
    /// Nothing.
    Null,
    /// True or false.
    Bool(bool),
    /// A number JSON can hold.
    Number(Number),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// A mapping in document order; keys are unique.
    Map(Vec<Entry>),
}

/// One key of a mapping.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The key with its place.
    pub key: Spanned<String>,
    /// Its value.
    pub value: Node,
}

impl Node {
    /// What people call this kind of value.
    pub fn noun(&self) -> &'static str {
        match &self.kind {
            NodeKind::Null => "nothing",
            NodeKind::Bool(_) => "a boolean",
            NodeKind::Number(_) => "a number",
            NodeKind::Text(_) => "a text",
            NodeKind::List(_) => "a list",
            NodeKind::Map(_) => "a mapping",
        }
    }

    /// The text, if it is one.
    pub fn text(&self) -> Option<&str> {
        match &self.kind {
            NodeKind::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The text with its place, if it is one.
    pub fn name(&self) -> Option<Spanned<String>> {
        self.text().map(|text| Spanned::new(text.to_owned(), self.span))
    }

    /// The boolean, if it is one.
    pub fn flag(&self) -> Option<bool> {
        match self.kind {
            NodeKind::Bool(flag) => Some(flag),
            _ => None,
        }
    }

    /// The entries of a mapping; none for anything else.
    pub fn entries(&self) -> &[Entry] {
        match &self.kind {
            NodeKind::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The items of a list, or the value itself as the only one.
    pub fn one_or_many(&self) -> &[Node] {
        match &self.kind {
            NodeKind::List(items) => items,
            _ => std::slice::from_ref(self),
        }
    }

    /// The value under a key of a mapping.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|e| &e.value)
    }

    /// The entry of a key.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries().iter().find(|e| e.key.value == key)
    }

    /// The value a JSON pointer names, or the nearest one above it.
    pub fn at_pointer(&self, pointer: &str) -> &Node {
        let mut at = self;
        for part in pointer.split('/').skip(1) {
            let part = part.replace("~1", "/").replace("~0", "~");
            let next = match &at.kind {
                NodeKind::Map(_) => at.get(&part),
                NodeKind::List(items) => part.parse::<usize>().ok().and_then(|i| items.get(i)),
                _ => None,
            };
            match next {
                Some(node) => at = node,
                None => break,
            }
        }
        at
    }

    /// The same as JSON, without places.
    pub fn to_value(&self) -> Value {
        match &self.kind {
            NodeKind::Null => Value::Null,
            NodeKind::Bool(flag) => Value::Bool(*flag),
            NodeKind::Number(number) => Value::Number(number.clone()),
            NodeKind::Text(text) => Value::String(text.clone()),
            NodeKind::List(items) => Value::Array(items.iter().map(Self::to_value).collect()),
            NodeKind::Map(entries) => {
                Value::Object(entries.iter().map(|e| (e.key.value.clone(), e.value.to_value())).collect::<Map<_, _>>())
            }
        }
    }
}
