//! Formats numbers, costs and times.

use minke_record::Millis;

/// `950`, `1.2k`, `3.4M`.
pub(super) fn format_tokens(number: u64) -> String {
    match number {
        0..1_000 => number.to_string(),
        1_000..999_950 => format_tenths(number, 1_000, "k"),
        _ => format_tenths(number, 1_000_000, "M"),
    }
}

fn format_tenths(number: u64, unit: u64, sign: &str) -> String {
    let tenths = (number.saturating_add(unit / 20)) / (unit / 10);
    format!("{}.{}{sign}", tenths / 10, tenths % 10)
}

/// `$0.043`; a text if a price is unknown.
pub(super) fn format_cost(micros: Option<u64>) -> String {
    match micros {
        Some(micros) => {
            let mills = micros.saturating_add(500) / 1_000;
            format!("${}.{:03}", mills / 1_000, mills % 1_000)
        }
        None => "cost unknown".to_owned(),
    }
}

/// `now`, `5m ago`, `3d ago`.
pub(super) fn format_age(then: Millis, now: Millis) -> String {
    let seconds = now.saturating_sub(then) / 1_000;
    match seconds {
        0..10 => "now".to_owned(),
        10..60 => format!("{seconds}s ago"),
        60..3_600 => format!("{}m ago", seconds / 60),
        3_600..86_400 => format!("{}h ago", seconds / 3_600),
        _ => format!("{}d ago", seconds / 86_400),
    }
}

/// Returns a rounded percentage.
pub(super) fn to_percent(part: u64, whole: u64) -> u64 {
    let whole = u128::from(whole.max(1));
    u64::try_from((u128::from(part) * 200 + whole) / (whole * 2)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [0, 999, 1_000, 1_949, 999_949, 999_950, 3_450_000].map(format_tokens),
            ["0", "999", "1.0k", "1.9k", "999.9k", "1.0M", "3.5M"]
        );
        assert_eq!(format_tokens(u64::MAX).chars().last(), Some('M'));
        assert_eq!(
            [Some(0), Some(43_499), Some(2_000_000), None].map(format_cost),
            ["$0.000", "$0.043", "$2.000", "cost unknown"]
        );
        assert_eq!(
            [0, 30_000, 300_000, 7_200_000, 200_000_000].map(|ms| format_age(0, ms)),
            ["now", "30s ago", "5m ago", "2h ago", "2d ago"]
        );
        assert_eq!((to_percent(1, 3), to_percent(5, 0), to_percent(2, 2)), (33, 500, 100));
    }
}
