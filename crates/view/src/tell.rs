//! In words: who speaks, what was said and what came with it, what a call is about. Everything has an end.

use minke_record::{Action, Actor, ActorKind, ConfigChanged, ImageSource, InputSegment, Text};
use serde_json::Value;

/// The longest text of a notice, a reason or a summary: it is for a person, on one screen.
pub(crate) const NOTICE_BYTES: usize = 4 * 1024;
/// What a call is about, in one line.
pub(crate) const ABOUT_BYTES: usize = 200;

/// The beginning of a text, with what is left out if something is.
pub(crate) fn beginning(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    let (kept, rest) = text.split_at(text.floor_char_boundary(bytes));
    format!("{kept}… ({} bytes more)", rest.len())
}

/// The first line that says something, cut if it is long.
pub(crate) fn one_line(text: &str) -> String {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let line = lines.next().unwrap_or_default().trim();
    let (kept, rest) = line.split_at(line.floor_char_boundary(ABOUT_BYTES));
    if rest.is_empty() && lines.next().is_none() { kept.to_owned() } else { format!("{kept} …") }
}

/// Who it was: `you`, `job`, a hook's name; `parent` is the name of the pod above, if it is known.
pub(crate) fn who(actor: &Actor, parent: Option<&str>) -> String {
    match &actor.actor {
        ActorKind::Person => "you".to_owned(),
        ActorKind::Pod => parent.unwrap_or("another pod").to_owned(),
        ActorKind::Job => "job".to_owned(),
        ActorKind::Hook => actor.surface.as_deref().map_or("hook".to_owned(), |name| format!("hook {name}")),
        ActorKind::Minke => "minke".to_owned(),
        ActorKind::Other(word) => word.to_string(),
    }
}

/// The same with the surface that a person used.
pub(crate) fn by_whom(actor: &Actor, parent: Option<&str>) -> String {
    match (&actor.actor, &actor.surface) {
        (ActorKind::Person, Some(surface)) => format!("you ({surface})"),
        _ => who(actor, parent),
    }
}

/// What was said, as it reads, and what came with it.
pub(crate) fn said(segments: &[InputSegment]) -> (String, Vec<String>) {
    let (mut text, mut chips) = (String::new(), Vec::new());
    for segment in segments {
        let piece = match segment {
            InputSegment::Text { content } => content.show().into_owned(),
            InputSegment::Paste { id, chars, lines, .. } => {
                chips.push(match lines {
                    0 | 1 => format!("paste {id}: {chars} characters"),
                    lines => format!("paste {id}: {lines} lines"),
                });
                format!("[paste {id}]")
            }
            InputSegment::FileRef { path } => chip(&mut chips, format!("@{path}")),
            InputSegment::Image { source: ImageSource::Path(path), .. } => {
                chip(&mut chips, format!("[image {path}]"))
            }
            InputSegment::Image { media_type, .. } => chip(&mut chips, format!("[{media_type}]")),
            InputSegment::KnowledgeRef { slug } => chip(&mut chips, format!("#{slug}")),
            InputSegment::WorkflowInvoke { slug } => chip(&mut chips, format!("/{slug}")),
            InputSegment::SkillRef { name } => chip(&mut chips, format!("/{name}")),
            InputSegment::Unknown(_) => chip(&mut chips, "[something of a later version]".to_owned()),
        };
        let apart = text.chars().next_back().is_some_and(|c| !c.is_whitespace())
            && piece.chars().next().is_some_and(|c| !c.is_whitespace());
        if apart {
            text.push(' ');
        }
        text.push_str(&piece);
    }
    (text, chips)
}

/// A thing that is both in the sentence and beside it.
fn chip(chips: &mut Vec<String>, word: String) -> String {
    chips.push(word.clone());
    word
}

/// What an action touches, in one line; paths as they are seen from the working directory.
pub(crate) fn touches(action: &Action, cwd: &str) -> String {
    if let Some(command) = &action.command {
        return one_line(command);
    }
    if let Some(path) = action.writes.first().or(action.reads.first()) {
        return one_line(near(path, cwd));
    }
    let other = action.hosts.first().or(action.pod.as_ref()).or(action.mcp.as_ref());
    other.map(|other| one_line(other)).unwrap_or_default()
}

/// A path as it is seen from the working directory.
pub(crate) fn near<'a>(path: &'a str, cwd: &str) -> &'a str {
    let below = path.strip_prefix(cwd).and_then(|rest| rest.strip_prefix('/'));
    below.filter(|rest| !rest.is_empty() && !cwd.is_empty()).unwrap_or(path)
}

/// Arguments that say what a call is about, the best first.
const TELLING: [&str; 14] = [
    "command",
    "path",
    "file_path",
    "pattern",
    "query",
    "url",
    "name",
    "names",
    "subject",
    "question",
    "command_id",
    "id",
    "task",
    "text",
];

/// What a call is about by its arguments, which may still be coming.
pub(crate) fn written_about(arguments: &str, cwd: &str) -> String {
    /// Arguments are not read further than this for a line.
    const LOOKED_AT: usize = 16 * 1024;
    let (looked_at, _) = arguments.split_at(arguments.floor_char_boundary(LOOKED_AT));
    if let Ok(Value::Object(map)) = serde_json::from_str::<Value>(looked_at) {
        let told = TELLING.iter().find_map(|key| match map.get(*key) {
            Some(Value::String(text)) if !text.trim().is_empty() => Some(text.clone()),
            // A number alone says little: what became of it stands beside it.
            Some(Value::Number(number)) => {
                let status = map.get("status").and_then(Value::as_str).map(|status| format!(": {status}"));
                Some(format!("{number}{}", status.unwrap_or_default()))
            }
            Some(Value::Array(list)) => {
                Some(list.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "))
            }
            _ => None,
        });
        return told.map(|told| one_line(near(&told, cwd))).unwrap_or_default();
    }
    // Not whole: the first of them whose text has come to its end.
    let told = TELLING.iter().find_map(|key| {
        let (_, after) = looked_at.split_once(&format!("\"{key}\""))?;
        let text = after.trim_start().strip_prefix(':')?.trim_start();
        let mut reader = serde_json::Deserializer::from_str(text).into_iter::<String>();
        reader.next()?.ok()
    });
    told.map(|told| one_line(near(&told, cwd))).unwrap_or_default()
}

/// A change of the configuration for a person; none if it is the machine's own book-keeping.
pub(crate) fn config(change: &ConfigChanged) -> Option<String> {
    let value = match &change.value {
        Value::Null => return None,
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let what = match change.key.as_str() {
        "pod.catalog" | "permissions.rules" => return None,
        "model.ref" | "model" => "the model",
        "permissions.posture" => "the posture",
        other => other,
    };
    Some(beginning(&format!("{what} is now {value}"), ABOUT_BYTES))
}

/// The shell tool ends its summary with how the command ended, `… (exit 3)`; the log says it nowhere else.
pub(crate) fn exit_code(summary: &str) -> Option<i32> {
    summary.strip_suffix(')')?.rsplit_once("(exit ")?.1.parse().ok()
}

/// A command in the background goes on after its call: `… (running as x)`.
pub(crate) fn goes_on(summary: &str) -> bool {
    summary.ends_with(')') && summary.rsplit_once(" (").is_some_and(|(_, how)| how.starts_with("running as "))
}

/// A text that may lie in a blob: what is here, how much is not, and where that is.
pub(crate) fn held(text: &Text) -> (&str, u64, Option<String>) {
    match text {
        Text::Here(text) => (text, 0, None),
        Text::Blob(blob) => ("", blob.bytes, Some(blob.blob.clone())),
    }
}

/// A count as people read it: `12,345`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
