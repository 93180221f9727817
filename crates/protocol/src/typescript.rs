//! From JSON Schema to TypeScript: just enough for the schemas that our own types make.
//!
//! A form that is not known here becomes `unknown`, which a reader of the declarations sees and asks about.

use std::fmt::Write;

use serde_json::{Map, Value};

/// One `export type` for each definition, in their order.
pub(crate) fn declarations(document: &Value) -> String {
    let mut out = String::from("// Generated from the JSON Schema of the pod protocol. Do not edit.\n");
    if let Some(definitions) = document.get("$defs").and_then(Value::as_object) {
        for (name, schema) in definitions {
            out.push('\n');
            comment(schema, 0, &mut out);
            // Writing to a text cannot fail.
            let _ = writeln!(out, "export type {name} = {};", type_of(schema, 0));
        }
    }
    out
}

fn comment(schema: &Value, depth: usize, out: &mut String) {
    let Some(text) = schema.get("description").and_then(Value::as_str) else { return };
    let indent = "  ".repeat(depth);
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let text = lines.join(&format!("\n{indent} * ")).replace("*/", "*\\/");
    let _ = writeln!(out, "{indent}/** {text} */");
}

/// The type that a schema describes.
fn type_of(schema: &Value, depth: usize) -> String {
    type_in(schema, depth, Joint::Or)
}

/// What stands between the members of a type; a member of `And` that is a union needs parentheses.
#[derive(Clone, Copy, PartialEq)]
enum Joint {
    Or,
    And,
}

fn type_in(schema: &Value, depth: usize, around: Joint) -> String {
    let Value::Object(schema) = schema else {
        return if schema == &Value::Bool(false) { "never".to_owned() } else { "unknown".to_owned() };
    };
    let forms = ["$ref", "anyOf", "oneOf", "allOf", "const", "enum", "x-words", "type", "properties"];
    let said = forms.iter().filter(|form| schema.contains_key(**form)).count();
    // `type` beside `properties`, `const`, `enum` or `x-words` is one form, not two.
    let typed = ["const", "enum", "x-words", "properties"].iter().any(|form| schema.contains_key(*form));
    let several = said > 1 + usize::from(typed && schema.contains_key("type"));
    let around = if several { Joint::And } else { around };
    let mut parts = Vec::new();
    if let Some(name) = schema.get("$ref").and_then(Value::as_str) {
        parts.push(name.rsplit('/').next().unwrap_or(name).to_owned());
    }
    for key in ["anyOf", "oneOf"] {
        if let Some(Value::Array(members)) = schema.get(key) {
            parts.push(union(members.iter().map(|member| type_of(member, depth)), around));
        }
    }
    if let Some(Value::Array(members)) = schema.get("allOf") {
        let members: Vec<String> = members.iter().map(|member| type_in(member, depth, Joint::And)).collect();
        parts.push(members.join(" & "));
    }
    parts.extend(own_type(schema, depth, around));
    if parts.is_empty() { "unknown".to_owned() } else { parts.join(" & ") }
}

/// What the schema says by itself, beside what it refers to.
fn own_type(schema: &Map<String, Value>, depth: usize, around: Joint) -> Option<String> {
    if let Some(value) = schema.get("const") {
        return Some(value.to_string());
    }
    if let Some(Value::Array(values)) = schema.get("enum") {
        return Some(union(values.iter().map(Value::to_string), around));
    }
    if let Some(Value::Array(words)) = schema.get("x-words") {
        // Open: a newer pod may say a word that is not here.
        let known = words.iter().map(Value::to_string);
        return Some(union(known.chain(["(string & {})".to_owned()]), around));
    }
    match schema.get("type") {
        // A tagged shape repeats that it is an object beside its alternatives.
        Some(Value::String(name)) if name == "object" && !schema.contains_key("properties") => {
            let alone = !["$ref", "anyOf", "oneOf", "allOf"].iter().any(|form| schema.contains_key(*form));
            alone.then(|| object(schema, depth))
        }
        Some(Value::String(name)) => Some(named_type(name, schema, depth)),
        Some(Value::Array(names)) => {
            let names = names.iter().filter_map(Value::as_str);
            Some(union(names.map(|name| named_type(name, schema, depth)), around))
        }
        _ => schema.contains_key("properties").then(|| object(schema, depth)),
    }
}

/// The alternatives, each once.
fn union(members: impl Iterator<Item = String>, around: Joint) -> String {
    let mut all: Vec<String> = Vec::new();
    for member in members {
        if !all.contains(&member) {
            all.push(member);
        }
    }
    let text = all.join(" | ");
    if all.len() > 1 && around == Joint::And { format!("({text})") } else { text }
}

fn named_type(name: &str, schema: &Map<String, Value>, depth: usize) -> String {
    match name {
        "integer" | "number" => "number".to_owned(),
        "array" => array(schema, depth),
        "object" => object(schema, depth),
        other => other.to_owned(),
    }
}

fn array(schema: &Map<String, Value>, depth: usize) -> String {
    if let Some(Value::Array(items)) = schema.get("prefixItems") {
        let items: Vec<String> = items.iter().map(|item| type_of(item, depth)).collect();
        return format!("[{}]", items.join(", "));
    }
    let item = schema.get("items").map_or("unknown".to_owned(), |item| type_of(item, depth));
    format!("Array<{item}>")
}

fn object(schema: &Map<String, Value>, depth: usize) -> String {
    let Some(Value::Object(properties)) = schema.get("properties") else {
        let value =
            schema.get("additionalProperties").map_or("unknown".to_owned(), |more| type_of(more, depth));
        return format!("{{ [name: string]: {value} }}");
    };
    let required = schema.get("required").and_then(Value::as_array);
    let mut out = String::from("{\n");
    for (name, property) in properties {
        comment(property, depth + 1, &mut out);
        let must = required.is_some_and(|names| names.iter().any(|n| n.as_str() == Some(name)));
        let mark = if must { "" } else { "?" };
        let indent = "  ".repeat(depth + 1);
        let _ = writeln!(out, "{indent}{name}{mark}: {};", type_of(property, depth + 1));
    }
    let _ = write!(out, "{}}}", "  ".repeat(depth));
    out
}
