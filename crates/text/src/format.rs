//! Formats ages, counts and costs in a few characters.

/// `950`, `1.2k`, `3.4M`.
pub fn format_count(number: u64) -> String {
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

/// `$0.043`, from millionths of a dollar.
pub fn format_dollars(micros: u64) -> String {
    let mills = micros.saturating_add(500) / 1_000;
    format!("${}.{:03}", mills / 1_000, mills % 1_000)
}

/// `now`, `5m ago`, `3d ago`. Both times are in milliseconds.
pub fn format_age(then: u64, now: u64) -> String {
    let seconds = now.saturating_sub(then) / 1_000;
    match seconds {
        0..10 => "now".to_owned(),
        10..60 => format!("{seconds}s ago"),
        60..3_600 => format!("{}m ago", seconds / 60),
        3_600..86_400 => format!("{}h ago", seconds / 3_600),
        _ => format!("{}d ago", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [0, 999, 1_000, 1_949, 999_949, 999_950, 3_450_000].map(format_count),
            ["0", "999", "1.0k", "1.9k", "999.9k", "1.0M", "3.5M"]
        );
        assert_eq!(format_count(u64::MAX).chars().last(), Some('M'));
        assert_eq!([0, 43_499, 2_000_000].map(format_dollars), ["$0.000", "$0.043", "$2.000"]);
    }

    #[test]
    fn ages_are_short() {
        assert_eq!(
            [0, 30_000, 300_000, 7_200_000, 200_000_000].map(|ms| format_age(0, ms)),
            ["now", "30s ago", "5m ago", "2h ago", "2d ago"]
        );
    }
}
