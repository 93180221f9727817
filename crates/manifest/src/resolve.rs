//! Resolution: merges all layers into a manifest with the origin of every value.
//!
//! Elsewhere: the values of one layer (`partial`), the files (`sources`).
//! Invariants: a workspace never loosens (`a_workspace_never_loosens_and_merging_is_associative`); each value
//! has the origin of the layer that set it (`the_cascade`).

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use crate::Manifest;
use crate::key::{Key, Merge, Workspace};
use crate::key_names;
use crate::origin::{ConfigProblem, LayerKind, ManifestError, Origin};
use crate::partial::{LayerValue, PartialManifest};
use crate::web::WebSearchSection;

const RULE_KEY: &str = "permissions.rule";

/// One layer.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigLayer {
    pub kind: LayerKind,
    pub values: PartialManifest,
}

/// The result of the merge.
#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedManifest {
    pub manifest: Manifest,
    /// Ignored values of the workspace's file, with reasons.
    pub alerts: Vec<ConfigProblem>,
    values: PartialManifest,
    workspace_rules: Vec<(Value, Origin)>,
}

/// One row of the result: a value, or an entry of a list or map.
#[derive(Debug, Clone)]
pub struct ConfigRow {
    pub key: &'static Key,
    /// `worker.max_turns`, `permissions.rule[0]`, `sandbox.env.set.PORT`.
    pub path: String,
    /// Absent if nothing is set and there is no default.
    pub value: Option<Value>,
    pub origin: Origin,
}

/// Resolves layers in any order; of two layers of the same kind the later one overrides.
pub fn resolve_layers(layers: &[ConfigLayer]) -> Result<ResolvedManifest, ManifestError> {
    let mut sorted: Vec<&ConfigLayer> = layers.iter().collect();
    sorted.sort_by_key(|layer| layer.kind);
    let mut merger =
        LayerMerger { values: PartialManifest::default(), rules: Vec::new(), alerts: Vec::new() };
    for layer in sorted {
        match layer.kind {
            LayerKind::Workspace => merger.apply_workspace(&layer.values),
            LayerKind::Project => {
                let (permissions, rest) = layer.values.split_section("permissions");
                merger.values = merger.values.overridden_by(rest);
                merger.apply_workspace(&permissions);
            }
            _ => merger.values = merger.values.overridden_by(layer.values.clone()),
        }
    }
    let LayerMerger { values, rules, alerts } = merger;
    let mut manifest = build_manifest(&values)?;
    let rule = |value: &Value| serde_json::from_value(value.clone());
    let read: Result<Vec<_>, _> = rules.iter().map(|(value, _)| rule(value)).collect();
    manifest.permissions.workspace_rule = read
        .map_err(|e| manifest_error(&values, RULE_KEY, format!("a rule of the workspace is invalid: {e}")))?;
    manifest.validate().map_err(|why| manifest_error(&values, key_of_message(&why), why.clone()))?;
    Ok(ResolvedManifest { manifest, alerts, values, workspace_rules: rules })
}

/// A validation message begins with its key.
fn key_of_message(why: &str) -> &str {
    why.split_whitespace().next().unwrap_or_default()
}

fn manifest_error(given: &PartialManifest, path: &str, message: String) -> ManifestError {
    let section = path.rsplit_once('.').map_or(path, |(section, _)| section);
    let said = given.get(path).or_else(|| {
        given.iter().find(|(key, _)| key.path.starts_with(&format!("{section}."))).map(|(_, given)| given)
    });
    let origin = said.map_or(Origin::DEFAULT, |given| given.origin.clone());
    ManifestError::single(ConfigProblem { origin, key: path.to_owned(), message, hint: None })
}

fn build_manifest(given: &PartialManifest) -> Result<Manifest, ManifestError> {
    let mut value = Manifest::default().to_value();
    for section in key_names::OPTIONAL_SECTIONS.into_iter().filter(|section| given.has_section(section)) {
        set_path(&mut value, section, Value::Object(Map::new()));
    }
    for (key, given) in given.iter().filter(|(key, _)| is_effective(key, given)) {
        set_path(&mut value, key.path, given.value.clone());
    }
    Manifest::from_value(&value).map_err(|e| {
        let what = e.to_string();
        let path = if what.contains("web.search") { "web.search.provider" } else { "" };
        manifest_error(given, path, what)
    })
}

/// Keys of an optional section apply only if the section is present; a workspace that disables it does not
/// create it.
fn is_effective(key: &Key, given: &PartialManifest) -> bool {
    let sections = key_names::OPTIONAL_SECTIONS.into_iter();
    sections.filter(|section| key.path.starts_with(&format!("{section}."))).all(|s| given.has_section(s))
}

fn set_path(value: &mut Value, path: &str, new: Value) {
    let mut here = value;
    for part in path.split('.') {
        if !here.is_object() {
            *here = Value::Object(Map::new());
        }
        let Value::Object(members) = here else { return };
        here = members.entry(part).or_insert_with(|| Value::Object(Map::new()));
    }
    *here = new;
}

/// Returns the default value of a key.
pub fn default_value(key: &Key) -> Option<Value> {
    if key.path == "web.search.timeout_s" {
        return Some(WebSearchSection::DEFAULT_TIMEOUT_S.into());
    }
    static WHOLE: LazyLock<Value> =
        LazyLock::new(|| Manifest { web: Some(Default::default()), ..Manifest::default() }.to_value());
    value_at(&WHOLE, key.path).cloned()
}

/// Returns the value at a dotted path.
pub(crate) fn value_at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |value, part| value.get(part))
}

/// The merged layers, and the additions of the workspace's file.
struct LayerMerger {
    values: PartialManifest,
    rules: Vec<(Value, Origin)>,
    alerts: Vec<ConfigProblem>,
}

impl LayerMerger {
    fn apply_workspace(&mut self, values: &PartialManifest) {
        for (key, given) in values.iter() {
            let refused = match key.workspace {
                Workspace::Nothing => Some("a workspace may not set it".to_owned()),
                Workspace::Set | Workspace::Add => {
                    self.values.merge_value(key.path, given.clone());
                    None
                }
                Workspace::Lower => self.apply_lower(key, given),
                Workspace::Off if given.value == Value::Bool(false) => {
                    self.values.merge_value(key.path, given.clone());
                    None
                }
                Workspace::Off => Some("a workspace may disable it, not enable it".to_owned()),
                Workspace::Stricter => {
                    self.apply_stricter(key, given);
                    None
                }
            };
            if let Some(why) = refused {
                self.reject_value(key.path.to_owned(), &given.origin, &why);
            }
        }
    }

    fn apply_lower(&mut self, key: &'static Key, given: &LayerValue) -> Option<String> {
        let standing =
            self.values.get(key.path).map(|given| given.value.clone()).or_else(|| default_value(key));
        let higher = |standing: &Value| given.value.as_f64() > standing.as_f64();
        if let Some(standing) = standing.filter(higher) {
            return Some(format!("a workspace may lower it, and it is {standing} without that"));
        }
        self.values.merge_value(key.path, given.clone());
        None
    }

    fn apply_stricter(&mut self, key: &Key, given: &LayerValue) {
        let entries = given.value.as_array().into_iter().flatten();
        for ((rule, origin), number) in entries.zip(&given.entry_origins).zip(0..) {
            if matches!(rule.get("action").and_then(Value::as_str), Some("ask" | "deny")) {
                self.rules.push((rule.clone(), origin.clone()));
            } else {
                let path = format!("{}[{number}]", key.path);
                self.reject_value(path, origin, "a workspace may ask and deny, not allow");
            }
        }
    }

    fn reject_value(&mut self, key: String, origin: &Origin, why: &str) {
        let message = format!("`{key}` is ignored: {why}");
        self.alerts.push(ConfigProblem { origin: origin.clone(), key, message, hint: None });
    }
}

impl ResolvedManifest {
    /// Returns the origin of a key's value.
    pub fn origin_of(&self, path: &str) -> Origin {
        self.values.get(path).map_or(Origin::DEFAULT, |given| given.origin.clone())
    }

    /// Returns every value with its origin, in table order; for merged lists and maps each entry.
    pub fn rows(&self) -> Vec<ConfigRow> {
        key_names::all_keys().flat_map(|key| self.rows_of_key(key)).collect()
    }

    fn rows_of_key(&self, key: &'static Key) -> Vec<ConfigRow> {
        let said = self.values.get(key.path).filter(|_| is_effective(key, &self.values));
        let mut rows = match said {
            None => Vec::new(),
            Some(given) => rows_of_value(key, given),
        };
        if key.path == RULE_KEY {
            let from = rows.len();
            rows.extend(self.workspace_rules.iter().zip(from..).map(|((rule, origin), number)| ConfigRow {
                key,
                path: format!("{RULE_KEY}[{number}]"),
                value: Some(rule.clone()),
                origin: origin.clone(),
            }));
        }
        if rows.is_empty() {
            let present = is_effective(key, &self.values);
            let value = default_value(key).filter(|_| present);
            rows.push(ConfigRow { key, path: key.path.to_owned(), value, origin: Origin::DEFAULT });
        }
        rows
    }

    /// Returns the values of files and command line, without defaults.
    pub fn layer_values(&self) -> &PartialManifest {
        &self.values
    }
}

fn rows_of_value(key: &'static Key, given: &LayerValue) -> Vec<ConfigRow> {
    let row = |path: String, value: &Value, origin: &Origin| ConfigRow {
        key,
        path,
        value: Some(value.clone()),
        origin: origin.clone(),
    };
    match (key.merge, &given.value) {
        (Merge::Concatenate, Value::Array(entries)) => {
            let entries = entries.iter().zip(&given.entry_origins).zip(0..);
            entries.map(|((entry, at), number)| row(format!("{}[{number}]", key.path), entry, at)).collect()
        }
        (Merge::PerKey, Value::Object(entries)) => {
            let entries = entries.iter().zip(&given.entry_origins);
            entries.map(|((name, entry), at)| row(format!("{}.{name}", key.path), entry, at)).collect()
        }
        (_, value) => vec![row(key.path.to_owned(), value, &given.origin)],
    }
}

/// Returns the origin of every row by its path.
pub fn origins_by_path(resolved: &ResolvedManifest) -> BTreeMap<String, Origin> {
    resolved.rows().into_iter().map(|row| (row.path, row.origin)).collect()
}
