//! What a setting of git means: safe in any repository, or the name of something that git runs or reads.
//!
//! Here: the lists, each with its reason, and the words of a command line that could be files. Elsewhere: reading the
//! files (`repository`), what is done about an unsafe one (`quarantine`).
//! Invariant: a key that is on no list is unsafe (`a_key_that_nobody_knows_is_unsafe`), so a later git cannot add a way
//! out that this file forgot.

use crate::config::Setting;

/// What a setting in a repository can do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meaning {
    /// It runs nothing and reads no further configuration.
    Safe,
    /// Where the work tree is: safe inside the write scope.
    Worktree(String),
    Unsafe,
}

/// Sections whose every key only changes what git shows, counts or keeps.
const SAFE_SECTIONS: [&str; 10] =
    ["advice", "color", "column", "status", "rerere", "index", "pack", "feature", "user", "author"];

/// Keys that run nothing, with `*` for any subsection.
const SAFE_KEYS: [&str; 84] = [
    // What `git init` and `git clone` write about the file system.
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
    // The formats of the repository itself.
    "extensions.objectformat",
    "extensions.compatobjectformat",
    "extensions.refstorage",
    "extensions.partialclone",
    "extensions.worktreeconfig",
    "extensions.preciousobjects",
    "extensions.relativeworktrees",
    "extensions.noop",
    "extensions.noop-v1",
    // Names only. What a remote's address may be is looked at apart (`is_plain_address`).
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
    // Who a commit is by, and how common commands behave.
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

/// Whether a setting may be in a repository that a sandboxed command made.
pub fn meaning(setting: &Setting) -> Meaning {
    let Setting { section, subsection, key, .. } = setting;
    let value = setting.text();
    let safe = |is_safe: bool| if is_safe { Meaning::Safe } else { Meaning::Unsafe };
    let plain = match subsection {
        Some(_) => format!("{section}.*.{key}"),
        None => format!("{section}.{key}"),
    };
    match plain.as_str() {
        "core.worktree" => Meaning::Worktree(value.to_owned()),
        // The monitor that is built into git, or none; everything else is a program.
        "core.fsmonitor" => safe(matches!(value, "true" | "false" | "1" | "0" | "yes" | "no" | "on" | "off")),
        "remote.*.url"
        | "remote.*.pushurl"
        | "submodule.*.url"
        | "branch.*.remote"
        | "branch.*.pushremote" => safe(is_plain_address(value)),
        // `!command` runs.
        "submodule.*.update" => safe(matches!(value, "checkout" | "rebase" | "merge" | "none")),
        _ if SAFE_KEYS.contains(&plain.as_str()) => Meaning::Safe,
        _ => safe(SAFE_SECTIONS.contains(&section.as_str()) && subsection.is_none()),
    }
}

/// Whether an address names no helper: `ext::` runs a command, `name::` a program of that name; a leading `-` is an
/// option of `ssh`.
fn is_plain_address(address: &str) -> bool {
    let scheme = address.split_once("::").map(|(scheme, _)| scheme);
    let is_helper = scheme.is_some_and(|scheme| {
        !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+.-".contains(c))
    });
    !is_helper && !address.starts_with('-')
}

/// Something outside the configuration that a setting leads git to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    /// A further configuration file, relative to the file that names it.
    Include(String),
    /// A directory of hooks, relative to the work tree.
    Hooks(String),
    /// A directory whose hooks go into each new repository.
    Template(String),
    /// A shell line, or a program.
    Command(String),
}

/// Last words of keys whose value is a program or a shell line.
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

/// What a setting names, if it names something that git runs or reads as configuration.
pub fn named(setting: &Setting) -> Option<Named> {
    let Setting { section, key, .. } = setting;
    let value = setting.value.clone()?;
    if value.is_empty() {
        return None;
    }
    match (section.as_str(), key.as_str()) {
        ("include" | "includeif", "path") => Some(Named::Include(value)),
        ("core", "hookspath") => Some(Named::Hooks(value)),
        ("init", "templatedir") => Some(Named::Template(value)),
        ("core", "alternaterefscommand") | ("gpg", "defaultkeycommand") | ("sendemail", "smtpserver") => {
            Some(Named::Command(value))
        }
        // An alias without `!` is a command of git's own.
        ("alias", _) => value.strip_prefix('!').map(|line| Named::Command(line.to_owned())),
        ("submodule", "update") => value.strip_prefix('!').map(|line| Named::Command(line.to_owned())),
        ("pager", _) => Some(Named::Command(value)),
        ("difftool" | "mergetool" | "browser" | "man" | "lfs", "path") => Some(Named::Command(value)),
        (_, key) if PROGRAM_KEYS.contains(&key) => {
            Some(Named::Command(value.strip_prefix('!').map(str::to_owned).unwrap_or(value)))
        }
        _ => None,
    }
}

/// The words of a shell line that could be names of files: split where a shell would split, quotes taken off, what comes
/// before `=` left out. More words than a shell would see do no harm: only those that are files are used.
pub fn words(line: &str) -> Vec<String> {
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
    words.truncate(WORDS);
    words
}

/// The most words of one line that are looked at.
const WORDS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;

    fn only(text: &str) -> Setting {
        let mut settings = parse(text).unwrap();
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
            assert_eq!(meaning(&only(text)), Meaning::Safe, "{text}");
        }
        let worktree = only("[core] worktree = ../../../lib");
        assert_eq!(meaning(&worktree), Meaning::Worktree("../../../lib".to_owned()));
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
            assert_eq!(meaning(&only(text)), Meaning::Unsafe, "{text}");
        }
    }

    #[test]
    fn what_a_setting_names_is_found() {
        let command = |line: &str| Some(Named::Command(line.to_owned()));
        for (text, expected) in [
            ("[core] hooksPath = .husky", Some(Named::Hooks(".husky".to_owned()))),
            ("[include] path = ../x", Some(Named::Include("../x".to_owned()))),
            ("[includeIf \"onbranch:main\"] path = x", Some(Named::Include("x".to_owned()))),
            ("[init] templateDir = ~/t", Some(Named::Template("~/t".to_owned()))),
            ("[alias] st = status", None),
            ("[alias] x = !./x.sh a", command("./x.sh a")),
            ("[filter \"f\"] clean = node f.js %f", command("node f.js %f")),
            ("[core] fsmonitor = .git/x", command(".git/x")),
            ("[core] pager", None),
            ("[credential] helper = !f", command("f")),
            ("[user] name = x", None),
        ] {
            assert_eq!(named(&only(text)), expected, "{text}");
        }
        assert_eq!(words("FOO=./a 'b c' \"$(d)\";e"), ["FOO=./a", "./a", "b", "c", "$", "d", "e"]);
    }
}
