//! Gates at the command line: what is asked, how it is answered.

use super::client::Client;
use super::exit::Failure;
use super::input::scalar;
use super::output;
use serde_json::{Map, Value};
use std::fmt::Write as _;

/// Longest line read from a person in bytes.
const LINE_MAX_BYTES: usize = 64 << 10;

/// What a Gate shows and takes, in lines.
pub fn describe(gate: &Value) -> String {
    let mut text = format!("Gate {} waits for an answer.", gate["gate"].as_str().unwrap_or_default());
    if let Some(meta) = gate["meta"].as_object() {
        for (name, value) in meta {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            if !value.is_empty() {
                let _ = write!(text, "\n  {name}: {}", value.replace('\n', "\n    "));
            }
        }
    }
    output::plain(&text)
}

/// The lines that answer a Gate, one an event.
pub fn send_lines(run: &str, gate: &Value, options: &str) -> Vec<String> {
    let (name, activation) =
        (gate["gate"].as_str().unwrap_or_default(), gate["activation"].as_str().unwrap_or_default());
    events(gate)
        .map(|event| {
            let fields: Vec<String> = required(event).iter().map(|field| format!(" --field {field}=…")).collect();
            let word = event["name"].as_str().unwrap_or_default();
            format!(
                "jr2 send {run}{options} --gate {} --activation {} --event {}{}",
                quoted(name),
                quoted(activation),
                quoted(word),
                fields.concat()
            )
        })
        .collect()
}

/// As a shell takes it.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

fn events(gate: &Value) -> impl Iterator<Item = &Value> {
    gate["accepts"].as_array().into_iter().flatten()
}

fn required(event: &Value) -> Vec<String> {
    let names = event["payload"]["required"].as_array().into_iter().flatten();
    names.filter_map(|name| name.as_str().map(str::to_owned)).collect()
}

/// Asks the person at the terminal and sends the answer. `false`: they would rather not answer now.
pub async fn ask(client: &Client, run: &str, gate: &Value) -> Result<bool, Failure> {
    let owned = gate.clone();
    let asked = tokio::task::spawn_blocking(move || question(&owned)).await;
    let Some(body) = asked.map_err(|e| Failure::failed(e.to_string()))? else { return Ok(false) };
    answer(client, run, gate, &body).await.map(|()| true)
}

/// Sends an answer for this activation; a refusal is said, and the Gate stays open.
pub async fn answer(client: &Client, run: &str, gate: &Value, body: &Value) -> Result<(), Failure> {
    let (name, activation) = (gate["gate"].as_str().unwrap_or_default(), gate["activation"].as_str());
    // One key an answer: a repeat after a lost connection is the same answer.
    let key = format!("{run}/{}/{body}", activation.unwrap_or_default());
    let key = jr2_shared::harness::token_digest(&key);
    client.answer(run, name, body, activation, Some(&key)).await.map(drop)
}

fn question(gate: &Value) -> Option<Value> {
    let all: Vec<&Value> = events(gate).collect();
    for (n, event) in all.iter().enumerate() {
        let about = event["description"].as_str().map(|d| format!("  {d}")).unwrap_or_default();
        output::say(&format!("  {}) {}{about}", n + 1, event["name"].as_str().unwrap_or_default()));
    }
    let event = loop {
        let line = prompt("Answer (number or name, empty = later): ")?;
        if line.is_empty() {
            return None;
        }
        let chosen = line.parse::<usize>().ok().and_then(|n| all.get(n.checked_sub(1)?));
        let chosen = chosen.or_else(|| all.iter().find(|e| e["name"] == line.as_str()));
        match chosen {
            Some(event) => break *event,
            None => output::say("There is no such answer."),
        }
    };
    let mut fields = Map::new();
    fields.insert("type".to_owned(), event["name"].clone());
    let must = required(event);
    for (name, schema) in event["payload"]["properties"].as_object().into_iter().flatten() {
        let needed = must.contains(name);
        let about = schema["description"].as_str().map(|d| format!(" ({d})")).unwrap_or_default();
        let hint = if needed { "" } else { " [empty = none]" };
        loop {
            let line = prompt(&format!("  {name}{about}{hint}: "))?;
            if line.is_empty() && needed {
                output::say("  This field is needed.");
                continue;
            }
            if !line.is_empty() {
                fields.insert(name.clone(), scalar(&line, Some(schema)));
            }
            break;
        }
    }
    Some(Value::Object(fields))
}

/// One line from the terminal; `None` at its end.
fn prompt(text: &str) -> Option<String> {
    use std::io::{BufRead, Read, Write};
    let mut err = std::io::stderr().lock();
    // A terminal that is gone answers with its end.
    let _ = write!(err, "{text}");
    let _ = err.flush();
    let mut line = Vec::new();
    let read = std::io::stdin().lock().take(LINE_MAX_BYTES as u64).read_until(b'\n', &mut line).ok()?;
    if read == 0 {
        return None;
    }
    Some(String::from_utf8_lossy(&line).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_gate_is_described_with_the_lines_that_answer_it() {
        let gate = json!({
            "gate": "review", "activation": "review#1", "meta": { "summary": "a\nb", "reason": "" },
            "accepts": [{ "name": "approve" }, { "name": "no", "payload": { "required": ["notes"] } }]
        });
        insta::assert_snapshot!(describe(&gate), @r"
        Gate review waits for an answer.
          summary: a
            b
        ");
        insta::assert_snapshot!(send_lines("abcd", &gate, " --dir /x").join("\n"), @r"
        jr2 send abcd --dir /x --gate review --activation 'review#1' --event approve
        jr2 send abcd --dir /x --gate review --activation 'review#1' --event no --field notes=…
        ");
    }
}
