//! Paths: where things lie on this machine.
//!
//! Here: config, data, state and runtime of one user, found from surroundings that are passed in, and made private.
//! Elsewhere: what lies in them (`session`, `runtime`).
//! Invariant: finding makes nothing (`finding_makes_nothing`), and a directory of another user is never used
//! (`a_directory_of_another_user_is_refused`).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::error::PathsError;
use crate::files::{PRIVATE_DIR, make_dir};

/// What the process finds around itself; read once, at the door.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surroundings {
    pub env: BTreeMap<OsString, OsString>,
    pub uid: u32,
}

impl Surroundings {
    /// An absolute path from a variable; unset and empty are the same.
    fn path(&self, name: &'static str) -> Result<Option<PathBuf>, PathsError> {
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
pub struct Paths {
    pub config: PathBuf,
    pub data: PathBuf,
    pub state: PathBuf,
    pub runtime: PathBuf,
    uid: u32,
}

impl Paths {
    /// Finds the directories and makes nothing.
    pub fn find(around: &Surroundings) -> Result<Paths, PathsError> {
        let uid = around.uid;
        if let Some(home) = around.path("MINKE_HOME")? {
            return Ok(Paths {
                config: home.join("config"),
                data: home.join("data"),
                state: home.join("state"),
                runtime: home.join("run"),
                uid,
            });
        }
        let home = around.path("HOME")?;
        let under = |variable, rest: &str| match around.path(variable)? {
            Some(base) => Ok(base.join("minke")),
            None => home.as_ref().map(|home| home.join(rest)).ok_or(PathsError::NoHome),
        };
        let runtime = match around.path("XDG_RUNTIME_DIR")? {
            Some(base) => base.join("minke"),
            None => {
                let temp = around.path("TMPDIR")?.unwrap_or_else(|| PathBuf::from("/tmp"));
                temp.join(format!("minke-{uid}"))
            }
        };
        Ok(Paths {
            config: under("XDG_CONFIG_HOME", ".config/minke")?,
            data: under("XDG_DATA_HOME", ".local/share/minke")?,
            state: under("XDG_STATE_HOME", ".local/state/minke")?,
            runtime,
            uid,
        })
    }

    /// Makes data, state and runtime, private to this user. The configuration is the user's own to make.
    pub fn create(&self) -> Result<(), PathsError> {
        self.create_one("data", &self.data)?;
        self.create_one("state", &self.state)?;
        self.create_one("runtime", &self.runtime)
    }

    /// Where sessions live.
    pub fn sessions(&self) -> PathBuf {
        self.data.join("sessions")
    }

    /// Where sessions lie that go with their pod.
    pub fn passing(&self) -> PathBuf {
        self.runtime.join("passing")
    }

    fn create_one(&self, what: &'static str, path: &Path) -> Result<(), PathsError> {
        let failed = |source| PathsError::CannotMake { what, path: path.to_owned(), source };
        if let Err(e) = make_dir(path)
            && e.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(failed(e));
        }
        // Not followed: in a shared temp directory a link of somebody else could stand here.
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
            fs::set_permissions(path, Permissions::from_mode(PRIVATE_DIR)).map_err(failed)?;
        }
        Ok(())
    }
}
