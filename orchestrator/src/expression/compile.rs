//! From the syntax tree to what is evaluated: names resolved, functions chosen, constants folded.

use super::functions::{self, Function};
use super::number::Operator;
use super::syntax::Tree;
use super::{EXPRESSION_DEPTH_MAX, ExpressionError, Reference, evaluate, value};
use cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};
use serde_json::{Value, json};
use std::cmp::Ordering;

/// One node of an expression.
#[derive(Debug)]
pub struct Node {
    /// Byte offset in the text.
    pub at: usize,
    /// What it is.
    pub kind: Kind,
}

/// What a node does.
#[derive(Debug)]
pub enum Kind {
    /// A constant.
    Literal(Value),
    /// A name of the scope.
    Root(Root),
    /// A variable of an enclosing loop, counted from the outermost.
    Local(usize),
    /// `a.b`
    Select(Box<Node>, String),
    /// `has(a.b)`
    Has(Box<Node>, String),
    /// `a[b]`
    Index(Box<Node>, Box<Node>),
    /// `!a`
    Not(Box<Node>),
    /// `-a`
    Negate(Box<Node>),
    /// `a && b`
    And(Box<Node>, Box<Node>),
    /// `a || b`
    Or(Box<Node>, Box<Node>),
    /// `a ? b : c`
    Conditional(Box<[Node; 3]>),
    /// `+ - * / %`
    Compute(Operator, Box<Node>, Box<Node>),
    /// `< <= > >=`
    Order(Comparison, Box<Node>, Box<Node>),
    /// `==`; `!=` when `negated`
    Equal {
        /// `!=`
        negated: bool,
        /// Left and right.
        sides: Box<[Node; 2]>,
    },
    /// `a in b`
    In(Box<Node>, Box<Node>),
    /// `[a, b]`
    List(Vec<Node>),
    /// `{"a": b}`
    Map(Vec<(Node, Node)>),
    /// A function; the receiver is the first argument.
    Call(Function, Vec<Node>),
    /// `a.matches("b")`
    Matches(Box<Node>, Box<regex::Regex>),
    /// `map`, `filter`, `all`, `exists`, `exists_one`
    Loop(Box<Loop>),
}

/// The names of the scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    /// `input`
    Input,
    /// `context`
    Context,
    /// `event`
    Event,
    /// `run`
    Run,
    /// `workspace`
    Workspace,
    /// `actor`
    Actor,
}

const ROOTS: [(&str, Root); 6] = [
    ("input", Root::Input),
    ("context", Root::Context),
    ("event", Root::Event),
    ("run", Root::Run),
    ("workspace", Root::Workspace),
    ("actor", Root::Actor),
];

impl Root {
    /// As an author writes it.
    pub fn name(self) -> &'static str {
        ROOTS.iter().find(|(_, root)| *root == self).map_or("", |(name, _)| name)
    }
}

/// An order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

impl Comparison {
    /// Does it hold for this order?
    pub fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }
}

/// One walk over a list (or the keys of a map).
#[derive(Debug)]
pub struct Loop {
    /// What it computes.
    pub kind: LoopKind,
    /// The list.
    pub range: Node,
    /// `map`'s optional condition.
    pub filter: Option<Node>,
    /// Evaluated for each item.
    pub body: Node,
}

/// The kinds of walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopKind {
    /// All bodies true.
    All,
    /// One or more bodies true.
    Exists,
    /// Exactly one body true.
    ExistsOne,
    /// The bodies.
    Map,
    /// The items whose body is true.
    Filter,
}

/// Names of types, as `type(x) == int` compares them: `type()` answers these texts.
const TYPES: [&str; 8] = ["int", "uint", "double", "string", "bool", "list", "map", "null_type"];

/// Compiles a tree; also answers what it reads.
pub fn compile(tree: &Tree) -> Result<(Node, Vec<Reference>), ExpressionError> {
    let mut compiler = Compiler { tree, locals: Vec::new(), references: Vec::new(), depth: 0 };
    let node = compiler.node(&tree.root)?;
    let mut references = compiler.references;
    references.sort_by_key(|reference| reference.offset);
    if references.is_empty() && !matches!(node.kind, Kind::Literal(_)) {
        // It reads nothing: this is its value for ever, or it can only ever fail this way.
        let value = evaluate::constant(&node).and_then(|value| value::into_json(&value))?;
        return Ok((Node { at: node.at, kind: Kind::Literal(value) }, references));
    }
    Ok((node, references))
}

struct Compiler<'t> {
    tree: &'t Tree,
    locals: Vec<String>,
    references: Vec<Reference>,
    depth: usize,
}

type Compiled<T = Node> = Result<T, ExpressionError>;

impl Compiler<'_> {
    fn node(&mut self, expr: &IdedExpr) -> Compiled {
        let at = self.tree.offset(expr.id);
        self.depth += 1;
        if self.depth > EXPRESSION_DEPTH_MAX {
            return Err(ExpressionError::at(
                at,
                format!("the expression nests deeper than {EXPRESSION_DEPTH_MAX} levels"),
            ));
        }
        let kind = self.kind(expr, at)?;
        self.depth -= 1;
        Ok(folded(Node { at, kind }))
    }

    fn boxed(&mut self, expr: &IdedExpr) -> Compiled<Box<Node>> {
        self.node(expr).map(Box::new)
    }

    fn kind(&mut self, expr: &IdedExpr, at: usize) -> Compiled<Kind> {
        if let Some(kind) = self.reference(expr) {
            return Ok(kind);
        }
        match &expr.expr {
            Expr::Literal(literal) => constant(literal, at),
            Expr::Ident(name) => self.identifier(name, at),
            Expr::Select(select) => Ok(Kind::Select(self.boxed(&select.operand)?, select.field.clone())),
            Expr::List(list) => {
                Ok(Kind::List(list.elements.iter().map(|item| self.node(item)).collect::<Result<_, _>>()?))
            }
            Expr::Map(map) => {
                let mut entries = Vec::with_capacity(map.entries.len());
                for entry in &map.entries {
                    let EntryExpr::MapEntry(entry) = &entry.expr else {
                        return Err(ExpressionError::at(at, "a map has keys and values"));
                    };
                    entries.push((self.node(&entry.key)?, self.node(&entry.value)?));
                }
                Ok(Kind::Map(entries))
            }
            Expr::Call(call) => self.call(call, at),
            Expr::Struct(message) => {
                Err(ExpressionError::at(at, format!("there is no type `{}` to build", message.type_name)))
            }
            Expr::Comprehension(_) | Expr::Unspecified => Err(ExpressionError::at(at, "this is not a CEL expression")),
        }
    }

    /// A chain of fields from a name of the scope: noted as one reference, compiled field by field.
    fn reference(&mut self, expr: &IdedExpr) -> Option<Kind> {
        let mut fields = Vec::new();
        let mut operand = expr;
        let (root, offset) = loop {
            match &operand.expr {
                Expr::Ident(name) => {
                    let name = name.trim_start_matches('.');
                    if self.locals.iter().any(|local| local == name) {
                        return None;
                    }
                    let root = ROOTS.iter().find(|(known, _)| *known == name)?.1;
                    break (root, self.tree.offset(operand.id));
                }
                Expr::Select(select) => {
                    fields.push((select.field.clone(), self.tree.offset(operand.id)));
                    operand = &select.operand;
                }
                Expr::Call(call) if call.func_name == operators::INDEX => {
                    let Expr::Literal(LiteralValue::String(key)) = &call.args.get(1)?.expr else { return None };
                    fields.push((key.inner().to_owned(), self.tree.offset(operand.id)));
                    operand = &call.args[0];
                }
                _ => return None,
            }
        };
        if fields.len() > EXPRESSION_DEPTH_MAX {
            return None;
        }
        fields.reverse();
        let path =
            std::iter::once(root.name().to_owned()).chain(fields.iter().map(|(field, _)| field.clone())).collect();
        self.references.push(Reference { path, offset });
        let chain = fields.into_iter().fold(Node { at: offset, kind: Kind::Root(root) }, |node, (field, at)| Node {
            at,
            kind: Kind::Select(Box::new(node), field),
        });
        Some(chain.kind)
    }

    fn identifier(&self, name: &str, at: usize) -> Compiled<Kind> {
        let name = name.trim_start_matches('.');
        if let Some(index) = self.locals.iter().rposition(|local| local == name) {
            return Ok(Kind::Local(index));
        }
        if TYPES.contains(&name) {
            return Ok(Kind::Literal(name.into()));
        }
        Err(ExpressionError::at(
            at,
            format!("unknown name `{name}`; in scope are input, context, event, run, workspace and actor"),
        ))
    }

    fn call(&mut self, call: &CallExpr, at: usize) -> Compiled<Kind> {
        if let Some(target) = &call.target {
            return self.method(target, &call.func_name, &call.args, at);
        }
        if call.func_name == operators::HAS {
            return self.has(&call.args, at);
        }
        let sides =
            |this: &mut Self| Ok::<_, ExpressionError>((this.boxed(&call.args[0])?, this.boxed(&call.args[1])?));
        match (call.func_name.as_str(), call.args.len()) {
            (operators::LOGICAL_NOT, 1) => Ok(Kind::Not(self.boxed(&call.args[0])?)),
            (operators::NEGATE, 1) => Ok(Kind::Negate(self.boxed(&call.args[0])?)),
            (operators::CONDITIONAL, 3) => Ok(Kind::Conditional(Box::new([
                self.node(&call.args[0])?,
                self.node(&call.args[1])?,
                self.node(&call.args[2])?,
            ]))),
            (operators::LOGICAL_AND, 2) => sides(self).map(|(a, b)| Kind::And(a, b)),
            (operators::LOGICAL_OR, 2) => sides(self).map(|(a, b)| Kind::Or(a, b)),
            (operators::INDEX, 2) => sides(self).map(|(a, b)| Kind::Index(a, b)),
            (operators::IN, 2) => sides(self).map(|(a, b)| Kind::In(a, b)),
            (name @ (operators::EQUALS | operators::NOT_EQUALS), 2) => {
                let sides = Box::new([self.node(&call.args[0])?, self.node(&call.args[1])?]);
                Ok(Kind::Equal { negated: name == operators::NOT_EQUALS, sides })
            }
            (name, count) => {
                if let (Some(operator), 2) = (arithmetic(name), count) {
                    return sides(self).map(|(a, b)| Kind::Compute(operator, a, b));
                }
                if let (Some(order), 2) = (ordering(name), count) {
                    return sides(self).map(|(a, b)| Kind::Order(order, a, b));
                }
                let name = name.trim_start_matches('.');
                let arguments: Vec<Node> = call.args.iter().map(|arg| self.node(arg)).collect::<Result<_, _>>()?;
                self.function(name, functions::Style::Global, arguments, at)
            }
        }
    }

    fn has(&mut self, args: &[IdedExpr], at: usize) -> Compiled<Kind> {
        match args {
            [IdedExpr { expr: Expr::Select(_), .. }] => match self.node(&args[0])?.kind {
                Kind::Select(operand, field) => Ok(Kind::Has(operand, field)),
                other => Ok(other),
            },
            _ => Err(ExpressionError::at(at, "has() takes one field, as in has(event.notes)")),
        }
    }

    fn method(&mut self, target: &IdedExpr, name: &str, args: &[IdedExpr], at: usize) -> Compiled<Kind> {
        let is_math =
            matches!(&target.expr, Expr::Ident(ident) if ident == "math") && !self.locals.iter().any(|l| l == "math");
        if is_math {
            let arguments: Vec<Node> = args.iter().map(|arg| self.node(arg)).collect::<Result<_, _>>()?;
            return self.function(&format!("math.{name}"), functions::Style::Global, arguments, at);
        }
        let kind = match (name, args.len()) {
            ("all", 2) => Some(LoopKind::All),
            ("exists", 2) => Some(LoopKind::Exists),
            ("exists_one" | "existsOne", 2) => Some(LoopKind::ExistsOne),
            ("map", 2 | 3) => Some(LoopKind::Map),
            ("filter", 2) => Some(LoopKind::Filter),
            _ => None,
        };
        if let Some(kind) = kind {
            return self.walk(kind, target, args, at);
        }
        if let ("matches", [pattern]) = (name, args) {
            let text = self.boxed(target)?;
            return Ok(Kind::Matches(text, Box::new(self.pattern(pattern)?)));
        }
        let mut arguments = vec![self.node(target)?];
        for arg in args {
            arguments.push(self.node(arg)?);
        }
        self.function(name, functions::Style::Receiver, arguments, at)
    }

    fn walk(&mut self, kind: LoopKind, target: &IdedExpr, args: &[IdedExpr], at: usize) -> Compiled<Kind> {
        let range = self.node(target)?;
        let Expr::Ident(variable) = &args[0].expr else {
            return Err(ExpressionError::at(at, "the first argument here must be a plain name for the item"));
        };
        self.locals.push(variable.clone());
        let filter = if args.len() == 3 { Some(self.node(&args[1])?) } else { None };
        let body = self.node(&args[args.len() - 1])?;
        self.locals.pop();
        Ok(Kind::Loop(Box::new(Loop { kind, range, filter, body })))
    }

    /// A pattern must be a literal: it is compiled once, and its cost is known.
    fn pattern(&self, expr: &IdedExpr) -> Compiled<regex::Regex> {
        let at = self.tree.offset(expr.id);
        let Expr::Literal(LiteralValue::String(pattern)) = &expr.expr else {
            return Err(ExpressionError::at(at, "the pattern of matches() must be a literal text"));
        };
        regex::RegexBuilder::new(pattern.inner())
            .size_limit(functions::PATTERN_BYTES_MAX)
            .build()
            .map_err(|_| ExpressionError::at(at, "this is not a regular expression, or it is too large"))
    }

    fn function(&self, name: &str, style: functions::Style, arguments: Vec<Node>, at: usize) -> Compiled<Kind> {
        match functions::find(name, style, arguments.len()) {
            Ok(function) => Ok(Kind::Call(function, arguments)),
            Err(message) => Err(ExpressionError::at(self.tree.name_offset(at, name), message)),
        }
    }
}

fn arithmetic(name: &str) -> Option<Operator> {
    Some(match name {
        operators::ADD => Operator::Add,
        operators::SUBSTRACT => Operator::Subtract,
        operators::MULTIPLY => Operator::Multiply,
        operators::DIVIDE => Operator::Divide,
        operators::MODULO => Operator::Remainder,
        _ => return None,
    })
}

fn ordering(name: &str) -> Option<Comparison> {
    Some(match name {
        operators::LESS => Comparison::Less,
        operators::LESS_EQUALS => Comparison::LessOrEqual,
        operators::GREATER => Comparison::Greater,
        operators::GREATER_EQUALS => Comparison::GreaterOrEqual,
        _ => return None,
    })
}

fn constant(literal: &LiteralValue, at: usize) -> Compiled<Kind> {
    Ok(Kind::Literal(match literal {
        LiteralValue::Null => Value::Null,
        LiteralValue::Boolean(b) => json!(*b.inner()),
        LiteralValue::Int(n) => json!(*n.inner()),
        LiteralValue::UInt(n) => json!(*n.inner()),
        LiteralValue::Double(n) => json!(*n.inner()),
        LiteralValue::String(text) => json!(text.inner()),
        LiteralValue::Bytes(_) => return Err(ExpressionError::at(at, "bytes are not JSON; write a plain text")),
    }))
}

/// A node of constants only becomes the constant; one that fails stays, since a branch never taken may hold it.
fn folded(node: Node) -> Node {
    let literal = |node: &Node| matches!(node.kind, Kind::Literal(_));
    let ready = match &node.kind {
        Kind::Select(a, _) | Kind::Has(a, _) | Kind::Not(a) | Kind::Negate(a) | Kind::Matches(a, _) => literal(a),
        Kind::Index(a, b) | Kind::And(a, b) | Kind::Or(a, b) | Kind::In(a, b) => literal(a) && literal(b),
        Kind::Compute(_, a, b) | Kind::Order(_, a, b) => literal(a) && literal(b),
        Kind::Equal { sides, .. } => sides.iter().all(literal),
        Kind::Conditional(parts) => parts.iter().all(literal),
        Kind::List(items) | Kind::Call(_, items) => items.iter().all(literal),
        Kind::Map(entries) => entries.iter().all(|(key, value)| literal(key) && literal(value)),
        Kind::Literal(_) | Kind::Root(_) | Kind::Local(_) | Kind::Loop(_) => false,
    };
    if !ready {
        return node;
    }
    let value = evaluate::constant(&node).and_then(|value| value::into_json(&value)).ok();
    match value {
        Some(value) => Node { at: node.at, kind: Kind::Literal(value) },
        None => node,
    }
}
