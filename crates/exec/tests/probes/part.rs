//! Users: a column is run by root, by an ordinary user, or by either where no user namespace can be made.
//!
//! Here: the bench with what all of them share, starting the processes, hearing them. Elsewhere: what they do (`column`).

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use minke_policy::Tier;
use tempfile::TempDir;

use crate::inside::CANARY;
use crate::probe::{Seen, Wall};
use crate::sys::sys;

/// The ordinary user that root runs the probes as.
const NOBODY: u32 = 65_534;

/// Who runs a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Who {
    Root,
    User,
}

/// One column of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) tier: Tier,
    pub(crate) who: Who,
    pub(crate) namespaces: Namespaces,
}

/// Whether user namespaces can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Namespaces {
    On,
    /// The suite has shut them off for this column.
    Shut,
    /// The machine has none.
    Missing,
}

impl Column {
    pub(crate) fn title(self) -> String {
        let who = match self.who {
            Who::Root => "root",
            Who::User => "user",
        };
        format!("{} {who}{}", self.tier, if self.namespaces == Namespaces::On { "" } else { " −ns" })
    }
}

/// A column of which only the probes of one wall are tried.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Without {
    pub(crate) wall: Wall,
    /// The wall itself stands; only what must go first is left out.
    pub(crate) kept: bool,
}

/// A directory that everybody can pass, with the program that everybody runs. Gone when dropped.
pub(crate) struct Bench {
    dir: TempDir,
    people: &'static [Who],
}

impl Bench {
    pub(crate) fn new() -> io::Result<Bench> {
        // Not below `/tmp`: that is the pod's own in a fence, and would hide what the other walls do.
        let dir = tempfile::Builder::new().prefix("minke-probes-").tempdir_in("/var/tmp")?;
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755))?;
        let root = rustix::process::geteuid().is_root();
        let people: &[Who] = match root {
            true if has_many_users() => &[Who::Root, Who::User],
            true => &[Who::Root],
            false => &[Who::User],
        };
        let bin = dir.path().join("bin");
        fs::create_dir_all(bin.join("suid"))?;
        let program = std::env::current_exe()?;
        fs::copy(&program, bin.join("probes"))?;
        if root {
            let suid = bin.join("suid/probes");
            fs::copy(&program, &suid)?;
            fs::set_permissions(&suid, fs::Permissions::from_mode(0o4755))?;
        }
        Ok(Bench { dir, people })
    }

    /// Who can run columns here.
    pub(crate) fn people(&self) -> &'static [Who] {
        self.people
    }

    /// Starts a column; what it says is taken by [`Running::finish`].
    pub(crate) fn start(&self, column: Column, without: Option<Without>) -> io::Result<Running> {
        let name = column.title().replace([' ', '−'], "-").replace('\u{2032}', "p");
        let base = tempfile::Builder::new().prefix(&name).tempdir_in(self.dir.path())?;
        let bin = self.dir.path().join("bin");
        let mut command = Command::new(bin.join("probes"));
        if column.namespaces == Namespaces::Shut {
            command.arg("without-namespaces");
        }
        command.arg("part").arg(&bin).arg(base.path()).arg(column.tier.as_str());
        if let Some(Without { wall, kept }) = without {
            command.arg(wall.as_str()).args(kept.then_some("kept"));
        }
        if self.people.contains(&Who::Root) && column.who == Who::User {
            chown(base.path(), Some(NOBODY), Some(NOBODY))?;
            command.uid(NOBODY).gid(NOBODY);
        }
        let child = command
            // What a pod might have in its environment and memory.
            .env("MINKE_PROBE_API_KEY", CANARY)
            .env("MINKE_PROBE_PLAIN", "plain")
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        Ok(Running { column, child, _base: base })
    }
}

pub(crate) struct Running {
    column: Column,
    child: Child,
    _base: TempDir,
}

impl Running {
    /// What came of each probe, in the order of the list.
    pub(crate) fn finish(self) -> Result<Vec<(String, Seen)>, String> {
        let done = self.child.wait_with_output().map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&done.stdout);
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr);
            return Err(format!("{}: {}\n{said}", self.column.title(), done.status));
        }
        text.lines()
            .map(|line| {
                let mut parts = line.splitn(3, '\t');
                let name = parts.next().unwrap_or_default().to_owned();
                let seen = parts.next().zip(parts.next()).and_then(|(word, why)| Seen::parse(word, why));
                Ok((name, seen.ok_or_else(|| format!("not a line of a part: {line}"))?))
            })
            .collect()
    }
}

/// Whether root can become somebody else: in a user namespace with one user it cannot.
fn has_many_users() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let lengths = map.lines().filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok());
    lengths.sum::<u64>() > u64::from(NOBODY)
}

/// Whether the suite's root is the machine's, with its powers.
pub(crate) fn is_whole_root() -> bool {
    const SYS_ADMIN: u64 = 1 << 21;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let held = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let held = held.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    has_many_users() && held & SYS_ADMIN != 0
}

/// `without-namespaces ARGS…`: becomes this program again with those arguments, in a user namespace of its own in which
/// no other can be made. The machine's own setting is not touched.
pub(crate) fn without_namespaces(args: &[String]) -> ExitCode {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let shut = || -> io::Result<()> {
        sys!(SYS_unshare, libc::CLONE_NEWUSER)?;
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
        fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
        fs::write("/proc/sys/user/max_user_namespaces", "0")
    };
    if let Err(error) = shut() {
        eprintln!("shutting user namespaces off: {error}");
        return ExitCode::FAILURE;
    }
    let error = Command::new("/proc/self/exe").args(args).exec();
    eprintln!("executing the probes again: {error}");
    ExitCode::FAILURE
}

/// `euid`: who this process is. Called on a set-uid copy.
pub(crate) fn print_euid() -> ExitCode {
    let text = format!("{}\n", rustix::process::geteuid().as_raw());
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// The repository's root, for pages that are checked.
pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
