//! The Agent's Menu: the surface as read, the tools the model sees, the client that picks, the receipts.

mod custodian;
mod ladder;
mod receipts;

pub use custodian::{Custodian, PickOutcome, PickRefusal, Reread, SurfaceRead, read_surface};
pub use ladder::Ladder;
pub use receipts::{receipt, refusal};

use crate::briefing;
use crate::model::ToolSpec;
use crate::mutation::{self, Mutation};
use jr2_shared::ids::menu_tool_name;
use jr2_shared::surface::{MenuItem, PICKS_KEYED, Surface, empty_object_schema};
use std::collections::HashSet;

/// A Menu as the step loop uses it: events in Menu order, each with the tool name the model sees.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Menu {
    /// The events.
    pub picks: Vec<Pick>,
    /// Names of the events allowed now, in Menu order.
    pub allowed: Vec<String>,
    /// This Orchestrator dedupes picks by `pickId` (decision 34).
    pub keyed: bool,
}

/// One event of the Menu.
#[derive(Clone, Debug, PartialEq)]
pub struct Pick {
    /// The event's name.
    pub event: String,
    /// Its tool's name (spec H-27), distinct within the Menu.
    pub tool: String,
    /// What the pick means.
    pub description: Option<String>,
    /// JSON Schema of the payload, an object.
    pub input: serde_json::Value,
    /// Author text for Turns that may make this pick (decision 8).
    pub briefing: Option<String>,
}

impl Menu {
    /// Reads a surface (spec P-16, P-17). `Err` holds E7: an event the Harness must not hand out.
    pub fn of(surface: Surface) -> Result<Self, String> {
        let keyed = surface.picks.as_deref() == Some(PICKS_KEYED);
        let (items, fallback) = match (surface.menu, surface.accepts) {
            (Some(menu), _) => (menu, None),
            (None, accepts) => {
                let items = accepts.unwrap_or_default();
                let names = items.iter().map(|item| item.name.clone()).collect::<Vec<_>>();
                (items, Some(names))
            }
        };
        if let Some(item) = items.iter().find(|item| item.semantics != "ack") {
            return Err(receipts::unsupported_semantics(&item.name, &item.semantics));
        }
        let picks = name_tools(items);
        // A wrong "allowed" costs one refused pick, a wrong "not allowed" costs the Turn (spec P-16).
        let named = fallback.or(surface.allowed);
        let allowed = in_menu_order(&picks, named.as_deref());
        Ok(Self { picks, allowed, keyed })
    }

    /// The pick behind a tool name.
    pub fn by_tool(&self, tool: &str) -> Option<&Pick> {
        self.picks.iter().find(|pick| pick.tool == tool)
    }

    /// Tool names of these events, in Menu order.
    pub fn tools_of<'a>(&'a self, events: &[String]) -> Vec<&'a str> {
        self.picks.iter().filter(|pick| events.contains(&pick.event)).map(|pick| pick.tool.as_str()).collect()
    }

    /// Briefings of these events, in Menu order.
    pub fn briefings_of<'a>(&'a self, events: &[String]) -> Vec<&'a str> {
        self.picks
            .iter()
            .filter(|pick| events.contains(&pick.event))
            .filter_map(|pick| pick.briefing.as_deref())
            .filter(|text| !text.trim().is_empty())
            .collect()
    }

    /// The Menu's part of the tools block, in Menu order: the same bytes for the same Menu.
    pub fn specs(&self) -> Vec<ToolSpec> {
        let mut picks: Vec<&Pick> = self.picks.iter().collect();
        if mutation::is(Mutation::MenuReordered) {
            picks.sort_by_key(|pick| !self.allowed.contains(&pick.event));
        }
        picks
            .into_iter()
            .map(|pick| ToolSpec {
                name: pick.tool.clone(),
                description: pick.description.clone().unwrap_or_else(|| briefing::pick_description(&pick.event)),
                parameters: pick.input.clone(),
            })
            .collect()
    }
}

/// These events as the Menu orders them; all of them when none are named.
fn in_menu_order(picks: &[Pick], named: Option<&[String]>) -> Vec<String> {
    picks
        .iter()
        .filter(|pick| named.is_none_or(|names| names.contains(&pick.event)))
        .map(|pick| pick.event.clone())
        .collect()
}

/// Gives each event its tool name. An event whose name needs no cleaning keeps its plain one; where two would share a
/// name, the later in Menu order gets `_2`, `_3` and so on.
fn name_tools(items: Vec<MenuItem>) -> Vec<Pick> {
    let plain = |name: &str| menu_tool_name(name) == format!("mcp__jr2__{name}");
    let mut events = HashSet::new();
    let items: Vec<MenuItem> = items.into_iter().filter(|item| events.insert(item.name.clone())).collect();
    let mut taken: HashSet<String> =
        items.iter().filter(|item| plain(&item.name)).map(|item| menu_tool_name(&item.name)).collect();
    items
        .into_iter()
        .map(|item| {
            let base = menu_tool_name(&item.name);
            let tool = if plain(&item.name) {
                base
            } else {
                let mut free = base.clone();
                let mut n = 2;
                while taken.contains(&free) {
                    free = format!("{base}_{n}");
                    n += 1;
                }
                taken.insert(free.clone());
                free
            };
            Pick {
                event: item.name,
                tool,
                description: item.description,
                input: schema(item.input),
                briefing: item.briefing,
            }
        })
        .collect()
}

/// A payload schema as tool parameters: an object schema without `$schema` (decision 22).
fn schema(input: serde_json::Value) -> serde_json::Value {
    match input {
        serde_json::Value::Object(mut map) => {
            map.shift_remove("$schema");
            if map.is_empty() { empty_object_schema() } else { serde_json::Value::Object(map) }
        }
        _ => empty_object_schema(),
    }
}

#[cfg(test)]
mod tests;
