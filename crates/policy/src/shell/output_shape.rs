//! The output of commands, as far as it is known: for words from substitutions and from the input of `xargs`.
//!
//! This module knows programs that print file names of a certain shape, a number or a directory. All other
//! programs can print anything. `shape` and `launch` use the result.

use super::shape::{ShapeAtom, WordShape};
use super::{ShellCommand, ShellWord};

/// Programs that print a number, a date or a plain word.
const PLAIN_OUTPUT_PROGRAMS: &[&str] =
    &["nproc", "uname", "hostname", "whoami", "id", "arch", "tput", "getconf"];

/// Returns the output of a pipeline: the first command lists names, the others only reorder and filter the
/// list.
pub(super) fn pipeline_output(commands: &[ShellCommand]) -> WordShape {
    let Some((first, filters)) = commands.split_first() else { return WordShape::any_text() };
    let same =
        |command: &ShellCommand| command.opaque_reason.is_none() && command.enclosing == first.enclosing;
    if !commands.iter().all(same) {
        return WordShape::any_text();
    }
    let mut shape = command_output(first);
    for filter in filters {
        shape = filter_output(filter, shape);
    }
    shape
}

/// Returns the words of a command, if all are known.
fn known_words(command: &ShellCommand) -> Option<Vec<&str>> {
    command.words.iter().map(ShellWord::as_known).collect()
}

/// Returns the possible output of a filter.
fn filter_output(command: &ShellCommand, list: WordShape) -> WordShape {
    let Some(words) = known_words(command) else { return WordShape::any_text() };
    let Some((name, arguments)) = words.split_first() else { return WordShape::any_text() };
    let operands = || arguments.iter().filter(|word| !word.starts_with('-') && !is_number(word));
    match *name {
        "sort" | "uniq" | "head" | "tail" | "tac" | "shuf" if operands().next().is_none() => list,
        "wc" if operands().next().is_none() => WordShape::from_atom(ShapeAtom::Digits),
        "grep" | "egrep" if arguments.contains(&"-v") && operands().count() == 1 => list,
        "grep" | "egrep" if operands().count() == 1 && arguments.iter().all(|word| is_grep_operand(word)) => {
            operands().next().and_then(|pattern| grep_endings(pattern)).unwrap_or_else(WordShape::any_text)
        }
        _ => WordShape::any_text(),
    }
}

fn is_number(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_grep_operand(word: &str) -> bool {
    !word.starts_with('-') || matches!(word, "-E" | "-e")
}

/// Returns the names that `\.rs$` and `\.(ts|tsx)$` match.
fn grep_endings(pattern: &str) -> Option<WordShape> {
    let (_, ending) = pattern.strip_suffix('$')?.rsplit_once("\\.")?;
    let inner = ending.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).unwrap_or(ending);
    let plain = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric());
    let grouped = inner.len() != ending.len();
    let each: Vec<&str> = if grouped { inner.split('|').collect() } else { vec![inner] };
    if !each.iter().all(|text| plain(text)) {
        return None;
    }
    Some(
        each.into_iter()
            .fold(WordShape::unnamed(), |shape, end| shape.union(WordShape::from_glob(&format!(".{end}")))),
    )
}

/// Returns the output of a command without input.
fn command_output(command: &ShellCommand) -> WordShape {
    let Some(words) = known_words(command) else {
        let echoes = command.words.first().and_then(ShellWord::as_known) == Some("ls");
        return if echoes { ls_output(command) } else { WordShape::any_text() };
    };
    let Some((name, arguments)) = words.split_first() else { return WordShape::any_text() };
    match *name {
        "pwd" => WordShape::from_atom(ShapeAtom::Cwd),
        "echo" if arguments.iter().all(|word| !word.starts_with('-')) => {
            WordShape::from_words(&arguments.join(" "))
        }
        "printf" => WordShape::from_words(&arguments.join(" ")),
        "nproc" => WordShape::from_atom(ShapeAtom::Digits),
        "seq" if arguments.iter().all(|word| is_number(word)) => WordShape::from_atom(ShapeAtom::Digits),
        "date" if arguments.iter().all(|word| is_date_format(word)) => {
            WordShape::from_atom(ShapeAtom::Digits)
        }
        "git" => git_output(arguments),
        "find" => find_output(&command.words),
        "ls" => ls_output(command),
        "rg" if !arguments.iter().any(|word| is_files_option(word)) => WordShape::any_text(),
        "rg" | "fd" | "fdfind" if !arguments.iter().any(|word| is_hidden_option(word)) => {
            WordShape::unnamed()
        }
        name if PLAIN_OUTPUT_PROGRAMS.contains(&name)
            && arguments.iter().all(|word| word.starts_with('-')) =>
        {
            WordShape::from_atom(ShapeAtom::Deep)
        }
        _ => WordShape::any_text(),
    }
}

/// Returns whether a `date` argument prints only digits and separators.
fn is_date_format(word: &str) -> bool {
    let plain = |format: &str| format.chars().all(|c| "%FTYmdHMSsjNyuz-_:".contains(c));
    matches!(word, "-u" | "-I") || word.strip_prefix('+').is_some_and(plain)
}

fn git_output(arguments: &[&str]) -> WordShape {
    match arguments {
        ["rev-parse", "--show-toplevel"] => WordShape::from_atom(ShapeAtom::AnyText),
        ["rev-parse" | "branch" | "describe" | "merge-base" | "symbolic-ref", ..] => {
            WordShape::from_atom(ShapeAtom::Deep)
        }
        ["ls-files", rest @ ..] => {
            let globs: Vec<&str> = rest.iter().copied().filter(|word| !word.starts_with('-')).collect();
            let plain = rest.iter().all(|word| !word.starts_with('-') || *word == "--" || *word == "-z");
            if globs.is_empty() || !plain {
                return WordShape::unnamed();
            }
            globs.into_iter().fold(WordShape::unnamed(), |shape, glob| {
                // A name without wildcards may be a directory that git lists.
                let listed =
                    if glob.contains('*') { WordShape::from_glob(glob) } else { WordShape::unnamed() };
                shape.union(listed)
            })
        }
        ["diff", rest @ ..] if rest.contains(&"--name-only") => WordShape::unnamed(),
        _ => WordShape::any_text(),
    }
}

/// `ls` prints the names in its arguments, and for a directory the names in it.
fn ls_output(command: &ShellCommand) -> WordShape {
    let mut shape = WordShape::unnamed();
    for word in command.words.iter().skip(1) {
        match word {
            ShellWord::Known(word) if word.starts_with("--") => {}
            ShellWord::Known(word) if word.starts_with('-') => {
                if word.contains(['a', 'A', 'f', 'l']) {
                    return WordShape::any_text();
                }
            }
            ShellWord::Known(word) => shape = shape.union(WordShape::from_text(word)),
            ShellWord::Unknown { shape: other, .. } => shape = shape.union(other.clone()),
        }
    }
    shape
}

fn is_files_option(word: &str) -> bool {
    matches!(word, "-l" | "--files" | "--files-with-matches" | "--files-without-match")
}

/// Returns whether an option lets `rg` or `fd` match hidden files, or print other text than file names.
pub(super) fn is_hidden_option(word: &str) -> bool {
    let letters = word.strip_prefix('-').filter(|rest| !rest.starts_with('-'));
    word.starts_with("--hid")
        || word.starts_with("--no-i")
        || word.starts_with("--unr")
        || word.starts_with("--format")
        || word.starts_with("--rep")
        || letters.is_some_and(|letters| letters.contains(['.', 'u', 'H', 'I', 'r']))
        || word.split('/').any(|part| part.len() > 1 && part.starts_with('.'))
}

/// Returns the names that `find` prints: those of its `-name` tests, or any name without such a test.
pub(super) fn find_output(words: &[ShellWord]) -> WordShape {
    let mut shape: Option<WordShape> = None;
    let branches = words.iter().filter(|word| matches!(word.as_known(), Some("-o" | "-or" | ",")));
    let branches = branches.count() + 1;
    let mut tests = 0;
    let mut words = words.iter().map(ShellWord::as_known);
    let mut negated = false;
    while let Some(word) = words.next() {
        let Some(word) = word else { continue };
        let named = match word {
            "-name" | "-iname" | "-path" | "-ipath" | "-wholename" | "-iwholename" => {
                words.next().flatten().map_or_else(WordShape::any_text, WordShape::from_glob)
            }
            "-regex" | "-iregex" | "-printf" | "-fprintf" => {
                words.next();
                WordShape::any_text()
            }
            "!" | "-not" => {
                negated = true;
                continue;
            }
            _ => continue,
        };
        if !std::mem::take(&mut negated) {
            tests += 1;
            let before = shape.unwrap_or_else(WordShape::unnamed);
            shape = Some(before.union(if word.starts_with("-i") { named.ignoring_case() } else { named }));
        }
    }
    // A branch without a name test matches any name.
    shape.filter(|_| tests >= branches).unwrap_or_else(WordShape::unnamed)
}
