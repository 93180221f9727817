//! Normalizes responses: replaces times, ids, hashes and temporary paths. The binary's tests use it too.

use std::path::Path;

use serde_json::{Map, Value, json};

/// Returns a response with normalized times, ids, hashes and temporary paths.
pub(crate) fn normal(value: &Value, dir: &Path) -> Value {
    let real = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let names = [real.to_string_lossy().into_owned(), dir.to_string_lossy().into_owned()];
    normalize_value(value, &names, &mut Vec::new())
}

fn normalize_value(value: &Value, dirs: &[String], seen: &mut Vec<String>) -> Value {
    const TIMES: [&str; 8] =
        ["created_at", "updated_at", "archived_at", "ts", "created", "last_ts", "since", "pid"];
    match value {
        Value::Object(fields) => {
            let mut out = Map::new();
            for (key, value) in fields {
                let timed = TIMES.contains(&key.as_str()) && value.is_number();
                let value = match key.as_str() {
                    _ if timed => json!(0),
                    "cli_version" => json!("VERSION"),
                    _ => normalize_value(value, dirs, seen),
                };
                out.insert(key.clone(), value);
            }
            Value::Object(out)
        }
        Value::Array(list) => list.iter().map(|value| normalize_value(value, dirs, seen)).collect(),
        Value::String(text) => Value::String(normalize_text(text, dirs, seen)),
        other => other.clone(),
    }
}

fn normalize_text(text: &str, dirs: &[String], seen: &mut Vec<String>) -> String {
    let mut text = text.to_owned();
    for dir in dirs {
        text = text.replace(dir, "/DIR");
    }
    let is_id = |c: char| c.is_ascii_hexdigit() || c == '-';
    let mut out = String::new();
    let mut word = String::new();
    for c in text.chars().chain(['\0']) {
        if is_id(c) {
            word.push(c);
            continue;
        }
        if word.len() == 36 && word.matches('-').count() == 4 {
            let at = seen.iter().position(|one| *one == word).unwrap_or_else(|| {
                seen.push(word.clone());
                seen.len() - 1
            });
            out.push_str(&format!("ID{}", at + 1));
        } else if word.len() == 32 {
            out.push_str("HASH");
        } else {
            out.push_str(&word);
        }
        word.clear();
        if c != '\0' {
            out.push(c);
        }
    }
    out
}
