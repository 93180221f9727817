//! Environment of the process: variables, working directory and terminals, read once at startup.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use minke_client::UserHome;
pub(crate) use minke_host::{new_ids, now_millis, random_seed};
use minke_protocol::ClientInfo;
use minke_registry::UserPaths;
use minke_session::{CombinedStore, FileStore, RealDisk};
use minke_store_postgres::{SettingsError, StoreChoice};

use crate::error::{CliError, ExitKind};

/// Environment variables, working directory and terminals. Nothing else in this crate reads them.
#[derive(Debug, Clone)]
pub(crate) struct CliContext {
    pub(crate) user_env: minke_registry::ProcessEnv,
    pub(crate) cwd: PathBuf,
    pub(crate) stdin_terminal: bool,
    pub(crate) stdout_terminal: bool,
    pub(crate) stderr_terminal: bool,
}

impl CliContext {
    pub(crate) fn from_process() -> Result<CliContext, CliError> {
        let cwd = std::env::current_dir().map_err(|e| {
            CliError::new(ExitKind::Usage, "could not read the working directory")
                .with_reason(e)
                .with_hint("it may have been removed; `cd` to an existing directory")
        })?;
        Ok(CliContext {
            user_env: minke_registry::ProcessEnv {
                env: std::env::vars_os().collect(),
                uid: rustix::process::getuid().as_raw(),
            },
            cwd,
            stdin_terminal: std::io::stdin().is_terminal(),
            stdout_terminal: std::io::stdout().is_terminal(),
            stderr_terminal: std::io::stderr().is_terminal(),
        })
    }

    /// Returns the value of a variable that is set and not empty.
    pub(crate) fn env_var(&self, name: &str) -> Option<String> {
        let value = self.user_env.env.get(std::ffi::OsStr::new(name))?;
        value.to_str().filter(|value| !value.is_empty()).map(str::to_owned)
    }

    /// Returns true if the variable is set and not empty, as `NO_COLOR` is defined.
    pub(crate) fn is_env_set(&self, variable: &str) -> bool {
        self.user_env.env.get(std::ffi::OsStr::new(variable)).is_some_and(|value| !value.is_empty())
    }

    pub(crate) fn find_paths(&self) -> Result<UserPaths, CliError> {
        UserPaths::from_env(&self.user_env).map_err(CliError::from)
    }

    /// Opens the user's sessions and pods. Creates missing directories.
    pub(crate) fn open_home(&self) -> Result<UserHome, CliError> {
        let paths = self.find_paths()?;
        paths.create_dirs()?;
        let store = self.open_store(&paths)?;
        Ok(UserHome { paths, store: Arc::new(store) })
    }

    /// Opens the home for a session that is deleted when its pod ends. Deletes leftovers of earlier ones.
    pub(crate) fn open_ephemeral_home(&self) -> Result<UserHome, CliError> {
        let paths = self.find_paths()?;
        paths.create_dirs()?;
        let store = self.open_store(&paths)?;
        store.sweep_ephemeral()?;
        Ok(UserHome { paths, store: Arc::new(store.creating_ephemeral()) })
    }

    /// Returns the store that `--store` or the environment selects instead of files.
    pub(crate) fn chosen_store(&self) -> Option<StoreChoice> {
        StoreChoice::from_env(|name| self.env_var(name))
    }

    fn open_store(&self, paths: &UserPaths) -> Result<CombinedStore, CliError> {
        let ephemeral = FileStore::new(Arc::new(RealDisk), paths.ephemeral_sessions_dir());
        Ok(match self.chosen_store() {
            None => CombinedStore::new(FileStore::new(Arc::new(RealDisk), paths.sessions_dir()), ephemeral),
            Some(chosen) => {
                CombinedStore::new(chosen.open_store(&paths.data).map_err(store_error)?, ephemeral)
            }
        })
    }

    /// Returns the sessions as files, for repair.
    pub(crate) fn open_file_store(&self, paths: &UserPaths) -> Result<FileStore, CliError> {
        Ok(match self.chosen_store() {
            None => FileStore::new(Arc::new(RealDisk), paths.sessions_dir()),
            Some(chosen) => chosen.open_store(&paths.data).map_err(store_error)?.files().clone(),
        })
    }

    /// Returns the nearest ancestor that contains `.minke/` or `.git`, else the directory itself. Never
    /// returns an ancestor of the home directory: a dotfiles repository there must not grant access to
    /// everything.
    pub(crate) fn find_workspace(cwd: &Path) -> PathBuf {
        let home = std::env::home_dir().and_then(|home| home.canonicalize().ok());
        find_workspace_below(cwd, home.as_deref())
    }
}

fn store_error(error: SettingsError) -> CliError {
    let failure = CliError::new(ExitKind::Usage, "could not open the store");
    let hint =
        "MINKE_STORE or --store has the form `postgres://user@host/database`; see docs/reference/store.md";
    match &error {
        SettingsError::Io { source, .. } => failure.with_reason(format!("{error}: {source}")),
        _ => failure.with_reason(error),
    }
    .with_hint(hint)
}

fn find_workspace_below(cwd: &Path, home: Option<&Path>) -> PathBuf {
    let marked = |dir: &&Path| dir.join(".minke").is_dir() || dir.join(".git").exists();
    let too_much = |dir: &Path| home.is_some_and(|home| home.starts_with(dir));
    let found = cwd.ancestors().take_while(|dir| *dir == cwd || !too_much(dir)).find(marked);
    found.unwrap_or(cwd).to_owned()
}

/// Name and version that this program sends to a pod.
pub(crate) fn client_info() -> ClientInfo {
    ClientInfo { name: "minke".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned(), session: None }
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
