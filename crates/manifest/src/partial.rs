//! Partial manifests: the values of one layer, each checked and with its origin.
//!
//! They are read from a table (a file, a profile) or from `--set`, and merged in pairs. Elsewhere: the rows
//! with forms and merge rules (`key`), all layers together (`resolve`). Invariant: merging is associative
//! (`a_workspace_never_loosens_and_merging_is_associative`), and an unknown value is an error, never ignored
//! (`what_is_no_key_is_refused_with_what_was_meant`).

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::Manifest;
use crate::form::Refused;
use crate::key::{Key, Merge, Workspace};
use crate::key_names::{self, OPTIONAL_SECTIONS};
use crate::origin::{ConfigProblem, LayerKind, ManifestError, Origin};

/// Maximum depth of nested tables.
const MAX_DEPTH: usize = 16;
/// Maximum length of a value in an error.
const MAX_SHOWN_CHARS: usize = 60;

/// The value of a key in a layer.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerValue {
    pub value: Value,
    pub origin: Origin,
    /// The origin of each entry, for merged lists and maps.
    pub entry_origins: Vec<Origin>,
}

/// The values of one layer or of several merged layers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PartialManifest {
    values: BTreeMap<&'static str, LayerValue>,
    /// Optional sections that are present.
    sections: BTreeMap<&'static str, Origin>,
}

/// Returns the line of a key in a file: `worker.max_turns`, `permissions.rule[0]`, `sandbox.env.set.PORT`.
pub type LineLookup<'a> = &'a dyn Fn(&str) -> Option<u32>;

impl PartialManifest {
    /// Reads a table. The line of `from` is not used.
    pub fn from_table(
        table: &Value,
        from: &Origin,
        lines: LineLookup<'_>,
    ) -> Result<PartialManifest, ManifestError> {
        let mut reader =
            PartialReader { partial: PartialManifest::default(), problems: Vec::new(), from, lines };
        match table {
            Value::Object(members) => reader.read_members("", members, 0),
            _ => reader.add_problem("", "this is not a table of keys".to_owned(), None),
        }
        reader.finish()
    }

    /// Reads `key=value` from `--set`. A value that is not JSON is a text.
    pub fn from_assignment(pair: &str, from: &Origin) -> Result<PartialManifest, ManifestError> {
        let wrong = |key: &str, message: String, hint: &str| {
            let (key, hint) = (key.to_owned(), Some(hint.to_owned()));
            ManifestError::single(ConfigProblem { origin: from.clone(), key, message, hint })
        };
        let Some((path, text)) = pair.split_once('=') else {
            return Err(wrong(pair, format!("`{pair}` has no `=`"), "for example worker.max_turns=5"));
        };
        let json: Option<Value> = serde_json::from_str(text).ok();
        // Names chosen by the user may contain dots, and texts may look like JSON.
        let (place, key) = match key_names::find_key(path) {
            Some(key) => (None, Some(key)),
            None => map_entry_key(path).map_or((None, None), |(key, name)| (Some(name), Some(key))),
        };
        let wrap = |value: Value| match place {
            Some(name) => Value::Object(Map::from_iter([(name.to_owned(), value)])),
            None => value,
        };
        let Some(key) = key else {
            let value = json.unwrap_or_else(|| Value::from(text));
            return PartialManifest::from_table(&nest_value(path, value), from, &|_| None);
        };
        let as_text = wrap(Value::from(text));
        let value = match json.map(wrap) {
            Some(value) if (key.read)(&value).is_ok() || (key.read)(&as_text).is_err() => value,
            _ => as_text,
        };
        PartialManifest::from_table(&nest_value(key.path, value), from, &|_| None)
    }

    /// Converts a manifest with all its keys.
    pub fn from_manifest(manifest: &Manifest, from: &Origin) -> Result<PartialManifest, ManifestError> {
        let mut value = manifest.to_value();
        // Values that are not keys are not inherited.
        if let Value::Object(sections) = &mut value {
            sections.remove("left_out");
        }
        for (section, hidden) in [
            ("permissions", "rules"),
            ("permissions", "workspace_rule"),
            ("sandbox", "lifted"),
            ("sandbox", "broad_roots"),
        ] {
            if let Some(Value::Object(members)) = value.get_mut(section) {
                members.remove(hidden);
            }
        }
        PartialManifest::from_table(&value, from, &|_| None)
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty() && self.sections.is_empty()
    }

    /// Returns the value of a key.
    pub fn get(&self, path: &str) -> Option<&LayerValue> {
        self.values.get(path)
    }

    /// Iterates over all keys with values.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Key, &LayerValue)> {
        self.values.iter().filter_map(|(path, given)| Some((key_names::find_key(path)?, given)))
    }

    /// Returns whether an optional section is present.
    pub fn has_section(&self, section: &str) -> bool {
        self.sections.contains_key(section)
    }

    /// Splits off the values below a section.
    pub(crate) fn split_section(&self, section: &str) -> (PartialManifest, PartialManifest) {
        let inside = |path: &str| path.strip_prefix(section).is_some_and(|rest| rest.starts_with('.'));
        let (mut within, mut rest) = (PartialManifest::default(), self.clone());
        within.values =
            self.values.iter().filter(|(path, _)| inside(path)).map(|(p, g)| (*p, g.clone())).collect();
        rest.values.retain(|path, _| !inside(path));
        (within, rest)
    }

    /// Removes a key.
    #[must_use]
    pub fn without(mut self, path: &str) -> PartialManifest {
        self.values.remove(path);
        self
    }

    /// Calls `each` for every path that may be relative.
    pub fn resolve_paths(
        &mut self,
        each: &mut dyn FnMut(&Key, &Origin, &mut String) -> Result<(), String>,
    ) -> Result<(), ManifestError> {
        let mut problems = Vec::new();
        for (path, given) in &mut self.values {
            let Some(key) = key_names::find_key(path) else { continue };
            let origin = given.origin.clone();
            if origin.layer == LayerKind::Workspace && key.workspace == Workspace::Nothing {
                continue;
            }
            let done = (key.places)(&mut given.value, &mut |place| each(key, &origin, place));
            if let Err(why) = done {
                let message = format!("`{path}` has an invalid path: {why}");
                problems.push(ConfigProblem { origin, key: (*path).to_owned(), message, hint: None });
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(ManifestError { problems }) }
    }

    /// Merges a higher layer over this one.
    #[must_use]
    pub fn overridden_by(mut self, higher: PartialManifest) -> PartialManifest {
        for (path, given) in higher.values {
            self.merge_value(path, given);
        }
        for (section, origin) in higher.sections {
            self.sections.entry(section).or_insert(origin);
        }
        self
    }

    pub(crate) fn merge_value(&mut self, path: &'static str, higher: LayerValue) {
        let merge = key_names::find_key(path).map_or(Merge::Override, |key| key.merge);
        let merged = match (self.values.remove(path), merge) {
            (None, _) | (Some(_), Merge::Override) => higher,
            (Some(lower), Merge::Concatenate) => concatenate_values(lower, higher),
            (Some(lower), Merge::PerKey) => merge_per_key(lower, higher),
        };
        self.values.insert(path, merged);
    }
}

fn concatenate_values(lower: LayerValue, higher: LayerValue) -> LayerValue {
    let list = |value: Value| match value {
        Value::Array(entries) => entries,
        other => vec![other],
    };
    let origin = if higher.entry_origins.is_empty() { lower.origin } else { higher.origin };
    let value = list(lower.value).into_iter().chain(list(higher.value)).collect();
    let entry_origins = lower.entry_origins.into_iter().chain(higher.entry_origins).collect();
    LayerValue { value: Value::Array(value), origin, entry_origins }
}

fn merge_per_key(lower: LayerValue, higher: LayerValue) -> LayerValue {
    let entries = |given: LayerValue| {
        let members = match given.value {
            Value::Object(members) => members,
            _ => Map::new(),
        };
        members.into_iter().zip(given.entry_origins).map(|((name, value), origin)| (name, (value, origin)))
    };
    let origin = if higher.entry_origins.is_empty() { lower.origin.clone() } else { higher.origin.clone() };
    let all: BTreeMap<String, (Value, Origin)> = entries(lower).chain(entries(higher)).collect();
    let (mut value, mut entry_origins) = (Map::new(), Vec::new());
    for (name, (entry, origin)) in all {
        value.insert(name, entry);
        entry_origins.push(origin);
    }
    LayerValue { value: Value::Object(value), origin, entry_origins }
}

/// Returns the map key that a longer name belongs to, and the entry's name.
pub fn map_entry_key(path: &str) -> Option<(&'static Key, &str)> {
    key_names::all_keys().filter(|key| key.merge == Merge::PerKey).find_map(|key| {
        let name = path.strip_prefix(key.path)?.strip_prefix('.')?;
        (!name.is_empty()).then_some((key, name))
    })
}

/// Nests a value in the tables of its dotted name.
fn nest_value(path: &str, value: Value) -> Value {
    path.rsplit('.').fold(value, |value, part| Value::Object(Map::from_iter([(part.to_owned(), value)])))
}

/// Formats a value for an error.
pub(crate) fn truncate_value(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.escape_debug().to_string(),
        other => other.to_string(),
    };
    let mut short: String = text.chars().take(MAX_SHOWN_CHARS).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

struct PartialReader<'a> {
    partial: PartialManifest,
    problems: Vec<ConfigProblem>,
    from: &'a Origin,
    lines: LineLookup<'a>,
}

impl PartialReader<'_> {
    fn finish(self) -> Result<PartialManifest, ManifestError> {
        if self.problems.is_empty() {
            Ok(self.partial)
        } else {
            Err(ManifestError { problems: self.problems })
        }
    }

    fn read_members(&mut self, prefix: &str, members: &Map<String, Value>, depth: usize) {
        for (name, value) in members {
            let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
            // A name with a dot would be a different key.
            match key_names::find_key(&path).filter(|_| !name.contains('.')) {
                Some(key) => self.read_key(key, value),
                None if key_names::is_section_path(&path) && !name.contains('.') => {
                    self.read_section(&path, value, depth)
                }
                None => self.report_unknown(&path, value),
            }
        }
    }

    fn report_unknown(&mut self, path: &str, value: &Value) {
        let below = value.as_object().into_iter().flatten().map(|(name, _)| format!("{path}.{name}"));
        // For a removed section, name each of its old keys.
        let old: Vec<String> = below.filter(|path| key_names::is_renamed_key(path)).collect();
        let named = if old.is_empty() { vec![path.to_owned()] } else { old };
        for path in named {
            let (what, hint) = key_names::unknown_key_message(&path);
            self.add_problem(&path, what, hint);
        }
    }

    fn read_section(&mut self, path: &str, value: &Value, depth: usize) {
        let Value::Object(members) = value else {
            let hint = format!("it has {}", key_names::keys_below(path).join(", "));
            let what = format!("`{path}` is a section, not a key with one value");
            return self.add_problem(path, what, Some(hint));
        };
        if depth >= MAX_DEPTH {
            return self.add_problem(path, format!("`{path}` is too deep"), None);
        }
        if let Some(section) = OPTIONAL_SECTIONS.into_iter().find(|section| *section == path) {
            self.partial.sections.insert(section, self.from.with_line((self.lines)(path)));
        }
        self.read_members(path, members, depth + 1);
    }

    fn read_key(&mut self, key: &'static Key, value: &Value) {
        if matches!(self.from.layer, LayerKind::Profile | LayerKind::Project) && !key.profile {
            let what = format!("a profile cannot set `{}`", key.path);
            let hint = "set it in config.toml or with --set".to_owned();
            return self.add_problem(key.path, what, Some(hint));
        }
        if self.from.layer == LayerKind::Workspace && key.workspace == Workspace::Nothing {
            // The value is ignored later anyway.
            let origin = self.from.with_line((self.lines)(key.path));
            self.partial
                .values
                .insert(key.path, LayerValue { value: value.clone(), origin, entry_origins: Vec::new() });
            return;
        }
        match (key.read)(value) {
            Ok(read) => {
                let origin = self.from.with_line((self.lines)(key.path));
                let entry_origins = self.origins_of_entries(key, &read, &origin);
                self.partial.values.insert(key.path, LayerValue { value: read, origin, entry_origins });
            }
            Err(why) => self.add_problem(key.path, invalid_value_message(key, value, why), None),
        }
    }

    fn origins_of_entries(&self, key: &Key, read: &Value, whole: &Origin) -> Vec<Origin> {
        let at = |name: String| self.from.with_line((self.lines)(&name).or(whole.line));
        match (key.merge, read) {
            (Merge::Concatenate, Value::Array(entries)) => {
                (0..entries.len()).map(|number| at(format!("{}[{number}]", key.path))).collect()
            }
            (Merge::PerKey, Value::Object(entries)) => {
                entries.keys().map(|name| at(format!("{}.{name}", key.path))).collect()
            }
            _ => Vec::new(),
        }
    }

    fn add_problem(&mut self, path: &str, message: String, hint: Option<String>) {
        let origin = self.from.with_line((self.lines)(path));
        self.problems.push(ConfigProblem { origin, key: path.to_owned(), message, hint });
    }
}

fn invalid_value_message(key: &Key, value: &Value, why: Refused) -> String {
    let (path, word) = (key.path, (key.word)());
    match why {
        Some(why) => format!("`{path}` is invalid: {why}; expected {word}"),
        None => format!("`{path}` is `{}`: expected {word}", truncate_value(value)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn test_origin(layer: LayerKind) -> Origin {
        Origin::new(layer, "config.toml")
    }

    fn read_user_table(table: Value) -> Result<PartialManifest, String> {
        PartialManifest::from_table(&table, &test_origin(LayerKind::User), &|_| Some(3))
            .map_err(|e| e.to_string())
    }

    #[test]
    fn what_is_no_key_is_refused_with_what_was_meant() {
        for (table, words) in [
            (
                json!({"worker": {"max_turn": 5}}),
                &["config.toml:3", "`worker.max_turn`", "`worker.max_turns`"][..],
            ),
            (json!({"max_turns": 5}), &["`worker.max_turns`"]),
            (json!({"wroker": {"max_turns": 5}}), &["`wroker` is not a key", "nearest is `worker`"]),
            (json!({"qqqqqqqqqqqq": 1}), &["config show"]),
            (json!({"session": {"record_event_trace": true}}), &["renamed", "`session.record_streams`"]),
            (
                json!({"compaction": {"final_reserve_tokens": 1}}),
                &["renamed", "`compaction.summary_max_tokens`"],
            ),
            (json!({"memory": {"enabled": true}}), &["this version has no `memory` yet"]),
            (json!({"worker": 5}), &["`worker` is a section", "worker.max_turns"]),
            (json!({"worker": {"max_turns": "five"}}), &["`worker.max_turns` is `five`", "at least 1"]),
            (json!({"worker": {"max_turns": 0}}), &["at least 1"]),
            (json!({"worker.max_turns": 5}), &["`worker.max_turns` is not a key"]),
            (json!({"sandbox": {"lifted": []}}), &["--lift"]),
            (json!({"sandbox": {"broad_roots": []}}), &["--allow-broad-root"]),
            (json!({"pod": {"idle_exit": "30x"}}), &["30m"]),
            (json!({"permissions": {"rule": [{"action": "alow"}]}}), &["entry 1", "alow"]),
            (json!([]), &["not a table"]),
        ] {
            let message = read_user_table(table.clone()).unwrap_err();
            for word in words {
                assert!(message.contains(word), "{table}: `{word}` is missing: {message}");
            }
        }
        let both = read_user_table(json!({"worker": {"max_turn": 5}, "pod": {"idle": 1}})).unwrap_err();
        assert_eq!(both.lines().count(), 2, "{both}");
    }

    #[test]
    fn a_duration_may_be_a_text_and_profiles_may_not_say_everything() {
        let partial = read_user_table(json!({"pod": {"idle_exit": "30m"}})).unwrap();
        assert_eq!(partial.get("pod.idle_exit").unwrap().value, json!(1800));
        let profile = test_origin(LayerKind::Profile);
        let message =
            PartialManifest::from_table(&json!({"pod": {"idle_exit": 5}}), &profile, &|_| None).unwrap_err();
        assert!(message.to_string().contains("profile cannot set"), "{message}");
        assert!(
            PartialManifest::from_table(&json!({"worker": {"max_turns": 5}}), &profile, &|_| None).is_ok()
        );
    }
}
