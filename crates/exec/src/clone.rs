//! Clones: a working copy of the workspace with its own branch and its own `.git`, for a pod that shares no files.
//!
//! Here: making one beside the sessions, removing it, and the words with which it is fetched back. Elsewhere: who gets
//! one (`driver::children`, `cli`), who removes it (`minke gc`), merging (people and agents).
//! Nothing of the workspace or of the person's git set-up is run: no hook, no template, no filter, no global
//! configuration (`nothing_of_the_workspace_runs`).
//! Invariant: what is committed in a clone writes nothing in the workspace's `.git`
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

use crate::git::{Done, Git, GitError, finish};

/// A list of shallow commits is short; a longer file is none.
const SHALLOW_BYTES: u64 = 16 * 1024 * 1024;
/// Beside a clone lies a file that names its workspace, where the clone's own pod cannot write.
const ORIGIN_SUFFIX: &str = "workspace";

/// A clone that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cloned {
    pub path: PathBuf,
    /// `minke/<name>`, checked out.
    pub branch: String,
    /// Where it begins: HEAD of the workspace.
    pub commit: String,
    /// The objects that it shares with the workspace, which its pod must be able to read.
    pub objects: PathBuf,
}

/// A clone could not be made or removed.
#[derive(Debug, Error)]
pub enum CloneError {
    #[error("{0}; install git, or share the directory instead")]
    NoGit(GitError),
    #[error(transparent)]
    Run(GitError),
    #[error(
        "{} is not in a git repository, so it cannot be cloned ({said}); `git init` and commit, or share the directory instead",
        .workspace.display()
    )]
    NotGit { workspace: PathBuf, said: String },
    #[error("the repository of {} has no commit yet, so a clone would be empty; commit first", .workspace.display())]
    NoCommit { workspace: PathBuf },
    #[error("{} is there already; `minke gc` removes clones of sessions that are over", .path.display())]
    Exists { path: PathBuf },
    #[error("git could not {what} {}: {said}", .path.display())]
    Git { what: &'static str, path: PathBuf, said: String },
    #[error("cannot {what} {}: {source}", .path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
}

impl From<GitError> for CloneError {
    fn from(error: GitError) -> CloneError {
        match error {
            GitError::Missing(_) | GitError::Start { .. } => CloneError::NoGit(error),
            GitError::Slow { .. } | GitError::Io { .. } | GitError::TooMuch { .. } => CloneError::Run(error),
        }
    }
}

/// Makes a clone of `workspace` at `into`, which must not be there, on the branch `minke/<name>` at HEAD. A ref
/// `refs/minke/<session>` in the workspace keeps the shared objects. No program is taken from where `writable` lets
/// somebody write. If it fails nothing is left. Blocks.
pub fn make(
    workspace: &Path,
    into: &Path,
    name: &PodName,
    session: SessionId,
    writable: &Scope,
) -> Result<Cloned, CloneError> {
    if into.symlink_metadata().is_ok() {
        return Err(CloneError::Exists { path: into.to_owned() });
    }
    let source = Source::open(workspace, into, writable)?;
    let commit = source.head()?;
    // First the ref, so that there is no moment in which the objects could be pruned.
    source.keep(session, &commit)?;
    let made = note_origin(workspace, into).and_then(|()| {
        // A branch has no spaces.
        let branch = format!("minke/{}", name.to_string().replace(' ', "-"));
        source.clone_into(into, &branch, &commit)?;
        Ok(Cloned { path: into.to_owned(), branch, commit, objects: source.objects.clone() })
    });
    made.inspect_err(|_| {
        // What stopped it is what the caller must hear of; `gc` finds what even this leaves.
        drop(remove(into, session));
    })
}

/// Removes a clone, the file beside it and the ref that kept its objects. What is not there is no error. Blocks.
pub fn remove(into: &Path, session: SessionId) -> Result<(), CloneError> {
    if let Some(workspace) = workspace_of(into)?
        && let Ok(source) = Source::open(&workspace, into, &Scope::default())
    {
        source.let_go(session)?;
    }
    let (Removal::Complete | Removal::Unfinished) = remove_tree(into, None).map_err(at("remove", into))?;
    let note = origin_note(into);
    match fs::remove_file(&note) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(at("remove", &note)(e)),
        _ => Ok(()),
    }
}

/// The workspace that a clone was made from, if that is known.
pub fn workspace_of(into: &Path) -> Result<Option<PathBuf>, CloneError> {
    let note = origin_note(into);
    match fs::read(&note) {
        Ok(bytes) => Ok(Some(PathBuf::from(OsString::from_vec(bytes)))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(at("read", &note)(e)),
    }
}

/// The line that brings a clone's branch into the workspace.
pub fn fetch_hint(workspace: &Path, path: &Path, branch: &str) -> String {
    format!("git -C {} fetch {} {branch}:{branch}", quoted(workspace), quoted(path))
}

/// A path as one word of a shell line.
fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        return text.into_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The repository that is cloned.
struct Source {
    workspace: PathBuf,
    objects: PathBuf,
    git: Git,
}

impl Source {
    fn open(workspace: &Path, into: &Path, writable: &Scope) -> Result<Source, CloneError> {
        let written = writable.allow.iter().filter(|rule| rule.permission != Permission::Read);
        let away = [workspace, into].into_iter().chain(written.map(|rule| Path::new(&rule.target)));
        let git = Git::find(away)?.for_repository(workspace)?;
        let asked = ["rev-parse", "--path-format=absolute", "--git-path", "objects"];
        let done = git.run(workspace, "look at", &asked)?;
        if !done.status.success() {
            return Err(CloneError::NotGit { workspace: workspace.to_owned(), said: done.said() });
        }
        Ok(Source { workspace: workspace.to_owned(), objects: PathBuf::from(done.line()), git })
    }

    fn head(&self) -> Result<String, CloneError> {
        let asked = ["rev-parse", "--verify", "--quiet", "HEAD^{commit}"];
        let done = self.git.run(&self.workspace, "read HEAD of", &asked)?;
        if done.status.success() {
            Ok(done.text())
        } else {
            Err(CloneError::NoCommit { workspace: self.workspace.clone() })
        }
    }

    fn keep(&self, session: SessionId, commit: &str) -> Result<(), CloneError> {
        let name = format!("refs/minke/{session}");
        self.must(&self.workspace, "set a ref in", &["update-ref", &name, commit])
    }

    /// Deleting a ref that is not there succeeds.
    fn let_go(&self, session: SessionId) -> Result<(), CloneError> {
        let name = format!("refs/minke/{session}");
        self.must(&self.workspace, "remove a ref from", &["update-ref", "-d", &name])
    }

    /// A new repository with the objects of this one. It is put together here, because `git clone` starts a second git
    /// in the workspace that the overrides do not reach. One branch and no tags: every ref of the clone leads to what
    /// our own ref keeps.
    fn clone_into(&self, into: &Path, branch: &str, commit: &str) -> Result<(), CloneError> {
        let above = into.parent().unwrap_or(into);
        let mut command = self.git.command(above);
        command.args(["init", "--quiet", "--template="]);
        if let Some(format) = self.said("read the format of", &["rev-parse", "--show-object-format"])? {
            command.arg(format!("--object-format={format}"));
        }
        must(finish(command.arg("--").arg(into), "make", into)?, "make", into)?;
        let info = into.join(".git/objects/info");
        fs::create_dir_all(&info).map_err(at("make", &info))?;
        let alternates = info.join("alternates");
        fs::write(&alternates, alternate(&self.objects)).map_err(at("write", &alternates))?;
        self.copy_shallow(into)?;
        self.name_origin(into, commit)?;
        self.name_author(into)?;
        self.must(into, "check out", &["checkout", "--quiet", "--no-track", "-b", branch, commit])
    }

    /// A shallow repository ends at the commits that this file names; without it git would look for their parents.
    fn copy_shallow(&self, into: &Path) -> Result<(), CloneError> {
        let asked = ["rev-parse", "--path-format=absolute", "--git-path", "shallow"];
        let done = self.git.run(&self.workspace, "look at", &asked)?;
        let from = PathBuf::from(done.line());
        let is_list = |meta: fs::Metadata| meta.is_file() && (1..=SHALLOW_BYTES).contains(&meta.len());
        if !done.status.success() || !from.symlink_metadata().is_ok_and(is_list) {
            return Ok(());
        }
        fs::copy(&from, into.join(".git/shallow")).map(drop).map_err(at("copy", &from))
    }

    /// The workspace as `origin`, with the branch that it is on.
    fn name_origin(&self, into: &Path, commit: &str) -> Result<(), CloneError> {
        let url = ["config".as_ref(), "remote.origin.url".as_ref(), self.workspace.as_os_str()];
        let mut command = self.git.command(into);
        must(finish(command.args(url), "name the origin of", into)?, "name the origin of", into)?;
        let asked = ["symbolic-ref", "--quiet", "--short", "HEAD"];
        let Some(branch) = self.said("read the branch of", &asked)? else { return Ok(()) };
        let (here, there) = (format!("refs/remotes/origin/{branch}"), format!("refs/heads/{branch}"));
        let fetched = format!("+{there}:{here}");
        self.must(into, "name the origin of", &["config", "remote.origin.fetch", &fetched])?;
        self.must(into, "set a ref in", &["update-ref", &here, commit])?;
        self.must(into, "set a ref in", &["symbolic-ref", "refs/remotes/origin/HEAD", &here])
    }

    /// Commits need an author, and a pod cannot see the person's own configuration: who commits in the workspace also
    /// commits in the clone.
    fn name_author(&self, into: &Path) -> Result<(), CloneError> {
        for key in ["user.name", "user.email"] {
            let mut command = self.git.command(&self.workspace);
            command.env_remove("GIT_CONFIG_GLOBAL").env_remove("GIT_CONFIG_NOSYSTEM");
            // A key that is not set is left out; then git tells the pod what to do.
            let done = finish(command.args(["config", "--get", key]), "read the author of", &self.workspace)?;
            if done.status.success() {
                self.must(into, "set the author of", &["config", key, &done.text()])?;
            }
        }
        Ok(())
    }

    /// One line about the workspace, if git has one.
    fn said(&self, what: &'static str, args: &[&str]) -> Result<Option<String>, CloneError> {
        let done = self.git.run(&self.workspace, what, args)?;
        Ok(Some(done.text()).filter(|text| done.status.success() && !text.is_empty()))
    }

    fn must(&self, dir: &Path, what: &'static str, args: &[&str]) -> Result<(), CloneError> {
        must(self.git.run(dir, what, args)?, what, dir)
    }
}

fn must(done: Done, what: &'static str, path: &Path) -> Result<(), CloneError> {
    if done.status.success() {
        return Ok(());
    }
    Err(CloneError::Git { what, path: path.to_owned(), said: done.said() })
}

/// A directory of objects as a line of `alternates`. One whose name has more than one line is quoted as in C.
fn alternate(objects: &Path) -> Vec<u8> {
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

/// Makes the directory in which clones lie, and says there where this one comes from.
fn note_origin(workspace: &Path, into: &Path) -> Result<(), CloneError> {
    if let Some(above) = into.parent() {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(above);
        made.map_err(at("make", above))?;
    }
    let note = origin_note(into);
    fs::write(&note, workspace.as_os_str().as_encoded_bytes()).map_err(at("write", &note))
}

fn origin_note(into: &Path) -> PathBuf {
    let mut name = into.as_os_str().to_owned();
    name.push(".");
    name.push(ORIGIN_SUFFIX);
    PathBuf::from(name)
}

fn at<'a>(what: &'static str, path: &'a Path) -> impl Fn(io::Error) -> CloneError + 'a {
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
