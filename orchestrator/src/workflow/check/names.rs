//! What expressions name: context keys, input fields, payload fields, and whether there is an event at all.

use super::events::{MECHANISM_EVENTS, stem};
use crate::workflow::codes;
use crate::workflow::definition::{Definition, Sight, Site};
use crate::workflow::diagnostic::Problems;
use crate::workflow::source::{Node, NodeKind, Span, clip};

/// Names an expression can start with.
pub const ROOTS: [&str; 6] = ["input", "context", "event", "run", "workspace", "actor"];
/// Fields of `run`.
const RUN_FIELDS: [&str; 3] = ["id", "workflow", "started"];
/// Fields of `workspace`.
const WORKSPACE_FIELDS: [&str; 2] = ["repos", "branch"];
/// Fields of `actor`.
const ACTOR_FIELDS: [&str; 2] = ["path", "id"];

pub fn check(definition: &Definition, problems: &mut Problems) {
    for site in &definition.sites {
        for (path, offset) in &site.names {
            let names = Names { definition, site, path, offset: *offset };
            names.check(problems);
        }
    }
}

/// What a mapping's schema says about its fields.
struct Fields<'d> {
    names: Vec<&'d str>,
    /// Others are refused.
    closed: bool,
    /// Others are expected: a reference, a combination or a map.
    unknown: bool,
}

impl<'d> Fields<'d> {
    fn of(schema: &'d Node) -> Self {
        let rest = schema.get("additionalProperties");
        let closed = rest.and_then(Node::flag) == Some(false);
        let combined =
            ["$ref", "allOf", "anyOf", "oneOf", "if", "patternProperties", "dependentSchemas", "$dynamicRef"];
        let open = rest.is_some_and(|r| r.flag() == Some(true) || matches!(r.kind, NodeKind::Map(_)));
        Self {
            names: schema
                .get("properties")
                .map(Node::entries)
                .unwrap_or_default()
                .iter()
                .map(|e| e.key.value.as_str())
                .collect(),
            closed,
            unknown: open || combined.iter().any(|key| schema.get(key).is_some()),
        }
    }
}

struct Names<'d> {
    definition: &'d Definition,
    site: &'d Site,
    path: &'d [String],
    offset: usize,
}

impl<'d> Names<'d> {
    fn check(&self, problems: &mut Problems) {
        let Some(root) = self.path.first() else { return };
        let field = self.path.get(1).map(String::as_str);
        match (root.as_str(), &self.site.sight) {
            ("event", Sight::State | Sight::Workspace) => {
                let help = "keep it with `set` in the transition, and read it from `context` here";
                self.report(
                    &codes::NO_EVENT_HERE,
                    "there is no event here: `event` belongs to a transition",
                    help,
                    problems,
                );
            }
            ("context" | "workspace" | "actor", Sight::Workspace) => {
                let message = format!("there is no `{root}` yet when the Workspace is made");
                self.report(&codes::NO_EVENT_HERE, &message, "use `input` and `run` here", problems);
            }
            ("context", _) => self.context(field, problems),
            ("input", _) => self.input(field, problems),
            ("event", Sight::Events(events)) => self.event(events, field, problems),
            ("run", _) => self.fixed(field, &RUN_FIELDS, problems),
            ("actor", _) => self.fixed(field, &ACTOR_FIELDS, problems),
            ("workspace", _) => self.workspace(field, problems),
            (root, _) if !ROOTS.contains(&root) => {
                let message = format!("`{}` is not a name an expression can see", clip(root));
                self.report(&codes::UNKNOWN_NAME, &message, &problems.suggest(root, ROOTS), problems);
            }
            _ => {}
        }
    }

    fn report(&self, info: &codes::CodeInfo, message: &str, help: &str, problems: &mut Problems) {
        problems.add(info, self.span(problems), message, help);
    }

    /// The name as far as it is checked: two parts, or three below `workspace`.
    fn span(&self, problems: &Problems) -> Span {
        let parts = if self.path.first().is_some_and(|p| p == "workspace") { 3 } else { 2 };
        let length = self.path.iter().take(parts).map(|part| part.len() + 1).sum::<usize>() - 1;
        problems.source.locate(self.site.span, &self.site.text, self.offset, length)
    }

    fn context(&self, field: Option<&str>, problems: &mut Problems) {
        let Some(field) = field.filter(|f| !self.definition.context.contains_key(*f)) else { return };
        let help = problems.suggest(field, self.definition.context.keys().map(String::as_str));
        let help = if help.starts_with("did") { help } else { format!("add `{}` under `context`", clip(field)) };
        self.report(&codes::UNKNOWN_CONTEXT, &format!("`{}` is not under `context`", clip(field)), &help, problems);
    }

    fn input(&self, field: Option<&str>, problems: &mut Problems) {
        let (Some(field), Some(schema)) = (field, &self.definition.input) else { return };
        let fields = Fields::of(schema);
        if fields.names.contains(&field) || fields.unknown || (fields.names.is_empty() && !fields.closed) {
            return;
        }
        let info = if fields.closed { &codes::UNKNOWN_INPUT } else { &codes::UNDECLARED_INPUT };
        let message = format!("the input has no field `{}`", clip(field));
        self.report(info, &message, &problems.suggest(field, fields.names), problems);
    }

    fn event(&self, events: &[String], field: Option<&str>, problems: &mut Problems) {
        let Some(field) = field.filter(|f| *f != "type") else { return };
        let mut known: Vec<&str> = Vec::new();
        for event in events {
            match self.fields_of(stem(event)) {
                None => return,
                Some(fields) => known.extend(fields),
            }
        }
        if known.contains(&field) {
            return;
        }
        let message = format!("the payload of `{}` has no field `{}`", clip(&events.join(" ")), clip(field));
        let help = problems.suggest(field, known);
        let help = if help == "there is none" { "declare it under the event's `payload`".to_owned() } else { help };
        self.report(&codes::UNKNOWN_EVENT_FIELD, &message, &help, problems);
    }

    /// The payload fields of an event; `None` when they are not fixed.
    fn fields_of(&self, event: &str) -> Option<Vec<&'d str>> {
        if let Some((_, fields)) = MECHANISM_EVENTS.iter().find(|(name, _)| *name == event) {
            return fields.map(<[&str]>::to_vec);
        }
        let declared = self.definition.events.iter().find(|e| e.name.value == event)?;
        if self.definition.raises.iter().any(|r| r.value == event) {
            return None;
        }
        let Some(schema) = &declared.payload else { return Some(Vec::new()) };
        let fields = Fields::of(schema);
        (!fields.unknown).then_some(fields.names)
    }

    fn fixed(&self, field: Option<&str>, known: &[&str], problems: &mut Problems) {
        let Some(field) = field.filter(|f| !known.contains(f)) else { return };
        let message = format!("`{}` has no field `{}`", self.path[0], clip(field));
        self.report(&codes::UNKNOWN_FIELD, &message, &problems.suggest(field, known.iter().copied()), problems);
    }

    fn workspace(&self, field: Option<&str>, problems: &mut Problems) {
        self.fixed(field, &WORKSPACE_FIELDS, problems);
        let (Some("repos"), Some(slot), Some(workspace)) = (field, self.path.get(2), &self.definition.workspace) else {
            return;
        };
        if workspace.repos_open.is_some() || workspace.repos.iter().any(|(name, _)| name.value == *slot) {
            return;
        }
        let message = format!("the Workspace has no repository `{}`", clip(slot));
        let help = problems.suggest(slot, workspace.repos.iter().map(|(name, _)| name.value.as_str()));
        self.report(&codes::UNKNOWN_FIELD, &message, &help, problems);
    }
}
