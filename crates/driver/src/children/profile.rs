//! What a child is declared to be, if it is made from a profile.
//!
//! Elsewhere: whether there is such a profile (`tools`, before anything happens), its text (`sources`), `inherit` (`pod`).
//! Invariant: no profile frees a child (`no_profile_frees_a_child`), and an instruction of the call changes nothing else.

use std::path::Path;

use minke_manifest::Manifest;
use minke_pod::Spawning;
use minke_record::ErrorCode;
use minke_registry::Paths;
use minke_sources::{Child, Registry, declare_child};
use minke_trust::{Standing, TrustStore};

use super::spawn::Failure;
use crate::carrying::chain;

/// The same child with the manifest that its profile gives it, as files are now.
pub(super) fn declared(paths: &Paths, mut spawning: Spawning) -> Result<Spawning, Failure> {
    let workspace = Path::new(&spawning.workspace);
    let found = minke_trust::look(workspace);
    // Without a store that can be read nothing of the workspace is trusted; the greeting has said so.
    let standing = TrustStore::in_data(&paths.data).standing(&found).ok();
    let trusted = standing.as_ref().is_some_and(Standing::holds);
    let registry = Registry::find(&paths.config, trusted.then_some(&found));
    let invalid = |message: String| Failure::new(ErrorCode::InvalidRequest, message);
    let profile = registry
        .registered(spawning.profile.as_deref())
        .map_err(|e| invalid(format!("{}; {}", chain(&e), e.hint())))?;
    let parent = Manifest::read(&spawning.manifest)
        .map_err(|e| invalid(format!("this pod's own manifest cannot be read: {e}")))?;
    let child = Child {
        config: &paths.config,
        workspace,
        here: Path::new(&spawning.cwd),
        trusted,
        profile: &profile,
        parent: &parent,
    };
    let mut manifest = declare_child(child)
        .map_err(|e| invalid(format!("profile `{}`: {}", profile.selector, chain(&e))))?;
    if let Some(instruction) = &spawning.instruction {
        manifest.worker.instruction.clone_from(instruction);
    }
    spawning.manifest = manifest.to_value();
    Ok(spawning)
}
