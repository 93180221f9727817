//! The schema of the protocol: one JSON Schema document for all messages and log entries, and the TypeScript
//! declarations generated from it.
//!
//! Invariant: the files in `schema/` are up to date (`the_schema_files_are_up_to_date`).

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

use minke_record::{Entry, RunId};

use crate::api::{ApiEvent, ApprovalAnswer, InvokeResult, ToolInvoke};
use crate::event::{Completions, Event, RewindTargets};
use crate::frame::Frame;
use crate::id::RequestId;
use crate::method::Method;
use crate::reply::*;
use crate::request::ClientRequest;

/// Returns the JSON Schema of a line from a client (`Request`), a line from a pod (`Frame`), an `Entry` and
/// all replies.
pub fn json_schema() -> String {
    let mut text = serde_json::to_string_pretty(&schema_document()).expect("a schema is plain data");
    text.push('\n');
    text
}

/// Returns the same as TypeScript declarations.
pub fn typescript() -> String {
    crate::typescript::render_declarations(&schema_document())
}

fn schema_document() -> Value {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let line = [generator.subschema_for::<ClientRequest>(), generator.subschema_for::<Frame>()];
    generator.subschema_for::<Entry>();
    // Types for API clients.
    generator.subschema_for::<ToolInvoke>();
    generator.subschema_for::<ApprovalAnswer>();
    generator.subschema_for::<InvokeResult>();
    generator.subschema_for::<ApiEvent>();
    let results = result_schemas(&mut generator);
    let mut definitions = generator.take_definitions(true);
    definitions.insert("Results".to_owned(), results);
    mark_optional(&mut definitions, "Method", "params");
    mark_optional(&mut definitions, "Event", "data");
    // Sorted, so that a change affects no other lines.
    let mut sorted: Vec<(String, Value)> = definitions.into_iter().collect();
    sorted.sort_by(|a, b| a.0.cmp(&b.0));
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "The pod protocol of Minke",
        "description": "One JSON object per line. A client sends a Request, a pod sends a Frame; the log holds Entry lines.",
        "anyOf": line,
        "$defs": Map::from_iter(sorted),
    })
}

/// Marks `params` and `data` as optional where all their members are optional.
fn mark_optional(definitions: &mut Map<String, Value>, of: &str, member: &str) {
    let demands = |schema: &Value| {
        let name = schema.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next());
        let shape = name.and_then(|name| definitions.get(name)).unwrap_or(schema);
        ["required", "oneOf", "anyOf"].iter().any(|form| shape.get(*form).is_some())
    };
    let mut changed = definitions.get(of).cloned().unwrap_or_default();
    let forms = changed.as_object_mut().into_iter().flat_map(|shape| shape.values_mut());
    for alternative in forms.filter_map(Value::as_array_mut).flatten() {
        let Some(inner) = alternative.pointer(&format!("/properties/{member}")).cloned() else { continue };
        if demands(&inner) {
            continue;
        }
        alternative["properties"][member] = json!({ "anyOf": [inner, { "type": "null" }] });
        if let Some(required) = alternative["required"].as_array_mut() {
            required.retain(|name| name != member);
        }
    }
    definitions.insert(of.to_owned(), changed);
}

/// Returns the schemas of `reply.data.result` for each method.
fn result_schemas(generator: &mut SchemaGenerator) -> Value {
    let mut properties = Map::new();
    for name in Method::NAMES {
        let schema = match *name {
            "run" => generator.subschema_for::<RunReply>(),
            "dequeue" => generator.subschema_for::<DequeueReply>(),
            "resume" => generator.subschema_for::<ResumeReply>(),
            "rewind_targets" => generator.subschema_for::<RewindTargets>(),
            "rewind" => generator.subschema_for::<RewindReply>(),
            "undo" | "call_tool" => generator.subschema_for::<CallReply>(),
            "fork" => generator.subschema_for::<ForkReply>(),
            "status" => generator.subschema_for::<StatusReply>(),
            "read" => generator.subschema_for::<ReadReply>(),
            "read_blob" => generator.subschema_for::<ReadBlobReply>(),
            "wait" => generator.subschema_for::<WaitReply>(),
            "list_completions" => generator.subschema_for::<Completions>(),
            "list_pods" => generator.subschema_for::<ListPodsReply>(),
            "restore_pod" => generator.subschema_for::<RestorePodReply>(),
            _ => generator.subschema_for::<Nothing>(),
        };
        properties.insert((*name).to_owned(), schema.to_value());
    }
    json!({
        "type": "object",
        "description": "The `result` of each method's reply.",
        "required": Method::NAMES,
        "properties": properties,
    })
}

impl JsonSchema for ClientRequest {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Request".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let method = generator.subschema_for::<Method>();
        let id = generator.subschema_for::<RequestId>();
        json_schema!({
            "description": "One line from a client.",
            "allOf": [
                { "type": "object", "properties": { "id": id } },
                method,
            ],
        })
    }
}

impl JsonSchema for Frame {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Frame".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let event = generator.subschema_for::<Event>();
        let id = generator.subschema_for::<RequestId>();
        let run = generator.subschema_for::<RunId>();
        json_schema!({
            "description": "One line from a pod.",
            "allOf": [
                {
                    "type": "object",
                    "properties": {
                        "seq": {
                            "description": "Made from the entry with this number.",
                            "type": "integer",
                            "minimum": 0,
                        },
                        "after_seq": {
                            "description": "Live, after this entry and before the next.",
                            "type": "integer",
                            "minimum": 0,
                        },
                        "run": run,
                        "id": id,
                    },
                },
                event,
            ],
        })
    }
}
