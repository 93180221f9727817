//! Git: finds the programs that the user's git would run in the repositories of a write scope, and the changes that a
//! command made there.
//!
//! Here: git's configuration format (`config`), the meaning of settings (`settings`), repositories and the targets of
//! their settings and links (`repository`, `targets`), scanning for them (`scan`), comparing before and after a command
//! (`risks`, `guard`), quarantining files that would run code (`quarantine`). No git is started, because a hostile
//! repository would control what it runs. Elsewhere: protecting targets while a command runs (`exec`, `files`).

pub mod config;
mod guard;
mod quarantine;
mod repository;
mod risks;
mod safe_paths;
mod scan;
pub mod settings;
mod targets;

pub use guard::{
    CommandWatch, GuardScope, NotesCallback, RepositoryGuard, RepositoryNotes, is_bare_repository_file,
};
pub use repository::{GitConfigFile, GitRepository, user_config_files, with_includes};
pub use scan::{
    MAX_DENIED, MAX_DIRECTORIES, MAX_REPOSITORIES, RepositoryEntry, RepositoryKind, RepositoryScanner,
    RepositorySurvey, SurveyArea,
};
pub use targets::{GitTarget, MAX_TARGETS, TargetFinder};
