//! Parses the arguments of a call, and builds results that fit into the context.

use std::path::{Component, Path, PathBuf};

use minke_record::limits::SUMMARY_BYTES;
use minke_tool::{ToolError, ToolFuture, ToolOutput};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Map, Value};

/// The maximum length of serde's error text, which quotes wrong values of any length.
const MAX_REASON_BYTES: usize = 240;

/// Parses the model's JSON text. The error names an unknown, missing or wrong key.
pub(crate) fn parse_arguments<T: DeserializeOwned>(tool: &str, arguments: &str) -> Result<T, ToolError> {
    let read = if arguments.trim_start().starts_with('{') {
        serde_json::from_str(arguments).map_err(|e| {
            if !e.is_data() {
                return json_error(&e);
            }
            let key =
                find_wrong_key::<T>(arguments).map(|key| format!("`{}`: ", keep_end(&key, MAX_ECHO_BYTES)));
            format!("{}{}", key.unwrap_or_default(), describe_data_error(&e))
        })
    } else {
        // serde would also accept a list of the values in order, but arguments must be an object.
        Err(match serde_json::from_str::<IgnoredAny>(arguments) {
            Ok(_) => format!("expected an object, {{\"key\": value}}, not {arguments}"),
            Err(e) => json_error(&e),
        })
    };
    read.map_err(|why| {
        ToolError::InvalidArguments(format!("the arguments of {tool} cannot be used: {}", limit_reason(&why)))
    })
}

fn json_error(error: &serde_json::Error) -> String {
    format!("they are not JSON ({error})")
}

/// Returns serde's text about a wrong value, with explanations of its type names. Removes the position in the
/// text, which the model does not see as lines.
fn describe_data_error(error: &serde_json::Error) -> String {
    let place = format!(" at line {} column {}", error.line(), error.column());
    let message = error.to_string();
    let said = message.strip_suffix(&place).unwrap_or(&message);
    said.replace("expected a sequence", "expected a sequence (a list)")
        .replace("expected u64", "expected u64 (a whole number)")
}

fn limit_reason(reason: &str) -> String {
    let shown = reason.get(..reason.floor_char_boundary(MAX_REASON_BYTES)).unwrap_or_default();
    let more = if shown.len() < reason.len() { "…" } else { "" };
    format!("{shown}{more}")
}

/// Returns the key that serde rejects: without it the error is a different one.
fn find_wrong_key<T: DeserializeOwned>(arguments: &str) -> Option<String> {
    let Ok(Value::Object(object)) = serde_json::from_str(arguments) else { return None };
    let complaint =
        |object: Map<String, Value>| serde_json::from_value::<T>(object.into()).err().map(|e| e.to_string());
    let first = complaint(object.clone())?;
    object
        .keys()
        .take(MAX_TRIED_KEYS)
        .find(|key| {
            let mut without = object.clone();
            without.shift_remove(key.as_str());
            complaint(without).as_ref() != Some(&first)
        })
        .cloned()
}
/// The maximum number of keys to try, so that a call with thousands of keys stays cheap. No tool has as many.
const MAX_TRIED_KEYS: usize = 32;

/// Returns an absolute path from the model's path, which may be relative to the working directory. `..` is
/// rejected and not resolved, because after a symbolic link it means another directory.
pub(crate) fn absolute_path(key: &str, raw: &str, cwd: &Path) -> Result<PathBuf, ToolError> {
    if raw.is_empty() || raw.contains('\0') {
        return Err(ToolError::InvalidArguments(format!("`{key}` is not a path: give the name of a file")));
    }
    if raw == "~" || raw.starts_with("~/") {
        return Err(ToolError::InvalidArguments(format!(
            "`{key}` is `{}`, and no shell expands it, so `~` is not the home directory here: write the whole path \
             (a file named `~` is `./~`)",
            keep_end(raw, MAX_ECHO_BYTES)
        )));
    }
    let mut path = PathBuf::new();
    for part in cwd.join(raw).components() {
        match part {
            Component::ParentDir => {
                return Err(ToolError::InvalidArguments(format!(
                    "`{key}` is `{}`, which leaves the directory with `..`: write the path without it",
                    keep_end(raw, MAX_ECHO_BYTES)
                )));
            }
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) | Component::Normal(_) => path.push(part),
        }
    }
    Ok(path)
}

/// The same for a file to write: rejects paths that can only be directories.
pub(crate) fn absolute_file_path(key: &str, raw: &str, cwd: &Path) -> Result<PathBuf, ToolError> {
    let path = absolute_path(key, raw, cwd)?;
    if path.file_name().is_some() && (raw.ends_with('/') || raw.ends_with("/.")) {
        return Err(ToolError::InvalidArguments(format!(
            "`{key}` is `{}`, which names a directory: give the name of a file in it",
            keep_end(raw, MAX_ECHO_BYTES)
        )));
    }
    Ok(path)
}

/// The maximum length of a path or argument that an error or summary repeats.
pub(crate) const MAX_ECHO_BYTES: usize = 120;

/// Shortens a text to its end, on a character boundary and with an ellipsis.
pub(crate) fn keep_end(text: &str, bytes: usize) -> String {
    const MARK: &str = "…";
    if text.len() <= bytes {
        return text.to_owned();
    }
    let mut from = text.len() - bytes.saturating_sub(MARK.len());
    while !text.is_char_boundary(from) {
        from += 1;
    }
    format!("{MARK}{}", text.get(from..).unwrap_or_default())
}

/// Returns a path for a single line: shortened, and without control characters.
pub(crate) fn display_path(path: &Path) -> String {
    let mut text = String::new();
    for c in path.to_string_lossy().chars() {
        if c.is_control() { text.extend(c.escape_default()) } else { text.push(c) }
    }
    keep_end(&text, MAX_ECHO_BYTES)
}

/// Builds a result whose summary fits into the context permanently.
pub(crate) fn tool_output(summary: String, content: Option<String>) -> ToolOutput {
    let mut summary = summary;
    let mut end = SUMMARY_BYTES.min(summary.len());
    while !summary.is_char_boundary(end) {
        end -= 1;
    }
    summary.truncate(end);
    ToolOutput { summary, content, ..ToolOutput::default() }
}

/// Runs blocking file work outside the event loop. A panic ends only the call.
pub(crate) fn run_blocking(
    work: impl FnOnce() -> Result<ToolOutput, ToolError> + Send + 'static,
) -> ToolFuture {
    Box::pin(async move {
        match tokio::task::spawn_blocking(work).await {
            Ok(result) => result,
            Err(e) => Err(ToolError::Internal(format!(
                "the tool stopped unexpectedly ({e}): this is a defect of Minke"
            ))),
        }
    })
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "the test only checks rejected arguments")]
    struct SampleArguments {
        path: String,
        #[serde(default)]
        limit: Option<u64>,
        #[serde(default)]
        edits: Vec<String>,
    }

    #[test]
    fn what_is_wrong_is_said_in_words_of_a_call() {
        for (arguments, words) in [
            ("", "they are not JSON (EOF while parsing a value at line 1 column 0)"),
            ("nonsense", "they are not JSON (expected ident at line 1 column 2)"),
            (r#"["a", 3, []]"#, r#"expected an object, {"key": value}, not ["a", 3, []]"#),
            ("null", r#"expected an object, {"key": value}, not null"#),
            ("{}", "missing field `path`"),
            (
                r#"{"path":"a","limit":"3"}"#,
                "`limit`: invalid type: string \"3\", expected u64 (a whole number)",
            ),
            (
                r#"{"path":"a","limit":-1}"#,
                "`limit`: invalid value: integer `-1`, expected u64 (a whole number)",
            ),
            (
                r#"{"path":"a","edits":"x"}"#,
                "`edits`: invalid type: string \"x\", expected a sequence (a list)",
            ),
            (r#"{"path":"a","x":1}"#, "`x`: unknown field `x`, expected one of `path`, `limit`, `edits`"),
        ] {
            let refused = parse_arguments::<SampleArguments>("Read", arguments).unwrap_err();
            let ToolError::InvalidArguments(message) = &refused else { panic!("{refused:?}") };
            assert_eq!(message, &format!("the arguments of Read cannot be used: {words}"));
        }
    }
}
