//! Key names: all keys, renamed keys, reserved sections and suggestions for unknown names.
//!
//! Invariant: a key without effect is an error, because only keys with an effect are in the table
//! (`what_is_no_key_is_refused_with_what_was_meant`).

use crate::key::Key;
use crate::session::BUDGET_KEYS;
use crate::{
    EnvSection, FileUploadSection, HooksSection, Limits, ModelSection, PermissionsSection, PodSection,
    SandboxSection, ScopeSection, SessionSection, SkillsSection, ToolOutputSection, WebFetchSection,
    WebSearchSection, WebSection, WorkerSection,
};

/// The rows of all sections in display order.
const KEY_TABLES: [&[Key]; 17] = [
    PodSection::KEYS,
    Limits::KEYS,
    ModelSection::KEYS,
    WorkerSection::KEYS,
    ToolOutputSection::KEYS,
    FileUploadSection::KEYS,
    ScopeSection::KEYS,
    SandboxSection::KEYS,
    EnvSection::KEYS,
    PermissionsSection::KEYS,
    BUDGET_KEYS,
    SessionSection::KEYS,
    WebSection::KEYS,
    WebSearchSection::KEYS,
    WebFetchSection::KEYS,
    SkillsSection::KEYS,
    HooksSection::KEYS,
];

/// Sections that have an effect by being present.
pub(crate) const OPTIONAL_SECTIONS: [&str; 2] = ["web", "web.search"];

/// Renamed keys.
const RENAMED_KEYS: [(&str, &str); 6] = [
    ("compaction.overview_target_tokens", "compaction.summary_max_tokens"),
    ("compaction.overview_warning_tokens", "compaction.summary_max_tokens"),
    ("compaction.overview_deadline_tokens", "compaction.summary_max_tokens"),
    ("compaction.finish_warning_remaining_tokens", "compaction.summary_max_tokens"),
    ("compaction.final_reserve_tokens", "compaction.summary_max_tokens"),
    ("session.record_event_trace", "session.record_streams"),
];

/// Sections of later versions.
const RESERVED_SECTIONS: [&str; 6] = ["compaction", "memory", "mcp", "host", "tui", "mandate"];

/// Suggestions must differ in less than this part of the name.
const MAX_DISTANCE_SHARE: usize = 2;

/// Returns every key, section by section.
pub fn all_keys() -> impl Iterator<Item = &'static Key> {
    KEY_TABLES.into_iter().flatten()
}

/// Returns the key with this name.
pub fn find_key(path: &str) -> Option<&'static Key> {
    all_keys().find(|key| key.path == path)
}

/// Returns whether there are keys below this name.
pub fn is_section_path(path: &str) -> bool {
    all_keys().any(|key| key.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('.')))
}

/// Returns the names of all keys below a section.
pub(crate) fn keys_below(section: &str) -> Vec<&'static str> {
    all_keys()
        .map(|key| key.path)
        .filter(|path| path.strip_prefix(section).is_some_and(|rest| rest.starts_with('.')))
        .collect()
}

/// Returns whether this is a former name of a key.
pub(crate) fn is_renamed_key(path: &str) -> bool {
    RENAMED_KEYS.iter().any(|(old, _)| *old == path)
}

/// Returns the error and hint for a name that is not a key.
pub fn unknown_key_message(path: &str) -> (String, Option<String>) {
    if let Some((old, new)) = RENAMED_KEYS.into_iter().find(|(old, _)| *old == path) {
        return (format!("`{old}` was renamed to `{new}`"), None);
    }
    if path == "sandbox.lifted" {
        let hint = "--lift PATH on the command line lets the agent write a protected name";
        return (format!("`{path}` is not a key"), Some(hint.to_owned()));
    }
    if path == "sandbox.broad_roots" {
        let hint =
            "--allow-broad-root on the command line lets a run write a directory such as the home directory";
        return (format!("`{path}` is not a key"), Some(hint.to_owned()));
    }
    let section = path.split('.').next().unwrap_or_default();
    if RESERVED_SECTIONS.contains(&section) {
        return (format!("`{path}`: this version has no `{section}` yet"), None);
    }
    let hint = match suggest_key(path) {
        Some(near) => format!("the nearest is `{near}`"),
        None => "`minke config show` lists every key".to_owned(),
    };
    (format!("`{}` is not a key", path.escape_debug()), Some(hint))
}

/// Returns the most similar key or section.
pub fn suggest_key(path: &str) -> Option<&'static str> {
    let last = path.rsplit('.').next().unwrap_or_default();
    let sections = all_keys().map(Key::section_name);
    let near = all_keys().map(|key| key.path).chain(sections).map(|name| {
        // A name without a section is compared with the last part.
        let bare = name.rsplit('.').next().filter(|_| !path.contains('.'));
        let bare = bare.map_or(usize::MAX, |bare| minke_text::edit_distance(bare, last));
        (minke_text::edit_distance(name, path).min(bare), name)
    });
    let (distance, name) = near.min_by_key(|(distance, _)| *distance)?;
    (distance <= path.chars().count() / MAX_DISTANCE_SHARE).then_some(name)
}
