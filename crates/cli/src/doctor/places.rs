//! The directories of this user: whether they are there, whose they are, who may look into them, how much room they have.
//!
//! Only looks: making them is `registry`'s work, when something is first put there.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use minke_registry::Paths;
use rustix::fs::{Access, AtFlags, CWD, accessat, statvfs};
use serde_json::{Value, json};

use super::{Finding, Looked, State};
use crate::around::Surroundings;

/// With less room a session may soon not be written.
const LEAST_FREE: u64 = 100 * 1024 * 1024;

/// One directory.
struct Place<'a> {
    name: &'static str,
    path: &'a Path,
    /// We make it when it is needed, and keep others out.
    ours: bool,
}

/// What is there.
struct Seen {
    exists: bool,
    owner: Option<u32>,
    mode: Option<u32>,
    free: Option<u64>,
}

pub(super) fn look(paths: &Paths, around: &Surroundings) -> Looked {
    let places = [
        Place { name: "config", path: &paths.config, ours: false },
        Place { name: "data", path: &paths.data, ours: true },
        Place { name: "state", path: &paths.state, ours: true },
        Place { name: "runtime", path: &paths.runtime, ours: true },
    ];
    let mut looked = Looked { findings: Vec::new(), value: Value::Array(Vec::new()) };
    let mut rows = Vec::new();
    for place in places {
        let (seen, finding) = place.look(around.user.uid);
        rows.push(json!({
            "name": place.name,
            "path": place.path.display().to_string(),
            "exists": seen.exists,
            "owner": seen.owner,
            "mode": seen.mode.map(|mode| format!("{mode:04o}")),
            "free_bytes": seen.free,
            "ok": finding.state != State::Problem,
        }));
        looked.findings.push(finding);
    }
    looked.value = rows.into();
    looked
}

impl Place<'_> {
    fn look(&self, uid: u32) -> (Seen, Finding) {
        // Not followed for ours: a link of somebody else could stand here, and is refused when it is used.
        let found = if self.ours { fs::symlink_metadata(self.path) } else { fs::metadata(self.path) };
        let there = match &found {
            Ok(_) => Some(self.path),
            // Where it would be made.
            Err(_) => self.path.ancestors().skip(1).find(|dir| dir.exists()),
        };
        let seen = Seen {
            exists: found.is_ok(),
            owner: found.as_ref().ok().map(MetadataExt::uid),
            mode: found.as_ref().ok().map(|meta| meta.permissions().mode() & 0o7777),
            free: there.and_then(free),
        };
        let finding = self.wrong(&found, there, uid).unwrap_or_else(|| self.right(&seen));
        (seen, finding)
    }

    /// What makes it unusable.
    fn wrong(
        &self,
        found: &std::io::Result<fs::Metadata>,
        there: Option<&Path>,
        uid: u32,
    ) -> Option<Finding> {
        let path = self.path.display();
        let problem = |text: String, hint: String| Some(Finding::problem(self.name, text, hint));
        match found {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => problem(
                format!("{path} cannot be looked at: {e}"),
                "give yourself the right to enter the directories above it, or set MINKE_HOME".to_owned(),
            ),
            Err(_) => match there {
                Some(above) if self.ours && !writable(above) => problem(
                    format!("{path} is missing, and {} lets you make nothing", above.display()),
                    format!("make {path} yours, or set MINKE_HOME to a directory where you may write"),
                ),
                _ => None,
            },
            Ok(meta) if !meta.is_dir() => problem(
                format!("{path} is not a directory"),
                format!("move it away: `mv {path} {path}.away`"),
            ),
            Ok(meta) if meta.uid() != uid => problem(
                format!("{path} belongs to user {}, and you are {uid}", meta.uid()),
                format!("`chown -R {uid} {path}` as its owner, or set MINKE_HOME to a directory of your own"),
            ),
            Ok(_) if self.ours && !writable(self.path) => problem(
                format!("{path} does not let you write"),
                format!("`chmod u+rwx {path}`; if its file system is read-only, set MINKE_HOME"),
            ),
            Ok(_) => None,
        }
    }

    fn right(&self, seen: &Seen) -> Finding {
        let path = self.path.display();
        let free = seen.free.map_or_else(String::new, |bytes| format!(", {} free", size(bytes)));
        if let Some(bytes) = seen.free.filter(|bytes| self.ours && *bytes < LEAST_FREE) {
            return Finding::problem(
                self.name,
                format!("{path}: only {} are free", size(bytes)),
                format!("make room for at least {}, or sessions cannot be written", size(LEAST_FREE)),
            );
        }
        match seen.mode {
            None if self.ours => Finding::good(self.name, format!("{path}: made when it is needed{free}")),
            None => Finding::good(self.name, format!("{path}: not there, and nothing in it is needed")),
            Some(mode) if mode & 0o022 != 0 => Finding::note(
                self.name,
                format!("{path}: others may write there (mode {mode:04o}){free}"),
                format!("`chmod go-w {path}`"),
            ),
            Some(mode) if self.ours && mode & 0o077 != 0 => Finding::note(
                self.name,
                format!("{path}: others may look into it (mode {mode:04o}){free}"),
                "nothing to do: it is closed to them when a pod next starts",
            ),
            Some(mode) => Finding::good(self.name, format!("{path}: yours, mode {mode:04o}{free}")),
        }
    }
}

/// Whether this process may make and remove files there.
fn writable(dir: &Path) -> bool {
    accessat(CWD, dir, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS).is_ok()
}

/// Bytes that an ordinary user may still use.
fn free(dir: &Path) -> Option<u64> {
    statvfs(dir).ok().map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// A number of bytes for people.
fn size(bytes: u64) -> String {
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
        assert_eq!(size(17), "17 bytes");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(100 * 1024 * 1024), "100.0 MiB");
        assert_eq!(size(u64::MAX), "17179869183.9 GiB");
    }
}
