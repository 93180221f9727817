//! A child's own clone of the workspace: its location, and the scope of the child in addition to its loan.
//!
//! Elsewhere: git (`exec::clone`), removal after the session is deleted (`minke gc`).

use std::path::{Path, PathBuf};

use minke_record::{CloneOrigin, Kind, Permission, PodName, Scope, ScopeRule, SessionId};
use minke_registry::UserPaths;
use minke_session::{SessionStore, StoreError};

use crate::calls::toolset::CLONES_DIR;
use crate::event_loop::commit::error_chain;

/// A workspace clone that was created for a child.
pub(super) struct ChildClone {
    pub(super) origin: CloneOrigin,
    /// The scope of the clone; no other pod lends it.
    pub(super) own_scope: Scope,
}

/// The directory of a session's clone.
pub(super) fn clone_dir(paths: &UserPaths, session: SessionId) -> PathBuf {
    paths.data.join(CLONES_DIR).join(session.to_string())
}

pub(super) fn create_clone(
    workspace: &str,
    into: &Path,
    name: &PodName,
    session: SessionId,
    writable: &Scope,
) -> Result<ChildClone, String> {
    let cloned = minke_exec::clone::create_clone(Path::new(workspace), into, name, session, writable);
    let cloned = cloned.map_err(|e| error_chain(&e))?;
    // The path as the sandbox and the file tools see it.
    let path = cloned.path.canonicalize().map_err(|e| format!("{}: {e}", cloned.path.display()))?;
    let rule = |path: &Path, permission| ScopeRule {
        target: path.to_string_lossy().into_owned(),
        permission,
        recursive: true,
    };
    let own_scope = Scope {
        allow: vec![rule(&path, Permission::Write), rule(&cloned.objects, Permission::Read)],
        deny: Vec::new(),
    };
    let origin = CloneOrigin { path: path.to_string_lossy().into_owned(), branch: cloned.branch };
    Ok(ChildClone { origin, own_scope })
}

pub(super) fn remove_clone(into: &Path, session: SessionId) -> Result<(), String> {
    minke_exec::clone::remove_clone(into, session).map_err(|e| error_chain(&e))
}

/// The part of a session's scope that is not lent: its clone.
pub(super) fn separate_scope(
    store: &dyn SessionStore,
    session: SessionId,
    lent: &Scope,
) -> Result<Scope, StoreError> {
    let first = store.open_reader(session)?.read_page(0, 1, usize::MAX)?;
    let mut apart = Scope::default();
    if let Some(Kind::SessionStart(start)) = first.entries.first().map(|sealed| &sealed.entry.kind) {
        apart.allow = start.scope.allow.iter().filter(|rule| !lent.allow.contains(rule)).cloned().collect();
    }
    Ok(apart)
}
