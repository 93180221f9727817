//! Ignore files: the paths that they exclude below their directory, as in git.

use std::ffi::OsString;
use std::io::Read;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{Mode, OFlags};

/// The ignore files of a directory; later ones have priority.
const IGNORE_FILES: [&str; 3] = [".git/info/exclude", ".gitignore", ".ignore"];
/// Longer ignore files are skipped.
const MAX_IGNORE_BYTES: u64 = 1024 * 1024;

/// The ignore files from a directory up to the grant.
#[derive(Default)]
pub(crate) struct IgnoreFileRules {
    own_rules: Vec<Gitignore>,
    parent_rules: Option<Arc<IgnoreFileRules>>,
}

impl IgnoreFileRules {
    pub(crate) fn is_ignored(&self, path: &Path, is_dir: bool) -> bool {
        let mut at = Some(self);
        while let Some(rules) = at {
            for file in rules.own_rules.iter().rev() {
                match file.matched(path, is_dir) {
                    Match::Ignore(_) => return true,
                    Match::Whitelist(_) => return false,
                    Match::None => {}
                }
            }
            at = rules.parent_rules.as_deref();
        }
        false
    }
}

/// The ignore files of a directory combined with those of its parents.
pub(crate) fn load_rules(
    dir: BorrowedFd<'_>,
    path: &str,
    names: &[OsString],
    parent: &Arc<IgnoreFileRules>,
) -> Arc<IgnoreFileRules> {
    let is_there = |file: &&&str| {
        let first = file.split('/').next().unwrap_or(file);
        names.iter().any(|name| name == first)
    };
    let read = |name: &&str| {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = std::fs::File::from(rustix::fs::openat(dir, *name, flags, Mode::empty()).ok()?);
        let is_file = file.metadata().ok()?.is_file();
        let mut text = Vec::new();
        (&file).take(MAX_IGNORE_BYTES + 1).read_to_end(&mut text).ok()?;
        if !is_file || text.len() as u64 > MAX_IGNORE_BYTES {
            return None;
        }
        let mut builder = GitignoreBuilder::new(path);
        for line in String::from_utf8_lossy(&text).trim_start_matches('\u{feff}').lines() {
            // An invalid pattern ignores nothing, as in git.
            let _bad = builder.add_line(None, line);
        }
        builder.build().ok().filter(|rules| !rules.is_empty())
    };
    let own_rules: Vec<Gitignore> = IGNORE_FILES.iter().filter(is_there).filter_map(read).collect();
    if own_rules.is_empty() {
        Arc::clone(parent)
    } else {
        Arc::new(IgnoreFileRules { own_rules, parent_rules: Some(Arc::clone(parent)) })
    }
}
