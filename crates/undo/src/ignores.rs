//! Ignore files: what they leave out below the directory that they stand in, as in git.

use std::ffi::OsString;
use std::io::Read;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{Mode, OFlags};

/// Ignore files of a directory, the strongest last.
const IGNORE_FILES: [&str; 3] = [".git/info/exclude", ".gitignore", ".ignore"];
/// An ignore file longer than this is none.
const IGNORE_BYTES: u64 = 1024 * 1024;

/// Ignore files from a directory upwards to the grant.
#[derive(Default)]
pub(crate) struct Rules {
    here: Vec<Gitignore>,
    above: Option<Arc<Rules>>,
}

impl Rules {
    pub(crate) fn ignores(&self, path: &Path, is_dir: bool) -> bool {
        let mut at = Some(self);
        while let Some(rules) = at {
            for file in rules.here.iter().rev() {
                match file.matched(path, is_dir) {
                    Match::Ignore(_) => return true,
                    Match::Whitelist(_) => return false,
                    Match::None => {}
                }
            }
            at = rules.above.as_deref();
        }
        false
    }
}

/// The ignore files of a directory on top of those above it.
pub(crate) fn rules_of(
    dir: BorrowedFd<'_>,
    path: &str,
    names: &[OsString],
    above: &Arc<Rules>,
) -> Arc<Rules> {
    let is_there = |file: &&&str| {
        let first = file.split('/').next().unwrap_or(file);
        names.iter().any(|name| name == first)
    };
    let read = |name: &&str| {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = std::fs::File::from(rustix::fs::openat(dir, *name, flags, Mode::empty()).ok()?);
        let is_file = file.metadata().ok()?.is_file();
        let mut text = Vec::new();
        (&file).take(IGNORE_BYTES + 1).read_to_end(&mut text).ok()?;
        if !is_file || text.len() as u64 > IGNORE_BYTES {
            return None;
        }
        let mut builder = GitignoreBuilder::new(path);
        for line in String::from_utf8_lossy(&text).trim_start_matches('\u{feff}').lines() {
            // A line that is no pattern ignores nothing, as in git.
            let _bad = builder.add_line(None, line);
        }
        builder.build().ok().filter(|rules| !rules.is_empty())
    };
    let here: Vec<Gitignore> = IGNORE_FILES.iter().filter(is_there).filter_map(read).collect();
    if here.is_empty() { Arc::clone(above) } else { Arc::new(Rules { here, above: Some(Arc::clone(above)) }) }
}
