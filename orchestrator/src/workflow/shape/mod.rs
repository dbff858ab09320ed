//! The grammar of the format as data: which keys a mapping has and what stands under them. The parser's checks and the
//! JSON Schema of `jr2 schema` both read these tables, so they cannot differ.

mod tables;
mod units;
mod walk;

pub use tables::*;
pub use units::{parse_backoff, parse_duration_ms};
pub use walk::check;

/// Longest prompt or instructions an author may write, in bytes: a model reads it on every Turn.
pub const PROMPT_MAX_BYTES: usize = 64 << 10;
/// Longest other text in bytes.
pub const TEXT_MAX_BYTES: usize = 16 << 10;
/// Longest CEL expression in bytes: a condition that a person still reads.
pub const EXPRESSION_MAX_BYTES: usize = 4 << 10;
/// Longest name in bytes: it becomes part of paths, tool names and addresses.
pub const NAME_MAX_BYTES: usize = 64;

/// What may stand at a place.
#[derive(Debug)]
pub enum Shape {
    /// A text of at most so many bytes.
    Text(usize),
    /// A text with `{{ }}` of at most so many bytes.
    Template(usize),
    /// A CEL expression, or a boolean.
    Condition,
    /// A name.
    Name(NameRule),
    /// `true` or `false`.
    Flag,
    /// A whole number within bounds.
    Count(u64, u64),
    /// A duration.
    Duration,
    /// A duration or a range of two.
    Backoff,
    /// A quantity of memory.
    Memory,
    /// A quantity of CPU.
    Cpu,
    /// `provider/model` or `open`.
    Model,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Nothing at all.
    Nothing,
    /// A JSON Schema.
    JsonSchema,
    /// Any value; texts in it may hold `{{ }}`.
    Value,
    /// Any value; texts in it are CEL.
    Computed,
    /// Any value as it stands.
    Literal,
    /// A mapping from names to one shape.
    Map(NameRule, &'static Shape),
    /// A list.
    List(&'static Shape),
    /// A mapping with known keys.
    Object(&'static Table),
    /// The first that admits the value's type.
    Either(&'static [Shape]),
}

/// What a name may look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameRule {
    /// Letters, digits, `_`, `-` (spec E-1).
    Plain,
    /// A CEL identifier.
    Identifier,
    /// A target: names joined with dots.
    Path,
    /// Event descriptors, parted by spaces.
    Events,
    /// A duration.
    Duration,
    /// The name of an environment variable.
    Variable,
    /// Anything that is not empty.
    Free,
}

/// One key of a mapping.
#[derive(Debug)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// For the schema's reader.
    pub about: &'static str,
    /// What stands under it.
    pub shape: Shape,
    /// It must be there.
    pub required: bool,
}

/// A mapping with known keys.
#[derive(Debug)]
pub struct Table {
    /// What people call it, with its article.
    pub noun: &'static str,
    /// Its name among the schema's definitions.
    pub name: &'static str,
    /// The keys.
    pub keys: &'static [Key],
    /// What stands under any other key; `None` = there is no other key.
    pub rest: Option<(NameRule, &'static Shape)>,
}

impl NameRule {
    /// The pattern, as a regular expression.
    pub fn pattern(self) -> &'static str {
        match self {
            Self::Plain => "^[a-zA-Z0-9_-]+$",
            Self::Identifier | Self::Variable => "^[a-zA-Z_][a-zA-Z0-9_]*$",
            Self::Path => "^[a-zA-Z0-9_-]+(\\.[a-zA-Z0-9_-]+)*$",
            Self::Events => {
                "^(\\*|[a-zA-Z0-9_-]+(\\.[a-zA-Z0-9_-]+)*(\\.\\*?)?)( +(\\*|[a-zA-Z0-9_-]+(\\.[a-zA-Z0-9_-]+)*(\\.\\*?)?))*$"
            }
            Self::Duration => "^[0-9]+[a-zA-Z]+( ?[0-9]+[a-zA-Z]+)*$",
            Self::Free => "^[^\\u0000]+$",
        }
    }

    /// Does a name follow the rule?
    pub fn admits(self, name: &str) -> bool {
        let plain =
            |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
        let descriptor = |part: &str| {
            let stem = part.strip_suffix(".*").or_else(|| part.strip_suffix('.')).unwrap_or(part);
            part == "*" || stem.split('.').all(plain)
        };
        match self {
            Self::Plain => plain(name),
            Self::Identifier | Self::Variable => {
                plain(name) && !name.contains('-') && !name.as_bytes()[0].is_ascii_digit()
            }
            Self::Path => name.split('.').all(plain),
            Self::Events => !name.trim().is_empty() && name.split_whitespace().all(descriptor),
            Self::Duration => parse_duration_ms(name).is_ok(),
            Self::Free => !name.is_empty() && !name.contains('\0'),
        }
    }

    /// What the rule asks for.
    fn wants(self) -> &'static str {
        match self {
            Self::Plain => "use letters, digits, `_` and `-`",
            Self::Identifier => "use letters, digits and `_`, and start with a letter",
            Self::Variable => "use letters, digits and `_`, as in `PATH_EXTRA`",
            Self::Path => "use names joined with dots",
            Self::Events => "use an event's name, `*`, or several names parted by spaces",
            Self::Duration => "write a number with a unit, as in `30s`, `5m`, `14d`",
            Self::Free => "write a name",
        }
    }
}

impl Shape {
    /// What the shape is called in messages.
    pub fn noun(&self) -> String {
        match self {
            Self::Text(_) => "a text".to_owned(),
            Self::Template(_) => "a text (with `{{ }}` where wanted)".to_owned(),
            Self::Condition => "an expression".to_owned(),
            Self::Name(NameRule::Path) => "a state's name".to_owned(),
            Self::Name(_) => "a name".to_owned(),
            Self::Flag => "true or false".to_owned(),
            Self::Count(min, max) => format!("a whole number from {min} to {max}"),
            Self::Duration => "a duration such as `30s`".to_owned(),
            Self::Backoff => "a duration or a range such as `1s..5m`".to_owned(),
            Self::Memory => "a quantity such as `2Gi`".to_owned(),
            Self::Cpu => "a quantity such as `1` or `500m`".to_owned(),
            Self::Model => "`provider/model` or `open`".to_owned(),
            Self::Choice(words) => words.iter().map(|w| format!("`{w}`")).collect::<Vec<_>>().join(", "),
            Self::Nothing => "nothing".to_owned(),
            Self::JsonSchema => "a JSON Schema (a mapping)".to_owned(),
            Self::Value | Self::Computed | Self::Literal => "a value".to_owned(),
            Self::Map(..) => "a mapping".to_owned(),
            Self::List(_) => "a list".to_owned(),
            Self::Object(table) => table.noun.to_owned(),
            Self::Either(shapes) => {
                let mut nouns: Vec<String> = shapes.iter().map(Self::noun).collect();
                nouns.dedup();
                nouns.join(" or ")
            }
        }
    }
}
