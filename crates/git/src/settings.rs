//! The meaning of git settings: safe in any repository, or naming a file that git runs or reads.
//!
//! Here: the lists with their reasons, and splitting a command line into words that could be files. Elsewhere: reading
//! the files (`repository`), handling an unsafe one (`quarantine`).
//! Invariant: a key that is on no list is unsafe (`a_key_that_nobody_knows_is_unsafe`), so a setting of a later git
//! version cannot bypass the check.

use crate::config::GitSetting;

/// The risk of a setting in a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingSafety {
    /// It runs nothing and reads no further configuration.
    Safe,
    /// The path of the work tree: safe inside the write scope.
    Worktree(String),
    Unsafe,
}

/// Sections whose keys only affect display, counting and retention.
const SAFE_SECTIONS: [&str; 10] =
    ["advice", "color", "column", "status", "rerere", "index", "pack", "feature", "user", "author"];

/// Keys that run nothing; `*` matches any subsection.
const SAFE_KEYS: [&str; 84] = [
    // Properties of the file system, written by `git init` and `git clone`.
    "core.repositoryformatversion",
    "core.filemode",
    "core.bare",
    "core.logallrefupdates",
    "core.ignorecase",
    "core.precomposeunicode",
    "core.symlinks",
    "core.hidedotfiles",
    "core.longpaths",
    "core.sharedrepository",
    "core.splitindex",
    // How files are read and written.
    "core.autocrlf",
    "core.eol",
    "core.safecrlf",
    "core.quotepath",
    "core.abbrev",
    "core.compression",
    "core.bigfilethreshold",
    "core.sparsecheckout",
    "core.sparsecheckoutcone",
    "core.untrackedcache",
    "core.preloadindex",
    "core.protecthfs",
    "core.protectntfs",
    "core.commentchar",
    "core.whitespace",
    "core.multipackindex",
    "core.commitgraph",
    // Repository formats.
    "extensions.objectformat",
    "extensions.compatobjectformat",
    "extensions.refstorage",
    "extensions.partialclone",
    "extensions.worktreeconfig",
    "extensions.preciousobjects",
    "extensions.relativeworktrees",
    "extensions.noop",
    "extensions.noop-v1",
    // Names only. Addresses of remotes are checked separately (`is_plain_address`).
    "remote.pushdefault",
    "remote.*.fetch",
    "remote.*.push",
    "remote.*.mirror",
    "remote.*.tagopt",
    "remote.*.prune",
    "remote.*.prunetags",
    "remote.*.promisor",
    "remote.*.partialclonefilter",
    "remote.*.followremotehead",
    "remote.*.skipdefaultupdate",
    "remote.*.skipfetchall",
    "remote.*.gh-resolved",
    "branch.autosetupmerge",
    "branch.autosetuprebase",
    "branch.sort",
    "branch.*.merge",
    "branch.*.rebase",
    "branch.*.description",
    "branch.*.gh-merge-base",
    "branch.*.vscode-merge-base",
    "submodule.active",
    "submodule.recurse",
    "submodule.fetchjobs",
    "submodule.alternatelocation",
    "submodule.alternateerrorstrategy",
    "submodule.*.active",
    "submodule.*.branch",
    "submodule.*.ignore",
    "submodule.*.shallow",
    "submodule.*.fetchrecursesubmodules",
    // Authors, and the behaviour of common commands.
    "committer.name",
    "committer.email",
    "init.defaultbranch",
    "pull.rebase",
    "pull.ff",
    "push.default",
    "push.autosetupremote",
    "fetch.prune",
    "merge.conflictstyle",
    "merge.ff",
    "rebase.autosquash",
    "rebase.autostash",
    "commit.gpgsign",
    "tag.gpgsign",
    "gc.auto",
    "lfs.repositoryformatversion",
];

/// Returns whether a setting is safe in a repository that a sandboxed command created.
pub fn setting_safety(setting: &GitSetting) -> SettingSafety {
    let GitSetting { section, subsection, key, .. } = setting;
    let value = setting.value_text();
    let safe = |is_safe: bool| if is_safe { SettingSafety::Safe } else { SettingSafety::Unsafe };
    let plain = match subsection {
        Some(_) => format!("{section}.*.{key}"),
        None => format!("{section}.{key}"),
    };
    match plain.as_str() {
        "core.worktree" => SettingSafety::Worktree(value.to_owned()),
        // The monitor built into git, or none; any other value is a program.
        "core.fsmonitor" => safe(matches!(value, "true" | "false" | "1" | "0" | "yes" | "no" | "on" | "off")),
        "remote.*.url"
        | "remote.*.pushurl"
        | "submodule.*.url"
        | "branch.*.remote"
        | "branch.*.pushremote" => safe(is_plain_address(value)),
        // `!command` runs.
        "submodule.*.update" => safe(matches!(value, "checkout" | "rebase" | "merge" | "none")),
        _ if SAFE_KEYS.contains(&plain.as_str()) => SettingSafety::Safe,
        _ => safe(SAFE_SECTIONS.contains(&section.as_str()) && subsection.is_none()),
    }
}

/// Whether an address names no helper: `ext::` runs a command, `name::` a program of that name, and a leading `-` is an
/// option of `ssh`.
fn is_plain_address(address: &str) -> bool {
    let scheme = address.split_once("::").map(|(scheme, _)| scheme);
    let is_helper = scheme.is_some_and(|scheme| {
        !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+.-".contains(c))
    });
    !is_helper && !address.starts_with('-')
}

/// A file outside the configuration to which a setting leads git.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingTarget {
    /// A further configuration file, relative to the file that names it.
    Include(String),
    /// A hooks directory, relative to the work tree.
    Hooks(String),
    /// A directory whose hooks are copied into each new repository.
    Template(String),
    /// A shell line, or a program.
    Command(String),
}

/// The last parts of keys whose value is a program or a shell line.
const PROGRAM_KEYS: [&str; 27] = [
    "askpass",
    "clean",
    "cmd",
    "command",
    "diffcmd",
    "difffilter",
    "driver",
    "editor",
    "external",
    "fsmonitor",
    "gitproxy",
    "headercmd",
    "helper",
    "cccmd",
    "tocmd",
    "pager",
    "process",
    "program",
    "proxycommand",
    "receivepack",
    "uploadpack",
    "smudge",
    "sshcommand",
    "textconv",
    "tunnel",
    "packobjectshook",
    "recentobjectshook",
];

/// Returns the target of a setting, if git runs it or reads it as configuration.
pub fn setting_target(setting: &GitSetting) -> Option<SettingTarget> {
    let GitSetting { section, key, .. } = setting;
    let value = setting.value.clone()?;
    if value.is_empty() {
        return None;
    }
    match (section.as_str(), key.as_str()) {
        ("include" | "includeif", "path") => Some(SettingTarget::Include(value)),
        ("core", "hookspath") => Some(SettingTarget::Hooks(value)),
        ("init", "templatedir") => Some(SettingTarget::Template(value)),
        ("core", "alternaterefscommand") | ("gpg", "defaultkeycommand") | ("sendemail", "smtpserver") => {
            Some(SettingTarget::Command(value))
        }
        // An alias without `!` is a git command.
        ("alias", _) => value.strip_prefix('!').map(|line| SettingTarget::Command(line.to_owned())),
        ("submodule", "update") => {
            value.strip_prefix('!').map(|line| SettingTarget::Command(line.to_owned()))
        }
        ("pager", _) => Some(SettingTarget::Command(value)),
        ("difftool" | "mergetool" | "browser" | "man" | "lfs", "path") => Some(SettingTarget::Command(value)),
        (_, key) if PROGRAM_KEYS.contains(&key) => {
            Some(SettingTarget::Command(value.strip_prefix('!').map(str::to_owned).unwrap_or(value)))
        }
        _ => None,
    }
}

/// Returns the words of a shell line that could be file names: split as in a shell, without quotes and without text
/// before `=`. Extra words do no harm, because only existing files are used.
pub fn shell_words(line: &str) -> Vec<String> {
    let splits = |c: char| c.is_whitespace() || ";|&()<>`\"'".contains(c);
    let mut words = Vec::new();
    for word in line.split(splits).filter(|word| !word.is_empty()) {
        words.push(word.to_owned());
        if let Some((_, value)) = word.split_once('=')
            && !value.is_empty()
        {
            words.push(value.to_owned());
        }
    }
    words.truncate(MAX_WORDS);
    words
}

/// The most words of one line that are checked.
const MAX_WORDS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse_config;

    fn parse_one(text: &str) -> GitSetting {
        let mut settings = parse_config(text).unwrap();
        assert_eq!(settings.len(), 1, "{text}");
        settings.remove(0)
    }

    #[test]
    fn what_ordinary_git_work_writes_is_safe() {
        for text in [
            "[core]\nrepositoryformatversion = 0",
            "[core] bare",
            "[remote \"origin\"] url = https://example.org/x.git",
            "[remote \"origin\"] url = git@example.org:x.git",
            "[remote \"origin\"] url = ssh://[::1]/x.git",
            "[remote \"origin\"] url = ../store.git",
            "[remote \"origin\"] fetch = +refs/heads/*:refs/remotes/origin/*",
            "[branch \"main\"] remote = origin",
            "[branch \"main\"] merge = refs/heads/main",
            "[user] name = A. Person",
            "[submodule \"lib\"] url = ../lib",
            "[submodule \"lib\"] active = true",
            "[submodule \"lib\"] update = rebase",
            "[extensions] objectFormat = sha256",
            "[core] fsmonitor = false",
        ] {
            assert_eq!(setting_safety(&parse_one(text)), SettingSafety::Safe, "{text}");
        }
        let worktree = parse_one("[core] worktree = ../../../lib");
        assert_eq!(setting_safety(&worktree), SettingSafety::Worktree("../../../lib".to_owned()));
    }

    #[test]
    fn a_key_that_nobody_knows_is_unsafe() {
        for text in [
            "[core] fsmonitor = touch PWN",
            "[core] hooksPath = x",
            "[core] sshCommand = x",
            "[core] editor = x",
            "[core] pager = x",
            "[core] gitProxy = x",
            "[core] askPass = x",
            "[core] attributesFile = x",
            "[core] alternateRefsCommand = x",
            "[include] path = x",
            "[includeIf \"gitdir:/\"] path = x",
            "[filter \"x\"] clean = x",
            "[filter \"x\"] process = x",
            "[diff \"x\"] textconv = x",
            "[diff] external = x",
            "[merge \"x\"] driver = x",
            "[credential] helper = x",
            "[credential \"https://x\"] helper = x",
            "[gpg] program = x",
            "[gpg \"ssh\"] defaultKeyCommand = x",
            "[alias] st = !x",
            "[pager] status = x",
            "[sequence] editor = x",
            "[remote \"o\"] url = ext::sh -c x",
            "[remote \"o\"] url = hg::https://x",
            "[remote \"o\"] url = -oProxyCommand=x",
            "[remote \"o\"] uploadpack = x",
            "[remote \"o\"] vcs = x",
            "[branch \"m\"] remote = ext::sh",
            "[url \"ext::x\"] insteadOf = https://",
            "[protocol \"ext\"] allow = always",
            "[uploadpack] packObjectsHook = x",
            "[submodule \"m\"] update = !x",
            "[trailer \"x\"] cmd = x",
            "[interactive] diffFilter = x",
            "[init] templateDir = x",
            "[hook \"x\"] command = x",
            "[user \"x\"] name = y",
            "[invented] key = x",
        ] {
            assert_eq!(setting_safety(&parse_one(text)), SettingSafety::Unsafe, "{text}");
        }
    }

    #[test]
    fn what_a_setting_names_is_found() {
        let command = |line: &str| Some(SettingTarget::Command(line.to_owned()));
        for (text, expected) in [
            ("[core] hooksPath = .husky", Some(SettingTarget::Hooks(".husky".to_owned()))),
            ("[include] path = ../x", Some(SettingTarget::Include("../x".to_owned()))),
            ("[includeIf \"onbranch:main\"] path = x", Some(SettingTarget::Include("x".to_owned()))),
            ("[init] templateDir = ~/t", Some(SettingTarget::Template("~/t".to_owned()))),
            ("[alias] st = status", None),
            ("[alias] x = !./x.sh a", command("./x.sh a")),
            ("[filter \"f\"] clean = node f.js %f", command("node f.js %f")),
            ("[core] fsmonitor = .git/x", command(".git/x")),
            ("[core] pager", None),
            ("[credential] helper = !f", command("f")),
            ("[user] name = x", None),
        ] {
            assert_eq!(setting_target(&parse_one(text)), expected, "{text}");
        }
        assert_eq!(shell_words("FOO=./a 'b c' \"$(d)\";e"), ["FOO=./a", "./a", "b", "c", "$", "d", "e"]);
    }
}
