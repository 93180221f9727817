//! Programs: finds programs that Minke starts itself.
//!
//! Here: the lookup over `PATH`, and the user's umask for such a program. Elsewhere: starting it (`exec`, `tui`,
//! `cli`), and the `PATH` of a sandboxed command (`exec::env`).
//! A workspace may contain a file with any name, for example `git`. The lookup therefore uses only the absolute parts
//! of `PATH`, and no directory and no program inside a workspace, whether the path leads there directly or by a link.
//! Invariants: `no_part_of_path_leads_into_a_workspace`; no other code starts a program by its bare name
//! (`no_program_is_started_by_its_bare_name` in `xtask`).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use rustix::fs::{Access, access};
use thiserror::Error;

static PROGRAM_UMASK: OnceLock<u32> = OnceLock::new();

/// Sets the umask, the user's own, of programs that `program_command` starts later. This process has a stricter umask
/// for its own files. Only the first call has an effect.
pub fn set_program_umask(umask: u32) {
    let _first = PROGRAM_UMASK.set(umask);
}

/// Returns a command that runs one of the user's programs. An editor or git then creates files that others may read, if
/// the user's umask allows it.
#[expect(
    unsafe_code,
    reason = "the umask must be set between fork and exec, or this process would have it too"
)]
pub fn program_command(program: &Path) -> Command {
    let mut command = Command::new(program);
    if let Some(umask) = PROGRAM_UMASK.get().copied() {
        let mode = rustix::fs::Mode::from_raw_mode(umask as rustix::fs::RawMode);
        // SAFETY: `umask` is one system call, which is safe between fork and exec.
        unsafe {
            command.pre_exec(move || {
                rustix::process::umask(mode);
                Ok(())
            });
        }
    }
    command
}

/// The most parts of `PATH` that one lookup reads.
const MAX_PARTS: usize = 512;
/// The most parts that an error names.
const MAX_NAMED_PARTS: usize = 12;
/// System directories. They are searched even if `/` itself is a workspace.
const SYSTEM_DIRS: [&str; 7] = ["/usr", "/bin", "/sbin", "/opt", "/nix", "/snap", "/run/current-system"];

/// Finds programs.
#[derive(Debug, Clone)]
pub struct ProgramLookup {
    /// Directories that exist, links resolved, in the order of `PATH`.
    dirs: Vec<PathBuf>,
    /// Skipped parts of `PATH`, with the reason.
    skipped: Vec<(OsString, &'static str)>,
    /// Workspaces, as given and with links resolved.
    workspaces: Vec<PathBuf>,
}

/// Why a program was not found.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProgramError {
    #[error("could not find the program `{name}`; searched: {searched}")]
    Missing { name: String, searched: String },
    #[error(
        "could not use `{name}`: it is a relative path; name a program of `PATH`, or give an absolute path"
    )]
    Relative { name: String },
    #[error("could not use {}: it is inside the workspace {}, and Minke starts no program from there", .path.display(), .workspace.display())]
    InWorkspace { path: PathBuf, workspace: PathBuf },
    #[error("could not use {}: it is not an executable program", .path.display())]
    NotExecutable { path: PathBuf },
}

impl ProgramLookup {
    /// Creates a lookup over this process's `PATH`.
    pub fn new<W: AsRef<Path>>(workspaces: impl IntoIterator<Item = W>) -> ProgramLookup {
        ProgramLookup::with_path(std::env::var_os("PATH").as_deref(), workspaces)
    }

    /// Creates a lookup over another `PATH`. Without one, nothing is searched.
    pub fn with_path<W: AsRef<Path>>(
        path: Option<&OsStr>,
        workspaces: impl IntoIterator<Item = W>,
    ) -> ProgramLookup {
        let mut known: Vec<PathBuf> = Vec::new();
        for workspace in workspaces {
            let given = workspace.as_ref();
            // Resolve a relative workspace now, against the current directory.
            let resolved = given.canonicalize().ok();
            known.extend(
                [Some(given.to_owned()).filter(|path| path.is_absolute()), resolved].into_iter().flatten(),
            );
        }
        let mut lookup = ProgramLookup { dirs: Vec::new(), skipped: Vec::new(), workspaces: known };
        for (at, part) in path.unwrap_or_default().as_bytes().split(|byte| *byte == b':').enumerate() {
            let part = OsStr::from_bytes(part);
            if path.is_none() || at >= MAX_PARTS {
                break;
            }
            match lookup.resolve_directory(Path::new(part)) {
                Ok(Some(dir)) if !lookup.dirs.contains(&dir) => lookup.dirs.push(dir),
                Ok(_) => {}
                Err(why) => lookup.skipped.push((part.to_owned(), why)),
            }
        }
        lookup
    }

    /// Searches these directories first.
    #[must_use]
    pub fn search_first(mut self, dirs: &[&str]) -> ProgramLookup {
        let found: Vec<PathBuf> =
            dirs.iter().filter_map(|dir| self.resolve_directory(Path::new(dir)).ok().flatten()).collect();
        self.dirs.retain(|dir| !found.contains(dir));
        self.dirs.splice(0..0, found);
        self
    }

    /// Returns the path of a program. An absolute path is used as it is, unless it leads into a workspace.
    pub fn find_program(&self, name: impl AsRef<OsStr>) -> Result<PathBuf, ProgramError> {
        let name = name.as_ref();
        let path = Path::new(name);
        if path.is_absolute() {
            return match self.is_program(path) {
                Ok(true) => Ok(path.to_owned()),
                Ok(false) => Err(ProgramError::NotExecutable { path: path.to_owned() }),
                Err(workspace) => Err(ProgramError::InWorkspace { path: path.to_owned(), workspace }),
            };
        }
        let shown = name.to_string_lossy().into_owned();
        if name.as_bytes().contains(&b'/') || matches!(name.as_bytes(), b"." | b"..") {
            return Err(ProgramError::Relative { name: shown });
        }
        let found = self.dirs.iter().map(|dir| dir.join(name)).find(|path| self.is_program(path) == Ok(true));
        found
            .filter(|_| !name.is_empty())
            .ok_or_else(|| ProgramError::Missing { name: shown, searched: self.searched_dirs() })
    }

    /// Returns the searched directories as a value for `PATH`.
    pub fn search_path(&self) -> OsString {
        let parts: Vec<&[u8]> = self.dirs.iter().map(|dir| dir.as_os_str().as_bytes()).collect();
        OsStr::from_bytes(&parts.join(&b':')).to_owned()
    }

    /// Resolves a part of `PATH`: `None` if there is no such directory, an error if it is skipped. The resolved path is
    /// used, so that a link that changes later has no effect.
    fn resolve_directory(&self, part: &Path) -> Result<Option<PathBuf>, &'static str> {
        if part.as_os_str().is_empty() {
            return Err("empty");
        }
        if !part.is_absolute() {
            return Err("relative");
        }
        if self.workspace_of(part).is_some() {
            return Err("inside the workspace");
        }
        let Ok(dir) = part.canonicalize() else { return Ok(None) };
        if self.workspace_of(&dir).is_some() {
            return Err("leads into the workspace");
        }
        // A path with `:` cannot be part of `PATH`.
        Ok(Some(dir).filter(|dir| dir.is_dir() && !dir.as_os_str().as_bytes().contains(&b':')))
    }

    /// Whether a path is a program; the error is the workspace that it leads into.
    fn is_program(&self, path: &Path) -> Result<bool, PathBuf> {
        let Ok(real) = path.canonicalize() else { return Ok(false) };
        if let Some(workspace) = self.workspace_of(path).or_else(|| self.workspace_of(&real)) {
            return Err(workspace.to_owned());
        }
        let is_file = std::fs::metadata(&real).is_ok_and(|meta| meta.is_file());
        Ok(is_file && access(&real, Access::EXEC_OK).is_ok())
    }

    fn workspace_of(&self, path: &Path) -> Option<&Path> {
        let path = remove_dots(path);
        let holds = |workspace: &&PathBuf| {
            path.starts_with(workspace)
                && !(workspace.parent().is_none() && SYSTEM_DIRS.iter().any(|dir| path.starts_with(dir)))
        };
        self.workspaces.iter().find(holds).map(PathBuf::as_path)
    }

    fn searched_dirs(&self) -> String {
        let mut parts: Vec<String> =
            self.dirs.iter().take(MAX_NAMED_PARTS).map(|dir| dir.display().to_string()).collect();
        if parts.is_empty() {
            parts.push("nothing, since `PATH` names no absolute directory outside the workspace".to_owned());
        }
        let more = self.dirs.len().saturating_sub(MAX_NAMED_PARTS);
        if more > 0 {
            parts.push(format!("{more} more"));
        }
        let left = self.skipped.iter().take(MAX_NAMED_PARTS);
        parts.extend(left.map(|(part, why)| format!("not `{}` ({why})", part.to_string_lossy())));
        parts.join(", ")
    }
}

/// Removes `.` and `..` from a path by name. The caller also resolves links, because such a path may still lead into
/// the workspace.
fn remove_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}
