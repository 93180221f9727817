//! Names of keys: all there are, old ones, those of what this version cannot do yet, and the nearest to a wrong one.
//!
//! Invariant: no key is taken and then ignored: what nothing reads is not in the table
//! (`what_is_no_key_is_refused_with_what_was_meant`).

use crate::key::Key;
use crate::session::BUDGET;
use crate::{
    EnvSection, FileUploadSection, HooksSection, Limits, ModelSection, PermissionsSection, PodSection,
    SandboxSection, ScopeSection, SessionSection, SkillsSection, ToolOutputSection, WebFetchSection,
    WebSearchSection, WebSection, WorkerSection,
};

/// Every section's rows, in the order in which they are shown.
const TABLES: [&[Key]; 17] = [
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
    BUDGET,
    SessionSection::KEYS,
    WebSection::KEYS,
    WebSearchSection::KEYS,
    WebFetchSection::KEYS,
    SkillsSection::KEYS,
    HooksSection::KEYS,
];

/// Sections that mean something by being there.
pub(crate) const OPTIONAL: [&str; 2] = ["web", "web.search"];

/// Keys that were called otherwise once.
const OLD: [(&str, &str); 6] = [
    ("compaction.overview_target_tokens", "compaction.summary_max_tokens"),
    ("compaction.overview_warning_tokens", "compaction.summary_max_tokens"),
    ("compaction.overview_deadline_tokens", "compaction.summary_max_tokens"),
    ("compaction.finish_warning_remaining_tokens", "compaction.summary_max_tokens"),
    ("compaction.final_reserve_tokens", "compaction.summary_max_tokens"),
    ("session.record_event_trace", "session.record_streams"),
];

/// What a later version will be told with these; nothing of this one would read them.
const NOT_YET: [&str; 6] = ["compaction", "memory", "mcp", "host", "tui", "mandate"];

/// Whoever is further off than this share of a word is not meant.
const NEAR_SHARE: usize = 2;

/// Every key, section by section.
pub fn keys() -> impl Iterator<Item = &'static Key> {
    TABLES.into_iter().flatten()
}

/// The key of this name.
pub fn key(path: &str) -> Option<&'static Key> {
    keys().find(|key| key.path == path)
}

/// Whether there are keys below this name.
pub fn is_section(path: &str) -> bool {
    keys().any(|key| key.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('.')))
}

/// The names of the keys right below a section, and of sections in it.
pub(crate) fn below(section: &str) -> Vec<&'static str> {
    keys()
        .map(|key| key.path)
        .filter(|path| path.strip_prefix(section).is_some_and(|rest| rest.starts_with('.')))
        .collect()
}

/// Whether a key was called so once.
pub(crate) fn is_old(path: &str) -> bool {
    OLD.iter().any(|(old, _)| *old == path)
}

/// What is to be said about a name that is no key: what is wrong, and what to do.
pub fn not_a_key(path: &str) -> (String, Option<String>) {
    if let Some((old, new)) = OLD.into_iter().find(|(old, _)| *old == path) {
        return (format!("`{old}` is an old key: it is `{new}` now"), None);
    }
    if path == "sandbox.lifted" {
        let hint = "--lift PATH on the command line lets the agent write a protected name";
        return (format!("`{path}` is no key"), Some(hint.to_owned()));
    }
    if path == "sandbox.broad_roots" {
        let hint =
            "--allow-broad-root on the command line lets a run write a directory such as the home directory";
        return (format!("`{path}` is no key"), Some(hint.to_owned()));
    }
    let section = path.split('.').next().unwrap_or_default();
    if NOT_YET.contains(&section) {
        return (
            format!("`{path}`: this version has no `{section}` yet, so nothing would read the key"),
            None,
        );
    }
    let hint = match nearest_key(path) {
        Some(near) => format!("the nearest is `{near}`"),
        None => "`minke config show` lists every key".to_owned(),
    };
    (format!("`{}` is no key", path.escape_debug()), Some(hint))
}

/// The key or section that was probably meant.
pub fn nearest_key(path: &str) -> Option<&'static str> {
    let last = path.rsplit('.').next().unwrap_or_default();
    let sections = keys().map(Key::section);
    let near = keys().map(|key| key.path).chain(sections).map(|name| {
        // Who forgets the section means the key.
        let bare = name.rsplit('.').next().filter(|_| !path.contains('.'));
        let bare = bare.map_or(usize::MAX, |bare| strsim::osa_distance(bare, last));
        (strsim::osa_distance(name, path).min(bare), name)
    });
    let (distance, name) = near.min_by_key(|(distance, _)| *distance)?;
    (distance <= path.chars().count() / NEAR_SHARE).then_some(name)
}
