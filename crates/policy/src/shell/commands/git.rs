//! Git: options and subcommands that run other commands, and settings that name programs.

use super::super::ShellWord;
use super::super::effects::{CommandEffect, InnerCommand, join_words};

/// Settings that `-c` may set without changing which programs run.
const HARMLESS_SETTINGS: &[&str] = &[
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

/// Global options of git without a value.
const GLOBAL_FLAGS: &[&str] = &[
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

/// Options of subcommands that name a program or a command line.
const PROGRAM_OPTIONS: &[&str] = &[
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

pub(in crate::shell) fn git_effect(words: &[ShellWord]) -> CommandEffect {
    let mut effect = CommandEffect::default();
    let mut at = 1;
    while let Some(word) = words.get(at) {
        let Some(word) = word.as_known() else {
            return effect.with_uncertain(format!("the subcommand of git is unknown: {word}"));
        };
        if !word.starts_with('-') {
            break;
        }
        let next = words.get(at + 1);
        let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        match name {
            "-c" => {
                effect = setting_effect(effect, next);
                at += 1;
            }
            "-C" => at += 1,
            "--git-dir" | "--work-tree" | "--namespace" | "--super-prefix" | "--attr-source" => {
                effect =
                    effect.with_opaque(format!("`{name}` makes git use the settings of another repository"));
                at += usize::from(value.is_none());
            }
            "--exec-path" if value.is_some() => {
                effect = effect.with_opaque("`--exec-path` sets the directory of git's programs");
            }
            "--config-env" => {
                effect = effect.with_opaque("`--config-env` takes a setting from the environment");
                at += usize::from(value.is_none());
            }
            _ if GLOBAL_FLAGS.contains(&word) => {}
            _ if word.starts_with("-c") && !word.starts_with("--") => {
                effect =
                    setting_effect(effect, Some(&ShellWord::Known(word.trim_start_matches("-c").to_owned())));
            }
            _ => effect = effect.with_uncertain(format!("git has an unknown option: {word}")),
        }
        at += 1;
    }
    let rest = words.get(at..).unwrap_or_default();
    subcommand_effect(effect, rest)
}

/// Handles `-c name=value`.
fn setting_effect(mut what: CommandEffect, setting: Option<&ShellWord>) -> CommandEffect {
    let Some(setting) = setting.and_then(ShellWord::as_known) else {
        return what.with_uncertain("a setting of git is known only at run time");
    };
    let (name, value) = setting.split_once('=').unwrap_or((setting, ""));
    let lower = name.to_ascii_lowercase();
    if HARMLESS_SETTINGS.contains(&lower.as_str()) {
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
        let text = ShellWord::Known(if is_alias { format!("git {line}") } else { line });
        what.inner.push(InnerCommand::Line { text, label: format!("git -c {name}") });
    }
    what.with_opaque(format!("`-c {name}=` is a setting that can change which programs git runs"))
}

fn subcommand_effect(mut effect: CommandEffect, words: &[ShellWord]) -> CommandEffect {
    let Some(verb) = words.first() else { return effect };
    let Some(verb) = verb.as_known() else {
        return effect.with_uncertain(format!("the subcommand of git is unknown: {verb}"));
    };
    let rest = words.get(1..).unwrap_or_default();
    let first = rest.first().and_then(ShellWord::as_known);
    match (verb, first) {
        ("bisect", Some("run")) => {
            let words = rest.get(1..).unwrap_or_default().to_vec();
            effect.inner.push(InnerCommand::Words {
                words,
                assignments: Vec::new(),
                label: "git bisect run".to_owned(),
            });
        }
        ("submodule", _) => {
            if let Some(at) = rest.iter().position(|word| word.as_known() == Some("foreach")) {
                let line = rest.get(at + 1..).unwrap_or_default();
                let line: Vec<ShellWord> = line
                    .iter()
                    .skip_while(|word| matches!(word.as_known(), Some("--recursive" | "--quiet" | "-q")))
                    .cloned()
                    .collect();
                effect.inner.push(InnerCommand::Line {
                    text: join_words(&line),
                    label: "git submodule foreach".to_owned(),
                });
            }
        }
        ("config", _) => effect = effect.with_opaque("it may change settings that name programs"),
        (
            "difftool" | "mergetool" | "filter-branch" | "send-email" | "daemon" | "instaweb" | "web--browse"
            | "upload-pack",
            _,
        ) => {
            effect = effect.with_opaque(format!("`git {verb}` runs programs that settings or options name"));
        }
        _ => {}
    }
    for (at, word) in rest.iter().enumerate() {
        let Some(word) = word.as_known() else { continue };
        let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        // Git accepts abbreviated long options.
        let meant =
            PROGRAM_OPTIONS.iter().find(|line| **line == name || (name.len() > 4 && line.starts_with(name)));
        let takes_line = meant.is_some_and(|meant| takes_program(verb, meant));
        if takes_line {
            let line = match value {
                Some(value) => ShellWord::Known(value.to_owned()),
                None => rest.get(at + 1).cloned().unwrap_or(ShellWord::Known(String::new())),
            };
            effect.inner.push(InnerCommand::Line { text: line, label: format!("git {verb} {name}") });
            effect = effect.with_opaque(format!("`{name}` names a program for git to run"));
        } else if matches!(name, "-c" | "--config") && verb == "clone" {
            effect =
                effect.with_opaque("`git clone -c` is a setting that can change which programs git runs");
        } else if word.starts_with("ext::") || word.starts_with("fd::") {
            effect = effect.with_opaque(format!("`{word}` is a URL that runs a program"));
        } else if verb == "grep" && (word.starts_with("-O") || word.starts_with("--open-files-in-pager")) {
            effect = effect.with_opaque("`git grep -O` runs a program");
        }
    }
    effect
}

/// Returns whether an option of a subcommand names a command to run. The same letters mean other things
/// elsewhere.
fn takes_program(verb: &str, option: &str) -> bool {
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
