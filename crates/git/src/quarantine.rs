//! Quarantines a file that would run code: renames it, in the same directory, to a name that nothing runs.
//!
//! A configuration is replaced by its safe settings, so that the repository stays usable. Hooks, links and `.git` files
//! are only renamed. Nothing is overwritten and nothing is deleted.
//! Files are accessed through a directory that was opened without following a link, because commands may still run
//! (`no_link_leads_a_rename_astray`).

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::config::{GitSetting, format_config};
use crate::safe_paths::open_directory;

/// Part of each quarantine name: no hook, configuration or repository has such a name.
pub(crate) const QUARANTINE_MARK: &str = ".minke-quarantined-";
/// The most quarantined files of one name.
const MAX_QUARANTINED: u32 = 1000;

/// Renames a file and returns its new path.
pub(crate) fn quarantine_path(path: &Path) -> io::Result<PathBuf> {
    let (directory, name) = parent_and_name(path)?;
    for number in 1..=MAX_QUARANTINED {
        let mut aside = OsString::from(name);
        aside.push(format!("{QUARANTINE_MARK}{number}"));
        match rename_exclusive(&directory, name, &aside) {
            Ok(()) => return Ok(path.with_file_name(aside)),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::other(format!("{MAX_QUARANTINED} files of this name are quarantined already")))
}

/// Renames without replacing an existing file.
fn rename_exclusive(directory: &OwnedFd, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
    #[cfg(target_os = "linux")]
    match rustix::fs::renameat_with(directory, from, directory, to, rustix::fs::RenameFlags::NOREPLACE) {
        // This file system cannot guarantee it.
        Err(Errno::INVAL | Errno::NOSYS) => {}
        renamed => return renamed,
    }
    if rustix::fs::statat(directory, to, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        return Err(Errno::EXIST);
    }
    rustix::fs::renameat(directory, from, directory, to)
}

/// Writes the settings of a quarantined configuration that may stay.
pub(crate) fn write_settings(path: &Path, settings: &[GitSetting]) -> io::Result<()> {
    let (directory, name) = parent_and_name(path)?;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&directory, name, flags, Mode::from_raw_mode(0o644))?;
    File::from(file).write_all(format_config(settings).as_bytes())
}

fn parent_and_name(path: &Path) -> io::Result<(OwnedFd, &OsStr)> {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => Ok((open_directory(parent)?, name)),
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn no_link_leads_a_rename_astray() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(at.join("outside")).unwrap();
        std::fs::write(at.join("outside/config"), "[core]").unwrap();
        symlink("outside", at.join("link")).unwrap();
        assert!(quarantine_path(&at.join("link/config")).is_err());
        assert!(write_settings(&at.join("link/new"), &[]).is_err());
        assert_eq!(std::fs::read_dir(at.join("outside")).unwrap().count(), 1);
    }

    #[test]
    fn nothing_that_was_kept_aside_is_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().canonicalize().unwrap();
        for number in 1..=3 {
            std::fs::write(at.join("config"), number.to_string()).unwrap();
            let aside = quarantine_path(&at.join("config")).unwrap();
            assert_eq!(aside, at.join(format!("config.minke-quarantined-{number}")));
            assert_eq!(std::fs::read_to_string(aside).unwrap(), number.to_string());
        }
    }
}
