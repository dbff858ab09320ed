//! A Size: the CPU and memory ceiling of a whole Sandbox, written as Kubernetes quantities (spec 8.5 B-14, section 11).

use serde::{Deserialize, Serialize};

/// Bytes in a GiB.
const GIB: u64 = 1 << 30;
/// Bytes in a MiB.
const MIB: u64 = 1 << 20;

/// The kit's default memory (spec section 15).
pub const DEFAULT_MEMORY_BYTES: u64 = 2 * GIB;
/// The kit's default CPUs in millicores (spec section 15).
pub const DEFAULT_CPU_MILLIS: u64 = 1_000;

/// CPU and memory of a Sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Size {
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// CPU in millicores.
    pub cpu_millis: u64,
}

impl Default for Size {
    fn default() -> Self {
        Self { memory_bytes: DEFAULT_MEMORY_BYTES, cpu_millis: DEFAULT_CPU_MILLIS }
    }
}

/// Why a quantity is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not a number with a known suffix.
    #[error("`{0}` is not a quantity: write a number with an optional suffix such as 512Mi, 2Gi, 500m")]
    Malformed(String),
    /// Zero, negative or beyond 64 bits.
    #[error("`{0}` is out of range")]
    OutOfRange(String),
}

/// Parses a memory quantity (`2Gi`, `512Mi`, `1.5Gi`, `1G`, plain bytes) into bytes.
pub fn parse_memory(text: &str) -> Result<u64, QuantityError> {
    const SUFFIXES: [(&str, f64); 9] = [
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("Ti", 1_099_511_627_776.0),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
        ("", 1.0),
    ];
    scaled(text, &SUFFIXES)
}

/// Parses a CPU quantity (`1`, `0.5`, `500m`) into millicores.
pub fn parse_cpu(text: &str) -> Result<u64, QuantityError> {
    scaled(text, &[("m", 1.0), ("", 1_000.0)])
}

fn scaled(text: &str, suffixes: &[(&str, f64)]) -> Result<u64, QuantityError> {
    let malformed = || QuantityError::Malformed(text.chars().take(64).collect());
    for (suffix, factor) in suffixes {
        let Some(number) = text.strip_suffix(suffix) else { continue };
        if number.is_empty() || !number.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
            continue;
        }
        let value: f64 = number.parse().map_err(|_| malformed())?;
        let total = value * factor;
        if !(1.0..9e18).contains(&total) {
            return Err(QuantityError::OutOfRange(text.chars().take(64).collect()));
        }
        return Ok(total.round() as u64);
    }
    Err(malformed())
}

/// Memory as a Size is written: `2Gi`, `1.9Gi` (one decimal above 1 Gi), `512Mi` (rounded below it) (spec B-14).
pub fn format_memory(bytes: u64) -> String {
    if bytes < GIB {
        return format!("{}Mi", (bytes + MIB / 2) / MIB);
    }
    let tenths = (bytes as f64 / GIB as f64 * 10.0).round() as u64;
    if tenths.is_multiple_of(10) { format!("{}Gi", tenths / 10) } else { format!("{}.{}Gi", tenths / 10, tenths % 10) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_written_as_spec_b14_says() {
        assert_eq!(format_memory(2 * GIB), "2Gi");
        assert_eq!(format_memory(GIB * 19 / 10), "1.9Gi");
        assert_eq!(format_memory(512 * MIB), "512Mi");
    }

    #[test]
    fn quantities_parse_or_say_why_not() {
        assert_eq!(parse_memory("2Gi"), Ok(2 * GIB));
        assert_eq!(parse_memory("1.5Gi"), Ok(GIB * 3 / 2));
        assert_eq!(parse_cpu("500m"), Ok(500));
        assert_eq!(parse_cpu("1"), Ok(1000));
        assert!(parse_memory("lots").is_err());
        assert!(parse_memory("0").is_err());
        assert!(parse_cpu("-1").is_err());
    }
}
