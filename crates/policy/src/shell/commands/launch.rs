//! Commands that run others in their own ways: shells, `xargs`, `find -exec`, `watch`, `ssh`, tool chains,
//! containers.

use super::super::commands::wrapper::{WrapperSpec, find_wrapped_command, guess_effect, wrapped_effect};
use super::super::effects::{CommandEffect, InnerCommand, join_words};
use super::super::{ShellWord, WordShape, commands::builtin, output_shape};

/// Programs that run a command which their arguments do not show clearly.
const OPAQUE_LAUNCHERS: &[&str] = &[
    "parallel",
    "proot",
    "nsenter",
    "bwrap",
    "firejail",
    "gdb",
    "lldb",
    "perf",
    "at",
    "batch",
    "crontab",
    "expect",
    "systemd-run",
    "screen",
    "tmux",
    "start-stop-daemon",
    "runsv",
    "chpst",
    "setarch",
    "linux32",
    "linux64",
    "setpriv",
    "capsh",
    "pkexec",
    "run0",
    "machinectl",
    "socat",
    "nc",
    "ncat",
    "netcat",
    "telnet",
    "run-parts",
    "dbus-run-session",
    "xvfb-run",
    "sg",
    "newgrp",
    "login",
    "ld.so",
    "qemu-x86_64",
    "qemu-aarch64",
    "wine",
    "cgexec",
    "daemonize",
    "rsh",
    "mosh",
    "autossh",
];

/// How many argument positions are tried as the command of a launcher with unknown syntax.
const MAX_TAILS: usize = 4;

/// Programs of tool chains: the subcommands that run their arguments, and the number of operands before the
/// command.
const TOOLCHAIN_RUNNERS: &[(&str, &[&str], usize)] = &[
    ("uv", &["run"], 0),
    ("poetry", &["run"], 0),
    ("pipenv", &["run"], 0),
    ("pdm", &["run"], 0),
    ("hatch", &["run"], 0),
    ("rye", &["run"], 0),
    ("bundle", &["exec"], 0),
    ("rustup", &["run"], 1),
    ("direnv", &["exec"], 1),
    ("rbenv", &["exec"], 0),
    ("pyenv", &["exec"], 0),
    ("asdf", &["exec"], 0),
    ("npm", &["exec", "x"], 0),
    ("pnpm", &["exec", "dlx"], 0),
    ("yarn", &["exec", "dlx"], 0),
    ("bun", &["x"], 0),
    ("opam", &["exec"], 0),
    ("stack", &["exec"], 0),
];

/// Shells that parse lines like bash.
const BASH_SHELLS: &[&str] = &["bash", "rbash"];
/// POSIX shells, in which bash syntax has another meaning.
const POSIX_SHELLS: &[&str] =
    &["sh", "dash", "ash", "ksh", "ksh93", "mksh", "lksh", "oksh", "pdksh", "posh", "yash", "hush"];
/// Shells with another grammar.
const OTHER_SHELLS: &[&str] =
    &["zsh", "fish", "csh", "tcsh", "elvish", "nu", "xonsh", "pwsh", "powershell", "rc", "es", "osh", "ysh"];
/// Returns the effect of a command that runs others, if it is one.
pub(in crate::shell) fn launch_effect(
    name: &str,
    words: &[ShellWord],
    input: Option<&WordShape>,
) -> Option<CommandEffect> {
    if name == "env" && words.iter().any(is_split_option) {
        return Some(env_split_effect(words));
    }
    if is_shell(name) {
        return Some(shell_effect(name, words));
    }
    if OPAQUE_LAUNCHERS.contains(&name) || is_loader(name) {
        let rest = words.get(1..).unwrap_or_default();
        if matches!(rest, [ShellWord::Known(only)] if only == "--version" || only == "--help") {
            return None;
        }
        let mut effect = CommandEffect::default();
        for at in 0..rest.len().min(MAX_TAILS) {
            if rest.get(at).and_then(ShellWord::as_known).is_some_and(|word| !word.starts_with('-')) {
                effect.inner.extend(CommandEffect::run_words(rest.get(at..).unwrap_or_default(), name).inner);
            }
        }
        return Some(effect.with_uncertain(format!("the command that `{name}` runs cannot be determined")));
    }
    if let Some((_, verbs, operands)) = TOOLCHAIN_RUNNERS.iter().find(|(runner, ..)| *runner == name) {
        return runner_effect(name, verbs, *operands, words);
    }
    Some(match name {
        "npx" | "bunx" | "uvx" | "pipx" => runner_words_effect(name, words.get(1..).unwrap_or_default(), 0),
        "xargs" => xargs_effect(words, input),
        "find" => find_effect(words),
        "fd" | "fdfind" => fd_effect(words),
        "flock" => flock_effect(words),
        "watch" => watch_effect(words),
        "su" | "runuser" | "script" => line_option_effect(name, words),
        // Its options have their values after `=`.
        "valgrind" => first_operand_effect(name, words),
        "ssh" => ssh_effect(words),
        "docker" | "podman" | "nerdctl" | "kubectl" | "oc" => container_effect(name, words),
        _ => return None,
    })
}

/// Returns whether a program is a shell.
pub(in crate::shell) fn is_shell(name: &str) -> bool {
    BASH_SHELLS.contains(&name) || POSIX_SHELLS.contains(&name) || OTHER_SHELLS.contains(&name)
}

/// Returns whether a program is the dynamic loader: `ld-linux-x86-64.so.2`, `ld-musl-x86_64.so.1`.
fn is_loader(name: &str) -> bool {
    ["ld-linux", "ld-musl", "ld.so", "ld64.so", "ld-2", "ld-uClibc"]
        .iter()
        .any(|begin| name.starts_with(begin))
}

/// Returns whether a word is `env -S 'words'`, which splits the words with its own rules.
fn is_split_option(word: &ShellWord) -> bool {
    word.as_known()
        .is_some_and(|word| word.starts_with("-S") || word.starts_with("--split") || word.starts_with("-iS"))
}

fn env_split_effect(words: &[ShellWord]) -> CommandEffect {
    let at = words.iter().position(is_split_option).unwrap_or(0);
    let first = words.get(at).and_then(ShellWord::as_known).unwrap_or_default();
    let attached = first.split_once("-S").or_else(|| first.split_once('=')).map(|(_, text)| text);
    let line = match attached.filter(|text| !text.is_empty()) {
        Some(text) => ShellWord::Known(text.to_owned()),
        None => join_words(words.get(at + 1..).unwrap_or_default()),
    };
    CommandEffect::shell_line(line, "env -S").with_uncertain("`env -S` splits words with its own rules")
}

/// A shell: `-c line`, a script, or standard input.
fn shell_effect(name: &str, words: &[ShellWord]) -> CommandEffect {
    let label = format!("{name} -c");
    let mut line = false;
    let mut at = 1;
    let mut uncertain_reason = None;
    while let Some(word) = words.get(at) {
        let Some(word) = word.as_known() else {
            if line {
                break;
            }
            return CommandEffect::uncertain(format!(
                "`{name}` gets `{word}`, which is known only at run time"
            ));
        };
        if word == "--" || word == "-" {
            at += 1;
            break;
        }
        let Some(letters) = word.strip_prefix(['-', '+']).filter(|letters| !letters.is_empty()) else {
            break;
        };
        if let Some(long) = letters.strip_prefix('-') {
            match long {
                "norc" | "noprofile" | "login" | "restricted" | "verbose" | "version" | "help" => {}
                _ => {
                    uncertain_reason = Some(format!("`{name}` has an unknown option: {word}"));
                    at += usize::from(matches!(long, "rcfile" | "init-file"));
                }
            }
        } else {
            // `+c` has the same effect as `-c`.
            line |= letters.contains('c');
            let known = letters.chars().all(|c| "abcefhlmnoprstuvxBCEPT".contains(c));
            if !known {
                uncertain_reason = Some(format!("`{name}` has an unknown option: {word}"));
            }
            if letters.contains(['o', 'O']) {
                at += 1;
                let option = words.get(at).and_then(ShellWord::as_known).unwrap_or_default();
                if letters.contains('O') || !builtin::SET_NAMES.contains(&option) {
                    uncertain_reason = Some(format!("`{name} {word} {option}` changes how lines are parsed"));
                }
            }
            if letters.contains('s') && !line {
                return CommandEffect {
                    inner: vec![InnerCommand::Stdin { label: name.to_owned() }],
                    uncertain_reason,
                    ..CommandEffect::default()
                };
            }
        }
        at += 1;
    }
    let mut effect = match (line, words.get(at)) {
        (true, Some(text)) => CommandEffect::shell_line(text.clone(), label),
        (true, None) => CommandEffect::default(),
        (false, Some(ShellWord::Known(file))) if file.starts_with("/dev/") || file.starts_with("/proc/") => {
            CommandEffect {
                inner: vec![InnerCommand::Stdin { label: name.to_owned() }],
                ..CommandEffect::default()
            }
        }
        (false, Some(_)) => CommandEffect::default(),
        (false, None) if words.iter().any(|w| matches!(w.as_known(), Some("--version" | "--help"))) => {
            CommandEffect::default()
        }
        (false, None) => CommandEffect {
            inner: vec![InnerCommand::Stdin { label: name.to_owned() }],
            ..CommandEffect::default()
        },
    };
    if OTHER_SHELLS.contains(&name) {
        effect = effect.with_uncertain(format!("`{name}` parses lines with another grammar"));
    }
    match uncertain_reason {
        Some(reason) => effect.with_uncertain(reason),
        None => effect,
    }
}

const XARGS_SPEC: WrapperSpec = WrapperSpec {
    flags: "0oprtx",
    valued: "adEILnPs",
    long: &["null", "no-run-if-empty", "verbose", "interactive", "exit", "open-tty"],
    long_valued: &[
        "arg-file",
        "delimiter",
        "max-args",
        "max-procs",
        "max-lines",
        "replace",
        "eof",
        "max-chars",
    ],
    ..WrapperSpec::new("xargs")
};

/// `xargs command …`: appends words from its input; with `-I` inserts them at any position.
fn xargs_effect(words: &[ShellWord], input: Option<&WordShape>) -> CommandEffect {
    let (at, _) = match find_wrapped_command(&XARGS_SPEC, words) {
        Ok(reached) => reached,
        Err(reason) => return guess_effect("xargs", words).with_uncertain(reason),
    };
    let options = words.get(1..at).unwrap_or_default();
    let from_file =
        |word: &ShellWord| word.as_known().is_none_or(|w| w.starts_with("-a") || w.starts_with("--arg"));
    let input = input.filter(|_| !options.iter().any(from_file)).cloned().unwrap_or_else(WordShape::any_text);
    let mut replace = None;
    for (index, word) in options.iter().filter_map(ShellWord::as_known).enumerate() {
        if let Some(text) = word.strip_prefix("-I") {
            let next = options.get(index + 1).and_then(ShellWord::as_known);
            replace = Some(if text.is_empty() { next.unwrap_or("{}") } else { text }.to_owned());
        } else if word.starts_with("--replace") {
            replace = Some(word.split_once('=').map_or("{}", |(_, text)| text).to_owned());
        }
    }
    let mut inner: Vec<ShellWord> = words.get(at..).unwrap_or_default().to_vec();
    if inner.is_empty() {
        return CommandEffect::default();
    }
    match &replace {
        Some(mark) => {
            for word in &mut inner {
                if let ShellWord::Known(text) = word
                    && text.contains(mark.as_str())
                {
                    *word = ShellWord::Unknown {
                        raw: text.clone(),
                        shape: WordShape::substitute(text, mark, &input),
                    };
                }
            }
        }
        None => inner.push(ShellWord::Unknown { raw: "…".to_owned(), shape: input }),
    }
    CommandEffect::run_words(&inner, "xargs")
}

/// `find … -exec command ;`.
fn find_effect(words: &[ShellWord]) -> CommandEffect {
    let mut effect = CommandEffect::default();
    let names = output_shape::find_output(words);
    let mut at = 1;
    while let Some(word) = words.get(at) {
        if matches!(word.as_known(), Some("-exec" | "-execdir" | "-ok" | "-okdir")) {
            let label = format!("find {}", word.as_known().unwrap_or_default());
            let rest = words.get(at + 1..).unwrap_or_default();
            let length =
                rest.iter().position(|word| matches!(word.as_known(), Some(";" | "+"))).unwrap_or(rest.len());
            let command: Vec<ShellWord> =
                rest.iter().take(length).map(|word| fill_placeholder(word, &names)).collect();
            if length == rest.len() {
                effect = effect.with_uncertain("`find -exec` is not terminated");
            }
            if !command.is_empty() {
                effect.inner.push(InnerCommand::Words { words: command, assignments: Vec::new(), label });
            }
            at += length + 1;
        }
        if word.as_known().is_none()
            && !matches!(word, ShellWord::Unknown { raw, .. } if raw.starts_with(['"', '~', '*', '.', '/']))
        {
            effect = effect.with_opaque("an unknown word may be `-exec` or `-delete`");
        }
        at += 1;
    }
    effect
}

/// Returns a word with the placeholder replaced by a name.
fn fill_placeholder(word: &ShellWord, names: &WordShape) -> ShellWord {
    match word {
        ShellWord::Known(text) if text.contains("{}") => {
            ShellWord::Unknown { raw: text.clone(), shape: WordShape::substitute(text, "{}", names) }
        }
        word => word.clone(),
    }
}

/// `fd … -x command`.
fn fd_effect(words: &[ShellWord]) -> CommandEffect {
    let starts = |word: &ShellWord| {
        word.as_known().is_some_and(|word| matches!(word, "-x" | "-X" | "--exec" | "--exec-batch"))
    };
    match words.iter().position(starts) {
        Some(at) => {
            let options = words.get(..at).unwrap_or_default();
            let hidden =
                options.iter().any(|word| word.as_known().is_none_or(output_shape::is_hidden_option));
            let found = if hidden { WordShape::any_text() } else { WordShape::unnamed() };
            let command: Vec<ShellWord> = words
                .get(at + 1..)
                .unwrap_or_default()
                .iter()
                .map(|word| fill_placeholder(word, &found))
                .collect();
            let ends = command.iter().position(|word| word.as_known() == Some(";")).unwrap_or(command.len());
            let mut command = command.get(..ends).unwrap_or_default().to_vec();
            command.push(ShellWord::Unknown { raw: "…".to_owned(), shape: found });
            CommandEffect::run_words(&command, "fd -x")
        }
        None if words.iter().filter_map(ShellWord::as_known).any(|w| {
            w.starts_with("--exec") || (w.starts_with('-') && !w.starts_with("--") && w.contains(['x', 'X']))
        }) =>
        {
            CommandEffect::uncertain("the command that `fd` runs cannot be determined from its options")
        }
        None => CommandEffect::default(),
    }
}

/// `flock file command`, `flock file -c line`.
fn flock_effect(words: &[ShellWord]) -> CommandEffect {
    if let Some(at) = words.iter().position(|word| matches!(word.as_known(), Some("-c" | "--command"))) {
        let line = words.get(at + 1).cloned().unwrap_or(ShellWord::Known(String::new()));
        return CommandEffect::shell_line(line, "flock -c");
    }
    let spec = WrapperSpec {
        flags: "FexsnuNo",
        valued: "wE",
        long: &["exclusive", "shared", "nonblock", "unlock", "no-fork", "close"],
        long_valued: &["timeout", "conflict-exit-code"],
        operands: 1,
        ..WrapperSpec::new("flock")
    };
    wrapped_effect(&spec, words)
}

/// `watch words`: joins the words and runs them with `sh -c`.
fn watch_effect(words: &[ShellWord]) -> CommandEffect {
    let spec = WrapperSpec {
        flags: "bcdegtpCrwx",
        valued: "nq",
        long: &["beep", "color", "differences", "errexit", "chgexit", "no-title", "precise", "exec"],
        long_valued: &["interval"],
        ..WrapperSpec::new("watch")
    };
    match find_wrapped_command(&spec, words) {
        Ok((at, _)) => CommandEffect::shell_line(join_words(words.get(at..).unwrap_or_default()), "watch"),
        Err(reason) => guess_effect("watch", words).with_uncertain(reason),
    }
}

/// `su -c line`, `script -c line`: without `-c` they start an interactive shell.
fn line_option_effect(name: &str, words: &[ShellWord]) -> CommandEffect {
    let has = |word: &ShellWord| {
        word.as_known().is_some_and(|word| {
            word == "--command" || (word.starts_with('-') && !word.starts_with("--") && word.ends_with('c'))
        })
    };
    let line = words.iter().position(has).and_then(|at| words.get(at + 1));
    let attached =
        words.iter().filter_map(ShellWord::as_known).find_map(|word| word.strip_prefix("--command="));
    let other = words
        .iter()
        .any(|word| word.as_known().is_none_or(|word| word.starts_with("-s") || word.starts_with("--shell")));
    if other && name != "script" {
        return guess_effect(name, words).with_uncertain(format!("`{name}` may start another shell"));
    }
    match (line, attached) {
        (Some(line), _) => CommandEffect::shell_line(line.clone(), format!("{name} -c")),
        (None, Some(line)) => {
            CommandEffect::shell_line(ShellWord::Known(line.to_owned()), format!("{name} -c"))
        }
        (None, None) => guess_effect(name, words).with_uncertain(format!("`{name}` starts a shell")),
    }
}

/// `ssh host words`: joins the words and runs them in the remote shell.
fn ssh_effect(words: &[ShellWord]) -> CommandEffect {
    let spec = WrapperSpec {
        flags: "46AaCfGgKkMNnqsTtVvXxYy",
        valued: "BbcDEeIiJLlmOPpQRSWw",
        operands: 1,
        ..WrapperSpec::new("ssh")
    };
    match find_wrapped_command(&spec, words) {
        Ok((at, _)) => {
            let rest = words.get(at..).unwrap_or_default();
            let rest = if rest.first().and_then(ShellWord::as_known) == Some("--") {
                rest.get(1..).unwrap_or_default()
            } else {
                rest
            };
            let effect = if rest.is_empty() {
                CommandEffect::default()
            } else {
                CommandEffect::shell_line(join_words(rest), "ssh")
            };
            effect.with_opaque("it runs on another machine")
        }
        Err(reason) => guess_effect("ssh", words).with_uncertain(reason),
    }
}

/// Subcommands of tool chains that run their arguments.
fn runner_effect(name: &str, verbs: &[&str], operands: usize, words: &[ShellWord]) -> Option<CommandEffect> {
    let verb = words.get(1)?.as_known();
    match verb {
        Some(verb) if verbs.contains(&verb) => {
            Some(runner_words_effect(&format!("{name} {verb}"), words.get(2..).unwrap_or_default(), operands))
        }
        Some(word)
            if word.starts_with('-')
                && words.iter().any(|w| w.as_known().is_some_and(|w| verbs.contains(&w))) =>
        {
            Some(CommandEffect::uncertain(format!("`{name}` may run another command after its options")))
        }
        None => Some(CommandEffect::uncertain(format!("the subcommand of `{name}` is unknown"))),
        Some(_) => None,
    }
}

fn runner_words_effect(label: &str, rest: &[ShellWord], operands: usize) -> CommandEffect {
    let first = rest
        .iter()
        .position(|word| word.as_known().is_none_or(|word| !word.starts_with('-') || word == "--"));
    let Some(mut at) = first else { return CommandEffect::default() };
    let optioned = at > 0;
    if rest.get(at).and_then(ShellWord::as_known) == Some("--") {
        at += 1;
        return CommandEffect::run_words(rest.get(at + operands..).unwrap_or_default(), label);
    }
    let effect = CommandEffect::run_words(rest.get(at + operands..).unwrap_or_default(), label);
    if optioned {
        effect.with_uncertain(format!("`{label}` has options whose values look like commands"))
    } else {
        effect
    }
}

/// Returns everything from the first word that is not an option.
fn first_operand_effect(name: &str, words: &[ShellWord]) -> CommandEffect {
    let at = words.iter().skip(1).position(|word| word.as_known().is_none_or(|word| !word.starts_with('-')));
    CommandEffect::run_words(at.and_then(|at| words.get(at + 1..)).unwrap_or_default(), name)
}

/// `docker run image command`, `kubectl exec pod -- command`.
fn container_effect(name: &str, words: &[ShellWord]) -> CommandEffect {
    let verbs = ["run", "exec", "create", "debug"];
    let runs = words.iter().skip(1).any(|word| word.as_known().is_none_or(|word| verbs.contains(&word)));
    if !runs {
        return CommandEffect::default();
    }
    let behind = words.iter().position(|word| word.as_known() == Some("--")).map(|at| at + 1);
    let Some(at) = behind else {
        return CommandEffect::opaque(format!(
            "`{name}` runs commands in a container, which may access its mounts"
        ));
    };
    CommandEffect::run_words(words.get(at..).unwrap_or_default(), name)
        .with_opaque(format!("`{name}` runs commands in a container, which may access its mounts"))
}
