//! Arithmetic over integers and doubles together (decision 51).

use std::cmp::Ordering;

/// A JSON number. `Uint` only holds what is too large for `Int`.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    /// A CEL int.
    Int(i64),
    /// An integer above `i64::MAX`.
    Uint(u64),
    /// A CEL double.
    Double(f64),
}

/// A binary operator of arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`: integers divide to an integer, towards zero
    Divide,
    /// `%`
    Remainder,
}

impl Operator {
    /// As an author writes it.
    pub fn sign(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Remainder => "%",
        }
    }
}

impl Number {
    fn as_f64(self) -> f64 {
        match self {
            Self::Int(n) => n as f64,
            Self::Uint(n) => n as f64,
            Self::Double(n) => n,
        }
    }

    fn whole(self) -> Option<i128> {
        match self {
            Self::Int(n) => Some(n.into()),
            Self::Uint(n) => Some(n.into()),
            Self::Double(_) => None,
        }
    }

    /// The integer, when it fits a JSON number.
    pub fn from_whole(n: i128) -> Option<Self> {
        i64::try_from(n).map(Self::Int).or_else(|_| u64::try_from(n).map(Self::Uint)).ok()
    }

    /// The same value with its sign turned.
    pub fn negated(self) -> Option<Self> {
        match self.whole() {
            Some(n) => Self::from_whole(-n),
            None => Some(Self::Double(-self.as_f64())),
        }
    }

    /// Compares exactly; `None` with a NaN.
    pub fn compare(self, other: Self) -> Option<Ordering> {
        match (self.whole(), other.whole()) {
            (Some(a), Some(b)) => Some(a.cmp(&b)),
            (None, None) => self.as_f64().partial_cmp(&other.as_f64()),
            (Some(a), None) => compare_mixed(a, other.as_f64()),
            (None, Some(b)) => compare_mixed(b, self.as_f64()).map(Ordering::reverse),
        }
    }

    /// Computes; the error says why there is no answer.
    pub fn compute(self, operator: Operator, other: Self) -> Result<Self, String> {
        let (Some(a), Some(b)) = (self.whole(), other.whole()) else {
            return compute_doubles(self.as_f64(), operator, other.as_f64());
        };
        if b == 0 && matches!(operator, Operator::Divide | Operator::Remainder) {
            return Err("division by zero".to_owned());
        }
        let answer = match operator {
            Operator::Add => Some(a + b),
            Operator::Subtract => Some(a - b),
            Operator::Multiply => a.checked_mul(b),
            Operator::Divide => Some(a / b),
            Operator::Remainder => Some(a % b),
        };
        let both_int = matches!((self, other), (Self::Int(_), Self::Int(_)));
        match answer.and_then(Self::from_whole) {
            Some(Self::Uint(_)) if both_int => Err(overflow(operator)),
            Some(number) => Ok(number),
            None => Err(overflow(operator)),
        }
    }
}

fn overflow(operator: Operator) -> String {
    format!("the result of `{}` is too large for an integer", operator.sign())
}

fn compute_doubles(a: f64, operator: Operator, b: f64) -> Result<Number, String> {
    Ok(Number::Double(match operator {
        Operator::Add => a + b,
        Operator::Subtract => a - b,
        Operator::Multiply => a * b,
        Operator::Divide => a / b,
        Operator::Remainder => return Err("`%` works on integers only".to_owned()),
    }))
}

/// An integer of at most 65 bits against a double, without losing digits.
fn compare_mixed(whole: i128, double: f64) -> Option<Ordering> {
    if double.is_nan() {
        return None;
    }
    // Every double beyond this is larger than any integer here; inside, its floor is exact as an i128.
    if double.abs() > 1e30 {
        return Some(if double > 0.0 { Ordering::Less } else { Ordering::Greater });
    }
    let floor = double.floor();
    Some(whole.cmp(&(floor as i128)).then(if double > floor { Ordering::Less } else { Ordering::Equal }))
}
