//! Durations as authors write them.

use std::time::Duration;

/// Longest duration of the format in milliseconds: 366 days, so that due instants stay far from the end of time.
pub const DURATION_MAX_MS: u64 = 366 * 24 * 60 * 60 * 1000;

/// `30s`, `1h 30m`, `14d` → milliseconds; `Err` says why not.
pub fn parse_duration_ms(text: &str) -> Result<u64, String> {
    let parsed: Duration = humantime::parse_duration(text.trim()).map_err(|error| format!("`{text}`: {error}"))?;
    let ms = u64::try_from(parsed.as_millis()).unwrap_or(u64::MAX);
    if ms > DURATION_MAX_MS {
        return Err(format!("`{text}` is longer than 366 days"));
    }
    Ok(ms)
}

/// `5s` or `1s..5m` → shortest and longest pause in milliseconds; `Err` says why not.
pub fn parse_backoff(text: &str) -> Result<(u64, u64), String> {
    let (from, to) = text.split_once("..").unwrap_or((text, text));
    let (from_ms, to_ms) = (parse_duration_ms(from)?, parse_duration_ms(to)?);
    if from_ms > to_ms {
        return Err(format!("`{text}` ends before it starts"));
    }
    Ok((from_ms, to_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_and_ranges() {
        assert_eq!(parse_duration_ms("14d"), Ok(14 * 86_400_000));
        assert_eq!(parse_duration_ms("1h 30m"), Ok(5_400_000));
        assert_eq!(parse_backoff("1s..5m"), Ok((1_000, 300_000)));
        assert_eq!(parse_backoff("2s"), Ok((2_000, 2_000)));
        assert!(parse_backoff("5m..1s").is_err());
        for wrong in ["", "5", "soon", "1000y", "-1s"] {
            assert!(parse_duration_ms(wrong).is_err(), "{wrong}");
        }
    }
}
