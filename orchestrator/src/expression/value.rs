//! What an expression computes with: JSON that is borrowed where it can be.

use super::number::Number;
use super::{ExpressionError, RESULT_BYTES_MAX, RESULT_DEPTH_MAX};
use serde_json::{Map, Value};
use std::rc::Rc;

/// One value during an evaluation.
#[derive(Clone, Debug)]
pub enum Val<'a> {
    /// `null`
    Null,
    /// `true`, `false`
    Bool(bool),
    /// int or double
    Number(Number),
    /// A text.
    Text(Text<'a>),
    /// A list.
    List(List<'a>),
    /// A map.
    Map(Fields<'a>),
}

/// A text, borrowed or built.
#[derive(Clone, Debug)]
pub enum Text<'a> {
    /// From the scope or the expression.
    Borrowed(&'a str),
    /// Built by the expression.
    Built(Rc<str>),
}

/// A list, borrowed or built.
#[derive(Clone, Debug)]
pub enum List<'a> {
    /// From the scope or the expression.
    Borrowed(&'a [Value]),
    /// Built by the expression.
    Built(Rc<Vec<Val<'a>>>),
}

/// A map, borrowed or built.
#[derive(Clone, Debug)]
pub enum Fields<'a> {
    /// From the scope or the expression.
    Borrowed(&'a Map<String, Value>),
    /// Built by the expression.
    Built(Rc<Vec<(Text<'a>, Val<'a>)>>),
}

impl std::ops::Deref for Text<'_> {
    type Target = str;
    fn deref(&self) -> &str {
        match self {
            Self::Borrowed(text) => text,
            Self::Built(text) => text,
        }
    }
}

impl<'a> List<'a> {
    /// How many items.
    pub fn len(&self) -> usize {
        match self {
            Self::Borrowed(items) => items.len(),
            Self::Built(items) => items.len(),
        }
    }

    /// One item.
    pub fn get(&self, index: usize) -> Option<Val<'a>> {
        match self {
            Self::Borrowed(items) => items.get(index).map(Val::from),
            Self::Built(items) => items.get(index).cloned(),
        }
    }
}

impl<'a> Fields<'a> {
    /// How many fields.
    pub fn len(&self) -> usize {
        match self {
            Self::Borrowed(fields) => fields.len(),
            Self::Built(fields) => fields.len(),
        }
    }

    /// The value of one field.
    pub fn get(&self, name: &str) -> Option<Val<'a>> {
        match self {
            Self::Borrowed(fields) => fields.get(name).map(Val::from),
            Self::Built(fields) => fields.iter().find(|(key, _)| &**key == name).map(|(_, value)| value.clone()),
        }
    }

    /// All names as a list.
    pub fn names(&self) -> List<'a> {
        List::Built(Rc::new(match self {
            Self::Borrowed(fields) => fields.keys().map(|key| Val::Text(Text::Borrowed(key))).collect(),
            Self::Built(fields) => fields.iter().map(|(key, _)| Val::Text(key.clone())).collect(),
        }))
    }
}

impl<'a> From<&'a Value> for Val<'a> {
    fn from(value: &'a Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(b) => Self::Bool(*b),
            Value::Number(n) => Self::Number(if let Some(int) = n.as_i64() {
                Number::Int(int)
            } else if let Some(uint) = n.as_u64() {
                Number::Uint(uint)
            } else {
                Number::Double(n.as_f64().unwrap_or(f64::NAN))
            }),
            Value::String(text) => Self::Text(Text::Borrowed(text)),
            Value::Array(items) => Self::List(List::Borrowed(items)),
            Value::Object(fields) => Self::Map(Fields::Borrowed(fields)),
        }
    }
}

impl<'a> Val<'a> {
    /// A built text.
    pub fn text(text: impl Into<Rc<str>>) -> Self {
        Self::Text(Text::Built(text.into()))
    }

    /// A built list.
    pub fn list(items: Vec<Val<'a>>) -> Self {
        Self::List(List::Built(Rc::new(items)))
    }

    /// An integer.
    pub fn int(n: usize) -> Self {
        Self::Number(Number::Int(i64::try_from(n).unwrap_or(i64::MAX)))
    }

    /// The CEL name of its type.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null_type",
            Self::Bool(_) => "bool",
            Self::Number(Number::Int(_)) => "int",
            Self::Number(Number::Uint(_)) => "uint",
            Self::Number(Number::Double(_)) => "double",
            Self::Text(_) => "string",
            Self::List(_) => "list",
            Self::Map(_) => "map",
        }
    }

    /// Its type for an error text.
    pub fn kind_with_article(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a bool",
            Self::Number(Number::Int(_)) => "an int",
            Self::Number(Number::Uint(_)) => "a uint",
            Self::Number(Number::Double(_)) => "a double",
            Self::Text(_) => "a string",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
        }
    }

    /// As text: texts as they are, other scalars as CEL's `string()`; `None` for lists and maps.
    pub fn scalar_text(&self) -> Option<std::borrow::Cow<'_, str>> {
        Some(match self {
            Self::Null => "null".into(),
            Self::Bool(b) => if *b { "true" } else { "false" }.into(),
            Self::Number(Number::Int(n)) => n.to_string().into(),
            Self::Number(Number::Uint(n)) => n.to_string().into(),
            Self::Number(Number::Double(n)) => n.to_string().into(),
            Self::Text(text) => (&**text).into(),
            Self::List(_) | Self::Map(_) => return None,
        })
    }
}

/// The result as JSON, within [`RESULT_BYTES_MAX`] and [`RESULT_DEPTH_MAX`].
pub fn into_json(value: &Val<'_>) -> Result<Value, ExpressionError> {
    let mut room = Room { bytes: RESULT_BYTES_MAX };
    room.convert(value, 0).map_err(|message| ExpressionError { message, offset: None })
}

/// How many bytes of the result are left.
struct Room {
    bytes: usize,
}

impl Room {
    fn take(&mut self, bytes: usize) -> Result<(), String> {
        self.bytes = self
            .bytes
            .checked_sub(bytes)
            .ok_or_else(|| format!("the result is larger than {} KiB", RESULT_BYTES_MAX / 1024))?;
        Ok(())
    }

    fn deeper(depth: usize) -> Result<usize, String> {
        if depth >= RESULT_DEPTH_MAX {
            return Err(format!("the result nests deeper than {RESULT_DEPTH_MAX} levels"));
        }
        Ok(depth + 1)
    }

    fn convert(&mut self, value: &Val<'_>, depth: usize) -> Result<Value, String> {
        Ok(match value {
            Val::Null => {
                self.take(4)?;
                Value::Null
            }
            Val::Bool(b) => {
                self.take(5)?;
                Value::Bool(*b)
            }
            Val::Number(number) => {
                self.take(8)?;
                match *number {
                    Number::Int(n) => n.into(),
                    Number::Uint(n) => n.into(),
                    Number::Double(n) => {
                        let finite = serde_json::Number::from_f64(n);
                        Value::Number(finite.ok_or("the result is not a finite number")?)
                    }
                }
            }
            Val::Text(text) => {
                self.take(text.len() + 2)?;
                Value::String((**text).to_owned())
            }
            Val::List(items) => {
                let depth = Self::deeper(depth)?;
                self.take(2 + items.len())?;
                let items: Result<_, String> = match items {
                    List::Borrowed(items) => items.iter().map(|item| self.convert(&Val::from(item), depth)).collect(),
                    List::Built(items) => items.iter().map(|item| self.convert(item, depth)).collect(),
                };
                Value::Array(items?)
            }
            Val::Map(fields) => {
                let depth = Self::deeper(depth)?;
                self.take(2)?;
                let fields: Result<_, String> = match fields {
                    Fields::Borrowed(fields) => {
                        fields.iter().map(|(key, value)| self.field(key, &Val::from(value), depth)).collect()
                    }
                    Fields::Built(fields) => fields.iter().map(|(key, value)| self.field(key, value, depth)).collect(),
                };
                Value::Object(fields?)
            }
        })
    }

    fn field(&mut self, key: &str, value: &Val<'_>, depth: usize) -> Result<(String, Value), String> {
        self.take(key.len() + 4)?;
        Ok((key.to_owned(), self.convert(value, depth)?))
    }
}
