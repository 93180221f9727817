//! Sources: the files that a manifest is made of.
//!
//! Here: reading `config.toml` of the person and of the workspace (`config`), changing the person's (`change`), what it says of the host (`host`), what a
//! relative path means (`places`), profiles and where they are registered (`profiles`, `registry`), and the one way from
//! files and a command line to a manifest (`declare`); prompt assets (`prompts`) and instructions of the project (`project`).
//! Elsewhere: the language of profiles (`lua`), what keys mean and how layers merge (`manifest`), templates (`prompts`, the
//! crate), files of a workspace read safely (`trust`), rule files (`driver`).
//! Invariant: a layer that cannot be read whole stops the start, in every layer; to skip one that tightens would be to
//! loosen (`a_layer_that_cannot_be_read_stops_everything`).

mod builtin;
mod change;
mod child;
mod config;
mod declare;
mod evaluating;
mod host;
mod places;
mod profiles;
mod project;
mod prompts;
mod registry;
mod starting;

pub use builtin::STARTER;
pub use change::{Changed, set, unset};
pub use child::{Child, declare_child};
pub use config::{CONFIG, OF_WORKSPACE, user, workspace};
pub use declare::{Asked, Declared, declare};
pub use host::{HostSettings, host};
pub use profiles::{Profile, ProfilesError};
pub use project::{Project, Searching, of_directory, project};
pub use prompts::Shelves;
pub use registry::{REGISTRY, Registry};
pub use starting::{NewProfile, new_profile};

/// Why there is no manifest.
#[derive(Debug, thiserror::Error)]
pub enum SourcesError {
    /// What is wrong in which layer.
    #[error(transparent)]
    Manifest(#[from] minke_manifest::ManifestError),
    #[error("{origin}: this is not TOML: {why}")]
    Syntax { origin: minke_manifest::Origin, why: String },
    #[error("cannot {what} {path}: {why}")]
    File { what: &'static str, path: String, why: String },
    #[error("{0}")]
    Refused(#[from] minke_trust::Refused),
    #[error(transparent)]
    Profile(#[from] ProfilesError),
}

impl SourcesError {
    /// What a person can do about it.
    pub fn hint(&self) -> String {
        match self {
            SourcesError::Manifest(error) => error
                .problems
                .iter()
                .find_map(|problem| problem.hint.clone())
                .unwrap_or_else(|| "`minke config show` lists every key with its value".to_owned()),
            SourcesError::Syntax { .. } => {
                "mend the file; `minke config check` says when it can be read".to_owned()
            }
            SourcesError::File { .. } => {
                "look at its permissions; `minke config path` says where files lie".to_owned()
            }
            SourcesError::Profile(error) => error.hint(),
            SourcesError::Refused(_) => {
                "no pod starts past settings that cannot be read: put a plain file there, or none".to_owned()
            }
        }
    }
}
