//! The parts of a repository that would run code, each with a mark that identifies it across scans.
//!
//! A part is an unsafe setting, an unreadable configuration, a hook that git would run, or a `.git` or `commondir` that
//! leads out of the write scope. A hook is identified by its name and content, wherever it is, so that a copy of a
//! repository or another work tree adds nothing new. A setting is also identified by its file.
//! Reads only. Elsewhere: comparing (`guard`), quarantining (`quarantine`).

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::config::GitSetting;
use crate::repository::{GitConfigFile, GitRepository, expand_path, with_includes};
use crate::safe_paths::{file_stamp, follow_links, read_bytes};
use crate::scan::{RepositoryEntry, RepositoryKind};
use crate::settings::{SettingSafety, SettingTarget, setting_safety, setting_target};
use crate::targets::{HOOK_NAMES, TargetFinder};

/// The largest hook whose content is compared.
const MAX_HOOK_BYTES: u64 = 4 * 1024 * 1024;
/// The most entries of one hooks directory.
const MAX_HOOKS: usize = 256;

/// Identifies a part across scans.
pub(crate) type RiskMark = String;

/// A part that would run code.
#[derive(Debug, Clone)]
pub(crate) struct RepositoryRisk {
    pub(crate) mark: RiskMark,
    /// The file to quarantine.
    pub(crate) path: PathBuf,
    pub(crate) kind: RiskKind,
}

#[derive(Debug, Clone)]
pub(crate) enum RiskKind {
    Setting(GitSetting),
    Unreadable(String),
    Hook,
    LeadsOutside(PathBuf),
}

/// Returns the mark of these values.
pub(crate) fn risk_mark(parts: &[&OsStr]) -> RiskMark {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part.as_bytes());
    }
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn setting_mark(file: &Path, setting: &GitSetting) -> RiskMark {
    risk_mark(&[
        "setting".as_ref(),
        file.as_os_str(),
        setting.full_name().as_ref(),
        setting.value_text().as_ref(),
    ])
}

/// Whether a command could write a path.
pub(crate) type WritableCheck<'a> = &'a dyn Fn(&Path) -> bool;

/// Returns all parts of a repository that would run code.
pub(crate) fn repository_risks(
    entry: &RepositoryEntry,
    finder: &TargetFinder,
    writable: WritableCheck<'_>,
) -> Vec<RepositoryRisk> {
    let repository = GitRepository::from_entry(entry);
    let GitRepository { git_dir, common_dir, top, .. } = &repository;
    let mut found = Vec::new();
    if matches!(entry.kind, RepositoryKind::File | RepositoryKind::Link) && !writable(git_dir) {
        found.push(link_risk(&entry.path, git_dir));
    }
    if common_dir != git_dir && !writable(common_dir) && writable(git_dir) {
        found.push(link_risk(&git_dir.join("commondir"), common_dir));
    }
    for file in repository.own_config_files() {
        let real = follow_links(&file.path);
        if let [link, ..] = real.links.as_slice() {
            found.push(link_risk(link, &real.real_path));
        }
        match &file.settings {
            Err(why) => found.push(RepositoryRisk {
                mark: risk_mark(&["unreadable".as_ref(), file.path.as_os_str()]),
                path: file.path.clone(),
                kind: RiskKind::Unreadable(why.clone()),
            }),
            Ok(settings) => {
                let unsafe_ones =
                    settings.iter().filter(|setting| !is_safe_setting(setting, git_dir, writable));
                found.extend(unsafe_ones.map(|setting| RepositoryRisk {
                    mark: setting_mark(&file.path, setting),
                    path: file.path.clone(),
                    kind: RiskKind::Setting(setting.clone()),
                }));
            }
        }
    }
    let own_hooks = common_dir.join("hooks");
    if let [link, ..] = follow_links(&own_hooks).links.as_slice() {
        found.push(link_risk(link, &follow_links(&own_hooks).real_path));
    } else {
        found.extend(hook_risks(&own_hooks, false));
    }
    let own = with_includes(repository.own_config_files(), finder.home_dir());
    for setting in own.iter().chain(finder.user_config_files()).flat_map(GitConfigFile::settings) {
        let Some(SettingTarget::Hooks(path)) = setting_target(setting) else { continue };
        if let Some(dir) = expand_path(&path, top, finder.home_dir()).map(|dir| follow_links(&dir).real_path)
            && writable(&dir)
        {
            found.extend(hook_risks(&dir, true));
        }
    }
    found
}

/// Whether a setting runs nothing here.
pub(crate) fn is_safe_setting(setting: &GitSetting, git_dir: &Path, writable: WritableCheck<'_>) -> bool {
    match setting_safety(setting) {
        SettingSafety::Safe => true,
        SettingSafety::Worktree(path) => writable(&follow_links(&git_dir.join(path)).real_path),
        SettingSafety::Unsafe => false,
    }
}

fn link_risk(place: &Path, to: &Path) -> RepositoryRisk {
    RepositoryRisk {
        mark: risk_mark(&["leads".as_ref(), place.as_os_str(), to.as_os_str()]),
        path: place.to_owned(),
        kind: RiskKind::LeadsOutside(to.to_owned()),
    }
}

/// Returns the hooks of a directory that git would run. In a directory that a setting names, only files with the name
/// of a hook count, because the others are files of the work tree.
pub(crate) fn hook_risks(dir: &Path, only_names: bool) -> Vec<RepositoryRisk> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten().take(MAX_HOOKS);
    let mut found = Vec::new();
    for entry in entries {
        let (name, path) = (entry.file_name(), entry.path());
        let is_named = name.to_str().is_some_and(|name| HOOK_NAMES.contains(&name));
        let is_sample = name.as_bytes().ends_with(b".sample") || is_quarantined(&name);
        if is_sample || (only_names && !is_named) {
            continue;
        }
        let real = follow_links(&path);
        let Some(there) =
            file_stamp(&real.real_path).filter(|there| !there.is_directory && there.mode & 0o111 != 0)
        else {
            continue;
        };
        let content = match read_bytes(&real.real_path, MAX_HOOK_BYTES) {
            Ok(Some(bytes)) => risk_mark(&[OsStr::from_bytes(&bytes)]),
            // Too large or unreadable: identified by its metadata.
            _ => format!("{there:?}"),
        };
        found.push(RepositoryRisk {
            mark: risk_mark(&["hook".as_ref(), name.as_ref(), content.as_ref()]),
            path,
            kind: RiskKind::Hook,
        });
    }
    found
}

/// Whether a name was assigned by the quarantine.
fn is_quarantined(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.contains(crate::quarantine::QUARANTINE_MARK))
}

impl RepositoryRisk {
    /// Returns why it was quarantined. Values are omitted: they may be long, or contain a key.
    pub(crate) fn reason_text(&self) -> String {
        match &self.kind {
            RiskKind::Setting(setting) => {
                format!(
                    "sets {}, which can run a program or lead git to one",
                    printable_text(&setting.full_name())
                )
            }
            RiskKind::Unreadable(why) => format!("could not be read as git configuration: {why}"),
            RiskKind::Hook => "is a hook, which git would run".to_owned(),
            RiskKind::LeadsOutside(to) => format!("leads git to {}", printable_text(&to.to_string_lossy())),
        }
    }
}

/// Returns a name for a message, shortened and without control characters.
pub(crate) fn printable_text(text: &str) -> String {
    const MAX_CHARS: usize = 200;
    let mut shown: String = text.chars().take(MAX_CHARS).flat_map(char::escape_debug).collect();
    if text.chars().count() > MAX_CHARS {
        shown.push('…');
    }
    shown
}
