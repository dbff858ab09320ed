//! Simple ECMAScript expressions as CEL.

use std::collections::BTreeSet;

/// Why something cannot be converted.
pub type Reason = String;

/// What an expression may name, and what it named.
#[derive(Debug, Default)]
pub struct Names {
    /// Declared data.
    pub data: BTreeSet<String>,
    /// States asked for with `In('…')`.
    pub asked: BTreeSet<String>,
}

/// The context key that is true while a state is active.
pub fn asked_key(state: &str) -> String {
    let plain: String = state.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    format!("in__{plain}")
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    Number(String),
    Text(String),
    Sign(String),
}

const SIGNS: [&str; 26] = [
    "===", "!==", "==", "!=", "<=", ">=", "&&", "||", "<", ">", "+", "-", "*", "%", "!", "(", ")", "[", "]", "{", "}",
    ",", "?", ":", ".", "/",
];

fn tokens(source: &str) -> Result<Vec<Token>, Reason> {
    let mut tokens = Vec::new();
    let mut rest = source.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if first.is_ascii_alphabetic() || first == '_' || first == '$' {
            let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '$')).unwrap_or(rest.len());
            tokens.push(Token::Word(rest[..end].to_owned()));
            end
        } else if first.is_ascii_digit() {
            let end = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
            tokens.push(Token::Number(rest[..end].to_owned()));
            end
        } else if first == '\'' || first == '"' {
            let end = rest[1..].find(first).ok_or("an unterminated text")? + 2;
            if rest[..end].contains('\\') {
                return Err("a text with escapes".to_owned());
            }
            tokens.push(Token::Text(rest[..end].to_owned()));
            end
        } else {
            let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign)).ok_or(format!("the sign `{first}`"))?;
            tokens.push(Token::Sign((*sign).to_owned()));
            sign.len()
        };
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

/// Converts an expression.
pub fn expression(source: &str, names: &mut Names) -> Result<String, Reason> {
    let tokens = tokens(&cubes(source))?;
    if tokens.is_empty() {
        return Err("an empty expression".to_owned());
    }
    let sign = |at: usize, wanted: &str| matches!(tokens.get(at), Some(Token::Sign(sign)) if sign == wanted);
    let word = |at: usize| match tokens.get(at) {
        Some(Token::Word(word)) => Some(word.as_str()),
        _ => None,
    };
    let mut out = String::new();
    let mut at = 0;
    while at < tokens.len() {
        let piece = match &tokens[at] {
            Token::Number(number) => number.clone(),
            Token::Text(text) => text.clone(),
            Token::Sign(s) if s == "===" => "==".to_owned(),
            Token::Sign(s) if s == "!==" => "!=".to_owned(),
            Token::Sign(s) if s == "/" => return Err("division, which differs for integers".to_owned()),
            Token::Sign(s) if (s == "+" || s == "-") && sign(at + 1, s) => return Err(format!("the sign `{s}{s}`")),
            Token::Sign(s) => s.clone(),
            Token::Word(key) if at > 0 && (sign(at - 1, "{") || sign(at - 1, ",")) && sign(at + 1, ":") => {
                format!("\"{key}\"")
            }
            Token::Word(field) if at > 0 && sign(at - 1, ".") => {
                if sign(at + 1, "(") || field == "length" {
                    return Err(format!("the method `{field}`"));
                }
                field.clone()
            }
            Token::Word(name) => match name.as_str() {
                "true" | "false" | "null" => name.clone(),
                "undefined" => "null".to_owned(),
                "typeof" => {
                    let end = tokens[at..].iter().position(|t| *t == Token::Text("'undefined'".to_owned()));
                    let asked = match (word(at + 1), word(at + 3), end) {
                        (Some("_event"), Some("data"), Some(5)) => "!has(event.data)".to_owned(),
                        (Some(name), _, Some(3)) if names.data.contains(name) => format!("context.{name} == null"),
                        _ => return Err("`typeof`".to_owned()),
                    };
                    at += end.unwrap_or(0);
                    asked
                }
                "In" => {
                    let Some(Token::Text(state)) = tokens.get(at + 2) else {
                        return Err("`In` of no literal".to_owned());
                    };
                    let state = state.trim_matches(['\'', '"']).to_owned();
                    at += 3;
                    let key = asked_key(&state);
                    names.asked.insert(state);
                    format!("context.{key}")
                }
                "_event" => match word(at + 2) {
                    Some("data") => {
                        at += 2;
                        "event.data".to_owned()
                    }
                    Some("name") => {
                        at += 2;
                        "event.type".to_owned()
                    }
                    _ => return Err("system variable `_event` beyond name and data".to_owned()),
                },
                name if name.starts_with('_') => return Err(format!("system variable `{name}`")),
                name if names.data.contains(name) && !sign(at + 1, "(") => format!("context.{name}"),
                name => return Err(format!("ECMAScript `{name}`")),
            },
        };
        out.push_str(&piece);
        if !sign(at + 1, ".") && !sign(at, ".") {
            out.push(' ');
        }
        at += 1;
    }
    Ok(out.trim_end().replace(" .", ".").replace(". ", "."))
}

/// `Math.pow(x,3)` as a product: the one function the corpus uses in plain sums.
fn cubes(source: &str) -> String {
    let Some((before, rest)) = source.split_once("Math.pow(") else { return source.to_owned() };
    match rest.split_once(",3)") {
        Some((base, after)) => format!("{before}({base} * {base} * {base}){after}"),
        None => source.to_owned(),
    }
}

/// Converts a condition: what is not plainly true or false is asked for its truth.
pub fn condition(source: &str, names: &mut Names) -> Result<String, Reason> {
    let converted = expression(source, names)?;
    let is_boolean = ["==", "!=", "<", ">", "&&", "||", "!"].iter().any(|sign| converted.contains(sign))
        || ["true", "false"].contains(&converted.as_str())
        || converted.starts_with("context.in__");
    Ok(if is_boolean { converted } else { format!("!({converted} in [false, 0, \"\", null])") })
}

/// Converts a script of plain assignments into `(name, expression)` pairs, in order.
pub fn script(source: &str, names: &mut Names) -> Result<Vec<(String, String)>, Reason> {
    let mut assignments = Vec::new();
    for statement in source.split([';', '\n']).map(str::trim).filter(|statement| !statement.is_empty()) {
        let (name, value) = if let Some(name) = statement.strip_suffix("++") {
            (name.trim(), format!("{name} + 1"))
        } else if let Some((name, value)) = statement.split_once("+=") {
            (name.trim(), format!("{name} + ({value})"))
        } else if let Some((name, value)) = statement.split_once('=').filter(|(_, value)| !value.starts_with('=')) {
            (name.trim(), value.to_owned())
        } else {
            return Err("a script that is more than assignments".to_owned());
        };
        if !names.data.contains(name) {
            return Err("a script that is more than assignments to declared data".to_owned());
        }
        assignments.push((name.to_owned(), expression(&value, names)?));
    }
    Ok(assignments)
}
