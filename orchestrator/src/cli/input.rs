//! `k=v` texts and JSON as inputs and payloads.

use super::exit::Failure;
use crate::workflow::{FILE_MAX_BYTES, yaml_to_json};
use serde_json::{Map, Value};
use std::io::Read;
use std::path::Path;

/// One object out of `k=v` pairs, whole JSON objects, and a file (later ones win). `known` gives a field's JSON Schema.
pub fn object(texts: &[String], file: Option<&Path>, known: &dyn Fn(&str) -> Option<Value>) -> Result<Value, Failure> {
    let mut all = match file {
        Some(path) => from_file(path)?,
        None => Map::new(),
    };
    for text in texts {
        if text.trim_start().starts_with('{') {
            match serde_json::from_str(text) {
                Ok(Value::Object(fields)) => all.extend(fields),
                Ok(_) => return Err(Failure::usage("the JSON must be an object")),
                Err(error) => return Err(Failure::usage(format!("this is no JSON: {error}"))),
            }
            continue;
        }
        let Some((name, value)) = text.split_once('=') else {
            return Err(Failure::usage(format!("`{text}` has no `=`")).help("write NAME=VALUE, or a JSON object"));
        };
        all.insert(name.trim().to_owned(), scalar(value, known(name.trim()).as_ref()));
    }
    Ok(Value::Object(all))
}

/// A value as its schema wants it: a text stays a text where one is wanted, everything else is read as JSON when it is.
pub fn scalar(text: &str, schema: Option<&Value>) -> Value {
    let kind = schema.and_then(|s| s.get("type"));
    let wants =
        |name: &str| kind.is_some_and(|k| k == name || k.as_array().is_some_and(|all| all.iter().any(|k| k == name)));
    if wants("string") {
        return Value::String(text.to_owned());
    }
    let read = serde_json::from_str(text).ok().filter(|value| kind.is_some() || !matches!(value, Value::Null));
    read.unwrap_or_else(|| Value::String(text.to_owned()))
}

/// The schema of one property.
pub fn property(schema: Option<&Value>, name: &str) -> Option<Value> {
    schema?.get("properties")?.get(name).cloned()
}

fn from_file(path: &Path) -> Result<Map<String, Value>, Failure> {
    let shown = if path == Path::new("-") { "stdin".to_owned() } else { path.display().to_string() };
    let unreadable = |e: std::io::Error| Failure::usage(format!("{shown} cannot be read: {e}"));
    let mut text = String::new();
    let reader: Box<dyn Read> = if path == Path::new("-") {
        Box::new(std::io::stdin())
    } else {
        Box::new(std::fs::File::open(path).map_err(unreadable)?)
    };
    reader.take(FILE_MAX_BYTES as u64 + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() > FILE_MAX_BYTES {
        return Err(Failure::usage(format!("{shown} is larger than {FILE_MAX_BYTES} bytes")));
    }
    let read = serde_json::from_str(&text).ok().or_else(|| yaml_to_json(&text));
    match read {
        Some(Value::Object(fields)) => Ok(fields),
        _ => Err(Failure::usage(format!("{shown} holds no JSON or YAML mapping"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pairs_and_json_make_one_object() {
        let schema = json!({ "properties": { "text": { "type": "string" }, "count": { "type": "integer" } } });
        let known = |name: &str| property(Some(&schema), name);
        let texts: Vec<String> =
            ["text=12", "count=3", "free=true", "word=a=b", "{\"x\": [1]}"].map(str::to_owned).into();
        let all = object(&texts, None, &known).unwrap();
        assert_eq!(all, json!({ "text": "12", "count": 3, "free": true, "word": "a=b", "x": [1] }));
        assert_eq!(object(&["no".to_owned()], None, &known).unwrap_err().exit, super::super::exit::Exit::Usage);
        assert!(object(&["[1]".to_owned()], None, &known).is_err());
    }
}
