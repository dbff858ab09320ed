//! The JSON Schema of a workflow file for `jr2 schema` and editors, made from the tables the parser checks with.

use super::shape::{NAME_MAX_BYTES, NameRule, Shape, Table, WORKFLOW};
use serde_json::{Map, Value, json};

/// The schema, draft 2020-12. Bounds that JSON Schema counts differently (bytes) are left to `jr2 check`.
pub fn json_schema() -> Value {
    schema_of(&WORKFLOW, "jr2 workflow")
}

/// The schema of any file that is checked against a table.
pub fn schema_of(table: &Table, title: &str) -> Value {
    let mut definitions = Map::new();
    let mut root = object(table, &mut definitions);
    if let Some(root) = root.as_object_mut() {
        root.insert("$defs".to_owned(), Value::Object(definitions));
        root.shift_insert(0, "$schema".to_owned(), json!("https://json-schema.org/draft/2020-12/schema"));
        root.shift_insert(1, "title".to_owned(), json!(title));
    }
    root
}

fn object(table: &Table, definitions: &mut Map<String, Value>) -> Value {
    let mut properties = Map::new();
    for key in table.keys {
        let mut schema = shape(&key.shape, definitions);
        if let Some(schema) = schema.as_object_mut() {
            schema.insert("description".to_owned(), json!(key.about));
        }
        properties.insert(key.name.to_owned(), schema);
    }
    let required: Vec<&str> = table.keys.iter().filter(|k| k.required).map(|k| k.name).collect();
    let mut schema = json!({ "type": "object", "properties": properties });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    match &table.rest {
        None => schema["additionalProperties"] = json!(false),
        Some((rule, rest)) => {
            schema["additionalProperties"] = shape(rest, definitions);
            schema["propertyNames"] = json!({ "pattern": rule.pattern() });
        }
    }
    schema
}

fn shape(wanted: &Shape, definitions: &mut Map<String, Value>) -> Value {
    match wanted {
        Shape::Text(_) | Shape::Template(_) => json!({ "type": "string" }),
        Shape::Condition => json!({ "type": ["string", "boolean"] }),
        Shape::Name(rule) => name(*rule),
        Shape::Flag => json!({ "type": "boolean" }),
        Shape::Count(min, max) => json!({ "type": "integer", "minimum": min, "maximum": max }),
        Shape::Duration => json!({ "type": "string", "pattern": NameRule::Duration.pattern() }),
        Shape::Backoff => json!({ "type": "string", "pattern": "^[0-9a-z ]+(\\.\\.[0-9a-z ]+)?$" }),
        Shape::Memory => {
            json!({ "type": ["string", "integer"], "pattern": "^[0-9]+(\\.[0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)?$", "minimum": 1 })
        }
        Shape::Cpu => {
            json!({ "type": ["string", "number"], "pattern": "^[0-9]+(\\.[0-9]+)?m?$", "exclusiveMinimum": 0 })
        }
        Shape::Model => json!({ "type": "string", "pattern": "^(open|[^/\\s]+/\\S+)$" }),
        Shape::Choice(words) => json!({ "enum": words }),
        Shape::Nothing => json!({ "type": "null" }),
        Shape::JsonSchema => json!({ "$ref": "https://json-schema.org/draft/2020-12/schema" }),
        Shape::Value | Shape::Computed | Shape::Literal => json!({}),
        Shape::Map(rule, inner) => {
            let inner = shape(inner, definitions);
            json!({ "type": "object", "propertyNames": name(*rule), "additionalProperties": inner })
        }
        Shape::List(inner) => json!({ "type": "array", "items": shape(inner, definitions) }),
        Shape::Object(table) => {
            if !definitions.contains_key(table.name) {
                // The place is taken first: tables refer to themselves.
                definitions.insert(table.name.to_owned(), Value::Null);
                let schema = object(table, definitions);
                definitions.insert(table.name.to_owned(), schema);
            }
            json!({ "$ref": format!("#/$defs/{}", table.name) })
        }
        Shape::Either(shapes) => {
            let all: Vec<Value> = shapes.iter().map(|s| shape(s, definitions)).collect();
            json!({ "anyOf": all })
        }
    }
}

fn name(rule: NameRule) -> Value {
    match rule {
        NameRule::Plain | NameRule::Identifier | NameRule::Variable => {
            json!({ "type": "string", "pattern": rule.pattern(), "maxLength": NAME_MAX_BYTES })
        }
        _ => json!({ "type": "string", "pattern": rule.pattern() }),
    }
}
