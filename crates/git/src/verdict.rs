//! Verdict: what of a repository would run code, piece by piece, each with a mark by which it is known again.
//!
//! A piece is a setting that is not safe, a configuration that cannot be read, a hook that git would run, or a `.git` or
//! `commondir` that leads out of the write scope. A hook is known by its name and content, wherever it is, so that a
//! copy of a repository or a further work tree brings nothing new; a setting is known by its file, too.
//! Reads only. Elsewhere: comparing (`guard`), moving aside (`quarantine`).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::config::Setting;
use crate::places::{follow, read_bytes, stamp};
use crate::repository::{ConfigFile, Repository, expand, with_includes};
use crate::scan::{Entry, Kind};
use crate::settings::{Meaning, Named, meaning, named};
use crate::targets::{Finder, HOOK_NAMES};

/// The longest hook whose content is compared.
const HOOK_BYTES: u64 = 4 * 1024 * 1024;
/// Entries of one directory of hooks that are looked at.
const HOOKS: usize = 256;

/// By what a piece is known again.
pub(crate) type Mark = String;

/// One piece that would run code.
#[derive(Debug, Clone)]
pub(crate) struct Risk {
    pub(crate) mark: Mark,
    /// What would be moved aside.
    pub(crate) place: PathBuf,
    pub(crate) what: What,
}

#[derive(Debug, Clone)]
pub(crate) enum What {
    Setting(Setting),
    Unreadable(String),
    Hook,
    Leads(PathBuf),
}

/// A mark of these parts.
pub(crate) fn mark(parts: &[&OsStr]) -> Mark {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part.as_bytes());
    }
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn mark_of_setting(file: &Path, setting: &Setting) -> Mark {
    mark(&["setting".as_ref(), file.as_os_str(), setting.name().as_ref(), setting.text().as_ref()])
}

/// Where a command could write.
pub(crate) type Writable<'a> = &'a dyn Fn(&Path) -> bool;

/// Everything in a repository that would run code.
pub(crate) fn risks(entry: &Entry, finder: &Finder, writable: Writable<'_>) -> Vec<Risk> {
    let repository = Repository::open(entry);
    let Repository { git_dir, common_dir, top, .. } = &repository;
    let mut found = Vec::new();
    if matches!(entry.kind, Kind::File | Kind::Link) && !writable(git_dir) {
        found.push(leads(&entry.path, git_dir));
    }
    if common_dir != git_dir && !writable(common_dir) && writable(git_dir) {
        found.push(leads(&git_dir.join("commondir"), common_dir));
    }
    for file in repository.own_files() {
        let real = follow(&file.path);
        if let [link, ..] = real.links.as_slice() {
            found.push(leads(link, &real.real));
        }
        match &file.settings {
            Err(why) => found.push(Risk {
                mark: mark(&["unreadable".as_ref(), file.path.as_os_str()]),
                place: file.path.clone(),
                what: What::Unreadable(why.clone()),
            }),
            Ok(settings) => {
                let unsafe_ones = settings.iter().filter(|setting| !is_safe(setting, git_dir, writable));
                found.extend(unsafe_ones.map(|setting| Risk {
                    mark: mark_of_setting(&file.path, setting),
                    place: file.path.clone(),
                    what: What::Setting(setting.clone()),
                }));
            }
        }
    }
    let own_hooks = common_dir.join("hooks");
    if let [link, ..] = follow(&own_hooks).links.as_slice() {
        found.push(leads(link, &follow(&own_hooks).real));
    } else {
        found.extend(hooks(&own_hooks, false));
    }
    let own = with_includes(repository.own_files(), finder.home());
    for setting in own.iter().chain(finder.user_files()).flat_map(ConfigFile::settings) {
        let Some(Named::Hooks(path)) = named(setting) else { continue };
        if let Some(dir) = expand(&path, top, finder.home()).map(|dir| follow(&dir).real)
            && writable(&dir)
        {
            found.extend(hooks(&dir, true));
        }
    }
    found
}

/// Whether a setting runs nothing here.
pub(crate) fn is_safe(setting: &Setting, git_dir: &Path, writable: Writable<'_>) -> bool {
    match meaning(setting) {
        Meaning::Safe => true,
        Meaning::Worktree(path) => writable(&follow(&git_dir.join(path)).real),
        Meaning::Unsafe => false,
    }
}

fn leads(place: &Path, to: &Path) -> Risk {
    Risk {
        mark: mark(&["leads".as_ref(), place.as_os_str(), to.as_os_str()]),
        place: place.to_owned(),
        what: What::Leads(to.to_owned()),
    }
}

/// The hooks of a directory that git would run: of one that a setting names only those with the name of a hook, since
/// the rest is content of the work tree.
pub(crate) fn hooks(dir: &Path, only_names: bool) -> Vec<Risk> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten().take(HOOKS);
    let mut found = Vec::new();
    for entry in entries {
        let (name, place) = (entry.file_name(), entry.path());
        let is_named = name.to_str().is_some_and(|name| HOOK_NAMES.contains(&name));
        let is_sample = name.as_bytes().ends_with(b".sample") || is_quarantined(&name);
        if is_sample || (only_names && !is_named) {
            continue;
        }
        let real = follow(&place);
        let Some(there) = stamp(&real.real).filter(|there| !there.is_directory && there.mode & 0o111 != 0)
        else {
            continue;
        };
        let content = match read_bytes(&real.real, HOOK_BYTES) {
            Ok(Some(bytes)) => mark(&[OsStr::from_bytes(&bytes)]),
            // Too long, or not to be read: known by its state alone.
            _ => format!("{there:?}"),
        };
        found.push(Risk {
            mark: mark(&["hook".as_ref(), name.as_ref(), content.as_ref()]),
            place,
            what: What::Hook,
        });
    }
    found
}

/// A name that this crate gave.
fn is_quarantined(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.contains(crate::quarantine::ASIDE))
}

impl Risk {
    /// Why it was moved aside. Values are left out: they may be long, or hold a key.
    pub(crate) fn why(&self) -> String {
        match &self.what {
            What::Setting(setting) => {
                format!("sets {}, which can run a program or lead git to one", shown(&setting.name()))
            }
            What::Unreadable(why) => format!("cannot be read as git's configuration: {why}"),
            What::Hook => "is a hook, which git would run".to_owned(),
            What::Leads(to) => format!("leads git to {}", shown(&to.to_string_lossy())),
        }
    }
}

/// A name from a command, bounded and without control characters.
pub(crate) fn shown(text: &str) -> String {
    const CHARS: usize = 200;
    let mut shown: String = text.chars().take(CHARS).flat_map(char::escape_debug).collect();
    if text.chars().count() > CHARS {
        shown.push('…');
    }
    shown
}
