//! Completion preview: the completions that a new pod in this directory would offer, before the session
//! exists.
//!
//! Uses the same reference lookup with the same access limits. Elsewhere: the lookup (`references`), the
//! reply of a running pod (`queries`).

use std::sync::Arc;

use minke_files::{FilesConfig, FilesError, ScopedFiles};
use minke_manifest::Manifest;
use minke_protocol::{Completions, ListCompletions};
use minke_record::Scope;
use minke_references::{ReferenceDirs, ReferenceResolver};
use minke_registry::UserPaths;

use crate::calls::toolset::{masked_paths, skill_dirs};
use crate::clients::queries::find_completions;

/// Completes references for a session that does not exist yet.
pub struct CompletionPreview {
    references: ReferenceResolver,
}

impl CompletionPreview {
    /// Uses the scope and manifest that a new pod would have.
    pub fn new(
        scope: &Scope,
        manifest: &Manifest,
        places: ReferenceDirs,
        paths: &UserPaths,
    ) -> Result<CompletionPreview, FilesError> {
        let files = ScopedFiles::new(FilesConfig {
            scope: scope.clone(),
            readable: skill_dirs(scope, &places.load_library().skills),
            masked: masked_paths(paths),
            lifted: manifest.sandbox.lifted.iter().map(Into::into).collect(),
            ..FilesConfig::default()
        })?;
        Ok(CompletionPreview { references: ReferenceResolver::new(Arc::new(files), places) })
    }

    /// May read directories: do not call it on the event loop.
    pub fn complete(&self, list: &ListCompletions) -> Completions {
        find_completions(&self.references, list)
    }
}
