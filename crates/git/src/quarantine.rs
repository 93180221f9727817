//! Quarantine: a file that would run code gets a name that nothing runs, in the same directory.
//!
//! A configuration is replaced by its safe settings, so that the repository stays usable; hooks, links and `.git` files are
//! renamed only. Nothing is overwritten and nothing is deleted.
//! Everything is reached through a directory that was opened without following a link, because commands may still run
//! (`no_link_leads_a_rename_astray`).

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::config::{Setting, write};
use crate::places::open_directory;

/// Part of each name that is given here: no hook, no configuration and no repository is called so.
pub(crate) const ASIDE: &str = ".minke-quarantined-";
/// The most files of one name that are kept aside.
const KEPT: u32 = 1000;

/// Renames what is at a path; gives the new path.
pub(crate) fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let (directory, name) = place(path)?;
    for number in 1..=KEPT {
        let mut aside = OsString::from(name);
        aside.push(format!("{ASIDE}{number}"));
        match rename(&directory, name, &aside) {
            Ok(()) => return Ok(path.with_file_name(aside)),
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::other(format!("{KEPT} files of this name are kept aside already")))
}

/// Renames without replacing anything.
fn rename(directory: &OwnedFd, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
    #[cfg(target_os = "linux")]
    match rustix::fs::renameat_with(directory, from, directory, to, rustix::fs::RenameFlags::NOREPLACE) {
        // A file system that cannot promise it.
        Err(Errno::INVAL | Errno::NOSYS) => {}
        renamed => return renamed,
    }
    if rustix::fs::statat(directory, to, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        return Err(Errno::EXIST);
    }
    rustix::fs::renameat(directory, from, directory, to)
}

/// Writes the settings of a configuration that was set aside and that may stay.
pub(crate) fn keep_settings(path: &Path, settings: &[Setting]) -> io::Result<()> {
    let (directory, name) = place(path)?;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&directory, name, flags, Mode::from_raw_mode(0o644))?;
    File::from(file).write_all(write(settings).as_bytes())
}

fn place(path: &Path) -> io::Result<(OwnedFd, &OsStr)> {
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
        assert!(set_aside(&at.join("link/config")).is_err());
        assert!(keep_settings(&at.join("link/new"), &[]).is_err());
        assert_eq!(std::fs::read_dir(at.join("outside")).unwrap().count(), 1);
    }

    #[test]
    fn nothing_that_was_kept_aside_is_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().canonicalize().unwrap();
        for number in 1..=3 {
            std::fs::write(at.join("config"), number.to_string()).unwrap();
            let aside = set_aside(&at.join("config")).unwrap();
            assert_eq!(aside, at.join(format!("config.minke-quarantined-{number}")));
            assert_eq!(std::fs::read_to_string(aside).unwrap(), number.to_string());
        }
    }
}
