//! Does a rule fit a request? Pure: the request, the captures and the counts in, a yes or the first reason against out.

use super::request::{Seen, SeenCall, short};
use super::script::{CallTest, Capture, CaptureSource, Script, When};
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Values read from a request, by name.
pub type Captures = BTreeMap<String, String>;

/// How many requests came before; forgotten at a restart.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// This request's place among all, from 1.
    pub call: u64,
    /// This request's place in its conversation, from 1.
    pub conversation_call: u64,
}

/// A condition on a text. A string means "contains"; `{{name}}` in `contains` and `equals` is a capture's value.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "TextTestText")]
pub struct TextTest {
    contains: Vec<String>,
    lacks: Vec<String>,
    equals: Option<String>,
    regex: Option<regex::Regex>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a text condition is a string, or an object of contains, lacks, equals and regex")]
enum TextTestText {
    Contains(String),
    Object(TextTestObject),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TextTestObject {
    #[serde(default)]
    contains: OneOrMany,
    #[serde(default)]
    lacks: OneOrMany,
    equals: Option<String>,
    regex: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

impl Default for OneOrMany {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

impl OneOrMany {
    fn list(self) -> Vec<String> {
        match self {
            Self::One(text) => vec![text],
            Self::Many(list) => list,
        }
    }
}

impl TryFrom<TextTestText> for TextTest {
    type Error = regex::Error;

    fn try_from(text: TextTestText) -> Result<Self, regex::Error> {
        Ok(match text {
            TextTestText::Contains(text) => Self { contains: vec![text], lacks: Vec::new(), equals: None, regex: None },
            TextTestText::Object(o) => Self {
                contains: o.contains.list(),
                lacks: o.lacks.list(),
                equals: o.equals,
                regex: o.regex.as_deref().map(regex::Regex::new).transpose()?,
            },
        })
    }
}

impl TextTest {
    fn holds(&self, text: &str, captures: &Captures) -> bool {
        // A capture without a value can equal nothing.
        let has = |part: &String| fill(part, captures).is_ok_and(|part| text.contains(&part));
        self.contains.iter().all(has)
            && !self.lacks.iter().any(has)
            && self.equals.as_ref().is_none_or(|whole| fill(whole, captures).is_ok_and(|whole| whole == text))
            && self.regex.as_ref().is_none_or(|regex| regex.is_match(text))
    }
}

/// A number, or `{min, max}`, both inclusive.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(from = "RangeText")]
pub struct Range {
    min: u64,
    max: u64,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a count is a number, or an object of min and max")]
enum RangeText {
    Exactly(u64),
    Between(Between),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Between {
    min: Option<u64>,
    max: Option<u64>,
}

impl From<RangeText> for Range {
    fn from(text: RangeText) -> Self {
        match text {
            RangeText::Exactly(n) => Self { min: n, max: n },
            RangeText::Between(b) => Self { min: b.min.unwrap_or(0), max: b.max.unwrap_or(u64::MAX) },
        }
    }
}

impl Range {
    fn holds(self, n: u64) -> bool {
        (self.min..=self.max).contains(&n)
    }
}

/// Everything that can be captured from a request: the script's own, and `model`, `lastUser`, `lastTool`, `cwd` (of the
/// newest `Working directory: …` line) and `allowed` (the first of the newest `Allowed now:` line), spec 8.4.
pub fn captures(script: &Script, seen: &Seen) -> Captures {
    let mut values = Captures::new();
    values.insert("model".to_owned(), seen.model.clone());
    let mut put = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            values.insert(name.to_owned(), value);
        }
    };
    put("lastUser", seen.last_user().map(str::to_owned));
    put("lastTool", seen.last_tool().map(|m| m.text.clone()));
    put("cwd", newest(seen, CaptureSource::User, |text| after_last(text, "Working directory: ", '\n')));
    put("allowed", newest(seen, CaptureSource::Any, |text| after_last(text, "Allowed now: `", '`')));
    for (name, capture) in &script.captures {
        put(name, take(capture, seen).or_else(|| capture.default.clone()));
    }
    values
}

fn take(capture: &Capture, seen: &Seen) -> Option<String> {
    let regex = capture.compiled.as_ref()?;
    newest(seen, capture.from, |text| {
        let found = regex.captures(text)?;
        found.get(1).or_else(|| found.get(0)).map(|group| group.as_str().to_owned())
    })
}

fn newest(seen: &Seen, from: CaptureSource, look: impl Fn(&str) -> Option<String>) -> Option<String> {
    let roles: &[&str] = match from {
        CaptureSource::Body => return look(&seen.body),
        CaptureSource::System => return look(seen.system()),
        CaptureSource::User => &["user"],
        CaptureSource::Tool => &["tool"],
        CaptureSource::Any => &["user", "tool"],
    };
    seen.messages.iter().rev().filter(|m| roles.contains(&m.role.as_str())).find_map(|m| look(&m.text))
}

fn after_last(text: &str, mark: &str, end: char) -> Option<String> {
    let rest = &text[text.rfind(mark)? + mark.len()..];
    Some(rest.split(end).next().unwrap_or(rest).to_owned())
}

/// Puts captures in for `{{name}}`. The error is the name that has no value.
pub fn fill(template: &str, captures: &Captures) -> Result<String, String> {
    let mut filled = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(start) = rest.find("{{") {
        filled.push_str(&rest[..start]);
        let inside = &rest[start + 2..];
        let name = inside.find("}}").map(|end| &inside[..end]);
        match name.filter(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')) {
            Some(name) => {
                filled.push_str(captures.get(name).ok_or_else(|| name.to_owned())?);
                rest = &inside[name.len() + 2..];
            }
            None => {
                filled.push_str("{{");
                rest = inside;
            }
        }
    }
    filled.push_str(rest);
    Ok(filled)
}

/// Whether all conditions hold; the error names the first that does not, with what was seen.
pub fn fits(when: &When, seen: &Seen, captures: &Captures, counts: Counts) -> Result<(), String> {
    let text = |name: &str, test: Option<&TextTest>, value: Option<&str>| match (test, value) {
        (None, _) => Ok(()),
        (Some(test), Some(value)) if test.holds(value, captures) => Ok(()),
        (Some(_), value) => Err(format!("{name} is {:?}", value.map(short))),
    };
    let some = |name: &str, test: Option<&TextTest>, role: &str| match test {
        Some(test) if !seen.messages.iter().any(|m| m.role == role && test.holds(&m.text, captures)) => {
            Err(format!("{name}: no {role} message fits"))
        }
        _ => Ok(()),
    };
    let count = |name: &str, test: Option<Range>, n: u64| match test {
        Some(range) if !range.holds(n) => Err(format!("{name} is {n}")),
        _ => Ok(()),
    };
    text("path", when.path.as_ref(), Some(&seen.path))?;
    text("model", when.model.as_ref(), Some(&seen.model))?;
    if when.stream.is_some_and(|stream| stream != seen.stream) {
        return Err(format!("stream is {}", seen.stream));
    }
    let ends = seen.messages.last().map_or("", |m| &m.role);
    if when.ends.as_ref().is_some_and(|role| role != ends) {
        return Err(format!("it ends in a message from `{}`", short(ends)));
    }
    text("system", when.system.as_ref(), Some(seen.system()))?;
    text("lastUser", when.last_user.as_ref(), seen.last_user())?;
    some("anyUser", when.any_user.as_ref(), "user")?;
    text("lastTool", when.last_tool.as_ref(), seen.last_tool().map(|m| m.text.as_str()))?;
    some("anyTool", when.any_tool.as_ref(), "tool")?;
    if let Some(test) = &when.last_call {
        call_fits(test, seen.last_call(), captures)?;
    }
    count("assistantMessages", when.assistant_messages, seen.assistant_messages())?;
    count("sinceUser", when.since_user, seen.since_user())?;
    count("call", when.call, counts.call)?;
    count("conversationCall", when.conversation_call, counts.conversation_call)?;
    for (name, test) in &when.headers {
        text(&format!("header {name}"), Some(test), Some(seen.header(name)))?;
    }
    if let Some(tool) = when.tools.iter().find(|tool| !seen.tools.contains(tool)) {
        return Err(format!("tool {tool} is not offered"));
    }
    if let Some(name) = when.has.iter().find(|name| !captures.contains_key(*name)) {
        return Err(format!("capture {name} has no value"));
    }
    if let Some(name) = when.lacks.iter().find(|name| captures.contains_key(*name)) {
        return Err(format!("capture {name} has a value"));
    }
    text("body", when.body.as_ref(), Some(&seen.body))?;
    text("conversation", when.conversation.as_ref(), Some(&seen.conversation))
}

fn call_fits(test: &CallTest, call: Option<&SeenCall>, captures: &Captures) -> Result<(), String> {
    let Some(call) = call else { return Err("lastCall: it does not end in a tool result".to_owned()) };
    if test.name.as_ref().is_some_and(|name| *name != call.name) {
        return Err(format!("lastCall is `{}`", short(&call.name)));
    }
    let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_default();
    for (key, test) in &test.arguments {
        let value = &arguments[key.as_str()];
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        if !test.holds(&value, captures) {
            return Err(format!("lastCall argument {key} is {:?}", short(&value)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TURN: &str = "Do it: run `sh t`.\n\n<jr2-turn>\nWorking directory: /w/a b\nAllowed now: `mcp__jr2__finish`, `mcp__jr2__other`.\n</jr2-turn>";

    fn seen() -> Seen {
        let body = json!({"model": "m", "stream": true, "tools": [{"function": {"name": "bash"}}], "messages": [
            {"role": "system", "content": "be brief"}, {"role": "user", "content": TURN},
            {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "bash", "arguments": "{\"command\":\"sh t\",\"n\":2}"}}]},
            {"role": "tool", "tool_call_id": "1", "content": "FAIL: x"}]});
        Seen::read("/v1/chat/completions", vec![("x-a".into(), "1".into())], body.to_string()).unwrap()
    }

    fn outcome(when: Value) -> Result<(), String> {
        let script = Script::from_json(json!({"captures": {"test": {"from": "user", "regex": "run `([^`]+)`"}, "none": {"from": "tool", "regex": "zzz"}},
            "rules": [{"when": when, "answer": {"text": "x"}}]}))
        .unwrap();
        let seen = seen();
        fits(&script.rules[0].when, &seen, &captures(&script, &seen), Counts { call: 3, conversation_call: 2 })
    }

    #[test]
    fn every_condition_holds_and_fails() {
        let cases = [
            (json!({"path": "/v1/"}), json!({"path": "/v2/"})),
            (json!({"model": {"equals": "m"}}), json!({"model": "x"})),
            (json!({"stream": true}), json!({"stream": false})),
            (json!({"ends": "tool"}), json!({"ends": "user"})),
            (json!({"system": "brief"}), json!({"system": "long"})),
            (json!({"lastUser": {"contains": ["Do it", "run"]}}), json!({"lastUser": {"contains": ["Do it", "walk"]}})),
            (json!({"anyUser": "Do"}), json!({"anyUser": "FAIL"})),
            (json!({"lastTool": {"regex": "^FAIL"}}), json!({"lastTool": {"lacks": "FAIL"}})),
            (json!({"anyTool": "FAIL"}), json!({"anyTool": "Do"})),
            (
                json!({"lastCall": {"name": "bash", "arguments": {"command": {"equals": "{{test}}"}, "n": "2"}}}),
                json!({"lastCall": {"name": "read"}}),
            ),
            (json!({"lastCall": {}}), json!({"lastCall": {"arguments": {"command": "{{none}}"}}})),
            (json!({"assistantMessages": 1}), json!({"assistantMessages": {"min": 2}})),
            (json!({"sinceUser": {"max": 1}}), json!({"sinceUser": 0})),
            (json!({"headers": {"x-a": "1"}}), json!({"headers": {"x-b": "1"}})),
            (json!({"tools": ["bash"]}), json!({"tools": ["bash", "read"]})),
            (json!({"has": ["test"], "lacks": ["none"]}), json!({"has": ["none"]})),
            (json!({"body": "\"stream\":true"}), json!({"body": "zzz"})),
            (json!({"call": 3}), json!({"call": 1})),
            (json!({"conversationCall": 2}), json!({"conversationCall": {"max": 1}})),
            (json!({"conversation": {"regex": "^[0-9a-f]{16}$"}}), json!({"conversation": "zz"})),
        ];
        for (holds, fails) in cases {
            assert_eq!(outcome(holds.clone()), Ok(()), "{holds}");
            assert!(outcome(fails.clone()).is_err(), "{fails}");
        }
    }

    #[test]
    fn captures_come_from_the_newest_message_that_has_them() {
        let script = Script::from_json(
            json!({"captures": {"d": {"from": "system", "regex": "zz", "default": "dd"}}, "rules": []}),
        );
        let values = captures(&script.unwrap(), &seen());
        assert_eq!(values["cwd"], "/w/a b");
        assert_eq!(values["allowed"], "mcp__jr2__finish");
        assert_eq!(values["lastTool"], "FAIL: x");
        assert_eq!(values["d"], "dd");
    }

    #[test]
    fn placeholders_are_filled_and_missing_ones_named() {
        let values = Captures::from([("a".to_owned(), "1".to_owned())]);
        assert_eq!(fill("x{{a}}y{{ a }}{{}}{{a}}{{", &values), Ok("x1y{{ a }}{{}}1{{".to_owned()));
        assert_eq!(fill("{{b}}", &values), Err("b".to_owned()));
    }
}
