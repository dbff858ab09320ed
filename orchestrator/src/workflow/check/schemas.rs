//! JSON Schemas: the door and the payloads. Each is compiled once, here.

use crate::workflow::codes;
use crate::workflow::definition::Definition;
use crate::workflow::diagnostic::Problems;
use crate::workflow::input::{Validators, clip_message, compile};
use crate::workflow::source::{Node, NodeKind};
use std::sync::Arc;

pub fn check(definition: &Definition, problems: &mut Problems) -> Validators {
    let mut validators = Validators::default();
    if let Some(schema) = &definition.input {
        validators.input = validator(schema, "the input", problems).map(Arc::new);
    }
    for event in &definition.events {
        let Some(schema) = &event.payload else { continue };
        let name = &event.name.value;
        let kind = schema.get("type");
        if kind.and_then(Node::text) != Some("object") {
            let message = format!("the payload of `{name}` must be an object");
            let span = kind.map_or(schema.span, |k| k.span);
            problems.add(
                &codes::PAYLOAD_NOT_OBJECT,
                span,
                message,
                "write `type: object` and name the fields under `properties`",
            );
            continue;
        }
        if let Some(field) = schema.get("properties").and_then(|p| p.entry("type")) {
            let message =
                format!("the payload of `{name}` cannot have a field `type`: `event.type` is the event's name");
            problems.add(
                &codes::PAYLOAD_TYPE_FIELD,
                field.key.span,
                message,
                "rename the field, to `kind` for instance",
            );
        }
        if let Some(validator) = validator(schema, &format!("the payload of `{name}`"), problems) {
            validators.payloads.insert(name.clone(), Arc::new(validator));
        }
    }
    validators
}

fn validator(schema: &Node, what: &str, problems: &mut Problems) -> Option<jsonschema::Validator> {
    match compile(&schema.to_value()) {
        Ok(validator) => {
            defaults(schema, problems);
            Some(validator)
        }
        Err(error) => {
            let place = schema.at_pointer(error.instance_path().as_str());
            let message = format!("the schema of {what} is not valid: {}", clip_message(&error.to_string()));
            problems.add(&codes::BAD_SCHEMA, place.span, message, "correct it; schemas follow JSON Schema 2020-12");
            None
        }
    }
}

/// Every `default` must pass the schema it stands in, where that can be looked at alone.
fn defaults(schema: &Node, problems: &mut Problems) {
    for property in schema.get("properties").map(Node::entries).unwrap_or_default() {
        defaults(&property.value, problems);
        let Some(default) = property.value.get("default") else { continue };
        let Ok(validator) = compile(&property.value.to_value()) else { continue };
        if let Err(error) = validator.validate(&default.to_value()) {
            let message =
                format!("the default of `{}` does not pass: {}", property.key.value, clip_message(&error.to_string()));
            problems.add(&codes::BAD_DEFAULT, default.span, message, "change the default or the schema beside it");
        }
    }
    if let Some(items) = schema.get("items").filter(|i| matches!(i.kind, NodeKind::Map(_))) {
        defaults(items, problems);
    }
}
