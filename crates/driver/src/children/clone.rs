//! A child's own clone of the workspace: where it lies, and what the child may do there beside what it is lent.
//!
//! Elsewhere: git (`exec::clone`), who removes it when the session is over (`minke gc`).

use std::path::{Path, PathBuf};

use minke_record::{CloneOf, Kind, Permission, PodName, Scope, ScopeRule, SessionId};
use minke_registry::Paths;
use minke_session::{Store, StoreError};

use crate::carrying::chain;
use crate::kit::CLONES;

/// A clone that was made for a child.
pub(super) struct Made {
    pub(super) of: CloneOf,
    /// Nothing of it is lent by anybody.
    pub(super) apart: Scope,
}

/// Where the clone of a session lies.
pub(super) fn place(paths: &Paths, session: SessionId) -> PathBuf {
    paths.data.join(CLONES).join(session.to_string())
}

pub(super) fn make(
    workspace: &str,
    into: &Path,
    name: &PodName,
    session: SessionId,
    writable: &Scope,
) -> Result<Made, String> {
    let cloned = minke_exec::clone::make(Path::new(workspace), into, name, session, writable);
    let cloned = cloned.map_err(|e| chain(&e))?;
    // As the fence and the file tools will see it.
    let path = cloned.path.canonicalize().map_err(|e| format!("{}: {e}", cloned.path.display()))?;
    let rule = |path: &Path, permission| ScopeRule {
        target: path.to_string_lossy().into_owned(),
        permission,
        recursive: true,
    };
    let apart = Scope {
        allow: vec![rule(&path, Permission::Write), rule(&cloned.objects, Permission::Read)],
        deny: Vec::new(),
    };
    let of = CloneOf { path: path.to_string_lossy().into_owned(), branch: cloned.branch };
    Ok(Made { of, apart })
}

pub(super) fn remove(into: &Path, session: SessionId) -> Result<(), String> {
    minke_exec::clone::remove(into, session).map_err(|e| chain(&e))
}

/// What a session's scope holds beside what it was lent: its clone.
pub(super) fn apart(store: &dyn Store, session: SessionId, lent: &Scope) -> Result<Scope, StoreError> {
    let first = store.reader(session)?.page(0, 1, usize::MAX)?;
    let mut apart = Scope::default();
    if let Some(Kind::SessionStart(start)) = first.entries.first().map(|sealed| &sealed.entry.kind) {
        apart.allow = start.scope.allow.iter().filter(|rule| !lent.allow.contains(rule)).cloned().collect();
    }
    Ok(apart)
}
