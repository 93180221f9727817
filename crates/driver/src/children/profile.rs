//! Applies a profile to the manifest of a child.
//!
//! Elsewhere: whether the profile exists (`tools`, before the spawn), its text (`sources`), `inherit`
//! (`pod`).
//! Invariant: no profile extends the rights of a child (`no_profile_frees_a_child`), and the instruction of
//! the call changes nothing else.

use std::path::Path;

use minke_config::sources::{ChildRequest, ProfileRegistry, declare_child};
use minke_config::trust::{TrustStatus, TrustStore};
use minke_manifest::Manifest;
use minke_pod::SpawnRequest;
use minke_record::ErrorCode;
use minke_registry::UserPaths;

use super::spawn::ChildSpawnError;
use crate::event_loop::commit::error_chain;

/// Returns the request with the manifest of its profile, read from the current files.
pub(super) fn apply_profile(
    paths: &UserPaths,
    mut spawning: SpawnRequest,
) -> Result<SpawnRequest, ChildSpawnError> {
    let workspace = Path::new(&spawning.workspace);
    let found = minke_config::trust::scan_workspace(workspace);
    // If the trust store cannot be read, nothing of the workspace is trusted; the greeting has reported that.
    let standing = TrustStore::in_data_dir(&paths.data).trust_status(&found).ok();
    let trusted = standing.as_ref().is_some_and(TrustStatus::is_trusted);
    let registry = ProfileRegistry::load_registries(&paths.config, trusted.then_some(&found));
    let invalid = |message: String| ChildSpawnError::new(ErrorCode::InvalidRequest, message);
    let profile = registry
        .load_registered(spawning.profile.as_deref())
        .map_err(|e| invalid(format!("{}; {}", error_chain(&e), e.hint())))?;
    let parent = Manifest::from_value(&spawning.manifest)
        .map_err(|e| invalid(format!("could not read this pod's own manifest: {e}")))?;
    let child = ChildRequest {
        config: &paths.config,
        workspace,
        cwd: Path::new(&spawning.cwd),
        trusted,
        profile: &profile,
        parent: &parent,
    };
    let mut manifest = declare_child(child)
        .map_err(|e| invalid(format!("profile `{}`: {}", profile.selector, error_chain(&e))))?;
    if let Some(instruction) = &spawning.instruction {
        manifest.worker.instruction.clone_from(instruction);
    }
    spawning.manifest = manifest.to_value();
    Ok(spawning)
}
