//! Partials: what one layer says, key by key, each value checked and with its origin.
//!
//! Here: from a table (a file, a profile) or from `--set` to a partial, and one partial over another. Elsewhere: the rows
//! that say what a value may be and how it merges (`key`), all layers together (`resolve`).
//! Invariant: merging is associative
//! (`a_workspace_never_loosens_and_merging_is_associative`), and what is not understood is an error, never left out
//! (`what_is_no_key_is_refused_with_what_was_meant`).

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::Manifest;
use crate::form::Refused;
use crate::key::{Key, Merge, Workspace};
use crate::names::{self, OPTIONAL};
use crate::origin::{LayerKind, ManifestError, Origin, Problem};

/// The deepest table that is looked into.
const DEPTH_MOST: usize = 16;
/// The most of a value that an error repeats.
const SHOWN_CHARS: usize = 60;

/// What a layer says about one key.
#[derive(Debug, Clone, PartialEq)]
pub struct Given {
    pub value: Value,
    pub origin: Origin,
    /// Of each entry, for lists and maps that are merged.
    pub parts: Vec<Origin>,
}

/// What one layer says, or several together.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Partial {
    given: BTreeMap<&'static str, Given>,
    /// Optional sections that are there.
    sections: BTreeMap<&'static str, Origin>,
}

/// Where in a file a key stands: `worker.max_turns`, `permissions.rule[0]`, `sandbox.env.set.PORT`.
pub type Lines<'a> = &'a dyn Fn(&str) -> Option<u32>;

impl Partial {
    /// Reads a table. `from` says whose it is; its own line is not used.
    pub fn read(table: &Value, from: &Origin, lines: Lines<'_>) -> Result<Partial, ManifestError> {
        let mut reading = Reading { partial: Partial::default(), problems: Vec::new(), from, lines };
        match table {
            Value::Object(members) => reading.members("", members, 0),
            _ => reading.problem("", "this is no table of keys".to_owned(), None),
        }
        reading.finish()
    }

    /// Reads `key=value`, as `--set` has it. A value that is not JSON is a text.
    pub fn set(pair: &str, from: &Origin) -> Result<Partial, ManifestError> {
        let wrong = |key: &str, what: String, hint: &str| {
            let (key, hint) = (key.to_owned(), Some(hint.to_owned()));
            ManifestError::one(Problem { origin: from.clone(), key, what, hint })
        };
        let Some((path, text)) = pair.split_once('=') else {
            return Err(wrong(pair, format!("`{pair}` has no `=`"), "for example worker.max_turns=5"));
        };
        let json: Option<Value> = serde_json::from_str(text).ok();
        // Names of a person's own may have dots, and values that look like something else may be texts.
        let (place, key) = match names::key(path) {
            Some(key) => (None, Some(key)),
            None => entry_of(path).map_or((None, None), |(key, name)| (Some(name), Some(key))),
        };
        let dress = |value: Value| match place {
            Some(name) => Value::Object(Map::from_iter([(name.to_owned(), value)])),
            None => value,
        };
        let Some(key) = key else {
            let value = json.unwrap_or_else(|| Value::from(text));
            return Partial::read(&nested(path, value), from, &|_| None);
        };
        let as_text = dress(Value::from(text));
        let value = match json.map(dress) {
            Some(value) if (key.read)(&value).is_ok() || (key.read)(&as_text).is_err() => value,
            _ => as_text,
        };
        Partial::read(&nested(key.path, value), from, &|_| None)
    }

    /// What a manifest says, every key of it.
    pub fn of(manifest: &Manifest, from: &Origin) -> Result<Partial, ManifestError> {
        let mut value = manifest.to_value();
        // What is no key is nobody's to hand on.
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
        Partial::read(&value, from, &|_| None)
    }

    pub fn is_empty(&self) -> bool {
        self.given.is_empty() && self.sections.is_empty()
    }

    /// What it says about a key.
    pub fn get(&self, path: &str) -> Option<&Given> {
        self.given.get(path)
    }

    /// Every key that it says something about.
    pub fn iter(&self) -> impl Iterator<Item = (&'static Key, &Given)> {
        self.given.iter().filter_map(|(path, given)| Some((names::key(path)?, given)))
    }

    /// Whether an optional section is there.
    pub fn has_section(&self, section: &str) -> bool {
        self.sections.contains_key(section)
    }

    /// Apart: what it says below a section, and the rest.
    pub(crate) fn split(&self, section: &str) -> (Partial, Partial) {
        let inside = |path: &str| path.strip_prefix(section).is_some_and(|rest| rest.starts_with('.'));
        let (mut within, mut rest) = (Partial::default(), self.clone());
        within.given =
            self.given.iter().filter(|(path, _)| inside(path)).map(|(p, g)| (*p, g.clone())).collect();
        rest.given.retain(|path, _| !inside(path));
        (within, rest)
    }

    /// Leaves a key out.
    #[must_use]
    pub fn without(mut self, path: &str) -> Partial {
        self.given.remove(path);
        self
    }

    /// Shows every path in it that may be relative, for whoever knows against what.
    pub fn places(
        &mut self,
        each: &mut dyn FnMut(&Key, &Origin, &mut String) -> Result<(), String>,
    ) -> Result<(), ManifestError> {
        let mut problems = Vec::new();
        for (path, given) in &mut self.given {
            let Some(key) = names::key(path) else { continue };
            let origin = given.origin.clone();
            if origin.layer == LayerKind::Workspace && key.workspace == Workspace::Nothing {
                continue;
            }
            let done = (key.places)(&mut given.value, &mut |place| each(key, &origin, place));
            if let Err(why) = done {
                let what = format!("`{path}` names a path that cannot be used: {why}");
                problems.push(Problem { origin, key: (*path).to_owned(), what, hint: None });
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(ManifestError { problems }) }
    }

    /// The same with what a higher layer says.
    #[must_use]
    pub fn over(mut self, higher: Partial) -> Partial {
        for (path, given) in higher.given {
            self.put(path, given);
        }
        for (section, origin) in higher.sections {
            self.sections.entry(section).or_insert(origin);
        }
        self
    }

    pub(crate) fn put(&mut self, path: &'static str, higher: Given) {
        let merge = names::key(path).map_or(Merge::Override, |key| key.merge);
        let merged = match (self.given.remove(path), merge) {
            (None, _) | (Some(_), Merge::Override) => higher,
            (Some(lower), Merge::Concatenate) => concatenated(lower, higher),
            (Some(lower), Merge::PerKey) => per_key(lower, higher),
        };
        self.given.insert(path, merged);
    }
}

fn concatenated(lower: Given, higher: Given) -> Given {
    let list = |value: Value| match value {
        Value::Array(entries) => entries,
        other => vec![other],
    };
    let origin = if higher.parts.is_empty() { lower.origin } else { higher.origin };
    let value = list(lower.value).into_iter().chain(list(higher.value)).collect();
    let parts = lower.parts.into_iter().chain(higher.parts).collect();
    Given { value: Value::Array(value), origin, parts }
}

fn per_key(lower: Given, higher: Given) -> Given {
    let entries = |given: Given| {
        let members = match given.value {
            Value::Object(members) => members,
            _ => Map::new(),
        };
        members.into_iter().zip(given.parts).map(|((name, value), origin)| (name, (value, origin)))
    };
    let origin = if higher.parts.is_empty() { lower.origin.clone() } else { higher.origin.clone() };
    let all: BTreeMap<String, (Value, Origin)> = entries(lower).chain(entries(higher)).collect();
    let (mut value, mut parts) = (Map::new(), Vec::new());
    for (name, (entry, origin)) in all {
        value.insert(name, entry);
        parts.push(origin);
    }
    Given { value: Value::Object(value), origin, parts }
}

/// The map that a longer name is an entry of, and the entry's name.
pub fn entry_of(path: &str) -> Option<(&'static Key, &str)> {
    names::keys().filter(|key| key.merge == Merge::PerKey).find_map(|key| {
        let name = path.strip_prefix(key.path)?.strip_prefix('.')?;
        (!name.is_empty()).then_some((key, name))
    })
}

/// A value in the tables that its dotted name goes through.
fn nested(path: &str, value: Value) -> Value {
    path.rsplit('.').fold(value, |value, part| Value::Object(Map::from_iter([(part.to_owned(), value)])))
}

/// A value as an error repeats it.
pub(crate) fn shown(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.escape_debug().to_string(),
        other => other.to_string(),
    };
    let mut short: String = text.chars().take(SHOWN_CHARS).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

struct Reading<'a> {
    partial: Partial,
    problems: Vec<Problem>,
    from: &'a Origin,
    lines: Lines<'a>,
}

impl Reading<'_> {
    fn finish(self) -> Result<Partial, ManifestError> {
        if self.problems.is_empty() {
            Ok(self.partial)
        } else {
            Err(ManifestError { problems: self.problems })
        }
    }

    fn members(&mut self, prefix: &str, members: &Map<String, Value>, depth: usize) {
        for (name, value) in members {
            let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
            // A name with a dot in it would be another key's.
            match names::key(&path).filter(|_| !name.contains('.')) {
                Some(key) => self.take(key, value),
                None if names::is_section(&path) && !name.contains('.') => self.section(&path, value, depth),
                None => self.unknown(&path, value),
            }
        }
    }

    fn unknown(&mut self, path: &str, value: &Value) {
        let below = value.as_object().into_iter().flatten().map(|(name, _)| format!("{path}.{name}"));
        // Of a section that is gone, its old keys are named each.
        let old: Vec<String> = below.filter(|path| names::is_old(path)).collect();
        let named = if old.is_empty() { vec![path.to_owned()] } else { old };
        for path in named {
            let (what, hint) = names::not_a_key(&path);
            self.problem(&path, what, hint);
        }
    }

    fn section(&mut self, path: &str, value: &Value, depth: usize) {
        let Value::Object(members) = value else {
            let hint = format!("it has {}", names::below(path).join(", "));
            let what = format!("`{path}` is a section, not a key with one value");
            return self.problem(path, what, Some(hint));
        };
        if depth >= DEPTH_MOST {
            return self.problem(path, format!("`{path}` is too deep"), None);
        }
        if let Some(section) = OPTIONAL.into_iter().find(|section| *section == path) {
            self.partial.sections.insert(section, self.from.at((self.lines)(path)));
        }
        self.members(path, members, depth + 1);
    }

    fn take(&mut self, key: &'static Key, value: &Value) {
        if matches!(self.from.layer, LayerKind::Profile | LayerKind::Project) && !key.profile {
            let what = format!("`{}` is not for profiles to say", key.path);
            let hint = "put it in config.toml, or give it with --set".to_owned();
            return self.problem(key.path, what, Some(hint));
        }
        if self.from.layer == LayerKind::Workspace && key.workspace == Workspace::Nothing {
            // It will be left out whatever it says.
            let origin = self.from.at((self.lines)(key.path));
            self.partial.given.insert(key.path, Given { value: value.clone(), origin, parts: Vec::new() });
            return;
        }
        match (key.read)(value) {
            Ok(read) => {
                let origin = self.from.at((self.lines)(key.path));
                let parts = self.parts(key, &read, &origin);
                self.partial.given.insert(key.path, Given { value: read, origin, parts });
            }
            Err(why) => self.problem(key.path, unfit(key, value, why), None),
        }
    }

    fn parts(&self, key: &Key, read: &Value, whole: &Origin) -> Vec<Origin> {
        let at = |name: String| self.from.at((self.lines)(&name).or(whole.line));
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

    fn problem(&mut self, path: &str, what: String, hint: Option<String>) {
        let origin = self.from.at((self.lines)(path));
        self.problems.push(Problem { origin, key: path.to_owned(), what, hint });
    }
}

fn unfit(key: &Key, value: &Value, why: Refused) -> String {
    let (path, word) = (key.path, (key.word)());
    match why {
        Some(why) => format!("`{path}` cannot be used: {why}; give {word}"),
        None => format!("`{path}` is `{}`: give {word}", shown(value)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn from(layer: LayerKind) -> Origin {
        Origin::new(layer, "config.toml")
    }

    fn read(table: Value) -> Result<Partial, String> {
        Partial::read(&table, &from(LayerKind::User), &|_| Some(3)).map_err(|e| e.to_string())
    }

    #[test]
    fn what_is_no_key_is_refused_with_what_was_meant() {
        for (table, words) in [
            (
                json!({"worker": {"max_turn": 5}}),
                &["config.toml:3", "`worker.max_turn`", "`worker.max_turns`"][..],
            ),
            (json!({"max_turns": 5}), &["`worker.max_turns`"]),
            (json!({"wroker": {"max_turns": 5}}), &["`wroker` is no key", "nearest is `worker`"]),
            (json!({"qqqqqqqqqqqq": 1}), &["config show"]),
            (json!({"session": {"record_event_trace": true}}), &["old key", "`session.record_streams`"]),
            (
                json!({"compaction": {"final_reserve_tokens": 1}}),
                &["old key", "`compaction.summary_max_tokens`"],
            ),
            (json!({"memory": {"enabled": true}}), &["this version has no `memory` yet"]),
            (json!({"worker": 5}), &["`worker` is a section", "worker.max_turns"]),
            (json!({"worker": {"max_turns": "five"}}), &["`worker.max_turns` is `five`", "at least 1"]),
            (json!({"worker": {"max_turns": 0}}), &["at least 1"]),
            (json!({"worker.max_turns": 5}), &["`worker.max_turns` is no key"]),
            (json!({"sandbox": {"lifted": []}}), &["--lift"]),
            (json!({"sandbox": {"broad_roots": []}}), &["--allow-broad-root"]),
            (json!({"pod": {"idle_exit": "30x"}}), &["30m"]),
            (json!({"permissions": {"rule": [{"action": "alow"}]}}), &["entry 1", "alow"]),
            (json!([]), &["no table"]),
        ] {
            let said = read(table.clone()).unwrap_err();
            for word in words {
                assert!(said.contains(word), "{table}: `{word}` is missing: {said}");
            }
        }
        let both = read(json!({"worker": {"max_turn": 5}, "pod": {"idle": 1}})).unwrap_err();
        assert_eq!(both.lines().count(), 2, "{both}");
    }

    #[test]
    fn a_duration_may_be_a_text_and_profiles_may_not_say_everything() {
        let partial = read(json!({"pod": {"idle_exit": "30m"}})).unwrap();
        assert_eq!(partial.get("pod.idle_exit").unwrap().value, json!(1800));
        let profile = from(LayerKind::Profile);
        let said = Partial::read(&json!({"pod": {"idle_exit": 5}}), &profile, &|_| None).unwrap_err();
        assert!(said.to_string().contains("not for profiles"), "{said}");
        assert!(Partial::read(&json!({"worker": {"max_turns": 5}}), &profile, &|_| None).is_ok());
    }
}
