//! What commands print, as far as their words say: for words that come from a substitution or from the input of `xargs`.
//!
//! Here: the programs whose output is known to be names of a certain shape, a number, a directory. Elsewhere: what is done
//! with it (`shape`, `launch`). All others can print anything.

use super::shape::{Atom, Shape};
use super::{Command, Word};

/// Programs that print a number, a date or a plain word, whatever stands on the disk.
const PLAIN: &[&str] = &["nproc", "uname", "hostname", "whoami", "id", "arch", "tput", "getconf"];

/// What a pipeline prints: its first command lists, and the others only order and shorten the list.
pub(super) fn printed(commands: &[Command]) -> Shape {
    let Some((first, filters)) = commands.split_first() else { return Shape::anything() };
    let same = |command: &Command| command.opaque.is_none() && command.inside == first.inside;
    if !commands.iter().all(same) {
        return Shape::anything();
    }
    let mut shape = lists(first);
    for filter in filters {
        shape = filtered(filter, shape);
    }
    shape
}

/// The words of a command, if all are known.
fn known(command: &Command) -> Option<Vec<&str>> {
    command.words.iter().map(Word::known).collect()
}

/// What is left of a list behind a filter.
fn filtered(command: &Command, list: Shape) -> Shape {
    let Some(words) = known(command) else { return Shape::anything() };
    let Some((name, arguments)) = words.split_first() else { return Shape::anything() };
    let operands = || arguments.iter().filter(|word| !word.starts_with('-') && !is_number(word));
    match *name {
        "sort" | "uniq" | "head" | "tail" | "tac" | "shuf" if operands().next().is_none() => list,
        "wc" if operands().next().is_none() => Shape::of(Atom::Digits),
        "grep" | "egrep" if arguments.contains(&"-v") && operands().count() == 1 => list,
        "grep" | "egrep" if operands().count() == 1 && arguments.iter().all(|word| is_grep_word(word)) => {
            operands().next().and_then(|pattern| endings(pattern)).unwrap_or_else(Shape::anything)
        }
        _ => Shape::anything(),
    }
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_grep_word(word: &str) -> bool {
    !word.starts_with('-') || matches!(word, "-E" | "-e")
}

/// The names that `\.rs$` and `\.(ts|tsx)$` leave.
fn endings(pattern: &str) -> Option<Shape> {
    let (_, ending) = pattern.strip_suffix('$')?.rsplit_once("\\.")?;
    let inner = ending.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).unwrap_or(ending);
    let plain = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric());
    let grouped = inner.len() != ending.len();
    let each: Vec<&str> = if grouped { inner.split('|').collect() } else { vec![inner] };
    if !each.iter().all(|text| plain(text)) {
        return None;
    }
    Some(each.into_iter().fold(Shape::nothing(), |shape, end| shape.or(Shape::found_by(&format!(".{end}")))))
}

/// What a command prints by itself.
fn lists(command: &Command) -> Shape {
    let Some(words) = known(command) else {
        let echoes = command.words.first().and_then(Word::known) == Some("ls");
        return if echoes { ls(command) } else { Shape::anything() };
    };
    let Some((name, arguments)) = words.split_first() else { return Shape::anything() };
    match *name {
        "pwd" => Shape::of(Atom::Cwd),
        "echo" if arguments.iter().all(|word| !word.starts_with('-')) => Shape::words(&arguments.join(" ")),
        "printf" => Shape::words(&arguments.join(" ")),
        "nproc" => Shape::of(Atom::Digits),
        "seq" if arguments.iter().all(|word| is_number(word)) => Shape::of(Atom::Digits),
        "date" if arguments.iter().all(|word| is_date(word)) => Shape::of(Atom::Digits),
        "git" => git(arguments),
        "find" => found(&command.words),
        "ls" => ls(command),
        "rg" if !arguments.iter().any(|word| lists_files(word)) => Shape::anything(),
        "rg" | "fd" | "fdfind" if !arguments.iter().any(|word| shows_hidden(word)) => Shape::nothing(),
        name if PLAIN.contains(&name) && arguments.iter().all(|word| word.starts_with('-')) => {
            Shape::of(Atom::Deep)
        }
        _ => Shape::anything(),
    }
}

/// A date of numbers alone.
fn is_date(word: &str) -> bool {
    let plain = |format: &str| format.chars().all(|c| "%FTYmdHMSsjNyuz-_:".contains(c));
    matches!(word, "-u" | "-I") || word.strip_prefix('+').is_some_and(plain)
}

fn git(arguments: &[&str]) -> Shape {
    match arguments {
        ["rev-parse", "--show-toplevel"] => Shape::of(Atom::Any),
        ["rev-parse" | "branch" | "describe" | "merge-base" | "symbolic-ref", ..] => Shape::of(Atom::Deep),
        ["ls-files", rest @ ..] => {
            let globs: Vec<&str> = rest.iter().copied().filter(|word| !word.starts_with('-')).collect();
            let plain = rest.iter().all(|word| !word.starts_with('-') || *word == "--" || *word == "-z");
            if globs.is_empty() || !plain {
                return Shape::nothing();
            }
            globs.into_iter().fold(Shape::nothing(), |shape, glob| {
                // A name without wildcards may be a directory, below which git lists.
                let listed = if glob.contains('*') { Shape::found_by(glob) } else { Shape::nothing() };
                shape.or(listed)
            })
        }
        ["diff", rest @ ..] if rest.contains(&"--name-only") => Shape::nothing(),
        _ => Shape::anything(),
    }
}

/// `ls` of some names: they are its output, below a directory without it.
fn ls(command: &Command) -> Shape {
    let mut shape = Shape::nothing();
    for word in command.words.iter().skip(1) {
        match word {
            Word::Known(word) if word.starts_with("--") => {}
            Word::Known(word) if word.starts_with('-') => {
                if word.contains(['a', 'A', 'f', 'l']) {
                    return Shape::anything();
                }
            }
            Word::Known(word) => shape = shape.or(Shape::text(word)),
            Word::Unknown { shape: other, .. } => shape = shape.or(other.clone()),
        }
    }
    shape
}

fn lists_files(word: &str) -> bool {
    matches!(word, "-l" | "--files" | "--files-with-matches" | "--files-without-match")
}

/// Whether a word lets `rg` or `fd` find hidden files, or print another text than their names.
pub(super) fn shows_hidden(word: &str) -> bool {
    let letters = word.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
    word.starts_with("--hid")
        || word.starts_with("--no-i")
        || word.starts_with("--unr")
        || word.starts_with("--format")
        || word.starts_with("--rep")
        || letters.is_some_and(|letters| letters.contains(['.', 'u', 'H', 'I', 'r']))
        || word.split('/').any(|part| part.len() > 1 && part.starts_with('.'))
}

/// The names that `find` gives: by its `-name` tests, or whatever it finds without one.
pub(super) fn found(words: &[Word]) -> Shape {
    let mut shape: Option<Shape> = None;
    let branches = words.iter().filter(|word| matches!(word.known(), Some("-o" | "-or" | ",")));
    let branches = branches.count() + 1;
    let mut tests = 0;
    let mut words = words.iter().map(Word::known);
    let mut negated = false;
    while let Some(word) = words.next() {
        let Some(word) = word else { continue };
        let named = match word {
            "-name" | "-iname" | "-path" | "-ipath" | "-wholename" | "-iwholename" => {
                words.next().flatten().map_or_else(Shape::anything, Shape::found_by)
            }
            "-regex" | "-iregex" | "-printf" | "-fprintf" => {
                words.next();
                Shape::anything()
            }
            "!" | "-not" => {
                negated = true;
                continue;
            }
            _ => continue,
        };
        if !std::mem::take(&mut negated) {
            tests += 1;
            let before = shape.unwrap_or_else(Shape::nothing);
            shape = Some(before.or(if word.starts_with("-i") { named.without_letters() } else { named }));
        }
    }
    // With a branch that names nothing it finds whatever there is.
    shape.filter(|_| tests >= branches).unwrap_or_else(Shape::nothing)
}
