//! Git: options and subcommands that run other commands, or settings that name some.

use super::Word;
use super::runs::{Inner, What, joined};

/// Settings that may be given by `-c` without changing what runs.
const HARMLESS: &[&str] = &[
    "color.ui",
    "core.quotepath",
    "core.autocrlf",
    "core.filemode",
    "core.ignorecase",
    "user.name",
    "user.email",
    "init.defaultbranch",
    "advice.detachedhead",
    "commit.gpgsign",
    "tag.gpgsign",
    "pull.rebase",
    "push.default",
    "log.showsignature",
    "diff.renames",
    "merge.conflictstyle",
    "gc.auto",
    "core.commentchar",
];

/// Options of git itself without a value.
const FLAGS: &[&str] = &[
    "--no-pager",
    "-P",
    "--no-optional-locks",
    "--literal-pathspecs",
    "--glob-pathspecs",
    "--noglob-pathspecs",
    "--icase-pathspecs",
    "--no-replace-objects",
    "--bare",
    "--version",
    "--help",
    "-p",
    "--paginate",
    "--no-advice",
    "--html-path",
    "--man-path",
    "--info-path",
    "--exec-path",
];

/// Options of subcommands that name a program or a line.
const LINES: &[&str] = &[
    "--exec",
    "-x",
    "--upload-pack",
    "-u",
    "--receive-pack",
    "--extcmd",
    "--open-files-in-pager",
    "-O",
    "--tree-filter",
    "--index-filter",
    "--msg-filter",
    "--commit-filter",
    "--env-filter",
    "--parent-filter",
    "--tag-name-filter",
    "--setup",
    "--smtp-server",
    "--sendmail-cmd",
    "--to-cmd",
    "--cc-cmd",
    "--ext-diff",
    "--textconv",
    "--gpg-sign",
    "--config",
    "-c",
];

pub(super) fn what(words: &[Word]) -> What {
    let mut what = What::default();
    let mut at = 1;
    while let Some(word) = words.get(at) {
        let Some(word) = word.known() else {
            return what.and_unsure(format!("what git is told to do is not known: {word}"));
        };
        if !word.starts_with('-') {
            break;
        }
        let next = words.get(at + 1);
        let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        match name {
            "-c" => {
                what = setting(what, next);
                at += 1;
            }
            "-C" => at += 1,
            "--git-dir" | "--work-tree" | "--namespace" | "--super-prefix" | "--attr-source" => {
                what = what.and_opaque(format!("`{name}` makes git obey another repository's settings"));
                at += usize::from(value.is_none());
            }
            "--exec-path" if value.is_some() => {
                what = what.and_opaque("`--exec-path` names where git finds its programs");
            }
            "--config-env" => {
                what = what.and_opaque("`--config-env` takes a setting from the environment");
                at += usize::from(value.is_none());
            }
            _ if FLAGS.contains(&word) => {}
            _ if word.starts_with("-c") && !word.starts_with("--") => {
                what = setting(what, Some(&Word::Known(word.trim_start_matches("-c").to_owned())));
            }
            _ => what = what.and_unsure(format!("git has an option that is not known here: {word}")),
        }
        at += 1;
    }
    let rest = words.get(at..).unwrap_or_default();
    subcommand(what, rest)
}

/// `-c name=value`.
fn setting(mut what: What, setting: Option<&Word>) -> What {
    let Some(setting) = setting.and_then(Word::known) else {
        return what.and_unsure("a setting of git is not known before the line runs");
    };
    let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
    let lower = name.to_ascii_lowercase();
    if HARMLESS.contains(&lower.as_str()) {
        return what;
    }
    let programs = lower.starts_with("alias.")
        || [
            "pager",
            "editor",
            "command",
            "cmd",
            "fsmonitor",
            "hookspath",
            "helper",
            "program",
            "textconv",
            "driver",
            "askpass",
            "external",
            "tool",
            "proxy",
        ]
        .iter()
        .any(|part| lower.contains(part));
    if programs && !value.is_empty() {
        let line = value.trim_start_matches('!').to_owned();
        let is_alias = lower.starts_with("alias.") && !value.starts_with('!');
        let text = Word::Known(if is_alias { format!("git {line}") } else { line });
        what.inner.push(Inner::Line { text, label: format!("git -c {name}") });
    }
    what.and_opaque(format!("`-c {name}=` is a setting that can change what git runs"))
}

fn subcommand(mut what: What, words: &[Word]) -> What {
    let Some(verb) = words.first() else { return what };
    let Some(verb) = verb.known() else {
        return what.and_unsure(format!("what git is told to do is not known: {verb}"));
    };
    let rest = words.get(1..).unwrap_or_default();
    let first = rest.first().and_then(Word::known);
    match (verb, first) {
        ("bisect", Some("run")) => {
            let words = rest.get(1..).unwrap_or_default().to_vec();
            what.inner.push(Inner::Words {
                words,
                assignments: Vec::new(),
                label: "git bisect run".to_owned(),
            });
        }
        ("submodule", _) => {
            if let Some(at) = rest.iter().position(|word| word.known() == Some("foreach")) {
                let line = rest.get(at + 1..).unwrap_or_default();
                let line: Vec<Word> = line
                    .iter()
                    .skip_while(|word| matches!(word.known(), Some("--recursive" | "--quiet" | "-q")))
                    .cloned()
                    .collect();
                what.inner
                    .push(Inner::Line { text: joined(&line), label: "git submodule foreach".to_owned() });
            }
        }
        ("config", _) => what = what.and_opaque("it may change settings that name programs"),
        (
            "difftool" | "mergetool" | "filter-branch" | "send-email" | "daemon" | "instaweb" | "web--browse"
            | "upload-pack",
            _,
        ) => {
            what = what.and_opaque(format!("`git {verb}` runs programs that settings or options name"));
        }
        _ => {}
    }
    for (at, word) in rest.iter().enumerate() {
        let Some(word) = word.known() else { continue };
        let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        // Git takes long options that are cut short, too.
        let meant = LINES.iter().find(|line| **line == name || (name.len() > 4 && line.starts_with(name)));
        let takes_line = meant.is_some_and(|meant| runs_line(verb, meant));
        if takes_line {
            let line = match value {
                Some(value) => Word::Known(value.to_owned()),
                None => rest.get(at + 1).cloned().unwrap_or(Word::Known(String::new())),
            };
            what.inner.push(Inner::Line { text: line, label: format!("git {verb} {name}") });
            what = what.and_opaque(format!("`{name}` names a program for git to run"));
        } else if matches!(name, "-c" | "--config") && verb == "clone" {
            what = what.and_opaque("`git clone -c` is a setting that can change what git runs");
        } else if word.starts_with("ext::") || word.starts_with("fd::") {
            what = what.and_opaque(format!("`{word}` is an address that runs a program"));
        } else if verb == "grep" && (word.starts_with("-O") || word.starts_with("--open-files-in-pager")) {
            what = what.and_opaque("`git grep -O` runs a program");
        }
    }
    what
}

/// Whether an option of a subcommand names a line to run; the same letters mean other things elsewhere.
fn runs_line(verb: &str, option: &str) -> bool {
    match option {
        "-x" => matches!(verb, "rebase" | "difftool"),
        "--exec" => {
            matches!(verb, "rebase" | "push" | "archive" | "fetch-pack" | "send-pack" | "ls-remote" | "clone")
        }
        "-u" => verb == "clone" || verb == "ls-remote",
        "-O" | "-c" | "--config" | "--ext-diff" | "--textconv" | "--gpg-sign" => false,
        "--upload-pack" | "--receive-pack" => true,
        "--extcmd" => verb == "difftool",
        "--setup" => verb == "filter-branch",
        _ => matches!(verb, "filter-branch" | "send-email"),
    }
}
