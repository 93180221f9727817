//! From a call's arguments to something that can be done, and back to a result that fits.

use std::path::{Component, Path, PathBuf};

use minke_record::limits::SUMMARY_BYTES;
use minke_tool::{Running, ToolError, ToolOutput};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Map, Value};

/// The most of a reader's words about wrong arguments: they quote what is wrong, however long it is.
const REASON_BYTES: usize = 240;

/// Reads the model's JSON text. The error names an unknown, missing or wrong key.
pub(crate) fn parse<T: DeserializeOwned>(tool: &str, arguments: &str) -> Result<T, ToolError> {
    let read = if arguments.trim_start().starts_with('{') {
        serde_json::from_str(arguments).map_err(|e| {
            if !e.is_data() {
                return not_json(&e);
            }
            let key = wrong_key::<T>(arguments).map(|key| format!("`{}`: ", shorten(&key, SHOWN_BYTES)));
            format!("{}{}", key.unwrap_or_default(), in_words(&e))
        })
    } else {
        // A reader would also take a list of the values in their order; what a tool is given has names.
        Err(match serde_json::from_str::<IgnoredAny>(arguments) {
            Ok(_) => format!("expected an object, {{\"key\": value}}, not {arguments}"),
            Err(e) => not_json(&e),
        })
    };
    read.map_err(|why| {
        ToolError::Invalid(format!("the arguments of {tool} cannot be used: {}", bounded(&why)))
    })
}

fn not_json(error: &serde_json::Error) -> String {
    format!("they are not JSON ({error})")
}

/// What a reader says of a wrong key, with words beside its own for kinds of values. Where it stands in a text that the
/// model does not see as lines helps nobody.
fn in_words(error: &serde_json::Error) -> String {
    let place = format!(" at line {} column {}", error.line(), error.column());
    let said = error.to_string();
    let said = said.strip_suffix(&place).unwrap_or(&said);
    said.replace("expected a sequence", "expected a sequence (a list)")
        .replace("expected u64", "expected u64 (a whole number)")
}

fn bounded(reason: &str) -> String {
    let shown = reason.get(..reason.floor_char_boundary(REASON_BYTES)).unwrap_or_default();
    let more = if shown.len() < reason.len() { "…" } else { "" };
    format!("{shown}{more}")
}

/// The key that a reader stumbles over, found by leaving out one after the other: without it the complaint is another.
fn wrong_key<T: DeserializeOwned>(arguments: &str) -> Option<String> {
    let Ok(Value::Object(object)) = serde_json::from_str(arguments) else { return None };
    let complaint =
        |object: Map<String, Value>| serde_json::from_value::<T>(object.into()).err().map(|e| e.to_string());
    let first = complaint(object.clone())?;
    object
        .keys()
        .take(KEYS_TRIED)
        .find(|key| {
            let mut without = object.clone();
            without.shift_remove(key.as_str());
            complaint(without).as_ref() != Some(&first)
        })
        .cloned()
}
/// No tool has more keys than this; a call with thousands of them is not tried thousands of times.
const KEYS_TRIED: usize = 32;

/// An absolute path from what the model wrote, which may start at the working directory. `..` is refused, not worked
/// out: behind a symbolic link it means another place than it says.
pub(crate) fn absolute(key: &str, raw: &str, cwd: &Path) -> Result<PathBuf, ToolError> {
    if raw.is_empty() || raw.contains('\0') {
        return Err(ToolError::Invalid(format!("`{key}` is not a path: give the name of a file")));
    }
    if raw == "~" || raw.starts_with("~/") {
        return Err(ToolError::Invalid(format!(
            "`{key}` is `{}`, and no shell reads it, so `~` is not the home directory here: write the whole path \
             (something that is really called `~` is `./~`)",
            shorten(raw, SHOWN_BYTES)
        )));
    }
    let mut path = PathBuf::new();
    for part in cwd.join(raw).components() {
        match part {
            Component::ParentDir => {
                return Err(ToolError::Invalid(format!(
                    "`{key}` is `{}`, which climbs with `..`: write the path without it",
                    shorten(raw, SHOWN_BYTES)
                )));
            }
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) | Component::Normal(_) => path.push(part),
        }
    }
    Ok(path)
}

/// The same for a file that is to be written: what can only be a directory is refused.
pub(crate) fn absolute_file(key: &str, raw: &str, cwd: &Path) -> Result<PathBuf, ToolError> {
    let path = absolute(key, raw, cwd)?;
    if path.file_name().is_some() && (raw.ends_with('/') || raw.ends_with("/.")) {
        return Err(ToolError::Invalid(format!(
            "`{key}` is `{}`, which names a directory: give the name of a file in it",
            shorten(raw, SHOWN_BYTES)
        )));
    }
    Ok(path)
}

/// The most of a path or argument that an error or summary repeats.
pub(crate) const SHOWN_BYTES: usize = 120;

/// A text that fits, cut on a character boundary with a mark where something was left out. Of a path the end counts.
pub(crate) fn shorten(text: &str, bytes: usize) -> String {
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

/// A path for a line of words: bounded, and without characters that would break the line or a terminal.
pub(crate) fn show(path: &Path) -> String {
    let mut text = String::new();
    for c in path.to_string_lossy().chars() {
        if c.is_control() { text.extend(c.escape_default()) } else { text.push(c) }
    }
    shorten(&text, SHOWN_BYTES)
}

/// A result whose summary fits the context for good.
pub(crate) fn output(summary: String, content: Option<String>) -> ToolOutput {
    let mut summary = summary;
    let mut end = SUMMARY_BYTES.min(summary.len());
    while !summary.is_char_boundary(end) {
        end -= 1;
    }
    summary.truncate(end);
    ToolOutput { summary, content, ..ToolOutput::default() }
}

/// Does file work off the loop. A panic in it ends the call, not the pod.
pub(crate) fn off_the_loop(work: impl FnOnce() -> Result<ToolOutput, ToolError> + Send + 'static) -> Running {
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
    #[expect(dead_code, reason = "only how it is refused is looked at")]
    struct Arguments {
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
            let refused = parse::<Arguments>("Read", arguments).unwrap_err();
            let ToolError::Invalid(said) = &refused else { panic!("{refused:?}") };
            assert_eq!(said, &format!("the arguments of Read cannot be used: {words}"));
        }
    }
}
