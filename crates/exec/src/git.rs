//! Git as Minke starts it: found outside every workspace, without the set-up of a person or of a repository.
//!
//! Here: the program, its environment, the settings that turn code of a repository off, running it to its end.
//! Elsewhere: what it is used for (`clone`, the tour).
//! A repository's configuration can name programs in many keys, and git has no switch that ignores it. Each call
//! therefore overrides the keys with a fixed name, and those with a name of the repository's own choice (`filter.NAME`,
//! `hook.NAME` …) are read first and overridden one by one.
//! Invariant: no program that a repository names is run (`nothing_of_the_workspace_runs`).

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use minke_programs::{Lookup, ProgramError};
use rustix::process::{Pid, Signal, kill_process_group};
use thiserror::Error;

/// A checkout of a large tree takes a while; one that takes this long hangs.
const GIT_WAIT: Duration = Duration::from_secs(120);
/// How often git is looked at meanwhile.
const GIT_RETRY: Duration = Duration::from_millis(2);
/// What is kept of git's output, each of both.
const GIT_BYTES: u64 = 1024 * 1024;
/// The keys of a repository that are overridden at most; a configuration with more is refused.
const OVERRIDES: usize = 512;

/// Variables of this process that git is given.
const PASSED: [&str; 2] = ["HOME", "XDG_CONFIG_HOME"];

/// Keys with a fixed name, and what they are set to.
const PLAIN: [&str; 22] = [
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

/// Variables that say the same to programs that git starts itself.
const VARIABLES: [(&str, &str); 14] = [
    ("LC_ALL", "C"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    // No object is fetched from elsewhere: a promisor remote may name a program in its address.
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_ALLOW_PROTOCOL", "none"),
    ("GIT_PROTOCOL_FROM_USER", "0"),
    ("GIT_PAGER", "cat"),
    ("GIT_EDITOR", "true"),
    ("GIT_SEQUENCE_EDITOR", "true"),
    ("GIT_ASKPASS", "true"),
    ("GIT_SSH_COMMAND", "false"),
];

/// Git, found and with the overrides that its repository needs.
#[derive(Debug, Clone)]
pub struct Git {
    program: PathBuf,
    /// `PATH` as git and its own programs have it.
    path: OsString,
    overrides: Vec<(OsString, &'static str)>,
}

/// Git did not do what it was told.
#[derive(Debug, Error)]
pub enum GitError {
    #[error("cannot start git: {0}")]
    Missing(#[from] ProgramError),
    #[error("cannot start {}: {source}", .program.display())]
    Start { program: PathBuf, source: io::Error },
    #[error("git did not {what} {} within {} s", .path.display(), GIT_WAIT.as_secs())]
    Slow { what: &'static str, path: PathBuf },
    #[error("cannot {what} {}: {source}", .path.display())]
    Io { what: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "the git configuration of {} has more than {OVERRIDES} keys that name programs, or more than {GIT_BYTES} bytes",
        .path.display()
    )]
    TooMuch { path: PathBuf },
}

impl Git {
    /// Git as it is found outside these workspaces.
    pub fn find<W: AsRef<Path>>(workspaces: impl IntoIterator<Item = W>) -> Result<Git, GitError> {
        let lookup = Lookup::new(workspaces);
        Ok(Git { program: lookup.find("git")?, path: lookup.path(), overrides: Vec::new() })
    }

    /// The same with every key overridden by which the configuration of a repository names a program under a name of its
    /// own. A directory that is in no repository needs none.
    pub fn for_repository(mut self, dir: &Path) -> Result<Git, GitError> {
        let mut command = self.command(dir);
        command.args(["config", "--list", "--name-only", "--includes", "-z"]);
        let done = finish(&mut command, "read the configuration of", dir)?;
        if done.out.len() as u64 >= GIT_BYTES {
            return Err(GitError::TooMuch { path: dir.to_owned() });
        }
        let keys: BTreeSet<&[u8]> = done.out.split(|byte| *byte == 0).collect();
        let found =
            keys.into_iter().filter_map(|key| Some((OsStr::from_bytes(key).to_owned(), harmless(key)?)));
        self.overrides = found.take(OVERRIDES + 1).collect();
        if self.overrides.len() > OVERRIDES {
            return Err(GitError::TooMuch { path: dir.to_owned() });
        }
        Ok(self)
    }

    /// A command in a directory.
    pub fn command(&self, dir: &Path) -> Command {
        let mut command = minke_programs::command(&self.program);
        command.env_clear().env("PATH", &self.path);
        for name in PASSED {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command.envs(VARIABLES).env("GIT_CONFIG_COUNT", self.overrides.len().to_string());
        for (at, (key, value)) in self.overrides.iter().enumerate() {
            command.env(format!("GIT_CONFIG_KEY_{at}"), key).env(format!("GIT_CONFIG_VALUE_{at}"), value);
        }
        command.arg("--no-pager").args(PLAIN.iter().flat_map(|set| ["-c", set]));
        command.arg("-C").arg(dir);
        command
    }

    /// Runs git to its end.
    pub(crate) fn run(&self, dir: &Path, what: &'static str, args: &[&str]) -> Result<Done, GitError> {
        finish(self.command(dir).args(args), what, dir)
    }
}

/// What overrides a key that names a program under a name of the repository's own; `None` for every other key.
fn harmless(key: &[u8]) -> Option<&'static str> {
    let (section, rest) = split(key, |at| at.iter().position(|byte| *byte == b'.'))?;
    let (_, name) = split(rest, |at| at.iter().rposition(|byte| *byte == b'.'))?;
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

fn split(text: &[u8], at: impl Fn(&[u8]) -> Option<usize>) -> Option<(&[u8], &[u8])> {
    let at = at(text)?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

/// How git ended.
pub(crate) struct Done {
    pub(crate) status: ExitStatus,
    pub(crate) out: Vec<u8>,
    err: String,
}

impl Done {
    /// What git says is wrong, on one line.
    pub(crate) fn said(&self) -> String {
        let said =
            self.err.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
        if said.is_empty() { self.status.to_string() } else { said }
    }

    /// Its output without the end of the last line.
    pub(crate) fn line(&self) -> &OsStr {
        OsStr::from_bytes(self.out.strip_suffix(b"\n").unwrap_or(&self.out))
    }

    pub(crate) fn text(&self) -> String {
        self.line().to_string_lossy().into_owned()
    }
}

/// Runs git to its end, its group killed if it takes too long.
pub(crate) fn finish(command: &mut Command, what: &'static str, on: &Path) -> Result<Done, GitError> {
    let io = |source| GitError::Io { what, path: on.to_owned(), source };
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let start = |source, command: &Command| GitError::Start { program: command.get_program().into(), source };
    let mut child = command.spawn().map_err(|e| start(e, command))?;
    let out = hear(child.stdout.take());
    let err = hear(child.stderr.take());
    match wait(&mut child).map_err(io)? {
        Some(status) => {
            Ok(Done { status, out: heard(out), err: String::from_utf8_lossy(&heard(err)).into_owned() })
        }
        None => Err(GitError::Slow { what, path: on.to_owned() }),
    }
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

type Hearing = std::thread::JoinHandle<Vec<u8>>;

/// Reads a pipe to its end, so that git never blocks on it, and keeps its beginning.
fn hear(pipe: Option<impl Read + Send + 'static>) -> Option<Hearing> {
    let mut pipe = pipe?;
    Some(std::thread::spawn(move || {
        let mut kept = Vec::new();
        // What cannot be read was not said; how git ended is known without it.
        drop(pipe.by_ref().take(GIT_BYTES).read_to_end(&mut kept));
        drop(io::copy(&mut pipe, &mut io::sink()));
        kept
    }))
}

fn heard(hearing: Option<Hearing>) -> Vec<u8> {
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
            assert!(harmless(key.as_bytes()).is_some(), "{key}");
        }
        for key in
            ["", "core", "core.bare", "user.name", "remote.origin.url", "branch.main.merge", "filter.x", "."]
        {
            assert_eq!(harmless(key.as_bytes()), None, "{key}");
        }
    }
}
