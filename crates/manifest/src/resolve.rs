//! Resolving: all layers together, the manifest that comes of them, and where each of its values comes from.
//!
//! Here: the order of layers, and what the file of a workspace may do. Elsewhere: what one layer says (`partial`), the files
//! (`sources`).
//! Invariants: a workspace never loosens (`a_workspace_never_loosens_and_merging_is_associative`); each value has the origin of the layer that said it
//! (`the_cascade`).

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::{Map, Value};

use crate::Manifest;
use crate::key::{Key, Merge, Workspace};
use crate::names;
use crate::origin::{LayerKind, ManifestError, Origin, Problem};
use crate::partial::{Given, Partial};
use crate::web::WebSearchSection;

const RULE: &str = "permissions.rule";

/// One layer.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    pub kind: LayerKind,
    pub values: Partial,
}

/// What all layers come to.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    pub manifest: Manifest,
    /// What was left out of a workspace's file, and why.
    pub alerts: Vec<Problem>,
    given: Partial,
    workspace_rules: Vec<(Value, Origin)>,
}

/// One line of what was resolved: a value, or an entry of a list or a map.
#[derive(Debug, Clone)]
pub struct Row {
    pub key: &'static Key,
    /// `worker.max_turns`, `permissions.rule[0]`, `sandbox.env.set.PORT`.
    pub path: String,
    /// Absent: nothing is set, and there is no default.
    pub value: Option<Value>,
    pub origin: Origin,
}

/// The manifest of some layers, whichever order they come in; of two of the same kind the later one counts.
pub fn resolve(layers: &[Layer]) -> Result<Resolved, ManifestError> {
    let mut sorted: Vec<&Layer> = layers.iter().collect();
    sorted.sort_by_key(|layer| layer.kind);
    let mut whole = Tightening { given: Partial::default(), rules: Vec::new(), alerts: Vec::new() };
    for layer in sorted {
        match layer.kind {
            LayerKind::Workspace => whole.workspace(&layer.values),
            LayerKind::Project => {
                let (permissions, rest) = layer.values.split("permissions");
                whole.given = whole.given.over(rest);
                whole.workspace(&permissions);
            }
            _ => whole.given = whole.given.over(layer.values.clone()),
        }
    }
    let Tightening { given, rules, alerts } = whole;
    let mut manifest = manifest_of(&given)?;
    let rule = |value: &Value| serde_json::from_value(value.clone());
    let read: Result<Vec<_>, _> = rules.iter().map(|(value, _)| rule(value)).collect();
    manifest.permissions.workspace_rule =
        read.map_err(|e| whole_problem(&given, RULE, format!("a rule of the workspace is no rule: {e}")))?;
    manifest.check().map_err(|why| whole_problem(&given, guilty(&why), why.clone()))?;
    Ok(Resolved { manifest, alerts, given, workspace_rules: rules })
}

/// A complaint begins with the key that it is about.
fn guilty(why: &str) -> &str {
    why.split_whitespace().next().unwrap_or_default()
}

fn whole_problem(given: &Partial, path: &str, what: String) -> ManifestError {
    let section = path.rsplit_once('.').map_or(path, |(section, _)| section);
    let said = given.get(path).or_else(|| {
        given.iter().find(|(key, _)| key.path.starts_with(&format!("{section}."))).map(|(_, given)| given)
    });
    let origin = said.map_or(Origin::DEFAULT, |given| given.origin.clone());
    ManifestError::one(Problem { origin, key: path.to_owned(), what, hint: None })
}

fn manifest_of(given: &Partial) -> Result<Manifest, ManifestError> {
    let mut value = Manifest::default().to_value();
    for section in names::OPTIONAL.into_iter().filter(|section| given.has_section(section)) {
        put(&mut value, section, Value::Object(Map::new()));
    }
    for (key, given) in given.iter().filter(|(key, _)| counts(key, given)) {
        put(&mut value, key.path, given.value.clone());
    }
    Manifest::read(&value).map_err(|e| {
        let what = e.to_string();
        let path = if what.contains("web.search") { "web.search.provider" } else { "" };
        whole_problem(given, path, what)
    })
}

/// A key of an optional section counts only if the section is there; a workspace that switches it off does not make it.
fn counts(key: &Key, given: &Partial) -> bool {
    let sections = names::OPTIONAL.into_iter();
    sections.filter(|section| key.path.starts_with(&format!("{section}."))).all(|s| given.has_section(s))
}

fn put(value: &mut Value, path: &str, new: Value) {
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

/// The value of a key when nobody says anything.
pub fn default_of(key: &Key) -> Option<Value> {
    if key.path == "web.search.timeout_s" {
        return Some(WebSearchSection::TIMEOUT.into());
    }
    static WHOLE: LazyLock<Value> =
        LazyLock::new(|| Manifest { web: Some(Default::default()), ..Manifest::default() }.to_value());
    at(&WHOLE, key.path).cloned()
}

/// What stands under a dotted name.
pub(crate) fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(value, |value, part| value.get(part))
}

/// The layers so far, and what a workspace's file adds to them.
struct Tightening {
    given: Partial,
    rules: Vec<(Value, Origin)>,
    alerts: Vec<Problem>,
}

impl Tightening {
    fn workspace(&mut self, values: &Partial) {
        for (key, given) in values.iter() {
            let refused = match key.workspace {
                Workspace::Nothing => Some("a workspace may not set it".to_owned()),
                Workspace::Set | Workspace::Add => {
                    self.given.put(key.path, given.clone());
                    None
                }
                Workspace::Lower => self.lower(key, given),
                Workspace::Off if given.value == Value::Bool(false) => {
                    self.given.put(key.path, given.clone());
                    None
                }
                Workspace::Off => Some("a workspace may switch it off, not on".to_owned()),
                Workspace::Stricter => {
                    self.stricter(key, given);
                    None
                }
            };
            if let Some(why) = refused {
                self.leave_out(key.path.to_owned(), &given.origin, &why);
            }
        }
    }

    fn lower(&mut self, key: &'static Key, given: &Given) -> Option<String> {
        let standing = self.given.get(key.path).map(|given| given.value.clone()).or_else(|| default_of(key));
        let higher = |standing: &Value| given.value.as_f64() > standing.as_f64();
        if let Some(standing) = standing.filter(higher) {
            return Some(format!("a workspace may lower it, and it is {standing} without that"));
        }
        self.given.put(key.path, given.clone());
        None
    }

    fn stricter(&mut self, key: &Key, given: &Given) {
        let entries = given.value.as_array().into_iter().flatten();
        for ((rule, origin), number) in entries.zip(&given.parts).zip(0..) {
            if matches!(rule.get("action").and_then(Value::as_str), Some("ask" | "deny")) {
                self.rules.push((rule.clone(), origin.clone()));
            } else {
                let path = format!("{}[{number}]", key.path);
                self.leave_out(path, origin, "a workspace may ask and deny, not allow");
            }
        }
    }

    fn leave_out(&mut self, key: String, origin: &Origin, why: &str) {
        let what = format!("`{key}` is left out: {why}");
        self.alerts.push(Problem { origin: origin.clone(), key, what, hint: None });
    }
}

impl Resolved {
    /// Where the value of a key comes from.
    pub fn origin(&self, path: &str) -> Origin {
        self.given.get(path).map_or(Origin::DEFAULT, |given| given.origin.clone())
    }

    /// Every value with its origin, in the order of the table; of lists and maps that merge each entry.
    pub fn rows(&self) -> Vec<Row> {
        names::keys().flat_map(|key| self.rows_of(key)).collect()
    }

    fn rows_of(&self, key: &'static Key) -> Vec<Row> {
        let said = self.given.get(key.path).filter(|_| counts(key, &self.given));
        let mut rows = match said {
            None => Vec::new(),
            Some(given) => rows_of(key, given),
        };
        if key.path == RULE {
            let from = rows.len();
            rows.extend(self.workspace_rules.iter().zip(from..).map(|((rule, origin), number)| Row {
                key,
                path: format!("{RULE}[{number}]"),
                value: Some(rule.clone()),
                origin: origin.clone(),
            }));
        }
        if rows.is_empty() {
            let present = counts(key, &self.given);
            let value = default_of(key).filter(|_| present);
            rows.push(Row { key, path: key.path.to_owned(), value, origin: Origin::DEFAULT });
        }
        rows
    }

    /// What files and command line said, without defaults.
    pub fn given(&self) -> &Partial {
        &self.given
    }
}

fn rows_of(key: &'static Key, given: &Given) -> Vec<Row> {
    let row = |path: String, value: &Value, origin: &Origin| Row {
        key,
        path,
        value: Some(value.clone()),
        origin: origin.clone(),
    };
    match (key.merge, &given.value) {
        (Merge::Concatenate, Value::Array(entries)) => {
            let entries = entries.iter().zip(&given.parts).zip(0..);
            entries.map(|((entry, at), number)| row(format!("{}[{number}]", key.path), entry, at)).collect()
        }
        (Merge::PerKey, Value::Object(entries)) => {
            let entries = entries.iter().zip(&given.parts);
            entries.map(|((name, entry), at)| row(format!("{}.{name}", key.path), entry, at)).collect()
        }
        (_, value) => vec![row(key.path.to_owned(), value, &given.origin)],
    }
}

/// The origin of every row by its path, for those who compare.
pub fn origins(resolved: &Resolved) -> BTreeMap<String, Origin> {
    resolved.rows().into_iter().map(|row| (row.path, row.origin)).collect()
}
