//! The walk that evaluates: every step is counted, so no expression runs long (decision 51).

use super::compile::{Kind, Loop, LoopKind, Node, Root};
use super::functions;
use super::number::{Number, Operator};
use super::value::{Fields, List, Text, Val};
use super::{ExpressionError, RESULT_BYTES_MAX, STEPS_MAX, Scope};
use serde_json::{Map, Value};
use std::cmp::Ordering;
use std::rc::Rc;

/// Bytes of text one step may look at or build.
const BYTES_A_STEP: usize = 128;

/// Why an evaluation stopped.
#[derive(Debug)]
pub struct Failure {
    /// What the author reads.
    pub error: ExpressionError,
    /// A bound was hit: `true || x` must not hide it.
    bound: bool,
}

/// The answer of one node.
pub type Outcome<T> = Result<T, Failure>;

/// A failure of the expression itself.
pub fn fail<T>(at: usize, message: impl Into<String>) -> Outcome<T> {
    Err(Failure { error: ExpressionError::at(at, message), bound: false })
}

/// Evaluates a whole expression.
pub fn evaluate<'a>(node: &'a Node, scope: &Scope<'a>) -> Result<Val<'a>, ExpressionError> {
    let mut walk = Walk { scope: *scope, locals: Vec::new(), steps: 0 };
    walk.node(node).map_err(|failure| failure.error)
}

/// Evaluates what reads nothing of a scope.
pub fn constant(node: &Node) -> Result<Val<'_>, ExpressionError> {
    static EMPTY: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
    let scope =
        Scope { input: &Value::Null, context: &EMPTY, event: None, run: &Value::Null, workspace: None, actor: None };
    evaluate(node, &scope)
}

/// One evaluation under way.
pub struct Walk<'a> {
    scope: Scope<'a>,
    locals: Vec<Val<'a>>,
    steps: u32,
}

impl<'a> Walk<'a> {
    /// Counts `steps`.
    pub fn charge(&mut self, at: usize, steps: usize) -> Outcome<()> {
        self.steps = self.steps.saturating_add(u32::try_from(steps).unwrap_or(u32::MAX));
        if self.steps > STEPS_MAX {
            let error = ExpressionError::at(at, format!("the expression takes more than {STEPS_MAX} steps"));
            return Err(Failure { error, bound: true });
        }
        Ok(())
    }

    /// Counts looking at `bytes` of text.
    pub fn charge_bytes(&mut self, at: usize, bytes: usize) -> Outcome<()> {
        self.charge(at, bytes / BYTES_A_STEP)
    }

    /// A text that was built, within the bound of a result.
    pub fn built(&mut self, at: usize, text: String) -> Outcome<Val<'a>> {
        room(at, text.len())?;
        self.charge_bytes(at, text.len())?;
        Ok(Val::text(text))
    }

    /// Evaluates one node.
    pub fn node(&mut self, node: &'a Node) -> Outcome<Val<'a>> {
        let at = node.at;
        self.charge(at, 1)?;
        match &node.kind {
            Kind::Literal(value) => Ok(Val::from(value)),
            Kind::Root(root) => self.root(*root, at),
            Kind::Local(index) => match self.locals.get(*index) {
                Some(value) => Ok(value.clone()),
                None => fail(at, "a name is not known here"),
            },
            Kind::Select(operand, field) => {
                let operand = self.node(operand)?;
                select(&operand, field, at)
            }
            Kind::Has(operand, field) => self.has(operand, field, at),
            Kind::Index(operand, index) => {
                let (operand, index) = (self.node(operand)?, self.node(index)?);
                item(&operand, &index, at)
            }
            Kind::Not(operand) => {
                let operand = self.boolean(operand, "!")?;
                Ok(Val::Bool(!operand))
            }
            Kind::Negate(operand) => match self.node(operand)? {
                Val::Number(number) => {
                    number.negated().map_or_else(|| fail(at, "the number is too large"), |n| Ok(Val::Number(n)))
                }
                other => fail(at, format!("`-` works on numbers, not on {}", other.kind_with_article())),
            },
            Kind::And(a, b) => self.decide(a, b, false).map(Val::Bool),
            Kind::Or(a, b) => self.decide(a, b, true).map(Val::Bool),
            Kind::Conditional(parts) => {
                let [condition, yes, no] = &**parts;
                if self.boolean(condition, "?")? { self.node(yes) } else { self.node(no) }
            }
            Kind::Compute(operator, a, b) => {
                let (a, b) = (self.node(a)?, self.node(b)?);
                self.compute(*operator, a, b, at)
            }
            Kind::Order(comparison, a, b) => {
                let (a, b) = (self.node(a)?, self.node(b)?);
                let order = self.order(&a, &b, at)?;
                Ok(Val::Bool(order.is_some_and(|order| comparison.holds(order))))
            }
            Kind::Equal { negated, sides } => {
                let (a, b) = (self.node(&sides[0])?, self.node(&sides[1])?);
                Ok(Val::Bool(self.equal(&a, &b, at)? != *negated))
            }
            Kind::In(item, list) => {
                let (item, list) = (self.node(item)?, self.node(list)?);
                self.contains(&item, &list, at).map(Val::Bool)
            }
            Kind::List(items) => {
                let items: Outcome<Vec<_>> = items.iter().map(|item| self.node(item)).collect();
                Ok(Val::list(items?))
            }
            Kind::Map(entries) => self.map(entries),
            Kind::Call(function, arguments) => {
                let arguments: Outcome<Vec<_>> = arguments.iter().map(|argument| self.node(argument)).collect();
                functions::call(self, *function, &arguments?, at)
            }
            Kind::Matches(text, pattern) => match self.node(text)? {
                Val::Text(text) => {
                    self.charge_bytes(at, text.len() * 8)?;
                    Ok(Val::Bool(pattern.is_match(&text)))
                }
                other => fail(at, format!("matches() works on a string, not on {}", other.kind_with_article())),
            },
            Kind::Loop(walk) => self.walk(walk, at),
        }
    }

    fn root(&self, root: Root, at: usize) -> Outcome<Val<'a>> {
        let value = match root {
            Root::Context => return Ok(Val::Map(Fields::Borrowed(self.scope.context))),
            Root::Input => Some(self.scope.input),
            Root::Run => Some(self.scope.run),
            Root::Event => self.scope.event,
            Root::Workspace => self.scope.workspace,
            Root::Actor => self.scope.actor,
        };
        match value {
            Some(value) => Ok(Val::from(value)),
            None => fail(at, format!("`{}` is not known here", root.name())),
        }
    }

    /// An absent part of the scope has no fields: `has(event.x)` is false where there is no event.
    fn has(&mut self, operand: &'a Node, field: &str, at: usize) -> Outcome<Val<'a>> {
        if let Kind::Root(root) = operand.kind
            && self.root(root, at).is_err()
        {
            return Ok(Val::Bool(false));
        }
        match self.node(operand)? {
            Val::Map(fields) => Ok(Val::Bool(fields.get(field).is_some())),
            other => fail(at, format!("has() asks for a field of a map, this is {}", other.kind_with_article())),
        }
    }

    fn boolean(&mut self, node: &'a Node, sign: &str) -> Outcome<bool> {
        match self.node(node)? {
            Val::Bool(answer) => Ok(answer),
            other => fail(node.at, format!("`{sign}` needs true or false, not {}", other.kind_with_article())),
        }
    }

    /// `&&` and `||`: either side may settle it (`settled`), also when the other one fails.
    fn decide(&mut self, a: &'a Node, b: &'a Node, settled: bool) -> Outcome<bool> {
        let sign = if settled { "||" } else { "&&" };
        match self.boolean(a, sign) {
            Ok(answer) if answer == settled => Ok(settled),
            Ok(_) => self.boolean(b, sign),
            Err(failure) if failure.bound => Err(failure),
            Err(failure) => match self.boolean(b, sign)? {
                answer if answer == settled => Ok(settled),
                _ => Err(failure),
            },
        }
    }

    fn compute(&mut self, operator: Operator, a: Val<'a>, b: Val<'a>, at: usize) -> Outcome<Val<'a>> {
        match (operator, a, b) {
            (operator, Val::Number(a), Val::Number(b)) => match a.compute(operator, b) {
                Ok(number) => Ok(Val::Number(number)),
                Err(message) => fail(at, message),
            },
            (Operator::Add, Val::Text(a), Val::Text(b)) => {
                room(at, a.len() + b.len())?;
                self.built(at, [&*a, &*b].concat())
            }
            (Operator::Add, Val::List(a), Val::List(b)) => {
                self.charge(at, a.len() + b.len())?;
                Ok(Val::list(items(&a).chain(items(&b)).collect()))
            }
            (operator, a, b) => {
                let hint = match (&a, &b) {
                    (Val::Text(_), _) | (_, Val::Text(_)) if operator == Operator::Add => {
                        "; string(x) makes a text of it"
                    }
                    _ => "",
                };
                let (a, b) = (a.kind_with_article(), b.kind_with_article());
                fail(at, format!("`{}` does not work on {a} and {b}{hint}", operator.sign()))
            }
        }
    }

    /// The order of two values of one kind; `None` with a NaN.
    pub fn order(&mut self, a: &Val<'a>, b: &Val<'a>, at: usize) -> Outcome<Option<Ordering>> {
        match (a, b) {
            (Val::Number(a), Val::Number(b)) => Ok(a.compare(*b)),
            (Val::Text(a), Val::Text(b)) => {
                self.charge_bytes(at, a.len().min(b.len()))?;
                Ok(Some((**a).cmp(&**b)))
            }
            (Val::Bool(a), Val::Bool(b)) => Ok(Some(a.cmp(b))),
            _ => fail(at, format!("{} and {} have no order", a.kind_with_article(), b.kind_with_article())),
        }
    }

    /// Deep equality; values of different kinds are unequal.
    pub fn equal(&mut self, a: &Val<'a>, b: &Val<'a>, at: usize) -> Outcome<bool> {
        self.charge(at, 1)?;
        Ok(match (a, b) {
            (Val::Null, Val::Null) => true,
            (Val::Bool(a), Val::Bool(b)) => a == b,
            (Val::Number(a), Val::Number(b)) => a.compare(*b) == Some(Ordering::Equal),
            (Val::Text(a), Val::Text(b)) => {
                if a.len() != b.len() {
                    return Ok(false);
                }
                self.charge_bytes(at, a.len())?;
                **a == **b
            }
            (Val::List(a), Val::List(b)) => {
                if a.len() != b.len() {
                    return Ok(false);
                }
                for (a, b) in items(a).zip(items(b)) {
                    if !self.equal(&a, &b, at)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Val::Map(a), Val::Map(b)) => {
                if a.len() != b.len() {
                    return Ok(false);
                }
                self.charge(at, a.len())?;
                for name in items(&a.names()) {
                    let Val::Text(name) = name else { continue };
                    let (Some(left), Some(right)) = (a.get(&name), b.get(&name)) else { return Ok(false) };
                    if !self.equal(&left, &right, at)? {
                        return Ok(false);
                    }
                }
                true
            }
            _ => false,
        })
    }

    fn contains(&mut self, item: &Val<'a>, list: &Val<'a>, at: usize) -> Outcome<bool> {
        match list {
            Val::List(list) => {
                for candidate in items(list) {
                    if self.equal(item, &candidate, at)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Val::Map(fields) => Ok(matches!(item, Val::Text(name) if fields.get(name).is_some())),
            other => fail(at, format!("`in` looks into lists and maps, not into {}", other.kind_with_article())),
        }
    }

    fn map(&mut self, entries: &'a [(Node, Node)]) -> Outcome<Val<'a>> {
        let mut fields: Vec<(Text<'a>, Val<'a>)> = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            let name = match self.node(key)? {
                Val::Text(name) => name,
                other => return fail(key.at, format!("a key must be a string, not {}", other.kind_with_article())),
            };
            if fields.iter().any(|(known, _)| **known == *name) {
                return fail(key.at, format!("the key `{}` stands twice", &*name));
            }
            fields.push((name, self.node(value)?));
        }
        Ok(Val::Map(Fields::Built(Rc::new(fields))))
    }

    fn walk(&mut self, walk: &'a Loop, at: usize) -> Outcome<Val<'a>> {
        let range = match self.node(&walk.range)? {
            Val::List(list) => list,
            Val::Map(fields) => {
                self.charge(at, fields.len())?;
                fields.names()
            }
            other => return fail(at, format!("this goes through lists and maps, not {}", other.kind_with_article())),
        };
        let (mut kept, mut matched, mut failure) = (Vec::new(), 0usize, None);
        for item in items(&range) {
            self.charge(at, 1)?;
            self.locals.push(item.clone());
            let answer = self.body(walk);
            self.locals.pop();
            match (walk.kind, answer) {
                (_, Ok(None)) => {}
                (LoopKind::Map, Ok(Some(value))) => kept.push(value),
                (LoopKind::Filter, Ok(Some(Val::Bool(true)))) => kept.push(item),
                (LoopKind::Exists, Ok(Some(Val::Bool(true)))) => return Ok(Val::Bool(true)),
                (LoopKind::All, Ok(Some(Val::Bool(false)))) => return Ok(Val::Bool(false)),
                (LoopKind::ExistsOne, Ok(Some(Val::Bool(true)))) => matched += 1,
                (_, Ok(Some(Val::Bool(_)))) => {}
                (_, Ok(Some(other))) => {
                    return fail(
                        walk.body.at,
                        format!("this must be true or false, not {}", other.kind_with_article()),
                    );
                }
                // Like `&&` and `||`: a later item may settle `all` and `exists`.
                (LoopKind::All | LoopKind::Exists, Err(error)) if !error.bound => failure = failure.or(Some(error)),
                (_, Err(error)) => return Err(error),
            }
        }
        match (walk.kind, failure) {
            (_, Some(failure)) => Err(failure),
            (LoopKind::Map | LoopKind::Filter, _) => Ok(Val::list(kept)),
            (LoopKind::All, _) => Ok(Val::Bool(true)),
            (LoopKind::Exists, _) => Ok(Val::Bool(false)),
            (LoopKind::ExistsOne, _) => Ok(Val::Bool(matched == 1)),
        }
    }

    /// The body for the present item; `None` when `map`'s condition leaves it out.
    fn body(&mut self, walk: &'a Loop) -> Outcome<Option<Val<'a>>> {
        if let Some(filter) = &walk.filter
            && !self.boolean(filter, "map")?
        {
            return Ok(None);
        }
        self.node(&walk.body).map(Some)
    }
}

/// Refuses to build a text of more than a result's bytes.
pub fn room(at: usize, bytes: usize) -> Outcome<()> {
    if bytes > RESULT_BYTES_MAX {
        let error = ExpressionError::at(at, format!("a text grows larger than {} KiB", RESULT_BYTES_MAX / 1024));
        return Err(Failure { error, bound: true });
    }
    Ok(())
}

/// The items of a list.
pub fn items<'a, 'l>(list: &'l List<'a>) -> impl Iterator<Item = Val<'a>> + use<'a, 'l> {
    (0..list.len()).filter_map(|index| list.get(index))
}

/// A number as an index.
pub fn position(number: Number) -> Option<usize> {
    match number {
        Number::Int(n) => usize::try_from(n).ok(),
        Number::Double(n) if n.fract() == 0.0 && (0.0..1e15).contains(&n) => Some(n as usize),
        _ => None,
    }
}

fn select<'a>(operand: &Val<'a>, field: &str, at: usize) -> Outcome<Val<'a>> {
    match operand {
        Val::Map(fields) => fields.get(field).map_or_else(|| fail(at, format!("there is no field `{field}` here")), Ok),
        other => fail(at, format!("{} has no field `{field}`", other.kind_with_article())),
    }
}

fn item<'a>(operand: &Val<'a>, index: &Val<'a>, at: usize) -> Outcome<Val<'a>> {
    match (operand, index) {
        (Val::Map(_), Val::Text(name)) => select(operand, name, at),
        (Val::List(items), Val::Number(number)) => match position(*number).and_then(|index| items.get(index)) {
            Some(item) => Ok(item),
            None => fail(at, format!("there is no such item in a list of {}", items.len())),
        },
        (Val::Map(_), other) => fail(at, format!("a map is indexed by a string, not by {}", other.kind_with_article())),
        (Val::List(_), other) => fail(at, format!("a list is indexed by an int, not by {}", other.kind_with_article())),
        (other, _) => fail(at, format!("`[…]` works on lists and maps, not on {}", other.kind_with_article())),
    }
}
