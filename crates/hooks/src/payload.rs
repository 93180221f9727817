//! What a hook is told: one JSON object, `{at, session, pod, cwd, event: {type, …}}`, the same shape everywhere.
//!
//! Here: the object, its time, and taking out of it what no hook is to see. Elsewhere: the fields of an event (`question`
//! at a point that is asked, `map` from the log).

use jiff::Timestamp;
use minke_record::Millis;
use serde_json::{Map, Value, json};

use crate::around::Around;

/// The longest text of an event that is told afterwards; the log has the whole.
pub(crate) const TOLD_BYTES: usize = 64 * 1024;

/// The object, covered.
pub(crate) fn payload(around: &Around, at: Millis, event: Map<String, Value>) -> Value {
    let mut payload = json!({
        "at": rfc3339(at),
        "session": around.session,
        "pod": around.pod,
        "cwd": around.cwd.to_string_lossy(),
        "event": event,
    });
    cover(&mut payload, around);
    payload
}

/// Takes known secrets, and what looks like one, out of every text.
fn cover(value: &mut Value, around: &Around) {
    match value {
        Value::String(text) => *text = covered(text, around),
        Value::Array(list) => list.iter_mut().for_each(|one| cover(one, around)),
        Value::Object(object) => {
            let fields = std::mem::take(object);
            for (key, mut one) in fields {
                cover(&mut one, around);
                object.insert(covered(&key, around), one);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

pub(crate) fn covered(text: &str, around: &Around) -> String {
    let text = (around.cover)(text);
    match minke_secrets::mask_shapes(&text) {
        std::borrow::Cow::Borrowed(_) => text,
        std::borrow::Cow::Owned(masked) => masked,
    }
}

/// A text that is told afterwards, or its beginning.
pub(crate) fn told(text: &str) -> Value {
    if text.len() <= TOLD_BYTES {
        return Value::String(text.to_owned());
    }
    let mut end = TOLD_BYTES;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let begin = text.get(..end).unwrap_or_default();
    Value::String(format!("{begin}… [{} bytes in all]", text.len()))
}

/// As the rest of the world writes a moment.
pub(crate) fn rfc3339(at: Millis) -> String {
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
            assert_eq!(rfc3339(at), wanted);
        }
    }

    #[test]
    fn a_long_text_is_told_by_its_beginning() {
        let Value::String(told) = told(&"é".repeat(TOLD_BYTES)) else { panic!("a text") };
        assert!(told.len() < TOLD_BYTES + 64 && told.ends_with("131072 bytes in all]"), "{}", told.len());
    }
}
