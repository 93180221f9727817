//! Commands of the shell itself: those that run their words, change what names mean, or evaluate what they are given.

use super::Word;
use super::found::Found;
use super::runs::{Inner, What, joined};
use super::wrapper::{self, Spec};

/// Whether a command takes assignments as its words.
pub(super) fn declares(name: &str) -> bool {
    matches!(name, "declare" | "typeset" | "export" | "readonly" | "local")
}

/// Options of `set` that change nothing about which commands run.
const SET_LETTERS: &str = "eufvxCETbh";
pub(super) const SET_NAMES: &[&str] = &[
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
/// Options of `shopt` of which the same is true.
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

const COMMAND: Spec = Spec { flags: "p", ..Spec::new("command") };
const EXEC: Spec = Spec { flags: "cl", valued: "a", ..Spec::new("exec") };

/// What a builtin does, if the name is one that matters here.
pub(super) fn what(name: &str, words: &[Word], found: &mut Found) -> Option<What> {
    let arguments = words.get(1..).unwrap_or_default();
    let known: Vec<Option<&str>> = arguments.iter().map(Word::known).collect();
    Some(match name {
        "eval" => What::line(joined(without_dashes(arguments)), "eval"),
        "." | "source" => sourced(name, arguments, found),
        "command" if known.first().copied().flatten().is_some_and(|word| word == "-v" || word == "-V") => {
            What::default()
        }
        "command" => wrapper::skip(&COMMAND, words),
        "builtin" => What::words(without_dashes(arguments), "builtin"),
        "exec" => execs(words),
        "trap" => trap(arguments),
        "set" => set(arguments),
        "shopt" => shopt(arguments, found),
        "alias" | "unalias" if !arguments.is_empty() => What::unsure("aliases change what names mean"),
        "enable" => What::unsure("`enable` changes which builtins there are"),
        "hash" if !arguments.is_empty() => What::unsure("`hash` can change which program a name means"),
        "bind" | "complete" | "compgen" | "compopt" => {
            What::unsure(format!("`{name}` can run commands that it is given"))
        }
        "history" if known.iter().all(|word| word.is_some_and(super::found::is_number)) => What::default(),
        "fc" | "history" => What::unsure(format!("`{name}` can run or change what was typed before")),
        "mapfile" | "readarray" => mapfile(arguments, found),
        "read" => reads(arguments, "adinNptu", found),
        "getopts" => {
            names(arguments.get(1..2).unwrap_or_default(), found);
            What::default()
        }
        "printf" if known.first().is_some_and(|word| word.is_some_and(|word| word.starts_with("-v"))) => {
            let attached =
                known.first().copied().flatten().and_then(|word| word.strip_prefix("-v")).unwrap_or_default();
            if attached.is_empty() {
                names(arguments.get(1..2).unwrap_or_default(), found)
            } else {
                names(&[Word::Known(attached.to_owned())], found)
            }
        }
        "printf" if known.first().is_none_or(Option::is_none) && !arguments.is_empty() => {
            What::opaque("`printf` may be told to set a variable")
        }
        "unset" => names(arguments, found),
        "wait" if known.iter().flatten().any(|word| word.starts_with("-p")) => {
            What::unsure("`wait -p` sets a variable")
        }
        "let" => evaluates(arguments, found),
        "export" => exported(arguments, found),
        "declare" | "typeset" | "local" | "readonly" => declared(arguments),
        "test" => tests(arguments),
        "[" => tests(arguments.split_last().map_or(&[], |(_, rest)| rest)),
        "cd" | "pushd" | "popd" => {
            found.moves(arguments);
            What::default()
        }
        _ => return None,
    })
}

/// A script that runs in this very shell: like one that `bash` runs, but what it sets holds for all that follows. Where
/// the file is none that stands on the disk, what runs cannot be known.
fn sourced(name: &str, arguments: &[Word], found: &mut Found) -> What {
    found.forgets();
    let plain = |file: &str| {
        let special = ["/dev/", "/proc/", "/run/"].iter().any(|place| file.starts_with(place));
        !special && !file.starts_with('-') && !file.split('/').any(|part| part == "..")
    };
    match arguments.first().and_then(Word::known) {
        Some(file) if plain(file) => {
            found
                .poison(format!("`{name}` runs a file in this very shell, which can change what names mean"));
            What::opaque(format!("`{name}` runs a file in this very shell"))
        }
        _ => What::unsure(format!("`{name}` runs a file in this very shell")),
    }
}

/// `exec -a NAME program`: the program is told that it is NAME, and some do what their name says.
fn execs(words: &[Word]) -> What {
    let mut what = wrapper::skip(&EXEC, words);
    let named = words.iter().position(|word| word.known() == Some("-a")).and_then(|at| words.get(at + 1));
    let Some(Inner::Words { words: inner, .. }) = what.inner.first() else { return what };
    if let Some(named) = named {
        let words = std::iter::once(named.clone()).chain(inner.iter().skip(1).cloned()).collect();
        what.inner.push(Inner::Words { words, assignments: Vec::new(), label: "exec -a".to_owned() });
    }
    what
}

fn without_dashes(arguments: &[Word]) -> &[Word] {
    match arguments.split_first() {
        Some((Word::Known(first), rest)) if first == "--" => rest,
        _ => arguments,
    }
}

/// `trap 'line' SIGNAL`.
fn trap(arguments: &[Word]) -> What {
    let arguments = without_dashes(arguments);
    match arguments.split_first() {
        None => What::default(),
        Some((Word::Known(line), _)) if matches!(line.as_str(), "" | "-" | "-l" | "-p") => What::default(),
        Some((_, [])) => What::default(),
        Some((line, _)) => What::line(line.clone(), "trap"),
    }
}

fn set(arguments: &[Word]) -> What {
    let unknown = || What::unsure("`set` changes how the shell reads what follows");
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        let Some(word) = word.known() else { return unknown() };
        if word == "--" || word == "-" {
            return What::default();
        }
        let Some(letters) = word.strip_prefix(['-', '+']) else { return What::default() };
        match letters.strip_suffix('o') {
            Some(before) if before.chars().all(|c| SET_LETTERS.contains(c)) => {
                let name = rest.next().map(Word::known);
                if !name.is_none_or(|name| name.is_some_and(|name| SET_NAMES.contains(&name))) {
                    return unknown();
                }
            }
            None if letters.chars().all(|c| SET_LETTERS.contains(c)) => {}
            _ => return unknown(),
        }
    }
    What::default()
}

fn shopt(arguments: &[Word], found: &mut Found) -> What {
    arguments.iter().filter_map(Word::known).for_each(|option| found.globs_find_more(option));
    let harmless = |word: &Word| {
        word.known()
            .is_some_and(|word| matches!(word, "-s" | "-u" | "-q" | "-p") || SHOPT_NAMES.contains(&word))
    };
    if arguments.iter().all(harmless) {
        What::default()
    } else {
        What::unsure("`shopt` changes how the shell reads what follows")
    }
}

fn mapfile(arguments: &[Word], found: &mut Found) -> What {
    let mut what = reads(arguments, "dnOsuCc", found);
    let callback = arguments.iter().position(|word| match word {
        Word::Known(word) => word.starts_with("-C") || (word.starts_with('-') && word.contains('C')),
        Word::Unknown { .. } => true,
    });
    if let Some(at) = callback {
        if let Some(line) = arguments.get(at + 1) {
            what.inner.push(Inner::Line { text: line.clone(), label: "mapfile -C".to_owned() });
        }
        what = what.and_unsure("`mapfile -C` runs a command for each line");
    }
    what
}

/// Names of variables that get what was read.
fn reads(arguments: &[Word], valued: &str, found: &mut Found) -> What {
    let mut given = Vec::new();
    let mut rest = arguments.iter();
    while let Some(word) = rest.next() {
        match word.known() {
            Some(option) if option.len() > 1 && option.starts_with('-') => {
                let last = option.chars().next_back().unwrap_or('-');
                let takes = option.chars().skip(1).find(|c| valued.contains(*c));
                let value = if takes == Some(last) { rest.next() } else { None };
                if takes == Some('a') {
                    let attached = option.split_once('a').map(|(_, name)| Word::Known(name.to_owned()));
                    given.extend(value.cloned().or(attached));
                }
            }
            _ => given.push(word.clone()),
        }
    }
    given.push(Word::Known("REPLY".to_owned()));
    given.push(Word::Known("MAPFILE".to_owned()));
    names(&given, found)
}

/// Words that name variables; a subscript in one is evaluated.
fn names(words: &[Word], found: &mut Found) -> What {
    for word in words {
        match word.known() {
            Some(name) if name.contains('[') => {
                return What::unsure("a subscript is evaluated, which may run commands");
            }
            Some(name) if name.starts_with('-') => {}
            Some(name) => found.assigned(name, &Word::unknown(""), false),
            None => return What::unsure(format!("which variable is set is not known: {word}")),
        }
    }
    What::default()
}

/// `let` evaluates each word.
fn evaluates(arguments: &[Word], found: &mut Found) -> What {
    let plain = |c: char| c.is_ascii_alphanumeric() || " _+-*/%<>=!&|^~?:,()".contains(c);
    for word in arguments {
        let Some(expression) = word.known().filter(|word| word.chars().all(plain)) else {
            return What::unsure(format!("`let` evaluates what is not known: {word}"));
        };
        for name in expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')) {
            if name.starts_with(|c: char| !c.is_ascii_digit()) {
                found.evaluated(name);
            }
        }
    }
    What::default()
}

/// `export NAME` hands over what the variable holds by then.
fn exported(arguments: &[Word], found: &mut Found) -> What {
    for name in arguments.iter().filter_map(Word::known) {
        if !name.starts_with('-') && !name.contains('=') {
            found.assigned(name, &Word::unknown(""), true);
        }
    }
    declared(arguments)
}

/// `declare -n` and `-i` make later assignments mean something else.
fn declared(arguments: &[Word]) -> What {
    for word in arguments {
        match word.known() {
            Some(option) if option.starts_with(['-', '+']) && option.contains(['n', 'i', 'c', 'l', 'u']) => {
                return What::unsure(format!("`{option}` changes what assignments do"));
            }
            Some(name) if name.split('=').next().is_some_and(|name| name.contains('[')) => {
                return What::unsure("a subscript is evaluated, which may run commands");
            }
            None if !names_variable(word) => {
                return What::unsure(format!("which variable is declared is not known: {word}"));
            }
            _ => {}
        }
    }
    What::default()
}

/// Whether a word that is not known begins with a plain `name=`.
fn names_variable(word: &Word) -> bool {
    let (Word::Known(text) | Word::Unknown { raw: text, .. }) = word;
    text.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '+')
    })
}

/// `test -v name[subscript]` evaluates the subscript; what is not known must not stand where `-v` could.
fn tests(arguments: &[Word]) -> What {
    let evaluates = || What::unsure("`-v` evaluates the subscript of a variable");
    if arguments.iter().any(|word| word.known() == Some("-v")) {
        return evaluates();
    }
    if let Some(word) =
        arguments.iter().find(|word| matches!(word, Word::Unknown { raw, .. } if !is_one_word(raw)))
    {
        return What::unsure(format!(
            "`test` is given {word} without quotes, which may become `-v` and run a command"
        ));
    }
    let known: Vec<Option<&str>> =
        arguments.iter().map(Word::known).skip_while(|word| *word == Some("!")).collect();
    match known.as_slice() {
        [] | [_] | [Some(_), _] | [_, Some(_), _] => What::default(),
        words if words.iter().all(Option::is_some) => What::default(),
        words
            if words
                .chunks(4)
                .all(|test| matches!(test, [_, Some(_), _] | [_, Some(_), _, Some("-a" | "-o")])) =>
        {
            What::default()
        }
        _ => What::unsure("`test` is given words that are not known where an operator could stand"),
    }
}

/// Whether a word that is not known is one word all the same: in double quotes, or a number.
fn is_one_word(raw: &str) -> bool {
    let quoted = raw.len() > 1 && raw.starts_with('"') && raw.ends_with('"');
    let inner = raw.get(1..raw.len().saturating_sub(1)).unwrap_or_default();
    (quoted && !inner.contains(['@', '"']))
        || matches!(raw, "$?" | "$#" | "$$")
        || raw.starts_with("${#")
        || raw.starts_with("$((")
}
