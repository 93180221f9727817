//! Programs: where Minke finds a program that it starts itself.
//!
//! Here: the one lookup over `PATH`, and the umask that such a program has, the user's own. Elsewhere: who starts the program (`exec`, `tui`, `cli`), and which `PATH` a
//! sandboxed command has (`exec::env`).
//! A workspace may hold a file with any name, for example `git`. The lookup therefore uses only the absolute parts of
//! `PATH`, and no directory and no program inside a workspace, whether the path leads there directly or by a link.
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

static UMASK: OnceLock<u32> = OnceLock::new();

/// Gives this umask, the user's own, to every program that `command` starts from now on, where this process has another one
/// for files of its own. The first one counts.
pub fn start_under_umask(umask: u32) {
    let _first = UMASK.set(umask);
}

/// A command that runs a program of the user's: an editor or git writes files that others may read, if the user's umask lets
/// them.
#[expect(
    unsafe_code,
    reason = "a umask is set between fork and execution, or this process would have it too"
)]
pub fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    if let Some(umask) = UMASK.get().copied() {
        let mode = rustix::fs::Mode::from_raw_mode(umask as rustix::fs::RawMode);
        // SAFETY: `umask` is one system call, which is safe between fork and execution.
        unsafe {
            command.pre_exec(move || {
                rustix::process::umask(mode);
                Ok(())
            });
        }
    }
    command
}

/// The parts of `PATH` that one lookup reads at most.
const PARTS: usize = 512;
/// The parts that an error names.
const NAMED_PARTS: usize = 12;
/// Directories of the system. If `/` itself is a workspace, programs must still come from somewhere.
const SYSTEM: [&str; 7] = ["/usr", "/bin", "/sbin", "/opt", "/nix", "/snap", "/run/current-system"];

/// Where programs are looked up.
#[derive(Debug, Clone)]
pub struct Lookup {
    /// Directories that exist, links resolved, in the order of `PATH`.
    dirs: Vec<PathBuf>,
    /// Parts of `PATH` that the lookup leaves out, with the reason.
    left_out: Vec<(OsString, &'static str)>,
    /// Workspaces, as given and with links resolved.
    workspaces: Vec<PathBuf>,
}

/// A program was not found.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProgramError {
    #[error("no program `{name}` was found; searched: {searched}")]
    Missing { name: String, searched: String },
    #[error("`{name}` is a relative path; name a program of `PATH`, or give an absolute path")]
    Relative { name: String },
    #[error("{} is inside the workspace {}, and Minke starts no program from there", .path.display(), .workspace.display())]
    InWorkspace { path: PathBuf, workspace: PathBuf },
    #[error("{} is not a program that can be executed", .path.display())]
    NotExecutable { path: PathBuf },
}

impl Lookup {
    /// A lookup over `PATH` of this process.
    pub fn new<W: AsRef<Path>>(workspaces: impl IntoIterator<Item = W>) -> Lookup {
        Lookup::over(std::env::var_os("PATH").as_deref(), workspaces)
    }

    /// A lookup over another `PATH`. Without one, nothing is searched.
    pub fn over<W: AsRef<Path>>(path: Option<&OsStr>, workspaces: impl IntoIterator<Item = W>) -> Lookup {
        let mut known: Vec<PathBuf> = Vec::new();
        for workspace in workspaces {
            let given = workspace.as_ref();
            // A relative workspace would have no fixed place; the process resolves it where it stands.
            let resolved = given.canonicalize().ok();
            known.extend(
                [Some(given.to_owned()).filter(|path| path.is_absolute()), resolved].into_iter().flatten(),
            );
        }
        let mut lookup = Lookup { dirs: Vec::new(), left_out: Vec::new(), workspaces: known };
        for (at, part) in path.unwrap_or_default().as_bytes().split(|byte| *byte == b':').enumerate() {
            let part = OsStr::from_bytes(part);
            if path.is_none() || at >= PARTS {
                break;
            }
            match lookup.directory(Path::new(part)) {
                Ok(Some(dir)) if !lookup.dirs.contains(&dir) => lookup.dirs.push(dir),
                Ok(_) => {}
                Err(why) => lookup.left_out.push((part.to_owned(), why)),
            }
        }
        lookup
    }

    /// The same lookup with these directories searched first.
    #[must_use]
    pub fn first_in(mut self, dirs: &[&str]) -> Lookup {
        let found: Vec<PathBuf> =
            dirs.iter().filter_map(|dir| self.directory(Path::new(dir)).ok().flatten()).collect();
        self.dirs.retain(|dir| !found.contains(dir));
        self.dirs.splice(0..0, found);
        self
    }

    /// The program of this name. An absolute path is taken as it is, unless it leads into a workspace.
    pub fn find(&self, name: impl AsRef<OsStr>) -> Result<PathBuf, ProgramError> {
        let name = name.as_ref();
        let path = Path::new(name);
        if path.is_absolute() {
            return match self.executable(path) {
                Ok(true) => Ok(path.to_owned()),
                Ok(false) => Err(ProgramError::NotExecutable { path: path.to_owned() }),
                Err(workspace) => Err(ProgramError::InWorkspace { path: path.to_owned(), workspace }),
            };
        }
        let shown = name.to_string_lossy().into_owned();
        if name.as_bytes().contains(&b'/') || matches!(name.as_bytes(), b"." | b"..") {
            return Err(ProgramError::Relative { name: shown });
        }
        let found = self.dirs.iter().map(|dir| dir.join(name)).find(|path| self.executable(path) == Ok(true));
        found
            .filter(|_| !name.is_empty())
            .ok_or_else(|| ProgramError::Missing { name: shown, searched: self.searched() })
    }

    /// The directories that are searched, as a value for `PATH`.
    pub fn path(&self) -> OsString {
        let parts: Vec<&[u8]> = self.dirs.iter().map(|dir| dir.as_os_str().as_bytes()).collect();
        OsStr::from_bytes(&parts.join(&b':')).to_owned()
    }

    /// A part of `PATH` as a directory with its links resolved, `None` if no such directory exists, or why it is left
    /// out. The lookup uses the resolved path, so that a link that changes later leads nowhere else.
    fn directory(&self, part: &Path) -> Result<Option<PathBuf>, &'static str> {
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
        // `:` cannot be written in a `PATH`.
        Ok(Some(dir).filter(|dir| dir.is_dir() && !dir.as_os_str().as_bytes().contains(&b':')))
    }

    /// Whether a path is a program, or the workspace that it leads into.
    fn executable(&self, path: &Path) -> Result<bool, PathBuf> {
        let Ok(real) = path.canonicalize() else { return Ok(false) };
        if let Some(workspace) = self.workspace_of(path).or_else(|| self.workspace_of(&real)) {
            return Err(workspace.to_owned());
        }
        let is_file = std::fs::metadata(&real).is_ok_and(|meta| meta.is_file());
        Ok(is_file && access(&real, Access::EXEC_OK).is_ok())
    }

    fn workspace_of(&self, path: &Path) -> Option<&Path> {
        let path = without_dots(path);
        let holds = |workspace: &&PathBuf| {
            path.starts_with(workspace)
                && !(workspace.parent().is_none() && SYSTEM.iter().any(|dir| path.starts_with(dir)))
        };
        self.workspaces.iter().find(holds).map(PathBuf::as_path)
    }

    fn searched(&self) -> String {
        let mut parts: Vec<String> =
            self.dirs.iter().take(NAMED_PARTS).map(|dir| dir.display().to_string()).collect();
        if parts.is_empty() {
            parts.push("nothing, since `PATH` names no absolute directory outside the workspace".to_owned());
        }
        let more = self.dirs.len().saturating_sub(NAMED_PARTS);
        if more > 0 {
            parts.push(format!("{more} more"));
        }
        let left = self.left_out.iter().take(NAMED_PARTS);
        parts.extend(left.map(|(part, why)| format!("not `{}` ({why})", part.to_string_lossy())));
        parts.join(", ")
    }
}

/// A path without `.` and with each `..` taken back by name. A path that only looks as if it left the workspace is
/// resolved by the caller as well.
fn without_dots(path: &Path) -> PathBuf {
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
