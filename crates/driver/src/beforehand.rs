//! Beforehand: what a pod that is begun here would complete, for whoever types before there is one.
//!
//! The same references, read within the same walls; only there is no session yet. Elsewhere: finding them (`references`),
//! the answer of a pod that lives (`answers`).

use std::sync::Arc;

use minke_files::{Files, FilesConfig, FilesError};
use minke_manifest::Manifest;
use minke_protocol::{Completions, ListCompletions};
use minke_record::Scope;
use minke_references::{Places, References};
use minke_registry::Paths;

use crate::answers::completed;
use crate::kit::{beside, masked};

/// What inputs could refer to.
pub struct Beforehand {
    references: References,
}

impl Beforehand {
    /// With the scope and the manifest that the pod would have.
    pub fn new(
        scope: &Scope,
        manifest: &Manifest,
        places: Places,
        paths: &Paths,
    ) -> Result<Beforehand, FilesError> {
        let files = Files::new(FilesConfig {
            scope: scope.clone(),
            readable: beside(scope, &places.shelf().skills),
            masked: masked(paths),
            lifted: manifest.sandbox.lifted.iter().map(Into::into).collect(),
            ..FilesConfig::default()
        })?;
        Ok(Beforehand { references: References::new(Arc::new(files), places) })
    }

    /// May read directories: not for a loop.
    pub fn complete(&self, list: &ListCompletions) -> Completions {
        completed(&self.references, list)
    }
}
