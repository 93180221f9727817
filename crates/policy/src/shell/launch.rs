//! Commands that run others in ways of their own: shells, `xargs`, `find -exec`, `watch`, `ssh`, tool chains, containers.

use super::runs::{Inner, What, joined};
use super::wrapper::{Spec, guess, reach, skip};
use super::{Shape, Word, builtin, listing};

/// Programs that run something which their words do not show well enough.
const UNSEEN: &[&str] = &[
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

/// How many places are tried at which a program that is not understood may name a command.
const TAILS: usize = 4;

/// Programs of tool chains whose subcommand runs the words behind it, with the options that may stand between.
const RUNNERS: &[(&str, &[&str], usize)] = &[
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

/// Shells whose lines read as ours do.
const SHELLS: &[&str] = &["bash", "rbash"];
/// Shells of the same family: what only bash knows means something else to them.
const COUSINS: &[&str] =
    &["sh", "dash", "ash", "ksh", "ksh93", "mksh", "lksh", "oksh", "pdksh", "posh", "yash", "hush"];
/// Shells with a grammar of their own.
const STRANGERS: &[&str] =
    &["zsh", "fish", "csh", "tcsh", "elvish", "nu", "xonsh", "pwsh", "powershell", "rc", "es", "osh", "ysh"];
/// What a command runs in a way of its own, if the name is one.
pub(super) fn what(name: &str, words: &[Word], input: Option<&Shape>) -> Option<What> {
    if name == "env" && words.iter().any(splits) {
        return Some(env_splits(words));
    }
    if is_shell(name) {
        return Some(shell(name, words));
    }
    if UNSEEN.contains(&name) || is_loader(name) {
        let rest = words.get(1..).unwrap_or_default();
        if matches!(rest, [Word::Known(only)] if only == "--version" || only == "--help") {
            return None;
        }
        let mut what = What::default();
        for at in 0..rest.len().min(TAILS) {
            if rest.get(at).and_then(Word::known).is_some_and(|word| !word.starts_with('-')) {
                what.inner.extend(What::words(rest.get(at..).unwrap_or_default(), name).inner);
            }
        }
        return Some(what.and_unsure(format!("what `{name}` runs cannot be seen from its words")));
    }
    if let Some((_, verbs, operands)) = RUNNERS.iter().find(|(runner, ..)| *runner == name) {
        return runner(name, verbs, *operands, words);
    }
    Some(match name {
        "npx" | "bunx" | "uvx" | "pipx" => runner_words(name, words.get(1..).unwrap_or_default(), 0),
        "xargs" => xargs(words, input),
        "find" => find(words),
        "fd" | "fdfind" => fd(words),
        "flock" => flock(words),
        "watch" => watch(words),
        "su" | "runuser" | "script" => with_line(name, words),
        // Its options carry their values with `=`.
        "valgrind" => runner_words_behind(name, words),
        "ssh" => ssh(words),
        "docker" | "podman" | "nerdctl" | "kubectl" | "oc" => container(name, words),
        _ => return None,
    })
}

/// Whether a program is a shell.
pub(super) fn is_shell(name: &str) -> bool {
    SHELLS.contains(&name) || COUSINS.contains(&name) || STRANGERS.contains(&name)
}

/// The loader of programs under its many names: `ld-linux-x86-64.so.2`, `ld-musl-x86_64.so.1`.
fn is_loader(name: &str) -> bool {
    ["ld-linux", "ld-musl", "ld.so", "ld64.so", "ld-2", "ld-uClibc"]
        .iter()
        .any(|begin| name.starts_with(begin))
}

/// `env -S 'words'`: splits them in a way of its own.
fn splits(word: &Word) -> bool {
    word.known()
        .is_some_and(|word| word.starts_with("-S") || word.starts_with("--split") || word.starts_with("-iS"))
}

fn env_splits(words: &[Word]) -> What {
    let at = words.iter().position(splits).unwrap_or(0);
    let first = words.get(at).and_then(Word::known).unwrap_or_default();
    let attached = first.split_once("-S").or_else(|| first.split_once('=')).map(|(_, text)| text);
    let line = match attached.filter(|text| !text.is_empty()) {
        Some(text) => Word::Known(text.to_owned()),
        None => joined(words.get(at + 1..).unwrap_or_default()),
    };
    What::line(line, "env -S").and_unsure("`env -S` splits words in a way of its own")
}

/// A shell: `-c line`, a script, or standard input.
fn shell(name: &str, words: &[Word]) -> What {
    let label = format!("{name} -c");
    let mut line = false;
    let mut at = 1;
    let mut unsure = None;
    while let Some(word) = words.get(at) {
        let Some(word) = word.known() else {
            if line {
                break;
            }
            return What::unsure(format!(
                "`{name}` is given `{word}`, which is not known before the line runs"
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
                    unsure = Some(format!("`{name}` has an option that is not known here: {word}"));
                    at += usize::from(matches!(long, "rcfile" | "init-file"));
                }
            }
        } else {
            // `+c` is taken like `-c`.
            line |= letters.contains('c');
            let known = letters.chars().all(|c| "abcefhlmnoprstuvxBCEPT".contains(c));
            if !known {
                unsure = Some(format!("`{name}` has an option that is not known here: {word}"));
            }
            if letters.contains(['o', 'O']) {
                at += 1;
                let option = words.get(at).and_then(Word::known).unwrap_or_default();
                if letters.contains('O') || !builtin::SET_NAMES.contains(&option) {
                    unsure = Some(format!("`{name} {word} {option}` changes how lines are read"));
                }
            }
            if letters.contains('s') && !line {
                return What {
                    inner: vec![Inner::Script { label: name.to_owned() }],
                    unsure,
                    ..What::default()
                };
            }
        }
        at += 1;
    }
    let mut what = match (line, words.get(at)) {
        (true, Some(text)) => What::line(text.clone(), label),
        (true, None) => What::default(),
        (false, Some(Word::Known(file))) if file.starts_with("/dev/") || file.starts_with("/proc/") => {
            What { inner: vec![Inner::Script { label: name.to_owned() }], ..What::default() }
        }
        (false, Some(_)) => What::default(),
        (false, None) if words.iter().any(|w| matches!(w.known(), Some("--version" | "--help"))) => {
            What::default()
        }
        (false, None) => What { inner: vec![Inner::Script { label: name.to_owned() }], ..What::default() },
    };
    if STRANGERS.contains(&name) {
        what = what.and_unsure(format!("`{name}` reads lines by a grammar of its own"));
    }
    match unsure {
        Some(reason) => what.and_unsure(reason),
        None => what,
    }
}

const XARGS: Spec = Spec {
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
    ..Spec::new("xargs")
};

/// `xargs command …`: more words come from its input; with `-I` they may stand anywhere.
fn xargs(words: &[Word], input: Option<&Shape>) -> What {
    let (at, _) = match reach(&XARGS, words) {
        Ok(reached) => reached,
        Err(reason) => return guess("xargs", words).and_unsure(reason),
    };
    let options = words.get(1..at).unwrap_or_default();
    let from_file = |word: &Word| word.known().is_none_or(|w| w.starts_with("-a") || w.starts_with("--arg"));
    let input = input.filter(|_| !options.iter().any(from_file)).cloned().unwrap_or_else(Shape::anything);
    let mut replace = None;
    for (index, word) in options.iter().filter_map(Word::known).enumerate() {
        if let Some(text) = word.strip_prefix("-I") {
            let next = options.get(index + 1).and_then(Word::known);
            replace = Some(if text.is_empty() { next.unwrap_or("{}") } else { text }.to_owned());
        } else if word.starts_with("--replace") {
            replace = Some(word.split_once('=').map_or("{}", |(_, text)| text).to_owned());
        }
    }
    let mut inner: Vec<Word> = words.get(at..).unwrap_or_default().to_vec();
    if inner.is_empty() {
        return What::default();
    }
    match &replace {
        Some(mark) => {
            for word in &mut inner {
                if let Word::Known(text) = word
                    && text.contains(mark.as_str())
                {
                    *word = Word::Unknown { raw: text.clone(), shape: Shape::put_in(text, mark, &input) };
                }
            }
        }
        None => inner.push(Word::Unknown { raw: "…".to_owned(), shape: input }),
    }
    What::words(&inner, "xargs")
}

/// `find … -exec command ;`.
fn find(words: &[Word]) -> What {
    let mut what = What::default();
    let names = listing::found(words);
    let mut at = 1;
    while let Some(word) = words.get(at) {
        if matches!(word.known(), Some("-exec" | "-execdir" | "-ok" | "-okdir")) {
            let label = format!("find {}", word.known().unwrap_or_default());
            let rest = words.get(at + 1..).unwrap_or_default();
            let length =
                rest.iter().position(|word| matches!(word.known(), Some(";" | "+"))).unwrap_or(rest.len());
            let command: Vec<Word> = rest.iter().take(length).map(|word| placeholder(word, &names)).collect();
            if length == rest.len() {
                what = what.and_unsure("`find -exec` has no end");
            }
            if !command.is_empty() {
                what.inner.push(Inner::Words { words: command, assignments: Vec::new(), label });
            }
            at += length + 1;
        }
        if word.known().is_none()
            && !matches!(word, Word::Unknown { raw, .. } if raw.starts_with(['"', '~', '*', '.', '/']))
        {
            what = what.and_opaque("a word that is not known may be `-exec` or `-delete`");
        }
        at += 1;
    }
    what
}

/// A word into which another program puts a name.
fn placeholder(word: &Word, names: &Shape) -> Word {
    match word {
        Word::Known(text) if text.contains("{}") => {
            Word::Unknown { raw: text.clone(), shape: Shape::put_in(text, "{}", names) }
        }
        word => word.clone(),
    }
}

/// `fd … -x command`.
fn fd(words: &[Word]) -> What {
    let starts = |word: &Word| {
        word.known().is_some_and(|word| matches!(word, "-x" | "-X" | "--exec" | "--exec-batch"))
    };
    match words.iter().position(starts) {
        Some(at) => {
            let options = words.get(..at).unwrap_or_default();
            let hidden = options.iter().any(|word| word.known().is_none_or(listing::shows_hidden));
            let found = if hidden { Shape::anything() } else { Shape::nothing() };
            let command: Vec<Word> = words
                .get(at + 1..)
                .unwrap_or_default()
                .iter()
                .map(|word| placeholder(word, &found))
                .collect();
            let ends = command.iter().position(|word| word.known() == Some(";")).unwrap_or(command.len());
            let mut command = command.get(..ends).unwrap_or_default().to_vec();
            command.push(Word::Unknown { raw: "…".to_owned(), shape: found });
            What::words(&command, "fd -x")
        }
        None if words.iter().filter_map(Word::known).any(|w| {
            w.starts_with("--exec") || (w.starts_with('-') && !w.starts_with("--") && w.contains(['x', 'X']))
        }) =>
        {
            What::unsure("`fd` runs a command that cannot be told from its options")
        }
        None => What::default(),
    }
}

/// `flock file command`, `flock file -c line`.
fn flock(words: &[Word]) -> What {
    if let Some(at) = words.iter().position(|word| matches!(word.known(), Some("-c" | "--command"))) {
        let line = words.get(at + 1).cloned().unwrap_or(Word::Known(String::new()));
        return What::line(line, "flock -c");
    }
    let spec = Spec {
        flags: "FexsnuNo",
        valued: "wE",
        long: &["exclusive", "shared", "nonblock", "unlock", "no-fork", "close"],
        long_valued: &["timeout", "conflict-exit-code"],
        operands: 1,
        ..Spec::new("flock")
    };
    skip(&spec, words)
}

/// `watch words`: joined and given to `sh -c`.
fn watch(words: &[Word]) -> What {
    let spec = Spec {
        flags: "bcdegtpCrwx",
        valued: "nq",
        long: &["beep", "color", "differences", "errexit", "chgexit", "no-title", "precise", "exec"],
        long_valued: &["interval"],
        ..Spec::new("watch")
    };
    match reach(&spec, words) {
        Ok((at, _)) => What::line(joined(words.get(at..).unwrap_or_default()), "watch"),
        Err(reason) => guess("watch", words).and_unsure(reason),
    }
}

/// `su -c line`, `script -c line`: without `-c` they start a shell.
fn with_line(name: &str, words: &[Word]) -> What {
    let has = |word: &Word| {
        word.known().is_some_and(|word| {
            word == "--command" || (word.starts_with('-') && !word.starts_with("--") && word.ends_with('c'))
        })
    };
    let line = words.iter().position(has).and_then(|at| words.get(at + 1));
    let attached = words.iter().filter_map(Word::known).find_map(|word| word.strip_prefix("--command="));
    let other = words
        .iter()
        .any(|word| word.known().is_none_or(|word| word.starts_with("-s") || word.starts_with("--shell")));
    if other && name != "script" {
        return guess(name, words).and_unsure(format!("`{name}` may start another shell"));
    }
    match (line, attached) {
        (Some(line), _) => What::line(line.clone(), format!("{name} -c")),
        (None, Some(line)) => What::line(Word::Known(line.to_owned()), format!("{name} -c")),
        (None, None) => guess(name, words).and_unsure(format!("`{name}` starts a shell")),
    }
}

/// `ssh host words`: joined and given to the shell there.
fn ssh(words: &[Word]) -> What {
    let spec = Spec {
        flags: "46AaCfGgKkMNnqsTtVvXxYy",
        valued: "BbcDEeIiJLlmOPpQRSWw",
        operands: 1,
        ..Spec::new("ssh")
    };
    match reach(&spec, words) {
        Ok((at, _)) => {
            let rest = words.get(at..).unwrap_or_default();
            let rest = if rest.first().and_then(Word::known) == Some("--") {
                rest.get(1..).unwrap_or_default()
            } else {
                rest
            };
            let what = if rest.is_empty() { What::default() } else { What::line(joined(rest), "ssh") };
            what.and_opaque("it acts on another machine")
        }
        Err(reason) => guess("ssh", words).and_unsure(reason),
    }
}

/// Subcommands of tool chains that run what follows.
fn runner(name: &str, verbs: &[&str], operands: usize, words: &[Word]) -> Option<What> {
    let verb = words.get(1)?.known();
    match verb {
        Some(verb) if verbs.contains(&verb) => {
            Some(runner_words(&format!("{name} {verb}"), words.get(2..).unwrap_or_default(), operands))
        }
        Some(word)
            if word.starts_with('-')
                && words.iter().any(|w| w.known().is_some_and(|w| verbs.contains(&w))) =>
        {
            Some(What::unsure(format!("`{name}` may run another command behind its options")))
        }
        None => Some(What::unsure(format!("what `{name}` is told to do is not known"))),
        Some(_) => None,
    }
}

fn runner_words(label: &str, rest: &[Word], operands: usize) -> What {
    let first =
        rest.iter().position(|word| word.known().is_none_or(|word| !word.starts_with('-') || word == "--"));
    let Some(mut at) = first else { return What::default() };
    let optioned = at > 0;
    if rest.get(at).and_then(Word::known) == Some("--") {
        at += 1;
        return What::words(rest.get(at + operands..).unwrap_or_default(), label);
    }
    let what = What::words(rest.get(at + operands..).unwrap_or_default(), label);
    if optioned {
        what.and_unsure(format!("`{label}` has options whose values cannot be told from commands"))
    } else {
        what
    }
}

/// Everything from the first word that is no option.
fn runner_words_behind(name: &str, words: &[Word]) -> What {
    let at = words.iter().skip(1).position(|word| word.known().is_none_or(|word| !word.starts_with('-')));
    What::words(at.and_then(|at| words.get(at + 1..)).unwrap_or_default(), name)
}

/// `docker run image command`, `kubectl exec pod -- command`.
fn container(name: &str, words: &[Word]) -> What {
    let verbs = ["run", "exec", "create", "debug"];
    let runs = words.iter().skip(1).any(|word| word.known().is_none_or(|word| verbs.contains(&word)));
    if !runs {
        return What::default();
    }
    let behind = words.iter().position(|word| word.known() == Some("--")).map(|at| at + 1);
    let Some(at) = behind else {
        return What::opaque(format!(
            "`{name}` runs commands in a container, which may reach what it mounts"
        ));
    };
    What::words(words.get(at..).unwrap_or_default(), name)
        .and_opaque(format!("`{name}` runs commands in a container, which may reach what it mounts"))
}
