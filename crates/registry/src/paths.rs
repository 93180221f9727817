//! The directories of one user on this machine.
//!
//! Here: the config, data, state and runtime directories, derived from the passed environment, and created private.
//! Elsewhere: their content (`session`, `runtime_dir`).
//! Invariant: finding directories creates nothing (`finding_makes_nothing`), and a directory of another user is never
//! used (`a_directory_of_another_user_is_refused`).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::error::PathsError;
use crate::files::{PRIVATE_DIR_MODE, create_private_dir};

/// The environment variables and user id of the process, read once at startup.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProcessEnv {
    pub env: BTreeMap<OsString, OsString>,
    pub uid: u32,
}

impl ProcessEnv {
    /// Returns an absolute path from a variable. Unset and empty are the same.
    fn absolute_path(&self, name: &'static str) -> Result<Option<PathBuf>, PathsError> {
        let Some(value) = self.env.get(std::ffi::OsStr::new(name)).filter(|value| !value.is_empty()) else {
            return Ok(None);
        };
        let path = PathBuf::from(value);
        if !path.is_absolute() {
            return Err(PathsError::NotAbsolute { name, value: value.to_string_lossy().into_owned() });
        }
        Ok(Some(path))
    }
}

/// The four directories of one user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserPaths {
    pub config: PathBuf,
    pub data: PathBuf,
    pub state: PathBuf,
    pub runtime: PathBuf,
    uid: u32,
}

impl UserPaths {
    /// Determines the directories without creating any.
    pub fn from_env(around: &ProcessEnv) -> Result<UserPaths, PathsError> {
        let uid = around.uid;
        if let Some(home) = around.absolute_path("MINKE_HOME")? {
            return Ok(UserPaths {
                config: home.join("config"),
                data: home.join("data"),
                state: home.join("state"),
                runtime: home.join("run"),
                uid,
            });
        }
        let home = around.absolute_path("HOME")?;
        let under = |variable, rest: &str| match around.absolute_path(variable)? {
            Some(base) => Ok(base.join("minke")),
            None => home.as_ref().map(|home| home.join(rest)).ok_or(PathsError::NoHome),
        };
        let runtime = match around.absolute_path("XDG_RUNTIME_DIR")? {
            Some(base) => base.join("minke"),
            None => {
                let temp = around.absolute_path("TMPDIR")?.unwrap_or_else(|| PathBuf::from("/tmp"));
                temp.join(format!("minke-{uid}"))
            }
        };
        Ok(UserPaths {
            config: under("XDG_CONFIG_HOME", ".config/minke")?,
            data: under("XDG_DATA_HOME", ".local/share/minke")?,
            state: under("XDG_STATE_HOME", ".local/state/minke")?,
            runtime,
            uid,
        })
    }

    /// Creates the data, state and runtime directories, private to this user. The user creates the configuration.
    pub fn create_dirs(&self) -> Result<(), PathsError> {
        self.create_dir("data", &self.data)?;
        self.create_dir("state", &self.state)?;
        self.create_dir("runtime", &self.runtime)
    }

    /// Returns the directory of all sessions.
    pub fn sessions_dir(&self) -> PathBuf {
        self.data.join("sessions")
    }

    /// Returns the directory of ephemeral sessions, which end with their pods.
    pub fn ephemeral_sessions_dir(&self) -> PathBuf {
        self.runtime.join("passing")
    }

    fn create_dir(&self, what: &'static str, path: &Path) -> Result<(), PathsError> {
        let failed = |source| PathsError::CannotMake { what, path: path.to_owned(), source };
        if let Err(e) = create_private_dir(path)
            && e.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(failed(e));
        }
        // Symbolic links are not followed: in a shared temp directory another user could have created one.
        let found = fs::symlink_metadata(path).map_err(failed)?;
        if !found.is_dir() {
            return Err(PathsError::NotADirectory { what, path: path.to_owned() });
        }
        if found.uid() != self.uid {
            return Err(PathsError::NotYours {
                what,
                path: path.to_owned(),
                owner: found.uid(),
                uid: self.uid,
            });
        }
        if found.permissions().mode() & 0o077 != 0 {
            fs::set_permissions(path, Permissions::from_mode(PRIVATE_DIR_MODE)).map_err(failed)?;
        }
        Ok(())
    }
}
