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
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use minke_record::{PodName, SessionId};
use rustix::process::{Pid, Signal, kill_process_group};
use thiserror::Error;

/// A checkout of a large tree takes a while; one that takes this long hangs.
const GIT_WAIT: Duration = Duration::from_secs(120);
/// How often git is looked at meanwhile.
const GIT_RETRY: Duration = Duration::from_millis(2);
/// What is kept of git's output, each of both.
const GIT_BYTES: u64 = 16 * 1024;
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
    #[error("there is no `git` to make a clone with: {0}; install git, or share the directory instead")]
    NoGit(io::Error),
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
    #[error("git did not {what} {} within {} s", .path.display(), GIT_WAIT.as_secs())]
    Slow { what: &'static str, path: PathBuf },
    #[error("cannot {what} {}: {source}", .path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
}

/// Makes a clone of `workspace` at `into`, which must not be there, on the branch `minke/<name>` at HEAD. A ref
/// `refs/minke/<session>` in the workspace keeps the shared objects. If it fails nothing is left. Blocks.
pub fn make(workspace: &Path, into: &Path, name: &PodName, session: SessionId) -> Result<Cloned, CloneError> {
    if into.symlink_metadata().is_ok() {
        return Err(CloneError::Exists { path: into.to_owned() });
    }
    let source = Source::open(workspace)?;
    let commit = source.head()?;
    // First the ref, so that there is no moment in which the objects could be pruned.
    source.keep(session, &commit)?;
    let made = note_origin(workspace, into).and_then(|()| {
        let branch = format!("minke/{name}");
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
        && let Ok(source) = Source::open(&workspace)
    {
        source.let_go(session)?;
    }
    remove_tree(into).map_err(at("remove", into))?;
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
}

impl Source {
    fn open(workspace: &Path) -> Result<Source, CloneError> {
        let asked = ["rev-parse", "--path-format=absolute", "--git-path", "objects"];
        let done = git(workspace, "look at", &asked)?;
        if !done.status.success() {
            return Err(CloneError::NotGit { workspace: workspace.to_owned(), said: done.said() });
        }
        Ok(Source {
            workspace: workspace.to_owned(),
            objects: PathBuf::from(done.out.trim_end_matches('\n')),
        })
    }

    fn head(&self) -> Result<String, CloneError> {
        let asked = ["rev-parse", "--verify", "--quiet", "HEAD^{commit}"];
        let done = git(&self.workspace, "read HEAD of", &asked)?;
        if done.status.success() {
            Ok(done.out.trim().to_owned())
        } else {
            Err(CloneError::NoCommit { workspace: self.workspace.clone() })
        }
    }

    fn keep(&self, session: SessionId, commit: &str) -> Result<(), CloneError> {
        let name = format!("refs/minke/{session}");
        must(&self.workspace, "set a ref in", &["update-ref", &name, commit])
    }

    /// Deleting a ref that is not there succeeds.
    fn let_go(&self, session: SessionId) -> Result<(), CloneError> {
        let name = format!("refs/minke/{session}");
        must(&self.workspace, "remove a ref from", &["update-ref", "-d", &name])
    }

    /// One branch and no tags: every ref of the clone leads to what our own ref keeps.
    fn clone_into(&self, into: &Path, branch: &str, commit: &str) -> Result<(), CloneError> {
        let options = ["--quiet", "--shared", "--no-checkout", "--no-tags", "--single-branch", "--template="];
        let mut command = plain_git(&self.workspace);
        command.arg("clone").args(options).arg("--").arg(&self.workspace).arg(into);
        finish(&mut command, "clone", &self.workspace)?.must("clone", &self.workspace)?;
        self.name_author(into)?;
        must(into, "check out", &["checkout", "--quiet", "--no-track", "-b", branch, commit])
    }

    /// Commits need an author, and a pod cannot see the person's own configuration: who commits in the workspace also
    /// commits in the clone.
    fn name_author(&self, into: &Path) -> Result<(), CloneError> {
        for key in ["user.name", "user.email"] {
            let mut command = plain_git(&self.workspace);
            command.env_remove("GIT_CONFIG_GLOBAL").env_remove("GIT_CONFIG_NOSYSTEM");
            // A key that is not set is left out; then git tells the pod what to do.
            let done = finish(command.args(["config", "--get", key]), "read the author of", &self.workspace)?;
            if done.status.success() {
                must(into, "set the author of", &["config", key, done.out.trim_end_matches('\n')])?;
            }
        }
        Ok(())
    }
}

fn must(dir: &Path, what: &'static str, args: &[&str]) -> Result<(), CloneError> {
    git(dir, what, args)?.must(what, dir)
}

fn git(dir: &Path, what: &'static str, args: &[&str]) -> Result<Done, CloneError> {
    finish(plain_git(dir).args(args), what, dir)
}

/// Git without anybody's set-up. A repository's own configuration is read and can do nothing with these: hooks are
/// nowhere, nothing watches the files, no helper is asked for anything.
fn plain_git(dir: &Path) -> Command {
    let mut command = Command::new("git");
    command.env_clear();
    for name in ["PATH", "HOME", "XDG_CONFIG_HOME"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command
        .env("LC_ALL", "C")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_OPTIONAL_LOCKS", "0")
        .args(["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "gc.auto=0"])
        .args(["-c", "maintenance.auto=false", "-c", "advice.detachedHead=false"])
        .arg("-C")
        .arg(dir);
    command
}

/// How git ended.
struct Done {
    status: ExitStatus,
    out: String,
    err: String,
}

impl Done {
    fn must(self, what: &'static str, path: &Path) -> Result<(), CloneError> {
        if self.status.success() {
            return Ok(());
        }
        Err(CloneError::Git { what, path: path.to_owned(), said: self.said() })
    }

    /// What git says is wrong, on one line.
    fn said(&self) -> String {
        let said =
            self.err.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
        if said.is_empty() { self.status.to_string() } else { said }
    }
}

/// Runs git to its end, its group killed if it takes too long.
fn finish(command: &mut Command, what: &'static str, on: &Path) -> Result<Done, CloneError> {
    let io = at(what, on);
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(CloneError::NoGit)?;
    let out = hear(child.stdout.take());
    let err = hear(child.stderr.take());
    let status = match wait(&mut child) {
        Ok(Some(status)) => status,
        Ok(None) => return Err(CloneError::Slow { what, path: on.to_owned() }),
        Err(e) => return Err(io(e)),
    };
    Ok(Done { status, out: heard(out), err: heard(err) })
}

fn wait(child: &mut Child) -> io::Result<Option<ExitStatus>> {
    let until = Instant::now() + GIT_WAIT;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= until {
            kill_process_group(Pid::from_child(child), Signal::KILL)?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(GIT_RETRY);
    }
}

type Hearing = std::thread::JoinHandle<String>;

/// Reads a pipe to its end, so that nobody blocks, and keeps its beginning.
fn hear(pipe: Option<impl Read + Send + 'static>) -> Option<Hearing> {
    let mut pipe = pipe?;
    Some(std::thread::spawn(move || {
        let mut kept = Vec::new();
        // What cannot be read was not said; how git ended is known without it.
        drop(pipe.by_ref().take(GIT_BYTES).read_to_end(&mut kept));
        drop(io::copy(&mut pipe, &mut io::sink()));
        String::from_utf8_lossy(&kept).into_owned()
    }))
}

fn heard(hearing: Option<Hearing>) -> String {
    hearing.and_then(|hearing| hearing.join().ok()).unwrap_or_default()
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

/// Removes a tree whose directories its owner may have closed.
fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            open_directories(path)?;
            fs::remove_dir_all(path)
        }
        done => done,
    }
}

/// Follows no link: only what lies in the clone is opened.
fn open_directories(path: &Path) -> io::Result<()> {
    let mut left = vec![path.to_owned()];
    while let Some(dir) = left.pop() {
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o700))?;
        for found in fs::read_dir(&dir)? {
            let found = found?;
            if found.file_type()?.is_dir() {
                left.push(found.path());
            }
        }
    }
    Ok(())
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
