//! Reads the files that a manifest is built from.
//!
//! Here: reading `config.toml` of the user and the workspace (`config`), changing the user's file
//! (`config_edit`), its host settings (`host_settings`), relative paths (`paths`), profiles and their
//! registries (`profiles`, `profile_registry`), building a manifest (`declare`), prompt assets
//! (`prompt_assets`) and project instructions (`project_instructions`). Elsewhere: the language of profiles
//! (`lua`), keys and the merging of layers (`manifest`), templates (crate `prompts`), reading workspace files
//! safely (`crate::trust`), rule files (`driver`).
//! Invariant: a layer that cannot be read completely stops the start, because skipping a layer that tightens
//! would grant more (`a_layer_that_cannot_be_read_stops_everything`).

mod builtin;
mod child;
mod config;
mod config_edit;
mod declare;
mod evaluation;
mod host_settings;
mod new_profile;
mod paths;
mod profile_registry;
mod profiles;
mod project_instructions;
mod prompt_assets;

pub use builtin::STARTER;
pub use child::{ChildRequest, declare_child};
pub use config::{CONFIG_FILE, WORKSPACE_CONFIG, load_user_config, load_workspace_config};
pub use config_edit::{ConfigChange, set_key, unset_key};
pub use declare::{DeclareRequest, DeclaredManifest, declare_manifest};
pub use host_settings::{HostSettings, load_host_settings};
pub use new_profile::{NewProfileFiles, create_profile};
pub use profile_registry::{ProfileRegistry, REGISTRY_FILE};
pub use profiles::{Profile, ProfilesError};
pub use project_instructions::{
    InstructionSearch, ProjectInstructions, directory_instructions, find_instructions,
};
pub use prompt_assets::PromptDirs;

/// Why a manifest could not be built.
#[derive(Debug, thiserror::Error)]
pub enum SourcesError {
    /// An invalid value in a layer.
    #[error(transparent)]
    Manifest(#[from] minke_manifest::ManifestError),
    #[error("{origin}: invalid TOML: {why}")]
    Syntax { origin: minke_manifest::Origin, why: String },
    #[error("could not {operation} {path}: {why}")]
    File { operation: &'static str, path: String, why: String },
    #[error("{0}")]
    Refused(#[from] crate::trust::ReadRefusal),
    #[error(transparent)]
    Profile(#[from] ProfilesError),
}

impl SourcesError {
    /// Returns a hint for the user.
    pub fn hint(&self) -> String {
        match self {
            SourcesError::Manifest(error) => error
                .problems
                .iter()
                .find_map(|problem| problem.hint.clone())
                .unwrap_or_else(|| "`minke config show` lists every key with its value".to_owned()),
            SourcesError::Syntax { .. } => "fix the file; `minke config check` verifies it".to_owned(),
            SourcesError::File { .. } => {
                "check its permissions; `minke config path` prints the paths of the files".to_owned()
            }
            SourcesError::Profile(error) => error.hint(),
            SourcesError::Refused(_) => {
                "replace it by a regular file or remove it; no pod starts while settings are unreadable"
                    .to_owned()
            }
        }
    }
}
