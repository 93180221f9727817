//! Runs columns as users: root, an ordinary user, or either without user namespaces.
//!
//! Here: the shared directory, starting the processes, reading their output. Elsewhere: their work (`column_run`).

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use minke_policy::SandboxBackend;
use tempfile::TempDir;

use crate::attacker::CANARY;
use crate::probe::{ProbeOutcome, TestedRestriction};
use crate::sys::sys;

/// The ordinary user for probes started by root.
const UNPRIVILEGED_UID: u32 = 65_534;

/// The user of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ProbeUser {
    Root,
    User,
}

/// One column of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TableColumn {
    pub(crate) backend: SandboxBackend,
    pub(crate) user: ProbeUser,
    pub(crate) namespaces: NamespaceSupport,
}

/// Whether user namespaces are available.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NamespaceSupport {
    On,
    /// Disabled by the test suite for this column.
    Disabled,
    /// Not available on this machine.
    Missing,
}

impl TableColumn {
    pub(crate) fn column_title(self) -> String {
        let who = match self.user {
            ProbeUser::Root => "root",
            ProbeUser::User => "user",
        };
        format!("{} {who}{}", self.backend, if self.namespaces == NamespaceSupport::On { "" } else { " −ns" })
    }
}

/// A column that tries only the probes of one restriction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OmittedWall {
    pub(crate) restriction: TestedRestriction,
    /// Whether the restriction itself stays and only its dependents are omitted.
    pub(crate) kept: bool,
}

/// A directory that every user can enter, with the program of the probes. Removed on drop.
pub(crate) struct ProbeBench {
    dir: TempDir,
    users: &'static [ProbeUser],
}

impl ProbeBench {
    pub(crate) fn new() -> io::Result<ProbeBench> {
        // Not below `/tmp`, which is the pod's own in a sandbox and would hide the effect of other restrictions.
        let dir = tempfile::Builder::new().prefix("minke-probes-").tempdir_in("/var/tmp")?;
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755))?;
        let root = rustix::process::geteuid().is_root();
        let users: &[ProbeUser] = match root {
            true if has_many_users() => &[ProbeUser::Root, ProbeUser::User],
            true => &[ProbeUser::Root],
            false => &[ProbeUser::User],
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
        Ok(ProbeBench { dir, users })
    }

    /// Returns the users that can run columns here.
    pub(crate) fn available_users(&self) -> &'static [ProbeUser] {
        self.users
    }

    /// Starts a column; [`RunningColumn::read_results`] reads its output.
    pub(crate) fn start_column(
        &self,
        column: TableColumn,
        without: Option<OmittedWall>,
    ) -> io::Result<RunningColumn> {
        let name = column.column_title().replace([' ', '−'], "-").replace('\u{2032}', "p");
        let base = tempfile::Builder::new().prefix(&name).tempdir_in(self.dir.path())?;
        let bin = self.dir.path().join("bin");
        let mut command = Command::new(bin.join("probes"));
        if column.namespaces == NamespaceSupport::Disabled {
            command.arg("without-namespaces");
        }
        command.arg("part").arg(&bin).arg(base.path()).arg(column.backend.as_str());
        if let Some(OmittedWall { restriction, kept }) = without {
            command.arg(restriction.as_str()).args(kept.then_some("kept"));
        }
        if self.users.contains(&ProbeUser::Root) && column.user == ProbeUser::User {
            chown(base.path(), Some(UNPRIVILEGED_UID), Some(UNPRIVILEGED_UID))?;
            command.uid(UNPRIVILEGED_UID).gid(UNPRIVILEGED_UID);
        }
        let child = command
            // Secrets as a pod might have them in its environment and memory.
            .env("MINKE_PROBE_API_KEY", CANARY)
            .env("MINKE_PROBE_PLAIN", "plain")
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        Ok(RunningColumn { column, child, _base: base })
    }
}

pub(crate) struct RunningColumn {
    column: TableColumn,
    child: Child,
    _base: TempDir,
}

impl RunningColumn {
    /// Returns the result of each probe, in the order of the list.
    pub(crate) fn read_results(self) -> Result<Vec<(String, ProbeOutcome)>, String> {
        let done = self.child.wait_with_output().map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&done.stdout);
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr);
            return Err(format!("{}: {}\n{said}", self.column.column_title(), done.status));
        }
        text.lines()
            .map(|line| {
                let mut parts = line.splitn(3, '\t');
                let name = parts.next().unwrap_or_default().to_owned();
                let seen = parts
                    .next()
                    .zip(parts.next())
                    .and_then(|(word, why)| ProbeOutcome::parse_outcome(word, why));
                Ok((name, seen.ok_or_else(|| format!("not a line of a part: {line}"))?))
            })
            .collect()
    }
}

/// Whether root can change to another user; in a user namespace with one user it cannot.
fn has_many_users() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let lengths = map.lines().filter_map(|line| line.split_whitespace().nth(2)?.parse::<u64>().ok());
    lengths.sum::<u64>() > u64::from(UNPRIVILEGED_UID)
}

/// Whether root is the host's root, with its capabilities.
pub(crate) fn is_host_root() -> bool {
    const SYS_ADMIN: u64 = 1 << 21;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let held = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let held = held.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    has_many_users() && held & SYS_ADMIN != 0
}

/// `without-namespaces ARGS…`: executes this program again with those arguments, in a user namespace that allows no
/// further ones. The machine's own setting stays unchanged.
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
        eprintln!("disabling user namespaces: {error}");
        return ExitCode::FAILURE;
    }
    let error = Command::new("/proc/self/exe").args(args).exec();
    eprintln!("executing the probes again: {error}");
    ExitCode::FAILURE
}

/// `euid`: prints the effective user id. Called on a set-user-ID copy.
pub(crate) fn print_euid() -> ExitCode {
    let text = format!("{}\n", rustix::process::geteuid().as_raw());
    match io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Returns the repository's root, for pages that tests read.
pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
