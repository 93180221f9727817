//! Strange things of tomorrow: events and fields that nobody has announced, put into recorded streams.

use minke_llm::Scheme;
use serde_json::{Value, json};

use super::fixture::Fixture;

/// What an event of a new kind may look like: fields of our own names with other types, to be mean.
fn new_events(scheme: Scheme) -> [&'static str; 2] {
    match scheme {
        Scheme::Anthropic | Scheme::OpenaiResponses | Scheme::Scripted => [
            r#"{"type":"brand_new.event","index":"seven","delta":{"type":7},"usage":[1],"item":{},"text":5}"#,
            r#"{"type":"other_new_event","delta":"text","message":"hello","response":null,"output_index":-1}"#,
        ],
        // These two have no kinds of events, only fields: an event of a new kind is one without the known fields.
        Scheme::OpenaiChat => {
            [r#"{"object":"brand.new","x":[1,{"delta":{}}]}"#, r#"{"object":"new","choices":[]}"#]
        }
        Scheme::Gemini => [r#"{"brandNew":{"parts":[1]}}"#, r#"{"candidates":[],"other":7}"#],
    }
}

/// The stream with unknown events between its events, and how many they are.
pub(crate) fn events(fixture: &Fixture) -> (String, u64) {
    let body = fixture.text().replace("\r\n", "\n");
    let mut with = String::new();
    let mut added = 0;
    let [first, second] = new_events(fixture.scheme);
    for (at, event) in body.split_inclusive("\n\n").enumerate() {
        let (name, data) = if at % 2 == 0 { ("brand_new", first) } else { ("other_new", second) };
        with.push_str(&format!("event: {name}\nid: {at}\ndata: {data}\n\n"));
        with.push_str(event);
        added += 1;
    }
    (with, added)
}

/// The stream with unknown fields in all its objects.
pub(crate) fn fields(fixture: &Fixture) -> String {
    let strange = |text: &str| -> Option<String> {
        let mut value: Value = serde_json::from_str(text).ok()?;
        add_fields(&mut value);
        Some(value.to_string())
    };
    if !fixture.is_sse() {
        return strange(fixture.text()).unwrap_or_else(|| fixture.text().to_owned());
    }
    let line = |line: &str| match line.strip_prefix("data:").and_then(|data| strange(data.trim())) {
        Some(data) => format!("data: {data}\n"),
        None => format!("{line}\n"),
    };
    fixture.text().lines().map(line).collect()
}

/// Arguments, and what is kept to be sent back as it came, are the model's own: a field more would be another value.
const OWN: [&str; 5] = ["input", "args", "arguments", "reasoning_details", "partialArgs"];

fn add_fields(value: &mut Value) {
    match value {
        Value::Array(members) => members.iter_mut().for_each(add_fields),
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                if !OWN.contains(&name.as_str()) {
                    add_fields(field);
                }
            }
            fields.insert("zz_new_field".into(), json!({ "a": [1, "x", null], "type": "no" }));
        }
        _ => {}
    }
}
