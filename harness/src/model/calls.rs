//! Fragments of tool calls into whole calls, whatever a server does to `index`, `id` and `name`.

use super::ToolCall;
use serde_json::Value;

/// Most calls one answer may hold: a model that writes more is broken, and each costs memory.
pub const CALLS_MAX: usize = 128;
/// Name of a call that came without one, so that it can be answered and sent back.
pub const UNNAMED: &str = "unnamed";

#[derive(Clone, Debug, Default)]
struct Slot {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

impl Slot {
    /// Whole JSON cannot be continued: what follows belongs to another call.
    fn is_whole(&self) -> bool {
        !self.arguments.trim().is_empty() && serde_json::from_str::<Value>(&self.arguments).is_ok()
    }
}

/// The calls of one answer so far.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    slots: Vec<Slot>,
}

impl Calls {
    /// Takes one element of `tool_calls`. Gives the name of a call it started.
    ///
    /// # Errors
    /// When there are more than [`CALLS_MAX`].
    pub fn take(&mut self, delta: &Value) -> Result<Option<String>, ()> {
        let function = delta.get("function").filter(|f| f.is_object()).unwrap_or(delta);
        let text = |from: &Value, key: &str| from.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (id, name) = (text(delta, "id"), text(function, "name"));
        let arguments = match function.get("arguments") {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        let index = delta.get("index").and_then(Value::as_u64);

        let found = self.find(index, &id, &name, &arguments);
        let before = self.slots.len();
        let at = match found {
            Some(at) => at,
            None if before >= CALLS_MAX => return Err(()),
            None => {
                self.slots.push(Slot { index, ..Slot::default() });
                before
            }
        };
        let slot = &mut self.slots[at];
        if slot.id.is_empty() {
            slot.id = id;
        }
        // A name is whole or, rarely, in pieces; it never changes once arguments flow.
        if slot.name != name && slot.arguments.is_empty() {
            slot.name.push_str(&name);
        }
        // Some servers repeat the whole call at the end.
        if !(slot.arguments == arguments && slot.is_whole()) {
            slot.arguments.push_str(&arguments);
        }
        Ok((at == before).then(|| slot.name.clone()))
    }

    /// Which call a fragment continues; `None` starts a new one.
    fn find(&self, index: Option<u64>, id: &str, name: &str, arguments: &str) -> Option<usize> {
        let rfind = |test: &dyn Fn(&Slot) -> bool| self.slots.iter().rposition(test);
        let same_index = |slot: &Slot| index.is_none() || slot.index == index;
        if !id.is_empty() {
            if let Some(at) = rfind(&|slot| slot.id == id && same_index(slot)) {
                return Some(at);
            }
            // A new id on a used index is a new call, unless the call there has no id yet.
            return rfind(&|slot| index.is_some() && slot.index == index && slot.id.is_empty());
        }
        let at = match index {
            Some(_) => rfind(&same_index)?,
            None => self.slots.len().checked_sub(1)?,
        };
        let slot = &self.slots[at];
        let starts_another = !name.is_empty()
            && !slot.name.is_empty()
            && ((slot.is_whole() && slot.arguments != arguments) || (index.is_none() && slot.name != name));
        // Without index and id, an equal whole call is a second call: nothing says it is a repeat.
        let equal_twin = index.is_none() && !name.is_empty() && slot.is_whole();
        (!starts_another && !equal_twin).then_some(at)
    }

    /// The calls with unique, non-empty ids (fresh ones start with `seed`) and names.
    pub fn build(&self, seed: &str) -> Vec<ToolCall> {
        let mut calls: Vec<ToolCall> = Vec::new();
        for slot in &self.slots {
            if slot.name.is_empty() && slot.arguments.trim().is_empty() {
                continue;
            }
            let taken = |id: &str, calls: &[ToolCall]| calls.iter().any(|c| c.id == id);
            let mut id = slot.id.clone();
            if id.is_empty() || taken(&id, &calls) {
                id = format!("{seed}{}", calls.len());
            }
            let name = if slot.name.is_empty() { UNNAMED.to_owned() } else { slot.name.clone() };
            calls.push(ToolCall { id, name, arguments: slot.arguments.clone() });
        }
        calls
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(deltas: &[Value]) -> Vec<(String, String, String)> {
        let mut calls = Calls::default();
        for delta in deltas {
            calls.take(delta).unwrap();
        }
        calls.build("t").into_iter().map(|c| (c.id, c.name, c.arguments)).collect()
    }

    fn want(rows: &[(&str, &str, &str)]) -> Vec<(String, String, String)> {
        rows.iter().map(|(a, b, c)| ((*a).into(), (*b).into(), (*c).into())).collect()
    }

    fn piece(index: Value, id: Value, name: Value, arguments: Value) -> Value {
        json!({"index": index, "id": id, "function": {"name": name, "arguments": arguments}})
    }

    /// ollama/ollama#15457, vercel/ai#14277
    #[test]
    fn f09_a_new_id_on_a_used_index_is_a_new_call() {
        let got = run(&[
            piece(json!(0), json!("a"), json!("x"), json!("{\"k\":")),
            piece(json!(0), json!("b"), json!("y"), json!("{}")),
            piece(json!(0), json!("a"), Value::Null, json!("1}")),
        ]);
        assert_eq!(got, want(&[("a", "x", "{\"k\":1}"), ("b", "y", "{}")]));
        // The same without ids: whole calls, all at index 0.
        let got = run(&[
            piece(json!(0), Value::Null, json!("x"), json!("{\"k\":1}")),
            piece(json!(0), Value::Null, json!("x"), json!("{\"k\":2}")),
        ]);
        assert_eq!(got, want(&[("t0", "x", "{\"k\":1}"), ("t1", "x", "{\"k\":2}")]));
    }

    /// ollama/ollama#7881, BerriAI/litellm#11262
    #[test]
    fn f10_index_or_id_may_be_missing() {
        let whole = |name: &str, arguments: Value| json!({"function": {"name": name, "arguments": arguments}});
        assert_eq!(
            run(&[whole("x", json!({"k": 1})), whole("x", json!({"k": 1})), whole("y", json!("{}"))]),
            want(&[("t0", "x", "{\"k\":1}"), ("t1", "x", "{\"k\":1}"), ("t2", "y", "{}")])
        );
        let pieces = [
            json!({"function": {"name": "x"}}),
            json!({"function": {"arguments": "{\"k\""}}),
            json!({"function": {"name": "x", "arguments": ":1}"}}),
        ];
        assert_eq!(run(&pieces), want(&[("t0", "x", "{\"k\":1}")]));
        assert_eq!(
            run(&[json!({"id": "a", "function": {"name": "x"}}), json!({"id": "b", "function": {"name": "x"}})]).len(),
            2
        );
    }

    /// QwenLM/Qwen-Agent#943, microsoft/agent-framework#8337
    #[test]
    fn f12_interleaved_fragments_go_to_their_own_call() {
        let got = run(&[
            piece(json!(0), json!("a"), json!("x"), json!("")),
            piece(json!(1), json!("b"), json!("y"), json!("")),
            piece(json!(0), Value::Null, Value::Null, json!("{\"k\":")),
            piece(json!(1), Value::Null, Value::Null, json!("{}")),
            piece(json!(0), Value::Null, Value::Null, json!("1}")),
        ]);
        assert_eq!(got, want(&[("a", "x", "{\"k\":1}"), ("b", "y", "{}")]));
    }

    /// sigoden/aichat#1296
    #[test]
    fn f21_every_call_has_an_id_of_its_own() {
        let got = run(&[
            piece(json!(0), json!("same"), json!("x"), json!("{}")),
            piece(json!(1), json!("same"), json!("y"), json!("{}")),
            piece(json!(2), Value::Null, json!("z"), json!("{}")),
        ]);
        assert_eq!(got, want(&[("same", "x", "{}"), ("t1", "y", "{}"), ("t2", "z", "{}")]));
    }

    #[test]
    fn repeats_and_odd_shapes() {
        // Id and name in every fragment; the whole call again at the end.
        let got = run(&[
            piece(json!(0), json!("a"), json!("x"), json!("{\"k\":")),
            piece(json!(0), json!("a"), json!("x"), json!("1}")),
            piece(json!(0), json!("a"), json!("x"), json!("{\"k\":1}")),
        ]);
        assert_eq!(got, want(&[("a", "x", "{\"k\":1}")]));
        assert_eq!(run(&[json!(null), json!(3), json!({"function": 1}), json!({"index": -1})]), want(&[]));
        assert_eq!(run(&[json!({"function": {"arguments": "{\"k\":1}"}})]), want(&[("t0", UNNAMED, "{\"k\":1}")]));
    }

    #[test]
    fn the_number_of_calls_is_bounded() {
        let mut calls = Calls::default();
        for n in 0..CALLS_MAX {
            assert!(calls.take(&json!({"index": n, "function": {"name": "x"}})).is_ok());
        }
        assert!(calls.take(&json!({"index": CALLS_MAX, "function": {"name": "x"}})).is_err());
    }
}
