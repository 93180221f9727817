//! The data that a hook gets: one JSON object, `{at, session, pod, cwd, event: {type, …}}`, for all events.
//!
//! Here: the object, its time, and redaction. Elsewhere: the fields of an event (`question` for questions,
//! `mapper` for log events).

use jiff::Timestamp;
use minke_record::Millis;
use serde_json::{Map, Value, json};

use crate::context::HookContext;

/// The maximum text length in log events; the log has the full text.
pub(crate) const MAX_TEXT_BYTES: usize = 64 * 1024;

/// The redacted object.
pub(crate) fn build_payload(context: &HookContext, at: Millis, event: Map<String, Value>) -> Value {
    let mut payload = json!({
        "at": format_rfc3339(at),
        "session": context.session,
        "pod": context.pod,
        "cwd": context.cwd.to_string_lossy(),
        "event": event,
    });
    redact_value(&mut payload, context);
    payload
}

/// Redacts known and likely secrets in every text.
fn redact_value(value: &mut Value, around: &HookContext) {
    match value {
        Value::String(text) => *text = redact_text(text, around),
        Value::Array(list) => list.iter_mut().for_each(|one| redact_value(one, around)),
        Value::Object(object) => {
            let fields = std::mem::take(object);
            for (key, mut one) in fields {
                redact_value(&mut one, around);
                object.insert(redact_text(&key, around), one);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

pub(crate) fn redact_text(text: &str, context: &HookContext) -> String {
    let text = (context.redact)(text);
    match minke_secrets::mask_keys(&text) {
        std::borrow::Cow::Borrowed(_) => text,
        std::borrow::Cow::Owned(masked) => masked,
    }
}

/// A text of a log event, truncated if necessary.
pub(crate) fn observed_text(text: &str) -> Value {
    if text.len() <= MAX_TEXT_BYTES {
        return Value::String(text.to_owned());
    }
    let mut end = MAX_TEXT_BYTES;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let begin = text.get(..end).unwrap_or_default();
    Value::String(format!("{begin}… [{} bytes in all]", text.len()))
}

/// Formats a time as RFC 3339.
pub(crate) fn format_rfc3339(at: Millis) -> String {
    let at = i64::try_from(at).ok().and_then(|at| Timestamp::from_millisecond(at).ok());
    at.unwrap_or(Timestamp::MAX).strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_everybody_writes_them() {
        for (at, wanted) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
            (1_735_689_600_000, "2025-01-01T00:00:00.000Z"),
            (1_794_766_805_042, "2026-11-15T18:20:05.042Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(format_rfc3339(at), wanted);
        }
    }

    #[test]
    fn a_long_text_is_told_by_its_beginning() {
        let Value::String(line) = observed_text(&"é".repeat(MAX_TEXT_BYTES)) else { panic!("a text") };
        assert!(line.len() < MAX_TEXT_BYTES + 64 && line.ends_with("131072 bytes in all]"), "{}", line.len());
    }
}
