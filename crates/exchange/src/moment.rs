//! Moments as the rest of the world writes them: `2025-11-15T18:20:05.042Z`.

use minke_record::Millis;

const DAY: u64 = 86_400_000;
const MINUTE: i64 = 60_000;

pub(crate) fn written(at: Millis) -> String {
    // Years beyond 9999 have no four digits.
    let at = at.min(253_402_300_799_999);
    let (days, rest) = (at / DAY, at % DAY);
    let (year, month, day) = date(days);
    let (hours, minutes) = (rest / 3_600_000, rest / 60_000 % 60);
    let (seconds, millis) = (rest / 1000 % 60, rest % 1000);
    format!("{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{millis:03}Z")
}

/// A moment with its zone, or nothing.
pub(crate) fn read(text: &str) -> Option<Millis> {
    let bytes = text.as_bytes();
    if !text.is_ascii() || bytes.len() > 40 {
        return None;
    }
    let part = |from: usize, to: usize| -> Option<u64> {
        let digits = text.get(from..to)?;
        digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let marks = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
    if marks.iter().any(|(at, mark)| bytes.get(*at) != Some(mark))
        || !matches!(bytes.get(10), Some(b'T' | b' '))
    {
        return None;
    }
    let (year, month, day) = (part(0, 4)?, part(5, 7)?, part(8, 10)?);
    let (hour, minute, second) = (part(11, 13)?, part(14, 16)?, part(17, 19)?);
    if year < 1970
        || !(1..=12).contains(&month)
        || !(1..=31).contains(&day)
        || hour > 23
        || minute > 59
        || second > 60
    {
        return None;
    }
    let rest = text.get(19..)?;
    let (fraction, zone) = match rest.strip_prefix('.') {
        Some(rest) => {
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            (rest.get(..end)?, rest.get(end..)?)
        }
        None => ("", rest),
    };
    let millis: u64 = format!("{fraction:0<3}").get(..3)?.parse().ok()?;
    let millis = days(year, month, day) * DAY + (hour * 3_600 + minute * 60 + second) * 1_000 + millis;
    let at = i64::try_from(millis).ok()?.checked_sub(east(zone)? * MINUTE)?;
    u64::try_from(at).ok()
}

/// Minutes by which a zone is ahead.
fn east(zone: &str) -> Option<i64> {
    if matches!(zone, "Z" | "z" | "") {
        return Some(0);
    }
    let (sign, rest) = match zone.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let (hours, minutes) = rest.split_once(':').or_else(|| rest.split_at_checked(2))?;
    let (hours, minutes): (u8, u8) = (hours.parse().ok()?, minutes.parse().ok()?);
    Some(sign * (i64::from(hours) * 60 + i64::from(minutes)))
}

/// The date so many days after 1970-01-01, counted in eras of 400 years that begin in March.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, date)
}

/// The reverse, for years from 1970 on.
fn days(year: u64, month: u64, day: u64) -> u64 {
    let year = year - u64::from(month <= 2);
    let (era, of_era) = (year / 400, year % 400);
    let month = if month > 2 { month - 3 } else { month + 9 };
    let of_year = (153 * month + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
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
