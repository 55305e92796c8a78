//! Durations as people write them: `500ms`, `30s`, `1.5m`, `2h`.

use std::time::Duration;

use thiserror::Error;

/// The longest duration that a program or a flag may name: 366 days. It keeps every sum of a
/// clock and a duration far from overflow.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// Why a text is no duration.
///
/// ```
/// use greenroom::program::{DurationError, parse_duration};
/// assert_eq!(parse_duration("soon"), Err(DurationError::Number));
/// assert_eq!(parse_duration("3 weeks"), Err(DurationError::Unit));
/// assert_eq!(parse_duration("9000h"), Err(DurationError::TooLong));
/// ```
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum DurationError {
    /// It does not begin with digits, or has more than one point, or a sign.
    #[error("expected a number followed by ms, s, m or h, such as \"30s\"")]
    Number,
    /// The number has no unit, or one that is not known.
    #[error("expected one of the units ms, s, m and h after the number, such as \"30s\"")]
    Unit,
    /// It is longer than 366 days.
    #[error("expected at most 366 days")]
    TooLong,
}

/// Reads a whole or decimal number followed by its unit: `ms`, `s`, `m` (minutes) or `h`.
/// What is finer than a nanosecond is cut off.
///
/// # Errors
/// [`DurationError`] if the number or the unit is none, or the duration is longer than 366 days.
pub fn parse_duration(text: &str) -> Result<Duration, DurationError> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let (whole, fraction) = match number.split_once('.') {
        Some((whole, fraction)) if !fraction.is_empty() => (whole, fraction),
        Some(_) => return Err(DurationError::Number),
        None => (number, ""),
    };
    if whole.is_empty() || fraction.contains('.') {
        return Err(DurationError::Number);
    }
    let unit_nanos: u64 = match unit {
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return Err(DurationError::Unit),
    };
    let whole = whole.parse::<u64>().ok().and_then(|whole| whole.checked_mul(unit_nanos)).ok_or(DurationError::TooLong)?;
    let nanos = whole.saturating_add(fraction_nanos(fraction, unit_nanos));
    let duration = Duration::from_nanos(nanos);
    if duration > LONGEST {
        return Err(DurationError::TooLong);
    }
    Ok(duration)
}

/// The nanoseconds of the digits after the point.
fn fraction_nanos(digits: &str, unit_nanos: u64) -> u64 {
    let mut nanos = 0;
    let mut place = unit_nanos;
    for digit in digits.bytes() {
        place /= 10;
        nanos += place * u64::from(digit - b'0');
    }
    nanos
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_a_number_and_a_unit() {
        for (text, expected) in [
            ("500ms", Ok(Duration::from_millis(500))),
            ("30s", Ok(Duration::from_secs(30))),
            ("1.5s", Ok(Duration::from_millis(1500))),
            ("0.25m", Ok(Duration::from_secs(15))),
            ("2m", Ok(Duration::from_secs(120))),
            ("1h", Ok(Duration::from_secs(3600))),
            ("0s", Ok(Duration::ZERO)),
            ("0.0000019ms", Ok(Duration::from_nanos(1))),
            ("8784h", Ok(LONGEST)),
            ("8784.01h", Err(DurationError::TooLong)),
            ("99999999999999999999s", Err(DurationError::TooLong)),
            ("18446744073709551615ms", Err(DurationError::TooLong)),
            ("30", Err(DurationError::Unit)),
            ("30 s", Err(DurationError::Unit)),
            ("30sec", Err(DurationError::Unit)),
            ("1h30m", Err(DurationError::Unit)),
            ("", Err(DurationError::Number)),
            ("s", Err(DurationError::Number)),
            ("-1s", Err(DurationError::Number)),
            (".5s", Err(DurationError::Number)),
            ("1.s", Err(DurationError::Number)),
            ("1.2.3s", Err(DurationError::Number)),
        ] {
            assert_eq!(parse_duration(text), expected, "{text}");
        }
    }
}
