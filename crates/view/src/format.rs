//! Formats actors, inputs and calls as text. All texts are limited.

use minke_record::{Action, Actor, ActorKind, ConfigChanged, ImageSource, InputSegment, Text};
use minke_text::cut_to_bytes;
use serde_json::Value;

/// Limit for the text of a notice, a reason or a summary, so that it fits a screen.
pub(crate) const MAX_NOTICE_BYTES: usize = 4 * 1024;
/// Limit for the one-line subject of a call.
pub(crate) const MAX_SUBJECT_BYTES: usize = 200;

/// Truncates a text and tells how many bytes are omitted.
pub(crate) fn truncate_text(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    let kept = cut_to_bytes(text, bytes);
    format!("{kept}… ({} bytes more)", text.len() - kept.len())
}

/// Returns the first non-empty line, truncated.
pub(crate) fn first_line(text: &str) -> String {
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let line = lines.next().unwrap_or_default().trim();
    let kept = cut_to_bytes(line, MAX_SUBJECT_BYTES);
    if kept.len() == line.len() && lines.next().is_none() { kept.to_owned() } else { format!("{kept} …") }
}

/// Returns the name of an actor: `you`, `job` or the name of a hook. `parent` is the name of the parent pod,
/// if known.
pub(crate) fn actor_name(actor: &Actor, parent: Option<&str>) -> String {
    match &actor.actor {
        ActorKind::Person => "you".to_owned(),
        ActorKind::Pod => parent.unwrap_or("another pod").to_owned(),
        ActorKind::Job => "job".to_owned(),
        ActorKind::Hook => actor.surface.as_deref().map_or("hook".to_owned(), |name| format!("hook {name}")),
        ActorKind::Minke => "minke".to_owned(),
        ActorKind::Other(word) => word.to_string(),
    }
}

/// Same as [`actor_name`], with the surface that a user used.
pub(crate) fn actor_description(actor: &Actor, parent: Option<&str>) -> String {
    match (&actor.actor, &actor.surface) {
        (ActorKind::Person, Some(surface)) => format!("you ({surface})"),
        _ => actor_name(actor, parent),
    }
}

/// Returns the text of an input and the labels of its attachments.
pub(crate) fn input_text(segments: &[InputSegment]) -> (String, Vec<String>) {
    let (mut text, mut chips) = (String::new(), Vec::new());
    for segment in segments {
        let piece = match segment {
            InputSegment::Text { content } => content.display_text().into_owned(),
            InputSegment::Paste { id, chars, lines, .. } => {
                chips.push(match lines {
                    0 | 1 => format!("paste {id}: {chars} characters"),
                    lines => format!("paste {id}: {lines} lines"),
                });
                format!("[paste {id}]")
            }
            InputSegment::FileRef { path } => add_attachment(&mut chips, format!("@{path}")),
            InputSegment::Image { source: ImageSource::Path(path), .. } => {
                add_attachment(&mut chips, format!("[image {path}]"))
            }
            InputSegment::Image { media_type, .. } => add_attachment(&mut chips, format!("[{media_type}]")),
            InputSegment::KnowledgeRef { slug } => add_attachment(&mut chips, format!("#{slug}")),
            InputSegment::WorkflowInvoke { slug } => add_attachment(&mut chips, format!("/{slug}")),
            InputSegment::SkillRef { name } => add_attachment(&mut chips, format!("/{name}")),
            InputSegment::Unknown(_) => add_attachment(&mut chips, "[part of a newer version]".to_owned()),
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

/// Adds an attachment to the list and returns its label for the text.
fn add_attachment(chips: &mut Vec<String>, word: String) -> String {
    chips.push(word.clone());
    word
}

/// Returns the objects of an action in one line, with paths relative to the working directory.
pub(crate) fn action_subject(action: &Action, cwd: &str) -> String {
    if let Some(command) = &action.command {
        return first_line(command);
    }
    if let Some(path) = action.writes.first().or(action.reads.first()) {
        return first_line(relative_path(path, cwd));
    }
    let other = action.hosts.first().or(action.pod.as_ref()).or(action.mcp.as_ref());
    other.map(|other| first_line(other)).unwrap_or_default()
}

/// Returns a path relative to the working directory.
pub(crate) fn relative_path<'a>(path: &'a str, cwd: &str) -> &'a str {
    let below = path.strip_prefix(cwd).and_then(|rest| rest.strip_prefix('/'));
    below.filter(|rest| !rest.is_empty() && !cwd.is_empty()).unwrap_or(path)
}

/// Argument names that describe a call, the best first.
const SUBJECT_KEYS: [&str; 14] = [
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

/// Returns the subject of a call from its arguments, which may be incomplete.
pub(crate) fn arguments_subject(arguments: &str, cwd: &str) -> String {
    /// Limit for the arguments that are searched.
    const MAX_SCANNED_BYTES: usize = 16 * 1024;
    let looked_at = cut_to_bytes(arguments, MAX_SCANNED_BYTES);
    if let Ok(Value::Object(map)) = serde_json::from_str::<Value>(looked_at) {
        let told = SUBJECT_KEYS.iter().find_map(|key| match map.get(*key) {
            Some(Value::String(text)) if !text.trim().is_empty() => Some(text.clone()),
            // A number alone says little; the result is shown next to it.
            Some(Value::Number(number)) => {
                let status = map.get("status").and_then(Value::as_str).map(|status| format!(": {status}"));
                Some(format!("{number}{}", status.unwrap_or_default()))
            }
            Some(Value::Array(list)) => {
                Some(list.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "))
            }
            _ => None,
        });
        return told.map(|told| first_line(relative_path(&told, cwd))).unwrap_or_default();
    }
    // Incomplete JSON: use the first of the keys whose string is complete.
    let told = SUBJECT_KEYS.iter().find_map(|key| {
        let (_, after) = looked_at.split_once(&format!("\"{key}\""))?;
        let text = after.trim_start().strip_prefix(':')?.trim_start();
        let mut reader = serde_json::Deserializer::from_str(text).into_iter::<String>();
        reader.next()?.ok()
    });
    told.map(|told| first_line(relative_path(&told, cwd))).unwrap_or_default()
}

/// Describes a configuration change for people. Returns `None` for internal bookkeeping.
pub(crate) fn config_notice(change: &ConfigChanged) -> Option<String> {
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
    Some(truncate_text(&format!("{what} is now {value}"), MAX_SUBJECT_BYTES))
}

/// Parses the exit code from the summary of the shell tool, `… (exit 3)`. The log contains it nowhere else.
pub(crate) fn parse_exit_code(summary: &str) -> Option<i32> {
    summary.strip_suffix(')')?.rsplit_once("(exit ")?.1.parse().ok()
}

/// Returns whether a command continues in the background after its call: `… (running as x)`.
pub(crate) fn is_in_background(summary: &str) -> bool {
    summary.ends_with(')') && summary.rsplit_once(" (").is_some_and(|(_, how)| how.starts_with("running as "))
}

/// Returns the stored text, the number of omitted bytes, and the blob with the full text.
pub(crate) fn stored_text(text: &Text) -> (&str, u64, Option<String>) {
    match text {
        Text::Inline(text) => (text, 0, None),
        Text::Blob(blob) => ("", blob.bytes, Some(blob.blob.clone())),
    }
}

/// Formats a count: `12,345`.
pub(crate) fn format_count(number: u64) -> String {
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
