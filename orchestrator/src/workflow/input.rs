//! The door and the payloads at run time: compiled schemas, defaults, refusals with bounded texts.

use super::model::Workflow;
use super::source::clip;
use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most problems named about one value.
pub const REFUSALS_MAX: usize = 10;
/// Most characters of one of them: messages repeat the value, which comes from outside.
pub const REFUSAL_MAX_CHARS: usize = 300;

/// Compiled schemas of one workflow; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Validators {
    /// The door.
    pub input: Option<Arc<Validator>>,
    /// By event.
    pub payloads: BTreeMap<String, Arc<Validator>>,
}

/// Compiles a schema that stays within the file, with patterns that match in linear time.
pub fn compile(schema: &Value) -> Result<Validator, ValidationError<'static>> {
    jsonschema::options().offline().with_pattern_options(PatternOptions::regex()).build(schema)
}

impl Workflow {
    /// Checks a run's input against the door and fills in its defaults; no input is an empty object where the door wants
    /// one (spec W-6). `Err` = what is wrong, at most `REFUSALS_MAX` sentences.
    pub fn check_input(&self, input: Value) -> Result<Value, Vec<String>> {
        let Some(schema) = &self.input else { return Ok(input) };
        let wants_object = schema.get("type").is_none_or(|t| t == "object");
        let mut input = if input.is_null() && wants_object { Value::Object(Map::new()) } else { input };
        fill_defaults(schema, &mut input);
        match &self.validators.input {
            Some(validator) => refusals(validator, &input).map(|()| input),
            None => Ok(input),
        }
    }

    /// Checks an event's payload. `Err` is the text of spec P-5: `invalid "<event>" payload: …`.
    pub fn check_payload(&self, event: &str, payload: &Value) -> Result<(), String> {
        let refused = |why: &str| Err(format!("invalid \"{event}\" payload: {why}"));
        if !payload.is_object() {
            return refused("it is not an object");
        }
        match self.validators.payloads.get(event) {
            Some(validator) => refusals(validator, payload).or_else(|all| refused(&all.join("; "))),
            None => Ok(()),
        }
    }
}

fn refusals(validator: &Validator, value: &Value) -> Result<(), Vec<String>> {
    let sentence = |error: ValidationError<'_>| {
        let place = error.instance_path().as_str();
        let message = clip_message(&error.to_string());
        if place.is_empty() { message } else { format!("{}: {message}", clip(place)) }
    };
    let all: Vec<String> = validator.iter_errors(value).take(REFUSALS_MAX).map(sentence).collect();
    if all.is_empty() { Ok(()) } else { Err(all) }
}

/// A library's message within [`REFUSAL_MAX_CHARS`].
pub fn clip_message(message: &str) -> String {
    if message.chars().count() <= REFUSAL_MAX_CHARS {
        return message.to_owned();
    }
    // The value comes first and the reason last, so the middle goes.
    let half = REFUSAL_MAX_CHARS / 2;
    let tail: Vec<char> = message.chars().rev().take(half).collect();
    message.chars().take(half).chain(" … ".chars()).chain(tail.into_iter().rev()).collect()
}

/// Fills the defaults of `properties` into objects, inside out where a default is itself an object.
fn fill_defaults(schema: &Value, value: &mut Value) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    let Some(object) = value.as_object_mut() else { return };
    for (name, schema) in properties {
        if let (false, Some(default)) = (object.contains_key(name), schema.get("default")) {
            object.insert(name.clone(), default.clone());
        }
        if let Some(inner) = object.get_mut(name) {
            fill_defaults(schema, inner);
        }
    }
}
