//! Starts git: a binary outside every workspace, isolated from the user's and the repository's configuration.
//!
//! Here: the program, its environment, the settings that disable a repository's programs, running it to its end.
//! Elsewhere: the callers (`clone`, the tour).
//! Many configuration keys of a repository name programs, and git has no option that ignores it. Each call therefore
//! overrides the keys with a fixed name. Keys with a name of the repository's choice (`filter.NAME`, `hook.NAME` …) are
//! read first and overridden one by one.
//! Invariant: no program that a repository names is run (`nothing_of_the_workspace_runs`).

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use minke_programs::{ProgramError, ProgramLookup};
use rustix::process::{Pid, Signal, kill_process_group};
use thiserror::Error;

/// The timeout of a git command. A checkout of a large tree takes a while.
const GIT_TIMEOUT: Duration = Duration::from_secs(120);
/// The interval at which the git process is polled.
const GIT_POLL_INTERVAL: Duration = Duration::from_millis(2);
/// The size limit of each stored output.
const MAX_OUTPUT_BYTES: u64 = 1024 * 1024;
/// The most overridden keys; a configuration with more is rejected.
const MAX_OVERRIDES: usize = 512;

/// Variables that git inherits from this process.
const PASSED_VARIABLES: [&str; 2] = ["HOME", "XDG_CONFIG_HOME"];

/// Overrides of keys with a fixed name.
const FIXED_OVERRIDES: [&str; 22] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "core.alternateRefsCommand=true",
    "core.askPass=true",
    "core.editor=true",
    "core.pager=cat",
    "core.sshCommand=false",
    "core.gitProxy=none",
    "sequence.editor=true",
    "diff.external=",
    "credential.helper=",
    "commit.gpgSign=false",
    "gpg.program=false",
    "submodule.recurse=false",
    "fetch.recurseSubmodules=false",
    "protocol.allow=never",
    "gc.auto=0",
    "maintenance.auto=false",
    "advice.detachedHead=false",
    "log.showSignature=false",
    "init.defaultBranch=main",
];

/// Variables with the same effect for programs that git starts itself.
const GIT_VARIABLES: [(&str, &str); 14] = [
    ("LC_ALL", "C"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    // No object is fetched: the address of a promisor remote may name a program.
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_ALLOW_PROTOCOL", "none"),
    ("GIT_PROTOCOL_FROM_USER", "0"),
    ("GIT_PAGER", "cat"),
    ("GIT_EDITOR", "true"),
    ("GIT_SEQUENCE_EDITOR", "true"),
    ("GIT_ASKPASS", "true"),
    ("GIT_SSH_COMMAND", "false"),
];

/// The git program, with the overrides for its repository.
#[derive(Debug, Clone)]
pub struct GitProgram {
    program: PathBuf,
    /// `PATH` for git and its own programs.
    path: OsString,
    overrides: Vec<(OsString, &'static str)>,
}

/// Why git could not be run.
#[derive(Debug, Error)]
pub enum GitError {
    #[error("could not start git: {0}")]
    Missing(#[from] ProgramError),
    #[error("could not start {}: {source}", .program.display())]
    Start { program: PathBuf, source: io::Error },
    #[error("git could not {what} {} within {} s", .path.display(), GIT_TIMEOUT.as_secs())]
    TimedOut { what: &'static str, path: PathBuf },
    #[error("could not {what} {}: {source}", .path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "could not use git in {}: its configuration has more than {MAX_OVERRIDES} keys that name programs, or more than \
         {MAX_OUTPUT_BYTES} bytes",
        .path.display()
    )]
    TooManyOverrides { path: PathBuf },
}

impl GitProgram {
    /// Finds git outside these workspaces.
    pub fn find_outside<W: AsRef<Path>>(
        workspaces: impl IntoIterator<Item = W>,
    ) -> Result<GitProgram, GitError> {
        let lookup = ProgramLookup::new(workspaces);
        Ok(GitProgram {
            program: lookup.find_program("git")?,
            path: lookup.search_path(),
            overrides: Vec::new(),
        })
    }

    /// Adds overrides for all keys with which the repository's configuration names programs under names of its own. A
    /// directory outside a repository needs none.
    pub fn for_repository(mut self, dir: &Path) -> Result<GitProgram, GitError> {
        let mut command = self.command_in(dir);
        command.args(["config", "--list", "--name-only", "--includes", "-z"]);
        let done = run_to_end(&mut command, "read the configuration of", dir)?;
        if done.stdout.len() as u64 >= MAX_OUTPUT_BYTES {
            return Err(GitError::TooManyOverrides { path: dir.to_owned() });
        }
        let keys: BTreeSet<&[u8]> = done.stdout.split(|byte| *byte == 0).collect();
        let found = keys
            .into_iter()
            .filter_map(|key| Some((OsStr::from_bytes(key).to_owned(), override_value(key)?)));
        self.overrides = found.take(MAX_OVERRIDES + 1).collect();
        if self.overrides.len() > MAX_OVERRIDES {
            return Err(GitError::TooManyOverrides { path: dir.to_owned() });
        }
        Ok(self)
    }

    /// Returns a git command for a directory.
    pub fn command_in(&self, dir: &Path) -> Command {
        let mut command = minke_programs::program_command(&self.program);
        command.env_clear().env("PATH", &self.path);
        for name in PASSED_VARIABLES {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.envs(GIT_VARIABLES).env("GIT_CONFIG_COUNT", self.overrides.len().to_string());
        for (at, (key, value)) in self.overrides.iter().enumerate() {
            command.env(format!("GIT_CONFIG_KEY_{at}"), key).env(format!("GIT_CONFIG_VALUE_{at}"), value);
        }
        command.arg("--no-pager").args(FIXED_OVERRIDES.iter().flat_map(|set| ["-c", set]));
        command.arg("-C").arg(dir);
        command
    }

    /// Runs git to its end.
    pub(crate) fn run_git(
        &self,
        dir: &Path,
        what: &'static str,
        args: &[&str],
    ) -> Result<GitOutput, GitError> {
        run_to_end(self.command_in(dir).args(args), what, dir)
    }
}

/// Returns the override for a key that names a program under a name of the repository's choice, else `None`.
fn override_value(key: &[u8]) -> Option<&'static str> {
    let (section, rest) = split_record(key, |at| at.iter().position(|byte| *byte == b'.'))?;
    let (_, name) = split_record(rest, |at| at.iter().rposition(|byte| *byte == b'.'))?;
    let (section, name) = (section.to_ascii_lowercase(), name.to_ascii_lowercase());
    Some(match (section.as_slice(), name.as_slice()) {
        (b"filter", b"clean" | b"smudge" | b"process") => "",
        (b"filter", b"required") => "false",
        (b"hook", b"command") => "true",
        (b"hook", b"event") => "",
        (b"hook", b"enabled") => "false",
        (b"diff", b"command" | b"textconv") => "",
        (b"merge" | b"mergetool" | b"difftool" | b"gpg", b"driver" | b"cmd" | b"path" | b"program") => {
            "false"
        }
        (b"remote", b"uploadpack" | b"receivepack") => "false",
        (b"remote", b"vcs" | b"proxy") => "",
        (b"remote", b"promisor") => "false",
        (b"credential", b"helper") => "",
        (b"submodule", b"update") => "none",
        (b"protocol", b"allow") => "never",
        (b"trailer", b"cmd" | b"command") => "true",
        _ => return None,
    })
}

fn split_record(text: &[u8], at: impl Fn(&[u8]) -> Option<usize>) -> Option<(&[u8], &[u8])> {
    let at = at(text)?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

/// The exit status and output of git.
pub(crate) struct GitOutput {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    stderr: String,
}

impl GitOutput {
    /// Returns git's error message on one line.
    pub(crate) fn error_line(&self) -> String {
        let said =
            self.stderr.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
        if said.is_empty() { self.status.to_string() } else { said }
    }

    /// Returns the output without the last line break.
    pub(crate) fn trimmed_output(&self) -> &OsStr {
        OsStr::from_bytes(self.stdout.strip_suffix(b"\n").unwrap_or(&self.stdout))
    }

    pub(crate) fn stdout_text(&self) -> String {
        self.trimmed_output().to_string_lossy().into_owned()
    }
}

/// Runs git to its end. After the timeout, its process group is killed.
pub(crate) fn run_to_end(
    command: &mut Command,
    what: &'static str,
    on: &Path,
) -> Result<GitOutput, GitError> {
    let io = |source| GitError::Io { what, path: on.to_owned(), source };
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let start = |source, command: &Command| GitError::Start { program: command.get_program().into(), source };
    let mut child = command.spawn().map_err(|e| start(e, command))?;
    let out = spawn_reader(child.stdout.take());
    let err = spawn_reader(child.stderr.take());
    match wait_with_timeout(&mut child).map_err(io)? {
        Some(status) => Ok(GitOutput {
            status,
            stdout: join_reader(out),
            stderr: String::from_utf8_lossy(&join_reader(err)).into_owned(),
        }),
        None => Err(GitError::TimedOut { what, path: on.to_owned() }),
    }
}

fn wait_with_timeout(child: &mut Child) -> io::Result<Option<ExitStatus>> {
    let until = Instant::now() + GIT_TIMEOUT;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= until {
            kill_process_group(Pid::from_child(child), Signal::KILL)?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(GIT_POLL_INTERVAL);
    }
}

type ReaderHandle = std::thread::JoinHandle<Vec<u8>>;

/// Reads a pipe to its end, so that git never blocks on it. Keeps the beginning.
fn spawn_reader(pipe: Option<impl Read + Send + 'static>) -> Option<ReaderHandle> {
    let mut pipe = pipe?;
    Some(std::thread::spawn(move || {
        let mut kept = Vec::new();
        // A read error is ignored; the exit status says whether git failed.
        drop(pipe.by_ref().take(MAX_OUTPUT_BYTES).read_to_end(&mut kept));
        drop(io::copy(&mut pipe, &mut io::sink()));
        kept
    }))
}

fn join_reader(hearing: Option<ReaderHandle>) -> Vec<u8> {
    hearing.and_then(|hearing| hearing.join().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_that_names_a_program_is_overridden() {
        for key in [
            "filter.lfs.process",
            "filter.a.b=c.smudge",
            "FILTER.x.Clean",
            "hook.x.command",
            "hook.x.event",
            "diff.y.textconv",
            "diff.y.command",
            "merge.z.driver",
            "remote.origin.uploadpack",
            "remote.origin.vcs",
            "remote.origin.promisor",
            "credential.https://a.b.helper",
            "submodule.m.update",
            "protocol.ext.allow",
            "trailer.t.cmd",
        ] {
            assert!(override_value(key.as_bytes()).is_some(), "{key}");
        }
        for key in
            ["", "core", "core.bare", "user.name", "remote.origin.url", "branch.main.merge", "filter.x", "."]
        {
            assert_eq!(override_value(key.as_bytes()), None, "{key}");
        }
    }
}
