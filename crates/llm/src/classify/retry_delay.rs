//! Retry delay: from the headers or the message of a provider.
//!
//! Invariant: no delay is longer than `MAX_DELAY_MS`, whatever a header contains
//! (`waits_are_read_and_bounded`).

use std::time::{Duration, SystemTime};

/// The longest delay: one day.
pub(crate) const MAX_DELAY_MS: u64 = 24 * 60 * 60 * 1000;

/// The delay before the next attempt, from the headers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RetryDelay {
    pub after_ms: Option<u64>,
}

impl RetryDelay {
    /// Reads the headers of a response. `header` returns a value by its lower-case name.
    pub fn from_headers<'h>(header: impl Fn(&str) -> Option<&'h str>, now: SystemTime) -> RetryDelay {
        let after_ms = header("retry-after-ms")
            .and_then(|text| parse_milliseconds(text, 1.0))
            .or_else(|| header("retry-after").and_then(|text| parse_retry_after(text, now)))
            .or_else(|| parse_limit_reset(&header, now));
        RetryDelay { after_ms }
    }
}

/// Parses seconds or an HTTP date.
fn parse_retry_after(text: &str, now: SystemTime) -> Option<u64> {
    let text = text.trim();
    parse_milliseconds(text, 1000.0).or_else(|| {
        let when = httpdate::parse_http_date(text).ok()?;
        Some(capped_ms(when.duration_since(now).unwrap_or(Duration::ZERO)))
    })
}

/// Returns when an exhausted limit resets. A limit with a remainder does not apply to this request.
fn parse_limit_reset<'h>(header: &impl Fn(&str) -> Option<&'h str>, now: SystemTime) -> Option<u64> {
    let used_up =
        |kind: &str| header(&format!("x-ratelimit-remaining{kind}")).is_some_and(|left| left.trim() == "0");
    let waits = ["-requests", "-tokens", ""].into_iter().filter(|kind| used_up(kind)).filter_map(|kind| {
        let text = header(&format!("x-ratelimit-reset{kind}"))?.trim();
        parse_duration_ms(text).or_else(|| parse_moment(text, now))
    });
    waits.max()
}

/// Parses a number: seconds or milliseconds since the epoch if it is large enough, else seconds from now.
fn parse_moment(text: &str, now: SystemTime) -> Option<u64> {
    const MIN_EPOCH_S: f64 = 1e9;
    const MIN_EPOCH_MS: f64 = 1e12;
    let number: f64 = text.parse().ok()?;
    if number < MIN_EPOCH_S {
        return parse_milliseconds(text, 1000.0);
    }
    let since_epoch_ms = if number < MIN_EPOCH_MS { number * 1000.0 } else { number };
    let now_ms = now.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs_f64() * 1000.0;
    Some(rounded_up_ms((since_epoch_ms - now_ms).max(0.0)))
}

fn parse_milliseconds(text: &str, unit_ms: f64) -> Option<u64> {
    let number: f64 = text.trim().parse().ok()?;
    (number.is_finite() && number >= 0.0).then(|| rounded_up_ms(number * unit_ms))
}

fn capped_ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(MAX_DELAY_MS).min(MAX_DELAY_MS)
}

/// Rounds up, so that no retry comes too early.
fn rounded_up_ms(ms: f64) -> u64 {
    capped_ms(Duration::try_from_secs_f64(ms.ceil() / 1000.0).unwrap_or(Duration::MAX))
}

/// Parses a duration such as `34.4s`, `6m0s`, `120ms`, `1h2m` or `26 seconds`. Ignores the text after it.
pub(crate) fn parse_duration_ms(text: &str) -> Option<u64> {
    let mut rest = text.trim_start();
    let mut total = None;
    loop {
        let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
        let (number, after) = rest.split_at_checked(digits)?;
        let Ok(number) = number.parse::<f64>() else { break };
        let after = after.strip_prefix(' ').unwrap_or(after);
        let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at_checked(letters)?;
        let Some(unit_ms) = unit_to_ms(unit) else { break };
        total = Some(total.unwrap_or(0.0) + number * unit_ms);
        rest = after;
    }
    total.map(rounded_up_ms)
}

fn unit_to_ms(unit: &str) -> Option<f64> {
    match unit {
        "ms" | "millisecond" | "milliseconds" => Some(1.0),
        "s" | "sec" | "secs" | "second" | "seconds" => Some(1000.0),
        "m" | "min" | "mins" | "minute" | "minutes" => Some(60_000.0),
        "h" | "hour" | "hours" => Some(3_600_000.0),
        _ => None,
    }
}

/// Finds a delay in a lower-case message: `try again in 6s`, `retry after 26 seconds`.
pub(crate) fn find_in_text(message: &str) -> Option<u64> {
    ["try again in ", "retry in ", "retry after "]
        .iter()
        .find_map(|phrase| message.split_once(phrase).and_then(|(_, rest)| parse_duration_ms(rest)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delay_from(headers: &[(&str, &str)]) -> Option<u64> {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let find = |name: &str| headers.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
        RetryDelay::from_headers(find, now).after_ms
    }

    #[test]
    fn waits_are_read_and_bounded() {
        assert_eq!(delay_from(&[("retry-after", "20")]), Some(20_000));
        assert_eq!(delay_from(&[("retry-after", " 1.5 ")]), Some(1_500));
        assert_eq!(delay_from(&[("retry-after", "20"), ("retry-after-ms", "250")]), Some(250));
        assert_eq!(delay_from(&[("retry-after", "Tue, 14 Nov 2023 22:13:50 GMT")]), Some(30_000));
        assert_eq!(delay_from(&[("retry-after", "Tue, 14 Nov 2000 22:13:50 GMT")]), Some(0), "in the past");
        for endless in ["1e300", "999999999999", "Tue, 14 Nov 2090 22:13:50 GMT"] {
            assert_eq!(delay_from(&[("retry-after", endless)]), Some(MAX_DELAY_MS), "{endless}");
        }
        for odd in ["", "soon", "-1", "NaN", "inf", "Tue"] {
            assert_eq!(delay_from(&[("retry-after", odd)]), None, "{odd}");
        }
    }

    #[test]
    fn a_limit_that_is_used_up_says_when_it_fills() {
        let headers = [
            ("x-ratelimit-remaining-requests", "0"),
            ("x-ratelimit-reset-requests", "6m0s"),
            ("x-ratelimit-remaining-tokens", "17"),
            ("x-ratelimit-reset-tokens", "2h"),
        ];
        assert_eq!(delay_from(&headers), Some(360_000), "there are tokens left");
        for (reset, wanted) in [("1700000002", 2_000), ("1700000003500", 3_500), ("7", 7_000), ("9s", 9_000)]
        {
            assert_eq!(
                delay_from(&[("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", reset)]),
                Some(wanted)
            );
        }
        assert_eq!(delay_from(&[("x-ratelimit-reset", "7")]), None);
    }

    #[test]
    fn messages_name_waits_in_many_ways() {
        for (message, wanted) in [
            ("please try again in 6s.", Some(6_000)),
            ("please try again in 6m0s. visit", Some(360_000)),
            ("try again in 20ms", Some(20)),
            ("please retry in 48.939935699s.", Some(48_940)),
            ("please retry after 26 seconds.", Some(26_000)),
            ("try again in a while", None),
            ("try again later", None),
            ("try again in 1.2.3s", None),
        ] {
            assert_eq!(find_in_text(message), wanted, "{message}");
        }
    }
}
