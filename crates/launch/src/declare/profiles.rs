//! The profiles that apply in a workspace.

use std::path::Path;

use minke_config::sources::{ProfileRegistry, ProfilesError};
use minke_config::trust::TrustStore;
use minke_registry::PathsError;

use crate::environment::LaunchEnv;
use crate::error::SetupRefusal;

/// Returns the registries that apply in a workspace.
pub fn load_profiles(workspace: &Path, env: &LaunchEnv) -> Result<ProfileRegistry, PathsError> {
    let paths = env.find_paths()?;
    let found = minke_config::trust::scan_workspace(workspace);
    // A workspace whose trust cannot be read is not trusted.
    let standing = TrustStore::in_data_dir(&paths.data).trust_status(&found);
    let trusted = standing.is_ok_and(|standing| standing.is_trusted());
    Ok(ProfileRegistry::load_registries(&paths.config, trusted.then_some(&found)))
}

/// Returns the error for an unusable profile.
pub fn profile_error(error: &ProfilesError) -> SetupRefusal {
    SetupRefusal::invalid(error).with_code("invalid_profile").with_hint(error.hint())
}
