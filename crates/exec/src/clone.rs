//! Clones: a working copy of the workspace with its own branch and its own `.git`, for a pod that shares no files.
//!
//! Here: creating a clone, removing it, and the command that fetches its branch. Elsewhere: which pods get one
//! (`driver::children`, `cli`), when it is removed (`minke gc`), merging (users and agents).
//! No code of the workspace or of the user's git configuration runs: no hook, template, filter or global configuration
//! (`nothing_of_the_workspace_runs`).
//! Invariant: a commit in a clone writes nothing to the workspace's `.git`
//! (`two_clones_commit_at_once_and_the_workspace_is_not_written`).

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use minke_files::{Removal, remove_tree};
use minke_record::{Permission, PodName, Scope, SessionId};
use thiserror::Error;

use crate::git::{GitError, GitOutput, GitProgram, run_to_end};

/// The size limit of a list of shallow commits; a larger file is ignored.
const MAX_SHALLOW_BYTES: u64 = 16 * 1024 * 1024;
/// Suffix of a file next to the clone that names its workspace. The clone's own pod cannot write it.
const ORIGIN_SUFFIX: &str = "workspace";

/// A created clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceClone {
    pub path: PathBuf,
    /// `minke/<name>`, checked out.
    pub branch: String,
    /// Its first commit: HEAD of the workspace.
    pub commit: String,
    /// The object directory that it shares with the workspace; its pod must be able to read it.
    pub objects: PathBuf,
}

/// Why a clone could not be created or removed.
#[derive(Debug, Error)]
pub enum CloneError {
    #[error("{0}; install git, or share the directory instead")]
    NoGit(GitError),
    #[error(transparent)]
    Run(GitError),
    #[error(
        "could not clone {}: it is not in a git repository ({said}); commit to one, or share the directory instead",
        .workspace.display()
    )]
    NotGit { workspace: PathBuf, said: String },
    #[error("could not clone {}: its repository has no commit yet; commit first", .workspace.display())]
    NoCommit { workspace: PathBuf },
    #[error("could not create the clone {}: it exists already; `minke gc` removes old clones", .path.display())]
    Exists { path: PathBuf },
    #[error("git could not {what} {}: {said}", .path.display())]
    Git { what: &'static str, path: PathBuf, said: String },
    #[error("could not {what} {}: {source}", .path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
}

impl From<GitError> for CloneError {
    fn from(error: GitError) -> CloneError {
        match error {
            GitError::Missing(_) | GitError::Start { .. } => CloneError::NoGit(error),
            GitError::TimedOut { .. } | GitError::Io { .. } | GitError::TooManyOverrides { .. } => {
                CloneError::Run(error)
            }
        }
    }
}

/// Clones `workspace` to `into`, which must not exist, on the branch `minke/<name>` at HEAD. A ref
/// `refs/minke/<session>` in the workspace keeps the shared objects. No program below a `writable` path is executed. On
/// failure, nothing is left. Blocks.
pub fn create_clone(
    workspace: &Path,
    into: &Path,
    name: &PodName,
    session: SessionId,
    writable: &Scope,
) -> Result<WorkspaceClone, CloneError> {
    if into.symlink_metadata().is_ok() {
        return Err(CloneError::Exists { path: into.to_owned() });
    }
    let source = SourceRepository::open(workspace, into, writable)?;
    let commit = source.head_commit()?;
    // Create the ref first, so that the objects cannot be pruned in between.
    source.keep_objects(session, &commit)?;
    let made = write_origin_note(workspace, into).and_then(|()| {
        // A branch name has no spaces.
        let branch = format!("minke/{}", name.to_string().replace(' ', "-"));
        source.clone_into(into, &branch, &commit)?;
        Ok(WorkspaceClone { path: into.to_owned(), branch, commit, objects: source.objects.clone() })
    });
    made.inspect_err(|_| {
        // Return the first error; `gc` removes what this cleanup leaves.
        drop(remove_clone(into, session));
    })
}

/// Removes a clone, the file next to it and the ref that keeps its objects. Missing parts are not an error. Blocks.
pub fn remove_clone(into: &Path, session: SessionId) -> Result<(), CloneError> {
    if let Some(workspace) = workspace_of(into)?
        && let Ok(source) = SourceRepository::open(&workspace, into, &Scope::default())
    {
        source.release_objects(session)?;
    }
    let (Removal::Complete | Removal::Unfinished) =
        remove_tree(into, None).map_err(io_error_at("remove", into))?;
    let note = origin_note_path(into);
    match fs::remove_file(&note) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(io_error_at("remove", &note)(e)),
        _ => Ok(()),
    }
}

/// Returns the workspace of a clone, if it is known.
pub fn workspace_of(into: &Path) -> Result<Option<PathBuf>, CloneError> {
    let note = origin_note_path(into);
    match fs::read(&note) {
        Ok(bytes) => Ok(Some(PathBuf::from(OsString::from_vec(bytes)))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(io_error_at("read", &note)(e)),
    }
}

/// Returns the command line that fetches a clone's branch into the workspace.
pub fn fetch_hint(workspace: &Path, path: &Path, branch: &str) -> String {
    format!("git -C {} fetch {} {branch}:{branch}", quote_path(workspace), quote_path(path))
}

/// Quotes a path as one word of a shell line.
fn quote_path(path: &Path) -> String {
    let text = path.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The repository to clone.
struct SourceRepository {
    workspace: PathBuf,
    objects: PathBuf,
    git: GitProgram,
}

impl SourceRepository {
    fn open(workspace: &Path, into: &Path, writable: &Scope) -> Result<SourceRepository, CloneError> {
        let written = writable.allow.iter().filter(|rule| rule.permission != Permission::Read);
        let away = [workspace, into].into_iter().chain(written.map(|rule| Path::new(&rule.target)));
        let git = GitProgram::find_outside(away)?.for_repository(workspace)?;
        let asked = ["rev-parse", "--path-format=absolute", "--git-path", "objects"];
        let done = git.run_git(workspace, "look at", &asked)?;
        if !done.status.success() {
            return Err(CloneError::NotGit { workspace: workspace.to_owned(), said: done.error_line() });
        }
        Ok(SourceRepository {
            workspace: workspace.to_owned(),
            objects: PathBuf::from(done.trimmed_output()),
            git,
        })
    }

    fn head_commit(&self) -> Result<String, CloneError> {
        let asked = ["rev-parse", "--verify", "--quiet", "HEAD^{commit}"];
        let done = self.git.run_git(&self.workspace, "read HEAD of", &asked)?;
        if done.status.success() {
            Ok(done.stdout_text())
        } else {
            Err(CloneError::NoCommit { workspace: self.workspace.clone() })
        }
    }

    fn keep_objects(&self, session: SessionId, commit: &str) -> Result<(), CloneError> {
        let name = format!("refs/minke/{session}");
        self.run_checked(&self.workspace, "set a ref in", &["update-ref", &name, commit])
    }

    /// Deletes the ref; a missing ref is not an error.
    fn release_objects(&self, session: SessionId) -> Result<(), CloneError> {
        let name = format!("refs/minke/{session}");
        self.run_checked(&self.workspace, "remove a ref from", &["update-ref", "-d", &name])
    }

    /// Creates a repository that shares the objects of this one. `git clone` is not used, because it starts a second
    /// git in the workspace without the overrides. One branch and no tags, so that every ref leads to objects that the
    /// session's ref keeps.
    fn clone_into(&self, into: &Path, branch: &str, commit: &str) -> Result<(), CloneError> {
        let above = into.parent().unwrap_or(into);
        let mut command = self.git.command_in(above);
        command.args(["init", "--quiet", "--template="]);
        if let Some(format) = self.query_line("read the format of", &["rev-parse", "--show-object-format"])? {
            command.arg(format!("--object-format={format}"));
        }
        check_status(run_to_end(command.arg("--").arg(into), "make", into)?, "make", into)?;
        let info = into.join(".git/objects/info");
        fs::create_dir_all(&info).map_err(io_error_at("make", &info))?;
        let alternates = info.join("alternates");
        fs::write(&alternates, alternates_line(&self.objects)).map_err(io_error_at("write", &alternates))?;
        self.copy_shallow(into)?;
        self.set_origin(into, commit)?;
        self.copy_author(into)?;
        self.run_checked(into, "check out", &["checkout", "--quiet", "--no-track", "-b", branch, commit])
    }

    /// Copies the list of commits at which a shallow repository ends; without it git would look for their parents.
    fn copy_shallow(&self, into: &Path) -> Result<(), CloneError> {
        let asked = ["rev-parse", "--path-format=absolute", "--git-path", "shallow"];
        let done = self.git.run_git(&self.workspace, "look at", &asked)?;
        let from = PathBuf::from(done.trimmed_output());
        let is_list = |meta: fs::Metadata| meta.is_file() && (1..=MAX_SHALLOW_BYTES).contains(&meta.len());
        if !done.status.success() || !from.symlink_metadata().is_ok_and(is_list) {
            return Ok(());
        }
        fs::copy(&from, into.join(".git/shallow")).map(drop).map_err(io_error_at("copy", &from))
    }

    /// Sets the workspace as `origin`, with its current branch.
    fn set_origin(&self, into: &Path, commit: &str) -> Result<(), CloneError> {
        let url = ["config".as_ref(), "remote.origin.url".as_ref(), self.workspace.as_os_str()];
        let mut command = self.git.command_in(into);
        check_status(run_to_end(command.args(url), "set the origin of", into)?, "set the origin of", into)?;
        let asked = ["symbolic-ref", "--quiet", "--short", "HEAD"];
        let Some(branch) = self.query_line("read the branch of", &asked)? else { return Ok(()) };
        let (here, there) = (format!("refs/remotes/origin/{branch}"), format!("refs/heads/{branch}"));
        let fetched = format!("+{there}:{here}");
        self.run_checked(into, "set the origin of", &["config", "remote.origin.fetch", &fetched])?;
        self.run_checked(into, "set a ref in", &["update-ref", &here, commit])?;
        self.run_checked(into, "set a ref in", &["symbolic-ref", "refs/remotes/origin/HEAD", &here])
    }

    /// Copies the author from the workspace: commits need one, and a pod cannot read the user's configuration.
    fn copy_author(&self, into: &Path) -> Result<(), CloneError> {
        for key in ["user.name", "user.email"] {
            let mut command = self.git.command_in(&self.workspace);
            command.env_remove("GIT_CONFIG_GLOBAL").env_remove("GIT_CONFIG_NOSYSTEM");
            // A missing key is skipped; git then tells the pod how to set it.
            let done =
                run_to_end(command.args(["config", "--get", key]), "read the author of", &self.workspace)?;
            if done.status.success() {
                self.run_checked(into, "set the author of", &["config", key, &done.stdout_text()])?;
            }
        }
        Ok(())
    }

    /// Returns the first output line of git in the workspace, or `None` if it fails.
    fn query_line(&self, what: &'static str, args: &[&str]) -> Result<Option<String>, CloneError> {
        let done = self.git.run_git(&self.workspace, what, args)?;
        Ok(Some(done.stdout_text()).filter(|text| done.status.success() && !text.is_empty()))
    }

    fn run_checked(&self, dir: &Path, what: &'static str, args: &[&str]) -> Result<(), CloneError> {
        check_status(self.git.run_git(dir, what, args)?, what, dir)
    }
}

fn check_status(done: GitOutput, what: &'static str, path: &Path) -> Result<(), CloneError> {
    if done.status.success() {
        return Ok(());
    }
    Err(CloneError::Git { what, path: path.to_owned(), said: done.error_line() })
}

/// Formats an object directory as a line of `alternates`. A name with special characters is quoted as in C.
fn alternates_line(objects: &Path) -> Vec<u8> {
    let bytes = objects.as_os_str().as_bytes();
    let mut line = bytes.to_vec();
    if bytes.contains(&b'\n') {
        let escaped = bytes.iter().flat_map(|byte| match byte {
            b'\n' => b"\\n".to_vec(),
            b'"' | b'\\' => vec![b'\\', *byte],
            byte => vec![*byte],
        });
        line = [b'"'].into_iter().chain(escaped).chain([b'"']).collect();
    }
    line.push(b'\n');
    line
}

/// Creates the directory of the clones, and a file in it that names the workspace.
fn write_origin_note(workspace: &Path, into: &Path) -> Result<(), CloneError> {
    if let Some(above) = into.parent() {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(above);
        made.map_err(io_error_at("make", above))?;
    }
    let note = origin_note_path(into);
    fs::write(&note, workspace.as_os_str().as_encoded_bytes()).map_err(io_error_at("write", &note))
}

fn origin_note_path(into: &Path) -> PathBuf {
    let mut name = into.as_os_str().to_owned();
    name.push(".");
    name.push(ORIGIN_SUFFIX);
    PathBuf::from(name)
}

fn io_error_at<'a>(what: &'static str, path: &'a Path) -> impl Fn(io::Error) -> CloneError + 'a {
    move |source| CloneError::Io { what, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_is_one_line_that_a_shell_can_read() {
        let hint = fetch_hint(Path::new("/a b/it's"), Path::new("/data/clones/1"), "minke/web");
        assert_eq!(hint, r"git -C '/a b/it'\''s' fetch /data/clones/1 minke/web:minke/web");
    }
}
