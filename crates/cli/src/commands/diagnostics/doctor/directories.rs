//! Directories of this user: existence, owner, mode and free space.
//!
//! Only checks them; `registry` creates them when they are first needed.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use minke_registry::UserPaths;
use rustix::fs::{Access, AtFlags, CWD, accessat, statvfs};
use serde_json::{Value, json};

use super::{Finding, FindingState, Inspection};
use crate::context::CliContext;

/// With less free space, sessions may soon fail to write.
const MIN_FREE_BYTES: u64 = 100 * 1024 * 1024;

/// One directory.
struct UserDirectory<'a> {
    name: &'static str,
    path: &'a Path,
    /// Minke creates it and denies access to other users.
    owned_by_minke: bool,
}

/// Observed state of a directory.
struct DirectoryStatus {
    exists: bool,
    owner: Option<u32>,
    mode: Option<u32>,
    free: Option<u64>,
}

pub(super) fn inspect_directories(paths: &UserPaths, context: &CliContext) -> Inspection {
    let directories = [
        UserDirectory { name: "config", path: &paths.config, owned_by_minke: false },
        UserDirectory { name: "data", path: &paths.data, owned_by_minke: true },
        UserDirectory { name: "state", path: &paths.state, owned_by_minke: true },
        UserDirectory { name: "runtime", path: &paths.runtime, owned_by_minke: true },
    ];
    let mut inspection = Inspection { findings: Vec::new(), value: Value::Array(Vec::new()) };
    let mut rows = Vec::new();
    for directory in directories {
        let (status, finding) = directory.inspect_directory(context.env.user_env.uid);
        rows.push(json!({
            "name": directory.name,
            "path": directory.path.display().to_string(),
            "exists": status.exists,
            "owner": status.owner,
            "mode": status.mode.map(|mode| format!("{mode:04o}")),
            "free_bytes": status.free,
            "ok": finding.state != FindingState::Problem,
        }));
        inspection.findings.push(finding);
    }
    inspection.value = rows.into();
    inspection
}

impl UserDirectory<'_> {
    fn inspect_directory(&self, uid: u32) -> (DirectoryStatus, Finding) {
        // A symbolic link in place of a private directory is not followed: Minke refuses it on use.
        let found =
            if self.owned_by_minke { fs::symlink_metadata(self.path) } else { fs::metadata(self.path) };
        let existing = match &found {
            Ok(_) => Some(self.path),
            // The directory in which it would be created.
            Err(_) => self.path.ancestors().skip(1).find(|dir| dir.exists()),
        };
        let status = DirectoryStatus {
            exists: found.is_ok(),
            owner: found.as_ref().ok().map(MetadataExt::uid),
            mode: found.as_ref().ok().map(|meta| meta.permissions().mode() & 0o7777),
            free: existing.and_then(free_bytes),
        };
        let finding =
            self.find_problem(&found, existing, uid).unwrap_or_else(|| self.status_finding(&status));
        (status, finding)
    }

    /// Returns the problem that makes the directory unusable.
    fn find_problem(
        &self,
        found: &std::io::Result<fs::Metadata>,
        there: Option<&Path>,
        uid: u32,
    ) -> Option<Finding> {
        let path = self.path.display();
        let problem = |text: String, hint: String| Some(Finding::problem(self.name, text, hint));
        match found {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => problem(
                format!("could not read {path}: {e}"),
                "allow yourself to enter its parent directories, or set MINKE_HOME".to_owned(),
            ),
            Err(_) => match there {
                Some(ancestor) if self.owned_by_minke && !is_writable(ancestor) => problem(
                    format!("{path} is missing, and {} is not writable", ancestor.display()),
                    format!("create {path} as your own, or set MINKE_HOME to a writable directory"),
                ),
                _ => None,
            },
            Ok(meta) if !meta.is_dir() => {
                problem(format!("{path} is not a directory"), format!("rename it: `mv {path} {path}.away`"))
            }
            Ok(meta) if meta.uid() != uid => problem(
                format!("{path} belongs to user {}, and your user is {uid}", meta.uid()),
                format!("`chown -R {uid} {path}` as its owner, or set MINKE_HOME to your own directory"),
            ),
            Ok(_) if self.owned_by_minke && !is_writable(self.path) => problem(
                format!("{path} is not writable"),
                format!("`chmod u+rwx {path}`; if its file system is read-only, set MINKE_HOME"),
            ),
            Ok(_) => None,
        }
    }

    fn status_finding(&self, status: &DirectoryStatus) -> Finding {
        let path = self.path.display();
        let free = status.free.map_or_else(String::new, |bytes| format!(", {} free", format_bytes(bytes)));
        if let Some(bytes) = status.free.filter(|bytes| self.owned_by_minke && *bytes < MIN_FREE_BYTES) {
            return Finding::problem(
                self.name,
                format!("{path}: only {} are free", format_bytes(bytes)),
                format!("free at least {}, or sessions cannot be written", format_bytes(MIN_FREE_BYTES)),
            );
        }
        match status.mode {
            None if self.owned_by_minke => {
                Finding::good(self.name, format!("{path}: created when needed{free}"))
            }
            None => Finding::good(self.name, format!("{path}: missing, and not required")),
            Some(mode) if mode & 0o022 != 0 => Finding::note(
                self.name,
                format!("{path}: others may write there (mode {mode:04o}){free}"),
                format!("`chmod go-w {path}`"),
            ),
            Some(mode) if self.owned_by_minke && mode & 0o077 != 0 => Finding::note(
                self.name,
                format!("{path}: others may read it (mode {mode:04o}){free}"),
                "nothing to do: the next start of a pod makes it private",
            ),
            Some(mode) => Finding::good(self.name, format!("{path}: yours, mode {mode:04o}{free}")),
        }
    }
}

/// Returns true if this process may create and remove files in a directory.
fn is_writable(dir: &Path) -> bool {
    accessat(CWD, dir, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS).is_ok()
}

/// Returns the bytes that an ordinary user may still use.
fn free_bytes(dir: &Path) -> Option<u64> {
    statvfs(dir).ok().map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Formats a number of bytes.
fn format_bytes(bytes: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match UNITS.into_iter().find(|(_, unit)| bytes >= *unit) {
        Some((name, unit)) => format!("{}.{} {name}", bytes / unit, bytes % unit * 10 / unit),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_readable() {
        assert_eq!(format_bytes(17), "17 bytes");
        assert_eq!(format_bytes(1536), "1.5 KiB");
        assert_eq!(format_bytes(100 * 1024 * 1024), "100.0 MiB");
        assert_eq!(format_bytes(u64::MAX), "17179869183.9 GiB");
    }
}
