//! Shell builtins that run their arguments, change the meaning of names, or evaluate their arguments.

use super::super::ShellWord;
use super::super::commands::wrapper::{self, WrapperSpec};
use super::super::effects::{CommandEffect, InnerCommand, join_words};
use super::super::findings::ShellFindings;

/// Returns whether a command takes assignments as arguments.
pub(in crate::shell) fn is_declaration(name: &str) -> bool {
    matches!(name, "declare" | "typeset" | "export" | "readonly" | "local")
}

/// Options of `set` that do not change which commands run.
const SET_LETTERS: &str = "eufvxCETbh";
pub(in crate::shell) const SET_NAMES: &[&str] = &[
    "errexit",
    "nounset",
    "noglob",
    "verbose",
    "xtrace",
    "noclobber",
    "errtrace",
    "functrace",
    "notify",
    "pipefail",
    "hashall",
    "emacs",
    "vi",
];
/// Options of `shopt` that do not change which commands run.
const SHOPT_NAMES: &[&str] = &[
    "nullglob",
    "globstar",
    "dotglob",
    "failglob",
    "nocaseglob",
    "inherit_errexit",
    "lastpipe",
    "checkwinsize",
    "huponexit",
    "checkjobs",
];

const COMMAND_SPEC: WrapperSpec = WrapperSpec { flags: "p", ..WrapperSpec::new("command") };
const EXEC_SPEC: WrapperSpec = WrapperSpec { flags: "cl", valued: "a", ..WrapperSpec::new("exec") };

/// Returns the effect of a builtin, if it is relevant.
pub(in crate::shell) fn builtin_effect(
    name: &str,
    words: &[ShellWord],
    findings: &mut ShellFindings,
) -> Option<CommandEffect> {
    let arguments = words.get(1..).unwrap_or_default();
    let known: Vec<Option<&str>> = arguments.iter().map(ShellWord::as_known).collect();
    Some(match name {
        "eval" => CommandEffect::shell_line(join_words(skip_double_dash(arguments)), "eval"),
        "." | "source" => source_effect(name, arguments, findings),
        "command" if known.first().copied().flatten().is_some_and(|word| word == "-v" || word == "-V") => {
            CommandEffect::default()
        }
        "command" => wrapper::wrapped_effect(&COMMAND_SPEC, words),
        "builtin" => CommandEffect::run_words(skip_double_dash(arguments), "builtin"),
        "exec" => exec_effect(words),
        "trap" => trap_effect(arguments),
        "set" => set_effect(arguments),
        "shopt" => shopt_effect(arguments, findings),
        "alias" | "unalias" if !arguments.is_empty() => {
            CommandEffect::uncertain("aliases change what names mean")
        }
        "enable" => CommandEffect::uncertain("`enable` changes which builtins there are"),
        "hash" if !arguments.is_empty() => {
            CommandEffect::uncertain("`hash` can change which program a name means")
        }
        "bind" | "complete" | "compgen" | "compopt" => {
            CommandEffect::uncertain(format!("`{name}` can run its arguments as commands"))
        }
        "history" if known.iter().all(|word| word.is_some_and(super::super::findings::is_number)) => {
            CommandEffect::default()
        }
        "fc" | "history" => CommandEffect::uncertain(format!("`{name}` can run or change earlier commands")),
        "mapfile" | "readarray" => mapfile_effect(arguments, findings),
        "read" => read_effect(arguments, "adinNptu", findings),
        "getopts" => {
            assign_effect(arguments.get(1..2).unwrap_or_default(), findings);
            CommandEffect::default()
        }
        "printf" if known.first().is_some_and(|word| word.is_some_and(|word| word.starts_with("-v"))) => {
            let attached =
                known.first().copied().flatten().and_then(|word| word.strip_prefix("-v")).unwrap_or_default();
            if attached.is_empty() {
                assign_effect(arguments.get(1..2).unwrap_or_default(), findings)
            } else {
                assign_effect(&[ShellWord::Known(attached.to_owned())], findings)
            }
        }
        "printf" if known.first().is_none_or(Option::is_none) && !arguments.is_empty() => {
            CommandEffect::opaque("an argument may make `printf` set a variable")
        }
        "unset" => assign_effect(arguments, findings),
        "wait" if known.iter().flatten().any(|word| word.starts_with("-p")) => {
            CommandEffect::uncertain("`wait -p` sets a variable")
        }
        "let" => let_effect(arguments, findings),
        "export" => export_effect(arguments, findings),
        "declare" | "typeset" | "local" | "readonly" => declare_effect(arguments),
        "test" => test_effect(arguments),
        "[" => test_effect(arguments.split_last().map_or(&[], |(_, rest)| rest)),
        "cd" | "pushd" | "popd" => {
            findings.enter_directory(arguments);
            CommandEffect::default()
        }
        _ => return None,
    })
}

/// A script that runs in the current shell: its variables apply to everything that follows. If the file is
/// not a regular file on disk, its commands are unknown.
fn source_effect(name: &str, arguments: &[ShellWord], findings: &mut ShellFindings) -> CommandEffect {
    findings.forget_values();
    let plain = |file: &str| {
        let special = ["/dev/", "/proc/", "/run/"].iter().any(|place| file.starts_with(place));
        !special && !file.starts_with('-') && !file.split('/').any(|part| part == "..")
    };
    match arguments.first().and_then(ShellWord::as_known) {
        Some(file) if plain(file) => {
            findings.mark_dangerous(format!(
                "`{name}` runs a file in this shell, which can change the meaning of names"
            ));
            CommandEffect::opaque(format!("`{name}` runs a file in this shell"))
        }
        _ => CommandEffect::uncertain(format!("`{name}` runs a file in this shell")),
    }
}

/// `exec -a NAME program`: the program sees NAME as its own name, and some act according to it.
fn exec_effect(words: &[ShellWord]) -> CommandEffect {
    let mut effect = wrapper::wrapped_effect(&EXEC_SPEC, words);
    let named = words.iter().position(|word| word.as_known() == Some("-a")).and_then(|at| words.get(at + 1));
    let Some(InnerCommand::Words { words: inner, .. }) = effect.inner.first() else { return effect };
    if let Some(named) = named {
        let words = std::iter::once(named.clone()).chain(inner.iter().skip(1).cloned()).collect();
        effect.inner.push(InnerCommand::Words {
            words,
            assignments: Vec::new(),
            label: "exec -a".to_owned(),
        });
    }
    effect
}

fn skip_double_dash(arguments: &[ShellWord]) -> &[ShellWord] {
    match arguments.split_first() {
        Some((ShellWord::Known(first), rest)) if first == "--" => rest,
        _ => arguments,
    }
}

/// `trap 'line' SIGNAL`.
fn trap_effect(arguments: &[ShellWord]) -> CommandEffect {
    let arguments = skip_double_dash(arguments);
    match arguments.split_first() {
        None => CommandEffect::default(),
        Some((ShellWord::Known(line), _)) if matches!(line.as_str(), "" | "-" | "-l" | "-p") => {
            CommandEffect::default()
        }
        Some((_, [])) => CommandEffect::default(),
        Some((line, _)) => CommandEffect::shell_line(line.clone(), "trap"),
    }
}

fn set_effect(arguments: &[ShellWord]) -> CommandEffect {
    let unknown = || CommandEffect::uncertain("`set` changes how the shell parses the following text");
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        let Some(word) = word.as_known() else { return unknown() };
        if word == "--" || word == "-" {
            return CommandEffect::default();
        }
        let Some(letters) = word.strip_prefix(['-', '+']) else { return CommandEffect::default() };
        match letters.strip_suffix('o') {
            Some(before) if before.chars().all(|c| SET_LETTERS.contains(c)) => {
                let name = rest.next().map(ShellWord::as_known);
                if !name.is_none_or(|name| name.is_some_and(|name| SET_NAMES.contains(&name))) {
                    return unknown();
                }
            }
            None if letters.chars().all(|c| SET_LETTERS.contains(c)) => {}
            _ => return unknown(),
        }
    }
    CommandEffect::default()
}

fn shopt_effect(arguments: &[ShellWord], findings: &mut ShellFindings) -> CommandEffect {
    arguments.iter().filter_map(ShellWord::as_known).for_each(|option| findings.apply_glob_option(option));
    let harmless = |word: &ShellWord| {
        word.as_known()
            .is_some_and(|word| matches!(word, "-s" | "-u" | "-q" | "-p") || SHOPT_NAMES.contains(&word))
    };
    if arguments.iter().all(harmless) {
        CommandEffect::default()
    } else {
        CommandEffect::uncertain("`shopt` changes how the shell parses the following text")
    }
}

fn mapfile_effect(arguments: &[ShellWord], findings: &mut ShellFindings) -> CommandEffect {
    let mut effect = read_effect(arguments, "dnOsuCc", findings);
    let callback = arguments.iter().position(|word| match word {
        ShellWord::Known(word) => word.starts_with("-C") || (word.starts_with('-') && word.contains('C')),
        ShellWord::Unknown { .. } => true,
    });
    if let Some(at) = callback {
        if let Some(line) = arguments.get(at + 1) {
            effect.inner.push(InnerCommand::Line { text: line.clone(), label: "mapfile -C".to_owned() });
        }
        effect = effect.with_uncertain("`mapfile -C` runs a command for each line");
    }
    effect
}

/// Records the variables that `read` assigns.
fn read_effect(arguments: &[ShellWord], valued: &str, findings: &mut ShellFindings) -> CommandEffect {
    let mut given = Vec::new();
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        match word.as_known() {
            Some(option) if option.len() > 1 && option.starts_with('-') => {
                let last = option.chars().next_back().unwrap_or('-');
                let takes = option.chars().skip(1).find(|c| valued.contains(*c));
                let value = if takes == Some(last) { rest.next() } else { None };
                if takes == Some('a') {
                    let attached = option.split_once('a').map(|(_, name)| ShellWord::Known(name.to_owned()));
                    given.extend(value.cloned().or(attached));
                }
            }
            _ => given.push(word.clone()),
        }
    }
    given.push(ShellWord::Known("REPLY".to_owned()));
    given.push(ShellWord::Known("MAPFILE".to_owned()));
    assign_effect(&given, findings)
}

/// Records the variables that these words name. A subscript in a name is evaluated.
fn assign_effect(words: &[ShellWord], found: &mut ShellFindings) -> CommandEffect {
    for word in words {
        match word.as_known() {
            Some(name) if name.contains('[') => {
                return CommandEffect::uncertain("a subscript is evaluated, which may run commands");
            }
            Some(name) if name.starts_with('-') => {}
            Some(name) => found.assign_variable(name, &ShellWord::any_value(""), false),
            None => {
                return CommandEffect::uncertain(format!(
                    "the name of the assigned variable is unknown: {word}"
                ));
            }
        }
    }
    CommandEffect::default()
}

/// `let` evaluates each argument.
fn let_effect(arguments: &[ShellWord], findings: &mut ShellFindings) -> CommandEffect {
    let plain = |c: char| c.is_ascii_alphanumeric() || " _+-*/%<>=!&|^~?:,()".contains(c);
    for word in arguments {
        let Some(expression) = word.as_known().filter(|word| word.chars().all(plain)) else {
            return CommandEffect::uncertain(format!("`let` evaluates an unknown expression: {word}"));
        };
        for name in expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')) {
            if name.starts_with(|c: char| !c.is_ascii_digit()) {
                findings.add_evaluated(name);
            }
        }
    }
    CommandEffect::default()
}

/// `export NAME` exports the current value of the variable.
fn export_effect(arguments: &[ShellWord], found: &mut ShellFindings) -> CommandEffect {
    for name in arguments.iter().filter_map(ShellWord::as_known) {
        if !name.starts_with('-') && !name.contains('=') {
            found.assign_variable(name, &ShellWord::any_value(""), true);
        }
    }
    declare_effect(arguments)
}

/// `declare -n` and `-i` change the meaning of later assignments.
fn declare_effect(arguments: &[ShellWord]) -> CommandEffect {
    for word in arguments {
        match word.as_known() {
            Some(option) if option.starts_with(['-', '+']) && option.contains(['n', 'i', 'c', 'l', 'u']) => {
                return CommandEffect::uncertain(format!("`{option}` changes what assignments do"));
            }
            Some(name) if name.split('=').next().is_some_and(|name| name.contains('[')) => {
                return CommandEffect::uncertain("a subscript is evaluated, which may run commands");
            }
            None if !has_assignment_prefix(word) => {
                return CommandEffect::uncertain(format!(
                    "the name of the declared variable is unknown: {word}"
                ));
            }
            _ => {}
        }
    }
    CommandEffect::default()
}

/// Returns whether an unknown word begins with a plain `name=`.
fn has_assignment_prefix(word: &ShellWord) -> bool {
    let (ShellWord::Known(text) | ShellWord::Unknown { raw: text, .. }) = word;
    text.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '+')
    })
}

/// `test -v name[subscript]` evaluates the subscript, so an unknown word must not be in the place of `-v`.
fn test_effect(arguments: &[ShellWord]) -> CommandEffect {
    let evaluates = || CommandEffect::uncertain("`-v` evaluates the subscript of a variable");
    if arguments.iter().any(|word| word.as_known() == Some("-v")) {
        return evaluates();
    }
    if let Some(word) =
        arguments.iter().find(|word| matches!(word, ShellWord::Unknown { raw, .. } if !is_one_word(raw)))
    {
        return CommandEffect::uncertain(format!(
            "`test` gets {word} without quotes, which may become `-v` and run a command"
        ));
    }
    let known: Vec<Option<&str>> =
        arguments.iter().map(ShellWord::as_known).skip_while(|word| *word == Some("!")).collect();
    match known.as_slice() {
        [] | [_] | [Some(_), _] | [_, Some(_), _] => CommandEffect::default(),
        words if words.iter().all(Option::is_some) => CommandEffect::default(),
        words
            if words
                .chunks(4)
                .all(|test| matches!(test, [_, Some(_), _] | [_, Some(_), _, Some("-a" | "-o")])) =>
        {
            CommandEffect::default()
        }
        _ => CommandEffect::uncertain("`test` gets unknown words in the place of an operator"),
    }
}

/// Returns whether an unknown word always becomes one word: in double quotes, or a number.
fn is_one_word(raw: &str) -> bool {
    let quoted = raw.len() > 1 && raw.starts_with('"') && raw.ends_with('"');
    let inner = raw.get(1..raw.len().saturating_sub(1)).unwrap_or_default();
    (quoted && !inner.contains(['@', '"']))
        || matches!(raw, "$?" | "$#" | "$$")
        || raw.starts_with("${#")
        || raw.starts_with("$((")
}
