//! Changes one key of the user's `config.toml` and preserves the rest of the file.
//!
//! Invariant: the file is replaced atomically, and a document that could not be parsed is never written
//! (`setting_keeps_comments_and_writes_nothing_that_is_wrong`).

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use minke_manifest::{LayerKind, Origin, PartialManifest, find_key, map_entry_key};
use serde_json::Value;
use toml_edit::{DocumentMut, Item, Table};

use crate::sources::SourcesError;
use crate::sources::config::{CONFIG_FILE, parse_layer, read_config_file};
use crate::sources::paths::{PathBase, resolve_paths};

/// Readable by the owner only.
const FILE_MODE: u32 = 0o600;
/// Locked while the file changes.
const LOCK_FILE: &str = "config.lock";

/// A performed change.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigChange {
    pub path: PathBuf,
    /// The key as it appears in the file.
    pub key: String,
    /// The new value, or `None` if the key was removed.
    pub value: Option<Value>,
}

/// Sets `key=value` in the user's file. Relative paths in the value are resolved against `cwd`.
pub fn set_key(config: &Path, pair: &str, cwd: &Path) -> Result<ConfigChange, SourcesError> {
    if let Some((name, text)) = pair.split_once('=').filter(|(name, _)| is_host_key(name)) {
        // The complete result is checked before it is written.
        let value = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
        update_document(config, |document| {
            insert_value(document.as_table_mut(), &split_key(name, None), &value)
        })?;
        return Ok(ConfigChange { path: config.join(CONFIG_FILE), key: name.to_owned(), value: Some(value) });
    }
    let from = Origin::new(LayerKind::CommandLine, "config set");
    let mut partial = PartialManifest::from_assignment(pair, &from)?;
    resolve_paths(&mut partial, PathBase { cwd, workspace: None })?;
    let name = pair.split_once('=').map_or(pair, |(name, _)| name);
    let entry = map_entry_key(name).filter(|_| find_key(name).is_none());
    update_document(config, |document| {
        for (key, given) in partial.iter() {
            let (path, value) = match entry {
                Some((_, entry)) => (split_key(key.path, Some(entry)), given.value.get(entry)),
                None => (split_key(key.path, None), Some(&given.value)),
            };
            let Some(value) = value else { continue };
            insert_value(document.as_table_mut(), &path, value)?;
        }
        Ok(())
    })?;
    let value = match entry {
        Some((key, entry)) => partial.get(key.path).and_then(|given| given.value.get(entry)).cloned(),
        None => partial.get(name).map(|given| given.value.clone()),
    };
    // A section that was set as a whole is reported as the user wrote it.
    let whole = || pair.split_once('=').and_then(|(_, text)| serde_json::from_str(text).ok());
    Ok(ConfigChange { path: config.join(CONFIG_FILE), key: name.to_owned(), value: value.or_else(whole) })
}

/// Removes a key from the user's file.
pub fn unset_key(config: &Path, name: &str) -> Result<ConfigChange, SourcesError> {
    // Report an unknown key as such.
    let entry = map_entry_key(name).filter(|_| find_key(name).is_none());
    if find_key(name).is_none() && entry.is_none() && !is_host_key(name) {
        let from = Origin::new(LayerKind::CommandLine, "config unset");
        PartialManifest::from_assignment(&format!("{name}={{}}"), &from)?;
    }
    let path = entry.map_or_else(|| split_key(name, None), |(key, entry)| split_key(key.path, Some(entry)));
    update_document(config, |document| {
        let Some((last, tables)) = path.split_last() else { return Ok(()) };
        let mut cwd = document.as_item_mut();
        for table in tables {
            match cwd.get_mut(table) {
                Some(next) => cwd = next,
                None => return Ok(()),
            }
        }
        if let Some(table) = cwd.as_table_like_mut() {
            table.remove(last);
        }
        Ok(())
    })?;
    Ok(ConfigChange { path: config.join(CONFIG_FILE), key: name.to_owned(), value: None })
}

fn is_host_key(name: &str) -> bool {
    name.split_once('.').is_some_and(|(section, _)| section == crate::sources::host_settings::SECTION)
}

fn split_key<'a>(path: &'a str, entry: Option<&'a str>) -> Vec<&'a str> {
    path.split('.').chain(entry).collect()
}

/// Changes the document, and writes it if it parses.
fn update_document(
    config: &Path,
    edit: impl FnOnce(&mut DocumentMut) -> Result<(), SourcesError>,
) -> Result<(), SourcesError> {
    let path = config.join(CONFIG_FILE);
    let fail = |operation: &'static str| {
        let path = path.display().to_string();
        move |e: io::Error| SourcesError::File { operation, path, why: e.to_string() }
    };
    fs::create_dir_all(config).map_err(fail("create the directory of"))?;
    // Two processes may change the file concurrently.
    let lock =
        File::options().create(true).truncate(false).write(true).mode(FILE_MODE).open(config.join(LOCK_FILE));
    lock.and_then(|lock| lock.lock().map(|()| lock)).map_err(fail("lock")).and_then(|_held| {
        let from = Origin::new(LayerKind::User, path.display().to_string());
        let before = read_config_file(&path).map_err(fail("read"))?.unwrap_or_default();
        // Refuse to change an invalid file, because its intended meaning is unknown.
        parse_layer(&before, &from)?;
        let mut document: DocumentMut = before.parse().map_err(|e: toml_edit::TomlError| {
            SourcesError::Syntax { origin: from.clone(), why: e.message().trim_end().to_owned() }
        })?;
        edit(&mut document)?;
        let after = document.to_string();
        let layer =
            minke_manifest::ConfigLayer { kind: LayerKind::User, values: parse_layer(&after, &from)? };
        minke_manifest::resolve_layers(&[layer])?;
        if after == before {
            return Ok(());
        }
        // Follow a link that the user created.
        let target = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
        replace_file(&target, after.as_bytes()).map_err(fail("write"))
    })
}

/// Sets a value and creates the tables above it.
fn insert_value(root: &mut Table, path: &[&str], value: &Value) -> Result<(), SourcesError> {
    let unfit = |message: String| {
        let origin = Origin::new(LayerKind::User, CONFIG_FILE);
        let problem = minke_manifest::ConfigProblem { origin, key: path.join("."), message, hint: None };
        SourcesError::Manifest(minke_manifest::ManifestError { problems: vec![problem] })
    };
    let Some((name, tables)) = path.split_last() else { return Ok(()) };
    let mut cwd: &mut dyn toml_edit::TableLike = root;
    for table in tables {
        let next = cwd.entry(table).or_insert_with(|| {
            let mut table = Table::new();
            table.set_implicit(true);
            Item::Table(table)
        });
        cwd =
            next.as_table_like_mut().ok_or_else(|| unfit(format!("`{table}` is not a table in the file")))?;
    }
    let new = to_toml_value(value)
        .ok_or_else(|| unfit(format!("`{}` cannot be written as TOML", path.join("."))))?;
    match cwd.get_mut(name) {
        // Preserve the comments around the value.
        Some(Item::Value(old)) => {
            let decor = old.decor().clone();
            *old = new;
            *old.decor_mut() = decor;
        }
        _ => {
            cwd.insert(name, Item::Value(new));
        }
    }
    Ok(())
}

fn to_toml_value(value: &Value) -> Option<toml_edit::Value> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(flag) => (*flag).into(),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => whole.into(),
            None => number.as_f64().filter(|_| !number.is_u64())?.into(),
        },
        Value::String(text) => text.as_str().into(),
        Value::Array(entries) => {
            let entries: Option<Vec<_>> = entries.iter().map(to_toml_value).collect();
            toml_edit::Value::Array(toml_edit::Array::from_iter(entries?))
        }
        Value::Object(members) => {
            let mut table = toml_edit::InlineTable::new();
            for (name, member) in members {
                table.insert(name, to_toml_value(member)?);
            }
            toml_edit::Value::InlineTable(table)
        }
    })
}

/// Replaces a file atomically.
pub(crate) fn replace_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut temp = path.as_os_str().to_owned();
    temp.push(".new");
    let temp = PathBuf::from(temp);
    let mut file = File::options().create(true).truncate(true).write(true).mode(FILE_MODE).open(&temp)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&temp, path)?;
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}
