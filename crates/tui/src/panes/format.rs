//! Formats costs and percentages.

/// `$0.043`; a text if a price is unknown.
pub(super) fn format_cost(micros: Option<u64>) -> String {
    micros.map_or_else(|| "cost unknown".to_owned(), minke_text::format_dollars)
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
            [Some(0), Some(43_499), Some(2_000_000), None].map(format_cost),
            ["$0.000", "$0.043", "$2.000", "cost unknown"]
        );
        assert_eq!((to_percent(1, 3), to_percent(5, 0), to_percent(2, 2)), (33, 500, 100));
    }
}
