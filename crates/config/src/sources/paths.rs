//! Resolves paths in files and on command lines.
//!
//! A relative path is resolved against the directory of its file, or against the user's current directory. A
//! leading `$workspace` means the workspace. Links in scope paths are resolved as far as they exist;
//! `..` below a missing directory is refused, because its meaning is unknown.

use std::path::{Component, Path, PathBuf};

use minke_manifest::{LayerKind, ManifestError, PartialManifest};

/// Placeholder for the workspace.
pub(crate) const WORKSPACE_VARIABLE: &str = "$workspace";

/// Key of the skill directories. A workspace's file may only name directories inside it.
const SKILLS_KEY: &str = "skills.directories";

/// The base directories for relative paths.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PathBase<'a> {
    /// The user's current directory.
    pub(crate) cwd: &'a Path,
    /// `None` if the workspace is not known yet; then `$workspace` remains.
    pub(crate) workspace: Option<&'a Path>,
}

/// Makes every path of a layer absolute.
pub(crate) fn resolve_paths(partial: &mut PartialManifest, from: PathBase<'_>) -> Result<(), ManifestError> {
    partial.resolve_paths(&mut |key, origin, place| {
        let workspace = match (place.strip_prefix(WORKSPACE_VARIABLE), from.workspace) {
            (Some(rest), None) if rest.is_empty() || rest.starts_with('/') => return Ok(()),
            (_, workspace) => workspace.unwrap_or(from.cwd),
        };
        let base = match origin.layer {
            LayerKind::User | LayerKind::Workspace => {
                Path::new(&origin.name).parent().unwrap_or(from.cwd).to_owned()
            }
            LayerKind::Profile | LayerKind::Project => workspace.to_owned(),
            LayerKind::Default | LayerKind::Parent | LayerKind::CommandLine => from.cwd.to_owned(),
        };
        let path = match place.strip_prefix(WORKSPACE_VARIABLE) {
            Some("") => workspace.to_owned(),
            Some(rest) if rest.starts_with('/') => workspace.join(rest.trim_start_matches('/')),
            _ => base.join(place.as_str()),
        };
        let path = if key.section_name() == "scope" { canonical_path(&path)? } else { path };
        if key.path == SKILLS_KEY && origin.layer == LayerKind::Workspace {
            check_inside(&path, workspace)?;
        }
        *place = path.into_os_string().into_string().map_err(|_| "it is not UTF-8".to_owned())?;
        Ok(())
    })
}

/// Checks that a workspace only names paths inside it.
fn check_inside(path: &Path, workspace: &Path) -> Result<(), String> {
    let climbs = path.components().any(|part| part == Component::ParentDir);
    if climbs && canonical_path(path).is_ok_and(|path| path.starts_with(workspace)) {
        return Ok(());
    }
    if climbs || !path.starts_with(workspace) {
        return Err(format!("{} is outside of the workspace", path.display()));
    }
    Ok(())
}

/// Resolves the links of a path as far as it exists.
fn canonical_path(path: &Path) -> Result<PathBuf, String> {
    let mut missing = Vec::new();
    let mut there = path;
    let mut resolved = loop {
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
            _ => {
                return Err(format!(
                    "{} does not exist, so `..` after it cannot be resolved",
                    path.display()
                ));
            }
        }
    };
    resolved.extend(missing.iter().rev());
    // A link to a missing target may have one later.
    if resolved.is_symlink() {
        return Err(format!("{} is a link to a missing target", resolved.display()));
    }
    Ok(resolved)
}
