//! Times and spans of time as people read them.

use jiff::Timestamp;

/// Writes a span with its two most telling digits: `40 ms`, `1.4 s`, `12 s`, `5 min`, `3 h`, `2 d`.
pub(crate) fn span(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..10_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        10_000..120_000 => format!("{} s", ms / 1_000),
        120_000..7_200_000 => format!("{} min", ms / 60_000),
        7_200_000..172_800_000 => format!("{} h", ms / 3_600_000),
        _ => format!("{} d", ms / 86_400_000),
    }
}

/// Writes milliseconds since the Unix epoch as a time in UTC, to the second.
pub(crate) fn time(ms: u64) -> String {
    i64::try_from(ms)
        .ok()
        .and_then(|ms| Timestamp::from_millisecond(ms).ok())
        .map_or_else(|| format!("{ms} ms"), |time| time.strftime("%Y-%m-%d %H:%M:%SZ").to_string())
}

/// Writes a number of bytes: `312 bytes`, `4.2 KiB`, `17.0 MiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} bytes"),
        1_024..1_048_576 => format!("{}.{} KiB", bytes / 1_024, bytes % 1_024 * 10 / 1_024),
        _ => format!("{}.{} MiB", bytes / 1_048_576, bytes % 1_048_576 * 10 / 1_048_576),
    }
}

/// Writes a count with its noun: `1 turn`, `2 turns`.
pub(crate) fn count(n: u64, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_sizes_stay_short() {
        let spans = [0, 450, 9_999, 10_000, 119_999, 120_000, 7_200_000, 200_000_000].map(span);
        assert_eq!(spans, ["0 ms", "450 ms", "9.9 s", "10 s", "119 s", "2 min", "2 h", "2 d"]);
        assert_eq!([0, 1_023, 4_300, 17 << 20].map(bytes), ["0 bytes", "1023 bytes", "4.1 KiB", "17.0 MiB"]);
        assert_eq!(time(1_764_512_345_678), "2025-11-30 14:19:05Z");
        assert_eq!(time(u64::MAX), "18446744073709551615 ms");
    }
}
