//! Changing the person's `config.toml`: one key, everything else in the file as it was.
//!
//! Invariant: the file is there whole or as it was, and what could not be read back is never written
//! (`setting_keeps_comments_and_writes_nothing_that_is_wrong`).

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use minke_manifest::{LayerKind, Origin, Partial, entry_of, key};
use serde_json::Value;
use toml_edit::{DocumentMut, Item, Table};

use crate::SourcesError;
use crate::config::{CONFIG, parse, read};
use crate::places::{From, settle};

/// Only its owner reads it.
const MODE: u32 = 0o600;
/// Held while the file is changed.
const LOCK: &str = "config.lock";

/// What was done.
#[derive(Debug, Clone, PartialEq)]
pub struct Changed {
    pub path: PathBuf,
    /// The key as it is named in the file.
    pub key: String,
    /// What stands there now; absent if it was taken out.
    pub value: Option<Value>,
}

/// Puts `key=value` into the person's file, in place of what the key said before. Relative paths in it are from `here`.
pub fn set(config: &Path, pair: &str, here: &Path) -> Result<Changed, SourcesError> {
    if let Some((name, text)) = pair.split_once('=').filter(|(name, _)| is_of_host(name)) {
        // What comes out is looked at whole before it is written.
        let value = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
        change(config, |document| put(document.as_table_mut(), &parts(name, None), &value))?;
        return Ok(Changed { path: config.join(CONFIG), key: name.to_owned(), value: Some(value) });
    }
    let from = Origin::new(LayerKind::CommandLine, "config set");
    let mut partial = Partial::set(pair, &from)?;
    settle(&mut partial, From { here, workspace: None })?;
    let name = pair.split_once('=').map_or(pair, |(name, _)| name);
    let entry = entry_of(name).filter(|_| key(name).is_none());
    change(config, |document| {
        for (key, given) in partial.iter() {
            let (path, value) = match entry {
                Some((_, entry)) => (parts(key.path, Some(entry)), given.value.get(entry)),
                None => (parts(key.path, None), Some(&given.value)),
            };
            let Some(value) = value else { continue };
            put(document.as_table_mut(), &path, value)?;
        }
        Ok(())
    })?;
    let value = match entry {
        Some((key, entry)) => partial.get(key.path).and_then(|given| given.value.get(entry)).cloned(),
        None => partial.get(name).map(|given| given.value.clone()),
    };
    // A section that was given whole is shown as it was given.
    let whole = || pair.split_once('=').and_then(|(_, text)| serde_json::from_str(text).ok());
    Ok(Changed { path: config.join(CONFIG), key: name.to_owned(), value: value.or_else(whole) })
}

/// Takes a key out of the person's file.
pub fn unset(config: &Path, name: &str) -> Result<Changed, SourcesError> {
    // Whoever asks for what is no key is told so.
    let entry = entry_of(name).filter(|_| key(name).is_none());
    if key(name).is_none() && entry.is_none() && !is_of_host(name) {
        let from = Origin::new(LayerKind::CommandLine, "config unset");
        Partial::set(&format!("{name}={{}}"), &from)?;
    }
    let path = entry.map_or_else(|| parts(name, None), |(key, entry)| parts(key.path, Some(entry)));
    change(config, |document| {
        let Some((last, tables)) = path.split_last() else { return Ok(()) };
        let mut here = document.as_item_mut();
        for table in tables {
            match here.get_mut(table) {
                Some(next) => here = next,
                None => return Ok(()),
            }
        }
        if let Some(table) = here.as_table_like_mut() {
            table.remove(last);
        }
        Ok(())
    })?;
    Ok(Changed { path: config.join(CONFIG), key: name.to_owned(), value: None })
}

fn is_of_host(name: &str) -> bool {
    name.split_once('.').is_some_and(|(section, _)| section == crate::host::SECTION)
}

fn parts<'a>(path: &'a str, entry: Option<&'a str>) -> Vec<&'a str> {
    path.split('.').chain(entry).collect()
}

/// Changes the document and writes it, if what comes out can be read.
fn change(
    config: &Path,
    edit: impl FnOnce(&mut DocumentMut) -> Result<(), SourcesError>,
) -> Result<(), SourcesError> {
    let path = config.join(CONFIG);
    let fail = |what: &'static str| {
        let path = path.display().to_string();
        move |e: io::Error| SourcesError::File { what, path, why: e.to_string() }
    };
    fs::create_dir_all(config).map_err(fail("make the directory of"))?;
    // Two may be changing it at once.
    let lock = File::options().create(true).truncate(false).write(true).mode(MODE).open(config.join(LOCK));
    lock.and_then(|lock| lock.lock().map(|()| lock)).map_err(fail("lock")).and_then(|_held| {
        let from = Origin::new(LayerKind::User, path.display().to_string());
        let before = read(&path).map_err(fail("read"))?.unwrap_or_default();
        // Nothing is put into a file that is wrong already: what was meant there is not known.
        parse(&before, &from)?;
        let mut document: DocumentMut = before.parse().map_err(|e: toml_edit::TomlError| {
            SourcesError::Syntax { origin: from.clone(), why: e.message().trim_end().to_owned() }
        })?;
        edit(&mut document)?;
        let after = document.to_string();
        let layer = minke_manifest::Layer { kind: LayerKind::User, values: parse(&after, &from)? };
        minke_manifest::resolve(&[layer])?;
        if after == before {
            return Ok(());
        }
        // A link that a person put there leads to where the file really is.
        let target = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
        replace(&target, after.as_bytes()).map_err(fail("write"))
    })
}

/// Puts a value in its place, with the tables on the way to it.
fn put(root: &mut Table, path: &[&str], value: &Value) -> Result<(), SourcesError> {
    let unfit = |what: String| {
        let origin = Origin::new(LayerKind::User, CONFIG);
        let problem = minke_manifest::Problem { origin, key: path.join("."), what, hint: None };
        SourcesError::Manifest(minke_manifest::ManifestError { problems: vec![problem] })
    };
    let Some((name, tables)) = path.split_last() else { return Ok(()) };
    let mut here: &mut dyn toml_edit::TableLike = root;
    for table in tables {
        let next = here.entry(table).or_insert_with(|| {
            let mut table = Table::new();
            table.set_implicit(true);
            Item::Table(table)
        });
        here = next.as_table_like_mut().ok_or_else(|| unfit(format!("`{table}` is no table there")))?;
    }
    let new = written(value).ok_or_else(|| unfit(format!("`{}` has no form in TOML", path.join("."))))?;
    match here.get_mut(name) {
        // What stands behind and before it stays.
        Some(Item::Value(old)) => {
            let decor = old.decor().clone();
            *old = new;
            *old.decor_mut() = decor;
        }
        _ => {
            here.insert(name, Item::Value(new));
        }
    }
    Ok(())
}

fn written(value: &Value) -> Option<toml_edit::Value> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(flag) => (*flag).into(),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => whole.into(),
            None => number.as_f64().filter(|_| !number.is_u64())?.into(),
        },
        Value::String(text) => text.as_str().into(),
        Value::Array(entries) => {
            let entries: Option<Vec<_>> = entries.iter().map(written).collect();
            toml_edit::Value::Array(toml_edit::Array::from_iter(entries?))
        }
        Value::Object(members) => {
            let mut table = toml_edit::InlineTable::new();
            for (name, member) in members {
                table.insert(name, written(member)?);
            }
            toml_edit::Value::InlineTable(table)
        }
    })
}

/// Puts new content in a file's place at once.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut temp = path.as_os_str().to_owned();
    temp.push(".new");
    let temp = PathBuf::from(temp);
    let mut file = File::options().create(true).truncate(true).write(true).mode(MODE).open(&temp)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&temp, path)?;
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}
