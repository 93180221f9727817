//! Surroundings: what the process finds around itself, read once, at the door.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use minke_client::Home;
pub(crate) use minke_host::{ids, now, seed};
use minke_protocol::ClientInfo;
use minke_registry::Paths;
use minke_session::{FileStore, RealDisk, TwoPlaces};
use minke_store_postgres::{Chosen, SettingsError};

use crate::failure::{Exit, Failure};

/// Environment, working directory, terminals: the only place that looks.
#[derive(Debug, Clone)]
pub(crate) struct Surroundings {
    pub(crate) user: minke_registry::Surroundings,
    pub(crate) cwd: PathBuf,
    pub(crate) stdin_terminal: bool,
    pub(crate) stdout_terminal: bool,
    pub(crate) stderr_terminal: bool,
}

impl Surroundings {
    pub(crate) fn look() -> Result<Surroundings, Failure> {
        let cwd = std::env::current_dir().map_err(|e| {
            Failure::new(Exit::Usage, "cannot tell the working directory")
                .why(e)
                .hint("it may have been removed; `cd` to one that is there")
        })?;
        Ok(Surroundings {
            user: minke_registry::Surroundings {
                env: std::env::vars_os().collect(),
                uid: rustix::process::getuid().as_raw(),
            },
            cwd,
            stdin_terminal: std::io::stdin().is_terminal(),
            stdout_terminal: std::io::stdout().is_terminal(),
            stderr_terminal: std::io::stderr().is_terminal(),
        })
    }

    /// A variable that is set and not empty.
    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        let value = self.user.env.get(std::ffi::OsStr::new(name))?;
        value.to_str().filter(|value| !value.is_empty()).map(str::to_owned)
    }

    /// Set and not empty, as the convention of `NO_COLOR` has it.
    pub(crate) fn has(&self, variable: &str) -> bool {
        self.user.env.get(std::ffi::OsStr::new(variable)).is_some_and(|value| !value.is_empty())
    }

    pub(crate) fn paths(&self) -> Result<Paths, Failure> {
        Paths::find(&self.user).map_err(Failure::from)
    }

    /// The user's sessions and pods; makes the directories if they are missing.
    pub(crate) fn home(&self) -> Result<Home, Failure> {
        let paths = self.paths()?;
        paths.create()?;
        let store = self.both(&paths)?;
        Ok(Home { paths, store: Arc::new(store) })
    }

    /// The same for whoever makes a session that goes with its pod. What is left of earlier ones is swept out.
    pub(crate) fn passing_home(&self) -> Result<Home, Failure> {
        let paths = self.paths()?;
        paths.create()?;
        let store = self.both(&paths)?;
        store.sweep()?;
        Ok(Home { paths, store: Arc::new(store.in_passing()) })
    }

    /// The store that was chosen instead of files, by `--store` or the environment.
    pub(crate) fn chosen(&self) -> Option<Chosen> {
        Chosen::find(|name| self.variable(name))
    }

    fn both(&self, paths: &Paths) -> Result<TwoPlaces, Failure> {
        let passing = FileStore::new(Arc::new(RealDisk), paths.passing());
        Ok(match self.chosen() {
            None => TwoPlaces::new(FileStore::new(Arc::new(RealDisk), paths.sessions()), passing),
            Some(chosen) => TwoPlaces::new(chosen.open(&paths.data).map_err(unusable)?, passing),
        })
    }

    /// The sessions as files, for those who mend them.
    pub(crate) fn file_store(&self, paths: &Paths) -> Result<FileStore, Failure> {
        Ok(match self.chosen() {
            None => FileStore::new(Arc::new(RealDisk), paths.sessions()),
            Some(chosen) => chosen.open(&paths.data).map_err(unusable)?.files().clone(),
        })
    }

    /// The nearest ancestor of a directory that holds `.minke/` or `.git`, else the directory itself. Never one that holds
    /// the whole home directory: who keeps dot files in a repository there did not mean to lend everything.
    pub(crate) fn workspace(cwd: &Path) -> PathBuf {
        let home = std::env::home_dir().and_then(|home| home.canonicalize().ok());
        workspace_below(cwd, home.as_deref())
    }
}

fn unusable(error: SettingsError) -> Failure {
    let failure = Failure::new(Exit::Usage, "the store cannot be used");
    let hint =
        "MINKE_STORE or --store is like `postgres://user@host/database`; docs/reference/store.md says more";
    match &error {
        SettingsError::Io { source, .. } => failure.why(format!("{error}: {source}")),
        _ => failure.why(error),
    }
    .hint(hint)
}

fn workspace_below(cwd: &Path, home: Option<&Path>) -> PathBuf {
    let marked = |dir: &&Path| dir.join(".minke").is_dir() || dir.join(".git").exists();
    let too_much = |dir: &Path| home.is_some_and(|home| home.starts_with(dir));
    let found = cwd.ancestors().take_while(|dir| *dir == cwd || !too_much(dir)).find(marked);
    found.unwrap_or(cwd).to_owned()
}

/// How this program introduces itself to a pod.
pub(crate) fn introduction() -> ClientInfo {
    ClientInfo { name: "minke".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned(), session: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_around_the_home_directory_is_no_workspace() {
        let root = tempfile::tempdir().unwrap();
        let home = root.path().join("home/somebody");
        let deep = home.join("project/src/deep");
        std::fs::create_dir_all(&deep).unwrap();
        for place in [root.path(), &home, &home.join("project")] {
            std::fs::create_dir(place.join(".git")).unwrap();
        }
        let of = |cwd: &Path| workspace_below(cwd, Some(&home));
        assert_eq!(of(&deep), home.join("project"));
        std::fs::remove_dir(home.join("project/.git")).unwrap();
        assert_eq!(of(&deep), deep, "neither the home directory nor what is around it");
        assert_eq!(of(&home), home, "who stands there has it");
        assert_eq!(workspace_below(&deep, None), home);
    }
}
