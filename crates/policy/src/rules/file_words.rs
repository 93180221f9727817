//! Words of a command that may be file names, for `ask` and `deny` rules about paths.
//!
//! This module selects the words and their parts, and matches them with the glob of a rule. `crate::shell`
//! computes what a word can become, `path_pattern` intersects patterns, `matching` handles the other parts of
//! an action. A known word that is the path counts as the path. A word that could become the path, or
//! contains it, needs approval. So does a word with an unknown value, if the program takes files.

use crate::PolicyContext;
use crate::shell::{ShapeAtom, ShellCommand, ShellLine, ShellWord, WordShape, base_name};

use super::command::{RuleMatch, find_pattern_index, is_flag};
use super::command_table;
use super::matching::{ActionPart, match_path_glob};
use super::operand::absolute_path;
use super::path_pattern::{GlobPaths, PatternToken, absolute_pattern as pattern_of, patterns_intersect};

/// A word that may be a file name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileMention<'a> {
    pub(crate) word: &'a ShellWord,
    usage: WordUsage,
    /// Further directories that the line may have changed into.
    directories: &'a [String],
}

/// How a program uses a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WordUsage {
    /// As a file name.
    File,
    /// Not as a file name, as far as is known: only visible text of the word counts.
    Other,
    /// As a glob that the program itself expands.
    Glob,
}

/// Options whose value names files that the program excludes.
const EXCLUDE_OPTIONS: &[&str] = &["--exclude", "--exclude-dir", "--ignore"];
/// Options whose value is a glob of files to search.
const GLOB_OPTIONS: &[&str] = &["-g", "--glob", "--iglob", "--include"];

/// Adds the words of a command that may name files, each as a whole and by its parts.
pub(super) fn collect_file_words<'a>(
    line: &'a ShellLine,
    command: &'a ShellCommand,
    parts: &mut Vec<ActionPart<'a>>,
) {
    let names: Vec<&str> =
        command.words.iter().take(2).map_while(ShellWord::as_known).map(base_name).collect();
    // `test` only checks whether a file exists.
    if matches!(names.first(), Some(&("test" | "["))) {
        return;
    }
    let text = command_table::has_text_arguments(&names);
    let usage = if command_table::takes_no_files(&names) { WordUsage::Other } else { WordUsage::File };
    let directories = line.directories.as_slice();
    let rest = command.words.get(1..).unwrap_or_default();
    let pattern = if command_table::takes_pattern(&names) { find_pattern_index(rest) } else { None };
    let mut before = None;
    for (at, word) in rest.iter().enumerate() {
        match word {
            ShellWord::Known(known) => {
                let (name, value) = known.split_once('=').unwrap_or((known, ""));
                let glob = if GLOB_OPTIONS.contains(&name) { Some(value) } else { None };
                if before.is_some_and(|flag| GLOB_OPTIONS.contains(&flag))
                    || glob.is_some_and(|glob| !glob.is_empty())
                {
                    parts.push(ActionPart::PossibleFile(FileMention {
                        word,
                        usage: WordUsage::Glob,
                        directories,
                    }));
                } else if !EXCLUDE_OPTIONS.contains(&name)
                    && !before.is_some_and(|flag| EXCLUDE_OPTIONS.contains(&flag))
                {
                    let whole = Some(known.as_str()).filter(|word| !is_flag(word));
                    let each = [whole, known.split_once('=').map(|(_, value)| value)];
                    parts.extend(
                        each.into_iter().flatten().filter(|w| !w.is_empty()).map(ActionPart::FileWord),
                    );
                    if !text && (!directories.is_empty() || is_flag(known) || known.contains(PATH_SEPARATORS))
                    {
                        parts.push(ActionPart::PossibleFile(FileMention { word, usage, directories }));
                    }
                }
                before = Some(known.as_str());
            }
            ShellWord::Unknown { shape, .. } => {
                before = None;
                let splits = shape.0.iter().flatten().any(|atom| *atom == ShapeAtom::AnyWords);
                if !text && (pattern != Some(at) || splits) {
                    parts.push(ActionPart::PossibleFile(FileMention { word, usage, directories }));
                }
            }
        }
    }
}

/// Characters that may separate a path from the rest of a word.
const PATH_SEPARATORS: [char; 4] = ['=', ',', ':', '@'];

/// Returns whether the glob of a rule may match a word.
pub(super) fn match_mention(context: &PolicyContext<'_>, glob: &str, mention: &FileMention<'_>) -> RuleMatch {
    let may = match mention.word {
        ShellWord::Known(word) if mention.usage == WordUsage::Glob => {
            let glob_of = word.split_once('=').map_or(word.as_str(), |(_, value)| value);
            let plain = glob_of.starts_with('!') || glob_of.chars().all(|c| "*/?".contains(c));
            !plain && shape_may_match(context, glob, &WordShape::from_glob(glob_of), WordUsage::File)
        }
        ShellWord::Known(word) => path_candidates(word).any(|part| {
            let about =
                |cwd: &str| match_path_glob(context, glob, &absolute_path(cwd, part)) == RuleMatch::Yes;
            about(context.cwd)
                || mention.directories.iter().any(|from| about(&absolute_path(context.cwd, from)))
        }),
        ShellWord::Unknown { shape, .. } => {
            shape_may_match(context, glob, shape, mention.usage)
                || mention.directories.iter().any(|from| {
                    let there = absolute_path(context.cwd, from);
                    shape_may_match(&PolicyContext { cwd: &there, ..*context }, glob, shape, mention.usage)
                })
        }
    };
    if may { RuleMatch::Maybe } else { RuleMatch::No }
}

/// Returns the parts of a known word that may be a path: the whole word, the text after a flag, and separated
/// parts.
fn path_candidates(word: &str) -> impl Iterator<Item = &str> {
    let glued = word.strip_prefix('-').filter(|rest| !rest.starts_with('-')).and_then(|rest| rest.get(1..));
    let whole = Some(word).filter(|word| !is_flag(word));
    let parts = word.split(PATH_SEPARATORS).filter(move |part| part.len() < word.len() && !is_flag(part));
    whole.into_iter().chain(glued).chain(parts).filter(|part| !part.is_empty())
}

/// Returns whether the file that the shell opens may match a glob.
pub(super) fn match_redirect(context: &PolicyContext<'_>, glob: &str, shape: &WordShape) -> RuleMatch {
    if shape_may_match(context, glob, shape, WordUsage::File) { RuleMatch::Maybe } else { RuleMatch::No }
}

/// Returns whether a possible value of a word may match a glob.
fn shape_may_match(by: &PolicyContext<'_>, glob: &str, shape: &WordShape, usage: WordUsage) -> bool {
    if shape.0.is_empty() {
        return false;
    }
    let mut bases = vec![by.cwd];
    bases.extend(by.scope.allow.iter().map(|rule| rule.target.as_str()));
    let named = GlobPaths::from_glob(glob, &bases);
    shape.0.iter().any(|atoms| {
        atom_candidates(atoms).any(|atoms| {
            if is_unconstrained(atoms) {
                return usage == WordUsage::File;
            }
            if is_never_path(atoms, usage) {
                return false;
            }
            let word = pattern_of(by.cwd, atoms);
            let open =
                word.iter().any(|token| matches!(token, PatternToken::AnyText | PatternToken::VisibleNames));
            let placed = anchored_patterns(&bases, atoms);
            named.paths.iter().any(|path| match &placed {
                Some(placed) if path.ends_with(&[PatternToken::Char('/'), PatternToken::AnyText]) => {
                    placed.iter().any(|word| patterns_intersect(word, path))
                }
                _ => patterns_intersect(&word, path) || (!open && may_lie_below(&word, path)),
            })
        })
    })
}

/// Returns the patterns of a word that begins with a directory from the environment, for each place where a
/// rule about a directory could match: the ancestors of the working directory and of the grants. Without
/// this, every `$HOME/x` would match.
fn anchored_patterns(bases: &[&str], atoms: &[ShapeAtom]) -> Option<Vec<Vec<PatternToken>>> {
    let [ShapeAtom::AnyText, rest @ ..] = atoms else { return None };
    if rest.iter().any(|atom| matches!(atom, ShapeAtom::AnyText | ShapeAtom::AnyWords)) {
        return None;
    }
    let above = bases.iter().flat_map(|base| {
        base.char_indices()
            .filter(|(_, letter)| *letter == '/')
            .map(|(at, _)| base.get(..at).unwrap_or_default())
            .chain([*base])
    });
    let spelled = above.map(|directory| {
        let directory = directory.trim_end_matches('/').chars().map(ShapeAtom::Char);
        let atoms: Vec<ShapeAtom> = directory.chain(rest.iter().cloned()).collect();
        pattern_of("/", &atoms)
    });
    Some(spelled.collect())
}

/// Returns whether a word could be a path below the path of a rule.
fn may_lie_below(word: &[PatternToken], path: &[PatternToken]) -> bool {
    // `src/*/a` is not below `**/*.pem`: such a rule is about files.
    let last = path.rsplit(|token| *token == PatternToken::Char('/')).next().unwrap_or_default();
    if !last.iter().all(|token| matches!(token, PatternToken::Char(_))) {
        return false;
    }
    patterns_intersect(word, &[path, &[PatternToken::Char('/'), PatternToken::AnyText]].concat())
}

/// Returns the parts of a word that may be a path.
fn atom_candidates(atoms: &[ShapeAtom]) -> impl Iterator<Item = &[ShapeAtom]> {
    let flag = matches!(atoms, [ShapeAtom::Char('-'), ..]);
    let whole = Some(atoms).filter(|_| !flag);
    let glued = atoms.get(2..).filter(|_| flag && !matches!(atoms.get(1), Some(ShapeAtom::Char('-'))));
    let parted =
        |atom: &ShapeAtom| matches!(atom, ShapeAtom::Char(letter) if PATH_SEPARATORS.contains(letter));
    let parts = atoms
        .split(parted)
        .filter(move |part| part.len() < atoms.len() && !matches!(part, [ShapeAtom::Char('-'), ..]));
    whole.into_iter().chain(glued).chain(parts).filter(|part| !part.is_empty())
}

/// Returns whether a word has no known text except punctuation.
fn is_unconstrained(atoms: &[ShapeAtom]) -> bool {
    let sign = |letter: &char| !letter.is_alphanumeric() && *letter != '.';
    let nothing = |atom: &ShapeAtom| match atom {
        ShapeAtom::AnyText | ShapeAtom::AnyWords | ShapeAtom::OneOfSeveral | ShapeAtom::Variable(_) => true,
        ShapeAtom::Char(letter) => sign(letter),
        ShapeAtom::AnyChar
        | ShapeAtom::Star
        | ShapeAtom::Deep
        | ShapeAtom::Name
        | ShapeAtom::Digits
        | ShapeAtom::Cwd => false,
    };
    atoms.iter().any(|atom| matches!(atom, ShapeAtom::AnyText | ShapeAtom::AnyWords))
        && atoms.iter().all(nothing)
}

/// Returns whether a word is never a path although it could be one: a URL, a sentence, or an argument with an
/// unknown end to a program that takes no files.
fn is_never_path(atoms: &[ShapeAtom], usage: WordUsage) -> bool {
    let unknown = |atom: &ShapeAtom| matches!(atom, ShapeAtom::AnyText | ShapeAtom::AnyWords);
    let slash = |atom: &ShapeAtom| *atom == ShapeAtom::Char('/');
    let last = atoms.rsplit(slash).next().unwrap_or_default();
    // `ls *` looks names up and names no specific file.
    if usage == WordUsage::Other
        && !last.is_empty()
        && last.iter().all(|a| matches!(a, ShapeAtom::AnyChar | ShapeAtom::Star | ShapeAtom::Deep))
    {
        return true;
    }
    let Some(first) = atoms.iter().position(unknown) else { return false };
    let text: String = atoms
        .iter()
        .take(first)
        .map(|atom| match atom {
            ShapeAtom::Char(letter) => *letter,
            _ => '*',
        })
        .collect();
    let sentence = text.rsplit('/').next().is_some_and(|last| last.contains(char::is_whitespace));
    let address = text.contains("://") && !text.starts_with("file:");
    let ended = usage == WordUsage::Other && atoms.last().is_some_and(unknown);
    sentence || address || ended
}
