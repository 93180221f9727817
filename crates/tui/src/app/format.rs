//! Formats numbers and times in a few characters.

use minke_record::Millis;

pub(super) fn to_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// `5m ago`.
pub(super) fn format_age(then: Millis, now: Millis) -> String {
    let seconds = now.saturating_sub(then) / 1_000;
    match seconds {
        0..60 => format!("{seconds}s ago"),
        60..3_600 => format!("{}m ago", seconds / 60),
        3_600..86_400 => format!("{}h ago", seconds / 3_600),
        _ => format!("{}d ago", seconds / 86_400),
    }
}

/// `1.2k`, `3.4M`.
#[expect(clippy::cast_precision_loss, reason = "it is shown with two digits")]
pub(super) fn format_count(number: u64) -> String {
    match number {
        0..1_000 => number.to_string(),
        1_000..1_000_000 => format!("{:.1}k", number as f64 / 1_000.0),
        _ => format!("{:.1}M", number as f64 / 1_000_000.0),
    }
}

#[expect(clippy::cast_precision_loss, reason = "it is shown with three digits")]
pub(super) fn format_dollars(micros: u64) -> String {
    format!("${:.3}", micros as f64 / 1_000_000.0)
}
