//! Inserts unknown events and fields into recorded streams.

use minke_llm::WireScheme;
use serde_json::{Value, json};

use super::fixture::RecordedResponse;

/// Returns events of unknown kinds, with known field names but other types.
fn unknown_events(scheme: WireScheme) -> [&'static str; 2] {
    match scheme {
        WireScheme::Anthropic | WireScheme::OpenaiResponses | WireScheme::Scripted => [
            r#"{"type":"brand_new.event","index":"seven","delta":{"type":7},"usage":[1],"item":{},"text":5}"#,
            r#"{"type":"other_new_event","delta":"text","message":"hello","response":null,"output_index":-1}"#,
        ],
        // These two schemes have no event kinds, so an unknown event is one without known fields.
        WireScheme::OpenaiChat => {
            [r#"{"object":"brand.new","x":[1,{"delta":{}}]}"#, r#"{"object":"new","choices":[]}"#]
        }
        WireScheme::Gemini => [r#"{"brandNew":{"parts":[1]}}"#, r#"{"candidates":[],"other":7}"#],
    }
}

/// Returns the stream with unknown events between its events, and their number.
pub(crate) fn with_unknown_events(fixture: &RecordedResponse) -> (String, u64) {
    let body = fixture.body_text().replace("\r\n", "\n");
    let mut with = String::new();
    let mut added = 0;
    let [first, second] = unknown_events(fixture.scheme);
    for (at, event) in body.split_inclusive("\n\n").enumerate() {
        let (name, data) = if at % 2 == 0 { ("brand_new", first) } else { ("other_new", second) };
        with.push_str(&format!("event: {name}\nid: {at}\ndata: {data}\n\n"));
        with.push_str(event);
        added += 1;
    }
    (with, added)
}

/// Returns the stream with unknown fields in all its objects.
pub(crate) fn with_unknown_fields(fixture: &RecordedResponse) -> String {
    let strange = |text: &str| -> Option<String> {
        let mut value: Value = serde_json::from_str(text).ok()?;
        add_unknown_fields(&mut value);
        Some(value.to_string())
    };
    if !fixture.is_sse() {
        return strange(fixture.body_text()).unwrap_or_else(|| fixture.body_text().to_owned());
    }
    let line = |line: &str| match line.strip_prefix("data:").and_then(|data| strange(data.trim())) {
        Some(data) => format!("data: {data}\n"),
        None => format!("{line}\n"),
    };
    fixture.body_text().lines().map(line).collect()
}

/// Arguments, and data to be sent back unchanged, belong to the model: another field would change the value.
const OPAQUE_FIELDS: [&str; 5] = ["input", "args", "arguments", "reasoning_details", "partialArgs"];

fn add_unknown_fields(value: &mut Value) {
    match value {
        Value::Array(members) => members.iter_mut().for_each(add_unknown_fields),
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                if !OPAQUE_FIELDS.contains(&name.as_str()) {
                    add_unknown_fields(field);
                }
            }
            fields.insert("zz_new_field".into(), json!({ "a": [1, "x", null], "type": "no" }));
        }
        _ => {}
    }
}
