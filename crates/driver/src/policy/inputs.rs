//! Policy inputs: the user's decisions from before the pod started: rules, hooks, and trust of the workspace.
//!
//! Here: loading them once, before any lease is taken. Elsewhere: rule files (`rules`), hooks (`hooks`),
//! workspace files that could run something (`trust`), the verdict (`policy`, `pod`).
//! Invariant: an untrusted workspace can only tighten the configuration
//! (`opening_a_hostile_repository_runs_nothing_of_it`).

use std::path::Path;
use std::sync::Arc;

use minke_config::sources::ProfileRegistry;
use minke_config::trust::{TrustStatus, TrustStore};
use minke_manifest::profiles::ProfileCatalog;
use minke_pod::State;
use minke_record::About;
use minke_registry::UserPaths;

use crate::policy::hooks;
use crate::policy::rules::{LoadedRules, RuleFiles, RulesError};

pub(crate) struct PolicyInputs {
    pub(crate) rule_files: RuleFiles,
    pub(crate) rules: LoadedRules,
    pub(crate) hooks: minke_hooks::LoadedHooks,
    /// Profiles available for children.
    pub(crate) profiles: Arc<ProfileCatalog>,
    /// Whether the user trusts the current state of the workspace.
    pub(crate) trusted: bool,
    /// Messages about the workspace for clients.
    pub(crate) notices: Vec<String>,
}

impl PolicyInputs {
    pub(crate) fn load_inputs(
        state: &State,
        about: &About,
        paths: &UserPaths,
    ) -> Result<PolicyInputs, RulesError> {
        let workspace = Path::new(&about.workspace);
        let rule_files = RuleFiles::new(paths, workspace);
        let rules = rule_files.load_rules(&state.manifest.permissions)?;
        let found = minke_config::trust::scan_workspace(workspace);
        let (standing, notices) = match TrustStore::in_data_dir(&paths.data).trust_status(&found) {
            Ok(standing) => {
                let notices = found.trust_notices(&standing);
                (Some(standing), notices)
            }
            Err(e) => (None, vec![format!("nothing of this workspace is trusted: {e}; {}", e.hint())]),
        };
        let hooks = hooks::load_hooks(paths, state.manifest.hooks.enabled, &found, standing.as_ref());
        let trusted = standing.as_ref().is_some_and(TrustStatus::is_trusted);
        let profiles = Arc::new(
            ProfileRegistry::load_registries(&paths.config, trusted.then_some(&found)).profile_offer(),
        );
        Ok(PolicyInputs { rule_files, rules, hooks, profiles, trusted, notices })
    }
}
