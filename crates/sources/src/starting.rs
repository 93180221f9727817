//! A new profile: a starter, and its name in the registry beside it.
//!
//! Invariant: nothing is written over, and a registry that cannot be read is not changed
//! (`a_new_profile_can_be_used_and_nothing_is_written_over`).

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use minke_lua::is_slug;
use minke_manifest::{LayerKind, Origin};
use toml_edit::{DocumentMut, Item, Table, value};

use crate::builtin::STARTER;
use crate::change::replace;
use crate::registry::REGISTRY;
use crate::{SourcesError, config};

/// Where new profiles lie, from the registry.
const DIRECTORY: &str = "profiles";
/// What stands in the starter for its name.
const NAME: &str = "NAME";

/// What was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewProfile {
    pub file: PathBuf,
    pub registry: PathBuf,
}

/// Writes a starter and registers it. `house` is the configuration directory, or `.minke` of a workspace.
pub fn new_profile(house: &Path, name: &str) -> Result<NewProfile, SourcesError> {
    let file = house.join(DIRECTORY).join(format!("{name}.lua"));
    let registry = house.join(REGISTRY);
    let fail = |what: &'static str, path: &Path| {
        let path = path.display().to_string();
        move |e: io::Error| SourcesError::File { what, path, why: e.to_string() }
    };
    if !is_slug(name) || matches!(name, "inherit" | "default") {
        let why = "a name is 1 to 64 of a-z, 0-9 and `-`, and neither `inherit` nor `default`".to_owned();
        return Err(SourcesError::File { what: "make profile", path: name.escape_debug().to_string(), why });
    }
    let before = config::read(&registry).map_err(fail("read", &registry))?.unwrap_or_default();
    let mut document: DocumentMut =
        before.parse().map_err(|e: toml_edit::TomlError| SourcesError::Syntax {
            origin: Origin::new(LayerKind::User, registry.display().to_string()),
            why: e.message().trim_end().to_owned(),
        })?;
    let taken = |path: &Path, why: &str| SourcesError::File {
        what: "register in",
        path: path.display().to_string(),
        why: why.to_owned(),
    };
    let mut empty = Table::new();
    empty.set_implicit(false);
    let profiles = document.entry("profile").or_insert(Item::Table(empty));
    let profiles =
        profiles.as_table_like_mut().ok_or_else(|| taken(&registry, "`profile` is no table in it"))?;
    if profiles.contains_key(name) {
        return Err(taken(&registry, &format!("there is a profile `{name}` in it already")));
    }
    profiles.insert(name, value(format!("{DIRECTORY}/{name}.lua")));
    fs::create_dir_all(house.join(DIRECTORY)).map_err(fail("make the directory of", &file))?;
    let written = File::options()
        .write(true)
        .create_new(true)
        .open(&file)
        .and_then(|mut new| new.write_all(STARTER.replace(NAME, name).as_bytes()));
    written.map_err(fail("make", &file))?;
    let target = fs::canonicalize(&registry).unwrap_or_else(|_| registry.clone());
    replace(&target, document.to_string().as_bytes()).map_err(fail("write", &registry))?;
    Ok(NewProfile { file, registry })
}
