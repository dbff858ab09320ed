//! Drives a converted chart with its event script, on a virtual clock.

use super::Converted;
use jr2_orchestrator::chart::{ChartEffect, Configuration, Environment, Event, EventScope, Macrostep, start, step};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Script {
    initial_configuration: BTreeSet<String>,
    events: Vec<Scripted>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Scripted {
    event: Named,
    #[serde(default)]
    after: u64,
    next_configuration: BTreeSet<String>,
}

#[derive(Debug, Deserialize)]
struct Named {
    name: String,
}

/// An external event under way.
#[derive(Debug)]
struct Sent {
    due: u64,
    id: Option<String>,
    name: String,
    payload: Value,
}

struct Host<'a> {
    converted: &'a Converted,
    configuration: Configuration,
    now: u64,
    sent: Vec<Sent>,
}

/// Runs the script; the error tells the first difference.
pub fn drive(converted: &Converted, script: &str) -> Result<(), String> {
    let script: Script = serde_json::from_str(script).map_err(|error| error.to_string())?;
    let first =
        start(&converted.chart, converted.context.clone(), &environment()).map_err(|error| error.to_string())?;
    let mut host = Host { converted, configuration: Configuration::default(), now: 0, sent: Vec::new() };
    host.take(first)?;
    host.expect("at the start", &script.initial_configuration)?;
    for (index, scripted) in script.events.iter().enumerate() {
        // The script looks at the chart before what it sent itself arrives, even without a delay.
        host.advance(scripted.after)?;
        host.deliver(&scripted.event.name, json!({}))?;
        host.expect(&format!("after event {index} `{}`", scripted.event.name), &scripted.next_configuration)?;
    }
    Ok(())
}

fn environment() -> Environment<'static> {
    Environment { input: &Value::Null, run: &Value::Null, workspace: None, actor: None }
}

impl Host<'_> {
    fn take(&mut self, macrostep: Macrostep) -> Result<(), String> {
        let text = serde_json::to_string(&macrostep.configuration).map_err(|error| error.to_string())?;
        self.configuration = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        if self.configuration != macrostep.configuration {
            return Err("a configuration changed when it was saved and restored".to_owned());
        }
        self.configuration.is_legal(&self.converted.chart)?;
        for effect in macrostep.effects {
            let ChartEffect::Emit(said) = effect else { continue };
            if let Some(id) = said.get("cancel") {
                self.sent.retain(|sent| sent.id.as_deref() != id.as_str());
            } else if let Some(name) = said.get("send").and_then(Value::as_str) {
                let delay = said.get("delay").and_then(Value::as_str).unwrap_or("0s");
                let payload = said.get("data").map_or_else(|| json!({}), |data| json!({ "data": data }));
                let id = said.get("id").and_then(Value::as_str).map(str::to_owned);
                self.sent.push(Sent { due: self.now + milliseconds(delay)?, id, name: name.to_owned(), payload });
            }
        }
        Ok(())
    }

    fn deliver(&mut self, name: &str, payload: Value) -> Result<(), String> {
        let event = Event { name: name.to_owned(), payload, scope: EventScope::Broadcast };
        let next = step(&self.converted.chart, &self.configuration, &event, &environment());
        let again = step(&self.converted.chart, &self.configuration, &event, &environment());
        if next != again {
            return Err("the same step gave two answers".to_owned());
        }
        self.take(next.map_err(|error| error.to_string())?)
    }

    /// Lets time pass and delivers what is due, earliest first, then in the order of sending.
    fn advance(&mut self, by: u64) -> Result<(), String> {
        let end = self.now + by;
        for _ in 0..10_000 {
            let earliest = (0..self.sent.len()).min_by_key(|&index| (self.sent[index].due, index));
            match earliest {
                Some(index) if self.sent[index].due <= end => {
                    let sent = self.sent.remove(index);
                    self.now = sent.due.max(self.now);
                    self.deliver(&sent.name, sent.payload)?;
                }
                _ => {
                    self.now = end;
                    return Ok(());
                }
            }
        }
        Err("the chart sends itself events without end".to_owned())
    }

    fn expect(&self, when: &str, expected: &BTreeSet<String>) -> Result<(), String> {
        let chart = &self.converted.chart;
        let leaves = self.configuration.active.iter().map(|&ix| chart.state(ix)).filter(|state| state.is_leaf());
        let active: BTreeSet<String> = leaves.map(|state| state.path.clone()).collect();
        if active == *expected { Ok(()) } else { Err(format!("{when}: active {active:?}, expected {expected:?}")) }
    }
}

fn milliseconds(delay: &str) -> Result<u64, String> {
    let (number, factor) = match (delay.strip_suffix("ms"), delay.strip_suffix('s')) {
        (Some(number), _) => (number, 1.0),
        (None, Some(number)) => (number, 1000.0),
        (None, None) => return Err(format!("delay `{delay}`")),
    };
    number.trim().parse::<f64>().map(|number| (number * factor) as u64).map_err(|_| format!("delay `{delay}`"))
}
