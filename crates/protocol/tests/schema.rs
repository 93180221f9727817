//! The files in `schema/` are up to date. `MINKE_BLESS=1` rewrites them.

use std::collections::BTreeSet;

use minke_protocol::{Event, Method, json_schema, typescript};
use serde_json::Value;

const JSON: &str = include_str!("../../../schema/minke.schema.json");
const TYPESCRIPT: &str = include_str!("../../../schema/minke.d.ts");

#[test]
fn the_schema_files_are_up_to_date() {
    let (json, typescript) = (json_schema(), typescript());
    if std::env::var_os("MINKE_BLESS").is_some() {
        write_golden("minke.schema.json", &json);
        write_golden("minke.d.ts", &typescript);
        return;
    }
    let how = "the wire has changed: look at the difference, then run this test with MINKE_BLESS=1";
    assert!(json == JSON, "{how}");
    assert!(typescript == TYPESCRIPT, "{how}");
}

#[expect(clippy::disallowed_methods, reason = "the test can rewrite its golden file")]
fn write_golden(name: &str, text: &str) {
    let path = format!("{}/../../schema/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::write(path, text).unwrap_or_else(|e| panic!("could not write schema/{name}: {e}"));
}

#[test]
fn the_same_schema_is_made_every_time() {
    assert_eq!(json_schema(), json_schema());
    assert_eq!(typescript(), typescript());
}

fn schema_definitions() -> serde_json::Map<String, Value> {
    let document: Value = serde_json::from_str(&json_schema()).expect("a schema is JSON");
    document["$defs"].as_object().expect("definitions").clone()
}

/// Returns the tags that a definition allows.
fn definition_tags(of: &str, tag: &str) -> BTreeSet<String> {
    let definition = schema_definitions()[of].clone();
    let alternatives = definition.get("oneOf").or(definition.get("anyOf")).and_then(Value::as_array);
    let name = |schema: &Value| schema["properties"][tag]["const"].as_str().expect("a tag").to_owned();
    alternatives.expect("alternatives").iter().map(name).collect()
}

#[test]
fn every_method_and_every_event_is_in_the_schema() {
    assert_eq!(
        definition_tags("Method", "method"),
        Method::NAMES.iter().map(|name| (*name).to_owned()).collect()
    );
    assert_eq!(
        definition_tags("Event", "event"),
        Event::NAMES.iter().map(|name| (*name).to_owned()).collect()
    );
}

#[test]
fn every_name_stands_for_one_shape_and_is_defined() {
    let definitions = schema_definitions();
    // A second type of the same name would get a number.
    let numbered: Vec<&String> = definitions.keys().filter(|name| name.ends_with(char::is_numeric)).collect();
    assert!(numbered.is_empty(), "{numbered:?}");
    let json = json_schema();
    for reference in json.split("\"#/$defs/").skip(1).filter_map(|rest| rest.split('"').next()) {
        assert!(definitions.contains_key(reference), "{reference}");
    }
    let typescript = typescript();
    for name in definitions.keys() {
        assert!(typescript.contains(&format!("export type {name} = ")), "{name}");
    }
    assert!(typescript.contains("\"idle\" | \"running\" | \"paused\" | (string & {})"), "words are open");
}

/// Checks a value against a schema, in the forms that our own types use.
fn validate_value(
    value: &Value,
    schema: &Value,
    definitions: &serde_json::Map<String, Value>,
) -> Result<(), String> {
    let Value::Object(schema) = schema else { return Ok(()) };
    let all = |schemas: &Value| schemas.as_array().cloned().unwrap_or_default();
    let wrong = |why: &str| Err(format!("{value} {why} {schema:?}"));
    for (form, said) in schema {
        match form.as_str() {
            "$ref" => {
                let name = said.as_str().and_then(|path| path.strip_prefix("#/$defs/")).expect("a reference");
                validate_value(value, &definitions[name], definitions)?;
            }
            "allOf" => all(said).iter().try_for_each(|member| validate_value(value, member, definitions))?,
            "anyOf" | "oneOf" => {
                let tried: Result<(), Vec<String>> = all(said)
                    .iter()
                    .try_fold(Vec::new(), |mut why, member| {
                        match validate_value(value, member, definitions) {
                            Ok(()) => Err(()),
                            Err(reason) => {
                                why.push(reason);
                                Ok(why)
                            }
                        }
                    })
                    .map_or(Ok(()), Err);
                tried.map_err(|why| why.join("; "))?;
            }
            "const" if value != said => return wrong("is not"),
            "enum" if !all(said).contains(value) => return wrong("is none of"),
            "type" => {
                let names = if said.is_string() { vec![said.clone()] } else { all(said) };
                let is = |name: &Value| match name.as_str() {
                    Some("object") => value.is_object(),
                    Some("array") => value.is_array(),
                    Some("string") => value.is_string(),
                    Some("boolean") => value.is_boolean(),
                    Some("null") => value.is_null(),
                    Some("integer") => value.is_u64() || value.is_i64(),
                    Some("number") => value.is_number(),
                    other => panic!("{other:?} is not a type"),
                };
                if !names.iter().any(is) {
                    return wrong("is not of the type of");
                }
            }
            "required" => {
                for name in all(said) {
                    if value.is_object() && value.get(name.as_str().expect("a name")).is_none() {
                        return wrong(&format!("has no {name}, which must be in"));
                    }
                }
            }
            "properties" => {
                for (name, inner) in said.as_object().expect("members") {
                    value.get(name).map_or(Ok(()), |member| validate_value(member, inner, definitions))?;
                }
            }
            "items" => all(value).iter().try_for_each(|item| validate_value(item, said, definitions))?,
            _ => {}
        }
    }
    Ok(())
}

#[test]
fn golden_lines_fit_the_schema() {
    let definitions = schema_definitions();
    let golden = [
        ("Request", include_str!("golden/methods.jsonl")),
        ("Frame", include_str!("golden/events.jsonl")),
        ("Frame", include_str!("golden/logged.jsonl")),
        ("Entry", include_str!("golden/entries.jsonl")),
    ];
    let mut lines: Vec<(&str, &str)> =
        golden.iter().flat_map(|(name, text)| text.lines().map(move |line| (*name, line))).collect();
    lines.extend(include_str!("golden/older.jsonl").lines().filter_map(|line| {
        let name = if line.starts_with("{\"method\"") { "Request" } else { "Frame" };
        (!line.contains("\"notification\"")).then_some((name, line))
    }));
    lines.extend(include_str!("golden/api.jsonl").lines().map(|line| {
        let name = if line.starts_with("{\"type\"") { "ApiEvent" } else { "InvokeResult" };
        (name, line)
    }));
    // The schema describes this version; parts that are only preserved for newer versions are missing in it.
    for (name, line) in lines.into_iter().filter(|(_, line)| !line.contains("hologram")) {
        let value: Value = serde_json::from_str(line).expect("golden lines are JSON");
        validate_value(&value, &definitions[name], &definitions)
            .unwrap_or_else(|why| panic!("{line}: {why}"));
    }
    for (name, line) in [
        ("Request", r#"{"method":"fly"}"#),
        ("Request", r#"{"method":"run"}"#),
        ("Request", r#"{"method":"wait","params":{"until":"doomsday","timeout_ms":1}}"#),
        ("Frame", r#"{"event":"turn_start","data":{"turn":"one"}}"#),
    ] {
        let value: Value = serde_json::from_str(line).expect("JSON");
        assert!(validate_value(&value, &definitions[name], &definitions).is_err(), "{line}");
    }
}
