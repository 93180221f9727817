//! Moments as the rest of the world writes them: `2025-11-15T18:20:05.042Z`.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use minke_record::Millis;

/// Longer than any moment.
const BYTES: usize = 40;

pub(crate) fn written(at: Millis) -> String {
    // Years beyond 9999 have no four digits, and there is nothing to say of them.
    let at = i64::try_from(at).ok().and_then(|at| Timestamp::from_millisecond(at).ok());
    at.unwrap_or(Timestamp::MAX).strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

/// A moment, in its zone or without one in that of the whole world; nothing before 1970.
pub(crate) fn read(text: &str) -> Option<Millis> {
    let text = Some(text).filter(|text| text.len() <= BYTES)?;
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
            assert_eq!(read(&written(at)), Some(at), "{}", written(at));
        }
        let noon = read("2026-11-15T12:00:00Z");
        for same in ["2026-11-15T13:00:00+01:00", "2026-11-15T12:00:00.0004Z", "2026-11-15 07:00:00-0500"] {
            assert_eq!(read(same), noon, "{same}");
        }
        for no in [
            "",
            "yesterday",
            "1969-12-31T23:59:59Z",
            "2026-13-01T00:00:00Z",
            "2026-11-15T12:00:00+x",
            "２０26",
        ] {
            assert_eq!(read(no), None, "{no}");
        }
    }
}
