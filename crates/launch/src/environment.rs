//! The environment of a launch: variables, working directory and sandbox helper, and the user's home in it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use minke_client::UserHome;
use minke_exec::probe::cached_backend_in;
use minke_exec::sandbox::HelperBinary;
use minke_llm::ResolveContext;
use minke_policy::SandboxBackend;
use minke_registry::{PathsError, ProcessEnv, UserPaths};
use minke_session::{CombinedStore, FileStore, RealDisk};
use minke_store_postgres::{SettingsError, StoreChoice};

use crate::error::{SetupError, SetupRefusal};

/// Environment variables, working directory and sandbox helper of the process that launches sessions.
#[derive(Debug, Clone)]
pub struct LaunchEnv {
    pub user_env: ProcessEnv,
    pub cwd: PathBuf,
    /// The sandbox helper binary; without it the sandbox backend of new pods is unknown.
    pub helper: Option<HelperBinary>,
}

impl LaunchEnv {
    /// Returns the value of a variable that is set and not empty.
    pub fn env_var(&self, name: &str) -> Option<String> {
        let value = self.user_env.env.get(std::ffi::OsStr::new(name))?;
        value.to_str().filter(|value| !value.is_empty()).map(str::to_owned)
    }

    pub fn find_paths(&self) -> Result<UserPaths, PathsError> {
        UserPaths::from_env(&self.user_env)
    }

    /// Opens the user's sessions and pods. Creates missing directories.
    pub fn open_home(&self) -> Result<UserHome, SetupError> {
        let paths = self.find_paths()?;
        paths.create_dirs()?;
        let store = self.open_store(&paths)?;
        Ok(UserHome { paths, store: Arc::new(store) })
    }

    /// Opens the home for a session that is deleted when its pod ends. Deletes leftovers of earlier ones.
    pub fn open_ephemeral_home(&self) -> Result<UserHome, SetupError> {
        let paths = self.find_paths()?;
        paths.create_dirs()?;
        let store = self.open_store(&paths)?;
        store.sweep_ephemeral()?;
        Ok(UserHome { paths, store: Arc::new(store.creating_ephemeral()) })
    }

    /// Returns the store that `--store` or the environment selects instead of files.
    pub fn chosen_store(&self) -> Option<StoreChoice> {
        StoreChoice::from_env(|name| self.env_var(name))
    }

    fn open_store(&self, paths: &UserPaths) -> Result<CombinedStore, SetupRefusal> {
        let ephemeral = FileStore::new(Arc::new(RealDisk), paths.ephemeral_sessions_dir());
        Ok(match self.chosen_store() {
            None => CombinedStore::new(FileStore::new(Arc::new(RealDisk), paths.sessions_dir()), ephemeral),
            Some(chosen) => {
                CombinedStore::new(chosen.open_store(&paths.data).map_err(|e| store_error(&e))?, ephemeral)
            }
        })
    }

    /// Returns the sessions as files, for repair.
    pub fn open_file_store(&self, paths: &UserPaths) -> Result<FileStore, SetupRefusal> {
        Ok(match self.chosen_store() {
            None => FileStore::new(Arc::new(RealDisk), paths.sessions_dir()),
            Some(chosen) => chosen.open_store(&paths.data).map_err(|e| store_error(&e))?.files().clone(),
        })
    }

    /// Returns the sandbox backend that a new pod would use, if known. May start a process.
    pub fn sandbox_backend(&self, paths: &UserPaths) -> Option<SandboxBackend> {
        self.helper.as_ref().map(|helper| cached_backend_in(helper, &paths.runtime))
    }

    /// Returns the context in which a pod in `cwd` resolves its model.
    pub(crate) fn resolve_context(&self, cwd: &Path) -> Result<ResolveContext, PathsError> {
        Ok(ResolveContext::for_process(cwd, Some(self.find_paths()?.config)))
    }
}

fn store_error(error: &SettingsError) -> SetupRefusal {
    let failure = SetupRefusal::invalid("could not open the store");
    let hint =
        "MINKE_STORE or --store has the form `postgres://user@host/database`; see docs/reference/store.md";
    match error {
        SettingsError::Io { source, .. } => failure.with_reason(format!("{error}: {source}")),
        _ => failure.with_reason(error),
    }
    .with_hint(hint)
}

/// Returns the directory of clones; each is named after its session's id.
pub fn clones_dir(paths: &UserPaths) -> PathBuf {
    paths.data.join("clones")
}

/// Returns the nearest ancestor that contains `.minke/` or `.git`, else the directory itself. Never returns an
/// ancestor of the home directory: a dotfiles repository there must not grant access to everything.
pub fn find_workspace(cwd: &Path) -> PathBuf {
    let home = std::env::home_dir().and_then(|home| home.canonicalize().ok());
    find_workspace_below(cwd, home.as_deref())
}

fn find_workspace_below(cwd: &Path, home: Option<&Path>) -> PathBuf {
    let marked = |dir: &&Path| dir.join(".minke").is_dir() || dir.join(".git").exists();
    let too_much = |dir: &Path| home.is_some_and(|home| home.starts_with(dir));
    let found = cwd.ancestors().take_while(|dir| *dir == cwd || !too_much(dir)).find(marked);
    found.unwrap_or(cwd).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_around_the_home_directory_is_no_workspace() {
        let root = tempfile::tempdir().unwrap();
        let home = root.path().join("home/user");
        let deep = home.join("project/src/deep");
        std::fs::create_dir_all(&deep).unwrap();
        for place in [root.path(), &home, &home.join("project")] {
            std::fs::create_dir(place.join(".git")).unwrap();
        }
        let of = |cwd: &Path| find_workspace_below(cwd, Some(&home));
        assert_eq!(of(&deep), home.join("project"));
        std::fs::remove_dir(home.join("project/.git")).unwrap();
        assert_eq!(of(&deep), deep, "neither the home directory nor its parents");
        assert_eq!(of(&home), home, "the home directory itself, when it is the working directory");
        assert_eq!(find_workspace_below(&deep, None), home);
    }
}
