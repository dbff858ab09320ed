//! An SCXML document as a chart.

use super::ecmascript::{self, Names, Reason, asked_key};
use jr2_orchestrator::chart::{Action, Chart, ROOT, State, StateIx, StateKind, Transition, Trigger};
use jr2_orchestrator::expression::{Expression, ValueSource};
use roxmltree::{Document, Node};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A chart that can be driven.
#[derive(Debug)]
pub struct Converted {
    /// The chart; a state's path is its SCXML id.
    pub chart: Chart,
    /// The first context.
    pub context: Map<String, Value>,
    /// It has neither data nor expressions.
    pub is_plain: bool,
}

/// Converts a document, or says why not.
pub fn convert(text: &str) -> Result<Converted, Reason> {
    let document = Document::parse(text).map_err(|error| format!("not XML: {error}"))?;
    let root = document.root_element();
    let mut converter = Converter::default();
    converter.survey(root)?;
    converter.place(root, None);
    let nodes: Vec<Node<'_, '_>> = std::iter::once(root).chain(root.descendants().skip(1).filter(is_state)).collect();
    let mut context = converter.data(root)?;
    for (ix, node) in (ROOT..).zip(&nodes) {
        converter.fill(ix, *node)?;
    }
    converter.answer_asked(&mut context)?;
    let is_plain = context.is_empty() && !text.contains("cond=") && !text.contains("<script");
    for key in &converter.branches {
        context.insert(key.clone(), Value::Bool(false));
    }
    let chart = Chart { states: converter.states };
    chart.check().map_err(|problem| format!("not a legal chart: {problem}"))?;
    Ok(Converted { chart, context, is_plain })
}

fn name<'a>(node: &Node<'a, '_>) -> &'a str {
    node.tag_name().name()
}

fn is_state(node: &Node<'_, '_>) -> bool {
    node.is_element() && matches!(name(node), "state" | "parallel" | "final" | "history")
}

fn children<'a, 'i: 'a>(node: Node<'a, 'i>, wanted: &'a str) -> impl Iterator<Item = Node<'a, 'i>> + 'a {
    node.children().filter(move |child| child.is_element() && name(child) == wanted)
}

#[derive(Default)]
struct Converter {
    states: Vec<State>,
    ids: BTreeMap<String, StateIx>,
    names: Names,
    /// Context keys that hold which branch of an `<if>` is taken.
    branches: Vec<String>,
}

impl Converter {
    /// Refuses what the chart has no counterpart for, and notes declared data.
    fn survey(&mut self, root: Node<'_, '_>) -> Result<(), Reason> {
        for node in root.descendants().filter(Node::is_element) {
            match name(&node) {
                "invoke" => return Err("<invoke> of another SCXML session".to_owned()),
                "foreach" => return Err("<foreach>".to_owned()),
                "data" => {
                    let id = node.attribute("id").ok_or("data without id")?;
                    self.names.data.insert(id.to_owned());
                }
                "transition" => {
                    let events = node.attribute("event").unwrap_or_default();
                    let is_failure = node.attribute("target").is_some_and(|target| target.starts_with("fail"));
                    if events.split_whitespace().any(|event| event.starts_with("error")) && !is_failure {
                        return Err("waits for an error event; a failing macrostep is discarded instead".to_owned());
                    }
                }
                _ => {}
            }
        }
        if root.attribute("binding") == Some("late") {
            return Err("late data binding".to_owned());
        }
        Ok(())
    }

    fn place(&mut self, node: Node<'_, '_>, parent: Option<StateIx>) -> StateIx {
        let ix = self.states.len() as StateIx;
        let id = match parent {
            None => String::new(),
            Some(_) => node.attribute("id").map_or_else(|| format!("unnamed{ix}"), str::to_owned),
        };
        self.ids.insert(id.clone(), ix);
        self.states.push(State {
            key: id.clone(),
            path: id,
            parent,
            children: Vec::new(),
            last: ix,
            kind: StateKind::Atomic,
            enter: Vec::new(),
            exit: Vec::new(),
            transitions: Vec::new(),
            invoke: None,
        });
        for child in node.children().filter(is_state) {
            let child = self.place(child, Some(ix));
            self.states[ix as usize].children.push(child);
        }
        self.states[ix as usize].last = self.states.len() as StateIx - 1;
        ix
    }

    /// The first context, from every `<data>` in order (early binding).
    fn data(&mut self, root: Node<'_, '_>) -> Result<Map<String, Value>, Reason> {
        let mut context = Map::new();
        for node in root.descendants().filter(|node| node.is_element() && name(node) == "data") {
            let id = node.attribute("id").unwrap_or_default();
            let text: String = node.descendants().filter_map(|child| child.text()).collect();
            let value = if let Some(source) = node.attribute("expr") {
                let converted = ecmascript::expression(source, &mut self.names)?;
                let scope = jr2_orchestrator::expression::Scope {
                    input: &Value::Null,
                    context: &context,
                    event: None,
                    run: &Value::Null,
                    workspace: None,
                    actor: None,
                };
                let value = Expression::parse(&converted).and_then(|expression| expression.evaluate(&scope));
                value.map_err(|error| format!("data `{id}`: {error}"))?
            } else if node.has_attribute("src") {
                return Err("data from a file".to_owned());
            } else if text.trim().is_empty() && !node.has_children() {
                Value::Null
            } else {
                serde_json::from_str(text.trim()).map_err(|_| "data with inline content that is not JSON".to_owned())?
            };
            context.insert(id.to_owned(), value);
        }
        Ok(context)
    }

    fn fill(&mut self, ix: StateIx, node: Node<'_, '_>) -> Result<(), Reason> {
        let kind = self.kind(ix, node)?;
        let mut enter = Vec::new();
        let mut exit = Vec::new();
        for block in children(node, "onentry") {
            self.content(block, None, &mut enter)?;
        }
        for block in children(node, "onexit") {
            self.content(block, None, &mut exit)?;
        }
        if ix == ROOT {
            for script in children(node, "script") {
                self.content_of(script, None, &mut enter)?;
            }
        }
        let mut transitions = Vec::new();
        if !matches!(kind, StateKind::History { .. }) {
            for transition in children(node, "transition") {
                transitions.push(self.transition(transition)?);
            }
        }
        let state = &mut self.states[ix as usize];
        (state.kind, state.enter, state.exit, state.transitions) = (kind, enter, exit, transitions);
        Ok(())
    }

    fn kind(&mut self, ix: StateIx, node: Node<'_, '_>) -> Result<StateKind, Reason> {
        let is_history = |child: &Node<'_, '_>| name(child) == "history";
        Ok(match name(&node) {
            "parallel" => StateKind::Parallel,
            "final" => StateKind::Final { output: self.output(node)? },
            "history" => {
                let mut actions = Vec::new();
                let transition = children(node, "transition").next().ok_or("history without a default")?;
                self.content(transition, None, &mut actions)?;
                let default = self.targets(transition.attribute("target").unwrap_or_default())?;
                StateKind::History { deep: node.attribute("type") == Some("deep"), default, actions }
            }
            _ if !node.children().any(|child| is_state(&child) && !is_history(&child)) => StateKind::Atomic,
            _ => {
                let mut actions = Vec::new();
                let initial = if let Some(targets) = node.attribute("initial") {
                    self.targets(targets)?
                } else if let Some(initial) = children(node, "initial").next() {
                    let transition = children(initial, "transition").next().ok_or("initial without a transition")?;
                    self.content(transition, None, &mut actions)?;
                    self.targets(transition.attribute("target").unwrap_or_default())?
                } else {
                    let first = node.children().filter(is_state).position(|child| !is_history(&child)).unwrap_or(0);
                    vec![self.states[ix as usize].children[first]]
                };
                StateKind::Compound { initial, actions }
            }
        })
    }

    fn output(&mut self, node: Node<'_, '_>) -> Result<Option<ValueSource>, Reason> {
        let Some(done) = children(node, "donedata").next() else { return Ok(None) };
        match self.payload(done)? {
            Some(data) => Ok(Some(source(&format!("{{\"data\": {data}}}"))?)),
            None => Ok(None),
        }
    }

    fn targets(&self, ids: &str) -> Result<Vec<StateIx>, Reason> {
        let found = |id: &str| self.ids.get(id).copied().ok_or_else(|| format!("no state `{id}`"));
        ids.split_whitespace().map(found).collect()
    }

    fn transition(&mut self, node: Node<'_, '_>) -> Result<Transition, Reason> {
        let trigger = match node.attribute("event") {
            Some(events) => Trigger::Events(events.split_whitespace().map(str::to_owned).collect()),
            None => Trigger::Always,
        };
        let guard = match node.attribute("cond") {
            Some(cond) => {
                let converted = ecmascript::condition(cond, &mut self.names)?;
                Some(Expression::parse(&converted).map_err(|error| format!("`{converted}`: {error}"))?)
            }
            None => None,
        };
        let targets = self.targets(node.attribute("target").unwrap_or_default())?;
        let mut actions = Vec::new();
        self.content(node, None, &mut actions)?;
        // SCXML leaves the source unless told otherwise; the workflow format does the opposite.
        let reenter = node.attribute("type") != Some("internal");
        Ok(Transition { trigger, guard, targets, reenter, actions })
    }

    /// Executable content below `node`; with `branch`, it happens only while that context key is true.
    fn content(&mut self, node: Node<'_, '_>, branch: Option<&str>, out: &mut Vec<Action>) -> Result<(), Reason> {
        node.children().filter(Node::is_element).try_for_each(|child| self.content_of(child, branch, out))
    }

    fn content_of(&mut self, node: Node<'_, '_>, branch: Option<&str>, out: &mut Vec<Action>) -> Result<(), Reason> {
        match name(&node) {
            "log" | "datamodel" => {}
            "raise" => {
                if branch.is_some() {
                    return Err("<raise> inside <if>".to_owned());
                }
                let event = node.attribute("event").unwrap_or_default().to_owned();
                out.push(Action::Raise { event, payload: None });
            }
            "assign" => {
                let target = node.attribute("location").unwrap_or_default();
                if !self.names.data.contains(target) {
                    return Err("assigns to something that is not declared data".to_owned());
                }
                let value = node.attribute("expr").ok_or("assigns inline content")?;
                let value = ecmascript::expression(value, &mut self.names)?;
                out.push(assignment(target, &value, branch)?);
            }
            "script" => {
                if node.has_attribute("src") {
                    return Err("a script from a file".to_owned());
                }
                for (target, value) in ecmascript::script(node.text().unwrap_or_default(), &mut self.names)? {
                    out.push(assignment(&target, &value, branch)?);
                }
            }
            "send" => out.push(self.send(node, branch)?),
            "cancel" => {
                let id = node.attribute("sendid").ok_or("<cancel> with a computed id")?;
                out.push(said(&format!("{{\"cancel\": \"{id}\"}}"), branch)?);
            }
            "if" => self.branch(node, branch, out)?,
            other => return Err(format!("<{other}>")),
        }
        Ok(())
    }

    /// `<if>`: which branch is taken is kept in the context, since content has no conditions of its own.
    fn branch(&mut self, node: Node<'_, '_>, outer: Option<&str>, out: &mut Vec<Action>) -> Result<(), Reason> {
        let mut earlier: Vec<String> = Vec::new();
        let mut key = self.take_branch(node.attribute("cond"), outer, &mut earlier, out)?;
        for child in node.children().filter(Node::is_element) {
            match name(&child) {
                "elseif" | "else" => key = self.take_branch(child.attribute("cond"), outer, &mut earlier, out)?,
                _ => self.content_of(child, Some(&key), out)?,
            }
        }
        Ok(())
    }

    fn take_branch(
        &mut self,
        cond: Option<&str>,
        outer: Option<&str>,
        earlier: &mut Vec<String>,
        out: &mut Vec<Action>,
    ) -> Result<String, Reason> {
        let key = format!("branch__{}", self.branches.len());
        let cond = cond.map(|cond| ecmascript::condition(cond, &mut self.names)).transpose()?;
        let mut all: Vec<String> = outer.map(|key| format!("context.{key}")).into_iter().collect();
        all.extend(earlier.iter().map(|key| format!("!context.{key}")));
        all.extend(cond.map(|cond| format!("({cond})")));
        let all = if all.is_empty() { "true".to_owned() } else { all.join(" && ") };
        out.push(assignment(&key, &all, None)?);
        self.branches.push(key.clone());
        earlier.push(key.clone());
        Ok(key)
    }

    fn send(&mut self, node: Node<'_, '_>, branch: Option<&str>) -> Result<Action, Reason> {
        for refused in ["idlocation", "typeexpr"] {
            if node.has_attribute(refused) {
                return Err(format!("<send> with {refused}"));
            }
        }
        if node.attribute("type").is_some_and(|kind| !kind.ends_with("#SCXMLEventProcessor") && kind != "scxml") {
            return Err("<send> to another processor".to_owned());
        }
        let event = match (node.attribute("event"), node.attribute("eventexpr")) {
            (Some(event), _) => format!("'{event}'"),
            (None, Some(source)) => ecmascript::expression(source, &mut self.names)?,
            (None, None) => return Err("<send> without an event".to_owned()),
        };
        let data = self.payload(node)?;
        let target =
            node.attribute("target").or_else(|| node.attribute("targetexpr").map(|text| text.trim_matches('\'')));
        match target {
            None => {}
            Some("#_internal") => {
                let payload = data.map(|data| source(&format!("{{\"data\": {data}}}"))).transpose()?;
                let is_constant = event.starts_with('\'') && branch.is_none();
                return if is_constant {
                    Ok(Action::Raise { event: event.trim_matches('\'').to_owned(), payload })
                } else {
                    Err("an internal <send> of a computed event".to_owned())
                };
            }
            Some(_) => return Err("<send> to another target".to_owned()),
        }
        let mut fields = vec![format!("\"send\": {event}")];
        if let Some(delay) = node.attribute("delay") {
            fields.push(format!("\"delay\": '{delay}'"));
        } else if let Some(delay) = node.attribute("delayexpr") {
            fields.push(format!("\"delay\": {}", ecmascript::expression(delay, &mut self.names)?));
        }
        if let Some(id) = node.attribute("id") {
            fields.push(format!("\"id\": '{id}'"));
        }
        if let Some(data) = data {
            fields.push(format!("\"data\": {data}"));
        }
        said(&format!("{{{}}}", fields.join(", ")), branch)
    }

    /// The CEL expression of the data in `namelist`, `<param>` and `<content>`.
    fn payload(&mut self, node: Node<'_, '_>) -> Result<Option<String>, Reason> {
        let mut fields = Vec::new();
        for key in node.attribute("namelist").unwrap_or_default().split_whitespace() {
            fields.push(format!("\"{key}\": {}", ecmascript::expression(key, &mut self.names)?));
        }
        for param in children(node, "param") {
            let value = param.attribute("expr").or(param.attribute("location")).ok_or("<param> without a value")?;
            let key = param.attribute("name").unwrap_or_default();
            fields.push(format!("\"{key}\": {}", ecmascript::expression(value, &mut self.names)?));
        }
        if let Some(content) = children(node, "content").next() {
            if let Some(value) = content.attribute("expr") {
                return ecmascript::expression(value, &mut self.names).map(Some);
            }
            if content.children().any(|child| child.is_element()) {
                return Err("<content> with XML".to_owned());
            }
            let text = content.text().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
            let is_json = serde_json::from_str::<Value>(&text).is_ok();
            return Ok(Some(if is_json { text } else { Value::String(text).to_string() }));
        }
        Ok(if fields.is_empty() { None } else { Some(format!("{{{}}}", fields.join(", "))) })
    }

    /// Keeps a context key true while each state is active that `In('…')` asks for.
    fn answer_asked(&mut self, context: &mut Map<String, Value>) -> Result<(), Reason> {
        for id in self.names.asked.clone() {
            let key = asked_key(&id);
            let ix = *self.ids.get(&id).ok_or_else(|| format!("In of an unknown state `{id}`"))?;
            let state = &mut self.states[ix as usize];
            state.enter.insert(0, assignment(&key, "true", None)?);
            state.exit.push(assignment(&key, "false", None)?);
            context.insert(key, Value::Bool(false));
        }
        Ok(())
    }
}

fn source(text: &str) -> Result<ValueSource, Reason> {
    Expression::parse(text).map(ValueSource::Expression).map_err(|error| format!("`{text}`: {error}"))
}

fn assignment(target: &str, value: &str, branch: Option<&str>) -> Result<Action, Reason> {
    let value = match branch {
        Some(branch) => format!("context.{branch} ? ({value}) : context.{target}"),
        None => value.to_owned(),
    };
    Ok(Action::Set(vec![(target.to_owned(), source(&value)?)]))
}

/// What the test's host is told: an event to send later, or one to forget.
fn said(value: &str, branch: Option<&str>) -> Result<Action, Reason> {
    Ok(Action::Emit(match branch {
        Some(branch) => source(&format!("context.{branch} ? {value} : null"))?,
        None => source(value)?,
    }))
}
