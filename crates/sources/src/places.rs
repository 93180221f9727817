//! Places: what a path means that stands in a file or on a command line.
//!
//! A relative path is one from the directory of the file that names it, or from where the person stands. `$workspace` at
//! its beginning is the workspace. A path of a scope is followed to what it really is, as far as it is there; `..` behind
//! what is not there is refused, because nobody knows where it would lead.

use std::path::{Component, Path, PathBuf};

use minke_manifest::{LayerKind, ManifestError, Partial};

/// Stands for the workspace.
pub(crate) const WORKSPACE: &str = "$workspace";

/// Where skills lie: a workspace's file names only what is its own.
const SKILLS: &str = "skills.directories";

/// What relative paths are from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct From<'a> {
    /// Where the person stands.
    pub(crate) here: &'a Path,
    /// Absent: which one is meant is not known yet, and `$workspace` stays.
    pub(crate) workspace: Option<&'a Path>,
}

/// Makes every path of a layer absolute.
pub(crate) fn settle(partial: &mut Partial, from: From<'_>) -> Result<(), ManifestError> {
    partial.places(&mut |key, origin, place| {
        let workspace = match (place.strip_prefix(WORKSPACE), from.workspace) {
            (Some(rest), None) if rest.is_empty() || rest.starts_with('/') => return Ok(()),
            (_, workspace) => workspace.unwrap_or(from.here),
        };
        let base = match origin.layer {
            LayerKind::User | LayerKind::Workspace => {
                Path::new(&origin.name).parent().unwrap_or(from.here).to_owned()
            }
            LayerKind::Profile | LayerKind::Project => workspace.to_owned(),
            LayerKind::Default | LayerKind::Parent | LayerKind::CommandLine => from.here.to_owned(),
        };
        let path = match place.strip_prefix(WORKSPACE) {
            Some("") => workspace.to_owned(),
            Some(rest) if rest.starts_with('/') => workspace.join(rest.trim_start_matches('/')),
            _ => base.join(place.as_str()),
        };
        let path = if key.section() == "scope" { real(&path)? } else { path };
        if key.path == SKILLS && origin.layer == LayerKind::Workspace {
            inside(&path, workspace)?;
        }
        *place = path.into_os_string().into_string().map_err(|_| "it is not UTF-8".to_owned())?;
        Ok(())
    })
}

/// A workspace names nothing outside of it.
fn inside(path: &Path, workspace: &Path) -> Result<(), String> {
    let climbs = path.components().any(|part| part == Component::ParentDir);
    if climbs && real(path).is_ok_and(|path| path.starts_with(workspace)) {
        return Ok(());
    }
    if climbs || !path.starts_with(workspace) {
        return Err(format!("{} lies outside of the workspace", path.display()));
    }
    Ok(())
}

/// What a path really is: links are followed as far as something is there.
fn real(path: &Path) -> Result<PathBuf, String> {
    let mut missing = Vec::new();
    let mut there = path;
    let mut found = loop {
        match there.canonicalize() {
            Ok(found) => break found,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => return Err(format!("{}: {e}", there.display())),
        }
        match (there.components().next_back(), there.parent()) {
            (Some(Component::Normal(name)), Some(parent)) => {
                missing.push(name.to_owned());
                there = parent;
            }
            _ => return Err(format!("{} is not there, and `..` behind it leads nowhere", path.display())),
        }
    };
    found.extend(missing.iter().rev());
    // A link that leads nowhere may lead somewhere tomorrow.
    if found.is_symlink() {
        return Err(format!("{} is a link that leads nowhere", found.display()));
    }
    Ok(found)
}
