//! The gate's papers: what people decided before the pod began. Rules, hooks, and whether the workspace is trusted.
//!
//! Here: looking for them once, before anything is held. Elsewhere: rule files (`rules`), hooks (`hooks`), what a
//! workspace brings along (`trust`), the verdict (`policy`, `pod`).
//! Invariant: nothing of a workspace that is not trusted is used, except what tightens
//! (`opening_a_hostile_repository_runs_nothing_of_it`).

use std::path::Path;
use std::sync::Arc;

use minke_manifest::profiles::Offer;
use minke_pod::State;
use minke_record::About;
use minke_registry::Paths;
use minke_sources::Registry;
use minke_trust::{Standing, TrustStore};

use crate::hooks;
use crate::rules::{Loaded, RuleFiles, RulesError};

pub(crate) struct Papers {
    pub(crate) files: RuleFiles,
    pub(crate) rules: Loaded,
    pub(crate) hooks: minke_hooks::Loaded,
    /// The profiles that a child can be made from.
    pub(crate) profiles: Arc<Offer>,
    /// Whether the person trusts the workspace as it is.
    pub(crate) trusted: bool,
    /// What a client should know about the workspace.
    pub(crate) notices: Vec<String>,
}

impl Papers {
    pub(crate) fn look(state: &State, about: &About, paths: &Paths) -> Result<Papers, RulesError> {
        let workspace = Path::new(&about.workspace);
        let files = RuleFiles::new(paths, workspace);
        let rules = files.load(&state.manifest.permissions)?;
        let found = minke_trust::look(workspace);
        let (standing, notices) = match TrustStore::in_data(&paths.data).standing(&found) {
            Ok(standing) => {
                let notices = found.notices(&standing);
                (Some(standing), notices)
            }
            Err(e) => (None, vec![format!("nothing of this workspace is trusted: {e}; {}", e.hint())]),
        };
        let hooks = hooks::load(paths, state.manifest.hooks.enabled, &found, standing.as_ref());
        let trusted = standing.as_ref().is_some_and(Standing::holds);
        let profiles = Arc::new(Registry::find(&paths.config, trusted.then_some(&found)).offer());
        Ok(Papers { files, rules, hooks, profiles, trusted, notices })
    }
}
