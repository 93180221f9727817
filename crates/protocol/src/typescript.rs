//! Converts JSON Schema to TypeScript, for the schemas of our own types.
//!
//! An unsupported form becomes `unknown`.

use std::fmt::Write;

use serde_json::{Map, Value};

/// Returns one `export type` per definition, in order.
pub(crate) fn render_declarations(document: &Value) -> String {
    let mut out = String::from("// Generated from the JSON Schema of the pod protocol. Do not edit.\n");
    if let Some(definitions) = document.get("$defs").and_then(Value::as_object) {
        for (name, schema) in definitions {
            out.push('\n');
            write_comment(schema, 0, &mut out);
            // Writing to a string cannot fail.
            let _ = writeln!(out, "export type {name} = {};", render_type(schema, 0));
        }
    }
    out
}

fn write_comment(schema: &Value, depth: usize, out: &mut String) {
    let Some(text) = schema.get("description").and_then(Value::as_str) else { return };
    let indent = "  ".repeat(depth);
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let text = lines.join(&format!("\n{indent} * ")).replace("*/", "*\\/");
    let _ = writeln!(out, "{indent}/** {text} */");
}

/// Returns the TypeScript type of a schema.
fn render_type(schema: &Value, depth: usize) -> String {
    render_type_in(schema, depth, TypeOperator::Or)
}

/// The operator around a type. A union inside `And` needs parentheses.
#[derive(Clone, Copy, PartialEq)]
enum TypeOperator {
    Or,
    And,
}

fn render_type_in(schema: &Value, depth: usize, outer: TypeOperator) -> String {
    let Value::Object(schema) = schema else {
        return if schema == &Value::Bool(false) { "never".to_owned() } else { "unknown".to_owned() };
    };
    let forms = ["$ref", "anyOf", "oneOf", "allOf", "const", "enum", "x-words", "type", "properties"];
    let said = forms.iter().filter(|form| schema.contains_key(**form)).count();
    // `type` next to `properties`, `const`, `enum` or `x-words` is one form.
    let typed = ["const", "enum", "x-words", "properties"].iter().any(|form| schema.contains_key(*form));
    let several = said > 1 + usize::from(typed && schema.contains_key("type"));
    let around = if several { TypeOperator::And } else { outer };
    let mut parts = Vec::new();
    if let Some(name) = schema.get("$ref").and_then(Value::as_str) {
        parts.push(name.rsplit('/').next().unwrap_or(name).to_owned());
    }
    for key in ["anyOf", "oneOf"] {
        if let Some(Value::Array(members)) = schema.get(key) {
            parts.push(render_union(members.iter().map(|member| render_type(member, depth)), around));
        }
    }
    if let Some(Value::Array(members)) = schema.get("allOf") {
        let members: Vec<String> =
            members.iter().map(|member| render_type_in(member, depth, TypeOperator::And)).collect();
        parts.push(members.join(" & "));
    }
    parts.extend(render_own_type(schema, depth, around));
    if parts.is_empty() { "unknown".to_owned() } else { parts.join(" & ") }
}

/// Returns the type of the schema itself, apart from its references.
fn render_own_type(schema: &Map<String, Value>, depth: usize, outer: TypeOperator) -> Option<String> {
    if let Some(value) = schema.get("const") {
        return Some(value.to_string());
    }
    if let Some(Value::Array(values)) = schema.get("enum") {
        return Some(render_union(values.iter().map(Value::to_string), outer));
    }
    if let Some(Value::Array(words)) = schema.get("x-words") {
        // Open, because a newer pod may send other values.
        let known = words.iter().map(Value::to_string);
        return Some(render_union(known.chain(["(string & {})".to_owned()]), outer));
    }
    match schema.get("type") {
        // A tagged shape repeats `object` next to its alternatives.
        Some(Value::String(name)) if name == "object" && !schema.contains_key("properties") => {
            let alone = !["$ref", "anyOf", "oneOf", "allOf"].iter().any(|form| schema.contains_key(*form));
            alone.then(|| render_object(schema, depth))
        }
        Some(Value::String(name)) => Some(render_named_type(name, schema, depth)),
        Some(Value::Array(names)) => {
            let names = names.iter().filter_map(Value::as_str);
            Some(render_union(names.map(|name| render_named_type(name, schema, depth)), outer))
        }
        _ => schema.contains_key("properties").then(|| render_object(schema, depth)),
    }
}

/// Returns the union of the distinct alternatives.
fn render_union(members: impl Iterator<Item = String>, around: TypeOperator) -> String {
    let mut all: Vec<String> = Vec::new();
    for member in members {
        if !all.contains(&member) {
            all.push(member);
        }
    }
    let text = all.join(" | ");
    if all.len() > 1 && around == TypeOperator::And { format!("({text})") } else { text }
}

fn render_named_type(name: &str, schema: &Map<String, Value>, depth: usize) -> String {
    match name {
        "integer" | "number" => "number".to_owned(),
        "array" => render_array(schema, depth),
        "object" => render_object(schema, depth),
        other => other.to_owned(),
    }
}

fn render_array(schema: &Map<String, Value>, depth: usize) -> String {
    if let Some(Value::Array(items)) = schema.get("prefixItems") {
        let items: Vec<String> = items.iter().map(|item| render_type(item, depth)).collect();
        return format!("[{}]", items.join(", "));
    }
    let item = schema.get("items").map_or("unknown".to_owned(), |item| render_type(item, depth));
    format!("Array<{item}>")
}

fn render_object(schema: &Map<String, Value>, depth: usize) -> String {
    let Some(Value::Object(properties)) = schema.get("properties") else {
        let value =
            schema.get("additionalProperties").map_or("unknown".to_owned(), |more| render_type(more, depth));
        return format!("{{ [name: string]: {value} }}");
    };
    let required = schema.get("required").and_then(Value::as_array);
    let mut out = String::from("{\n");
    for (name, property) in properties {
        write_comment(property, depth + 1, &mut out);
        let must = required.is_some_and(|names| names.iter().any(|n| n.as_str() == Some(name)));
        let mark = if must { "" } else { "?" };
        let indent = "  ".repeat(depth + 1);
        let _ = writeln!(out, "{indent}{name}{mark}: {};", render_type(property, depth + 1));
    }
    let _ = write!(out, "{}}}", "  ".repeat(depth));
    out
}
