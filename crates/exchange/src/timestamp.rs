//! Timestamps in RFC 3339 format: `2025-11-15T18:20:05.042Z`.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use minke_record::Millis;

/// Longer than any timestamp.
const MAX_TIMESTAMP_BYTES: usize = 40;

pub(crate) fn format_timestamp(at: Millis) -> String {
    // Years beyond 9999 need more than four digits, so they are omitted.
    let at = i64::try_from(at).ok().and_then(|at| Timestamp::from_millisecond(at).ok());
    at.unwrap_or(Timestamp::MAX).strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

/// Parses a timestamp, in UTC unless it has a zone; not before 1970.
pub(crate) fn parse_timestamp(text: &str) -> Option<Millis> {
    let text = Some(text).filter(|text| text.len() <= MAX_TIMESTAMP_BYTES)?;
    let at = text.parse::<Timestamp>().ok().or_else(|| {
        let zoned = text.parse::<DateTime>().ok()?.to_zoned(TimeZone::UTC).ok()?;
        Some(zoned.timestamp())
    })?;
    u64::try_from(at.as_millisecond()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_as_they_are_written() {
        for at in [0, 951_782_400_000, 1_709_251_199_999, 1_794_766_805_042, 4_107_542_400_000] {
            assert_eq!(parse_timestamp(&format_timestamp(at)), Some(at), "{}", format_timestamp(at));
        }
        let noon = parse_timestamp("2026-11-15T12:00:00Z");
        for same in ["2026-11-15T13:00:00+01:00", "2026-11-15T12:00:00.0004Z", "2026-11-15 07:00:00-0500"] {
            assert_eq!(parse_timestamp(same), noon, "{same}");
        }
        for no in [
            "",
            "yesterday",
            "1969-12-31T23:59:59Z",
            "2026-13-01T00:00:00Z",
            "2026-11-15T12:00:00+x",
            "２０26",
        ] {
            assert_eq!(parse_timestamp(no), None, "{no}");
        }
    }
}
