//! YAML's core schema: what a plain scalar means.

use super::NodeKind;
use serde_json::Number;

/// The meaning of a plain scalar; `Err` when it is a number JSON cannot hold.
pub fn resolve(text: &str) -> Result<NodeKind, ()> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(NodeKind::Null),
        "true" | "True" | "TRUE" => return Ok(NodeKind::Bool(true)),
        "false" | "False" | "FALSE" => return Ok(NodeKind::Bool(false)),
        ".nan" | ".NaN" | ".NAN" => return Err(()),
        _ => {}
    }
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") {
        return Err(());
    }
    if let Some(number) = integer(text, unsigned) {
        return Ok(NodeKind::Number(number));
    }
    if is_decimal(unsigned) {
        let value: f64 = text.parse().map_err(|_| ())?;
        return Number::from_f64(value).map(NodeKind::Number).ok_or(());
    }
    Ok(NodeKind::Text(text.to_owned()))
}

/// Decimal, octal (`0o`) and hexadecimal (`0x`) integers of 64 bits.
fn integer(text: &str, unsigned: &str) -> Option<Number> {
    let radix = |digits: &str, radix| {
        let plain = !digits.is_empty() && !digits.starts_with(['+', '-']);
        plain.then(|| u64::from_str_radix(digits, radix).ok()).flatten().map(Number::from)
    };
    if let Some(digits) = text.strip_prefix("0o") {
        return radix(digits, 8);
    }
    if let Some(digits) = text.strip_prefix("0x") {
        return radix(digits, 16);
    }
    if unsigned.is_empty() || !unsigned.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let text = text.strip_prefix('+').unwrap_or(text);
    text.parse::<i64>().map(Number::from).or_else(|_| text.parse::<u64>().map(Number::from)).ok()
}

/// `[0-9]+(\.[0-9]*)?` or `\.[0-9]+`, with an optional exponent.
fn is_decimal(unsigned: &str) -> bool {
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    let mantissa_ok = match mantissa.split_once('.') {
        Some((whole, part)) => digits(whole) && digits(part) && !(whole.is_empty() && part.is_empty()),
        None => !mantissa.is_empty() && digits(mantissa),
    };
    let exponent_ok = exponent.is_none_or(|e| {
        let e = e.strip_prefix(['-', '+']).unwrap_or(e);
        !e.is_empty() && digits(e)
    });
    mantissa_ok && exponent_ok
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn plain_scalars_follow_the_core_schema() {
        let json = |text: &str| match resolve(text).unwrap() {
            NodeKind::Null => json!(null),
            NodeKind::Bool(b) => json!(b),
            NodeKind::Number(n) => json!(n),
            NodeKind::Text(t) => json!(t),
            _ => unreachable!(),
        };
        assert_eq!(json("~"), json!(null));
        assert_eq!(json("yes"), json!("yes"));
        assert_eq!(json("on"), json!("on"));
        assert_eq!(json("-12"), json!(-12));
        assert_eq!(json("18446744073709551615"), json!(u64::MAX));
        assert_eq!(json("0x1f"), json!(31));
        assert_eq!(json("1.5e3"), json!(1500.0));
        assert_eq!(json(".5"), json!(0.5));
        assert_eq!(json("14d"), json!("14d"));
        assert_eq!(json("1s..5m"), json!("1s..5m"));
        assert_eq!(json("-"), json!("-"));
        assert!(resolve(".inf").is_err());
        assert!(resolve("1e999").is_err());
    }
}
