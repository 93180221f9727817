//! Creates a new profile from the template and registers it.
//!
//! Invariant: no file is overwritten, and an unreadable registry is not changed
//! (`a_new_profile_can_be_used_and_nothing_is_written_over`).

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use minke_lua::is_slug;
use minke_manifest::{LayerKind, Origin};
use toml_edit::{DocumentMut, Item, Table, value};

use crate::sources::builtin::STARTER;
use crate::sources::config_edit::replace_file;
use crate::sources::profile_registry::REGISTRY_FILE;
use crate::sources::{SourcesError, config};

/// Directory of new profiles, relative to the registry.
const PROFILES_DIR: &str = "profiles";
/// Placeholder for the name in the template.
const NAME_PLACEHOLDER: &str = "NAME";

/// The paths of a new profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewProfileFiles {
    pub file: PathBuf,
    pub registry: PathBuf,
}

/// Writes a new profile and registers it. `config` is the configuration directory, or `.minke` of a
/// workspace.
pub fn create_profile(config: &Path, name: &str) -> Result<NewProfileFiles, SourcesError> {
    let file = config.join(PROFILES_DIR).join(format!("{name}.lua"));
    let registry = config.join(REGISTRY_FILE);
    let fail = |operation: &'static str, path: &Path| {
        let path = path.display().to_string();
        move |e: io::Error| SourcesError::File { operation, path, why: e.to_string() }
    };
    if !is_slug(name) || matches!(name, "inherit" | "default") {
        let why = "use 1 to 64 of a-z, 0-9 and `-`, and neither `inherit` nor `default`".to_owned();
        return Err(SourcesError::File {
            operation: "create profile",
            path: name.escape_debug().to_string(),
            why,
        });
    }
    let before = config::read_config_file(&registry).map_err(fail("read", &registry))?.unwrap_or_default();
    let mut document: DocumentMut =
        before.parse().map_err(|e: toml_edit::TomlError| SourcesError::Syntax {
            origin: Origin::new(LayerKind::User, registry.display().to_string()),
            why: e.message().trim_end().to_owned(),
        })?;
    let taken = |path: &Path, why: &str| SourcesError::File {
        operation: "register in",
        path: path.display().to_string(),
        why: why.to_owned(),
    };
    let mut empty = Table::new();
    empty.set_implicit(false);
    let profiles = document.entry("profile").or_insert(Item::Table(empty));
    let profiles =
        profiles.as_table_like_mut().ok_or_else(|| taken(&registry, "`profile` is not a table in it"))?;
    if profiles.contains_key(name) {
        return Err(taken(&registry, &format!("it already contains a profile `{name}`")));
    }
    profiles.insert(name, value(format!("{PROFILES_DIR}/{name}.lua")));
    fs::create_dir_all(config.join(PROFILES_DIR)).map_err(fail("create the directory of", &file))?;
    let written = File::options()
        .write(true)
        .create_new(true)
        .open(&file)
        .and_then(|mut new| new.write_all(STARTER.replace(NAME_PLACEHOLDER, name).as_bytes()));
    written.map_err(fail("create", &file))?;
    let target = fs::canonicalize(&registry).unwrap_or_else(|_| registry.clone());
    replace_file(&target, document.to_string().as_bytes()).map_err(fail("write", &registry))?;
    Ok(NewProfileFiles { file, registry })
}
