//! Environment of the process: variables, working directory and terminals, read once at startup.

use std::io::IsTerminal;

use minke_client::UserHome;
use minke_exec::sandbox::HelperBinary;
use minke_launch::LaunchEnv;
pub(crate) use minke_launch::{new_ids, now_millis, random_seed};
use minke_protocol::ClientInfo;
use minke_registry::UserPaths;
use minke_session::FileStore;
use minke_store_postgres::StoreChoice;

use crate::error::{CliError, ExitKind};

/// Environment variables, working directory and terminals. Nothing else in this crate reads them.
#[derive(Debug, Clone)]
pub(crate) struct CliContext {
    pub(crate) env: LaunchEnv,
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
            env: LaunchEnv {
                user_env: minke_registry::ProcessEnv {
                    env: std::env::vars_os().collect(),
                    uid: rustix::process::getuid().as_raw(),
                },
                cwd,
                helper: Some(HelperBinary::default()),
            },
            stdin_terminal: std::io::stdin().is_terminal(),
            stdout_terminal: std::io::stdout().is_terminal(),
            stderr_terminal: std::io::stderr().is_terminal(),
        })
    }

    /// Returns the value of a variable that is set and not empty.
    pub(crate) fn env_var(&self, name: &str) -> Option<String> {
        self.env.env_var(name)
    }

    /// Returns true if the variable is set and not empty, as `NO_COLOR` is defined.
    pub(crate) fn is_env_set(&self, variable: &str) -> bool {
        self.env.user_env.env.get(std::ffi::OsStr::new(variable)).is_some_and(|value| !value.is_empty())
    }

    pub(crate) fn find_paths(&self) -> Result<UserPaths, CliError> {
        Ok(self.env.find_paths()?)
    }

    /// Opens the user's sessions and pods. Creates missing directories.
    pub(crate) fn open_home(&self) -> Result<UserHome, CliError> {
        Ok(self.env.open_home()?)
    }

    /// Returns the store that `--store` or the environment selects instead of files.
    pub(crate) fn chosen_store(&self) -> Option<StoreChoice> {
        self.env.chosen_store()
    }

    /// Returns the sessions as files, for repair.
    pub(crate) fn open_file_store(&self, paths: &UserPaths) -> Result<FileStore, CliError> {
        Ok(self.env.open_file_store(paths)?)
    }
}

/// Name and version that this program sends to a pod.
pub(crate) fn client_info() -> ClientInfo {
    ClientInfo { name: "minke".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned(), session: None }
}
