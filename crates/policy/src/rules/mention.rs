//! Words of a command that may be names of files, for rules that ask about or deny a path.
//!
//! Here: which words, which parts of them, and whether a rule's glob is about one. Elsewhere: what a word can become
//! (`crate::shell`), whether two patterns have a path in common (`pattern`), the other parts of an action (`fit`).
//! A word that is known and is the path counts as the path. One that could become it, or that holds it in some part, is
//! asked about. A word of which nothing is known is asked about where the program takes files.

use crate::Judging;
use crate::shell::{Atom, Command, Line, Shape, Word, base_name};

use super::command::{Fit, is_flag, pattern_at};
use super::fit::{Part, is_about};
use super::pattern::{Named, Token, absolute as pattern_of, meet};
use super::table;
use super::word::absolute;

/// A word that may be the name of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mention<'a> {
    pub(crate) word: &'a Word,
    how: How,
    /// Directories beside the working one in which the line may be by then.
    from: &'a [String],
}

/// How a word names files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// The command takes names of files.
    File,
    /// It takes none as far as is known: only what a word shows of itself counts.
    Other,
    /// The program reads the word as a glob.
    Glob,
}

/// Options whose value is what a program leaves out.
const LEAVES_OUT: &[&str] = &["--exclude", "--exclude-dir", "--ignore"];
/// Options whose value is a glob of files to look into.
const GLOBS: &[&str] = &["-g", "--glob", "--iglob", "--include"];

/// The words of a command that may name files, each once as it stands and once by its parts.
pub(super) fn mentions<'a>(line: &'a Line, command: &'a Command, parts: &mut Vec<Part<'a>>) {
    let names: Vec<&str> = command.words.iter().take(2).map_while(Word::known).map(base_name).collect();
    // They only look whether something is there.
    if matches!(names.first(), Some(&("test" | "["))) {
        return;
    }
    let text = table::is_text(&names);
    let how = if table::takes_no_files(&names) { How::Other } else { How::File };
    let from = line.directories.as_slice();
    let rest = command.words.get(1..).unwrap_or_default();
    let pattern = if table::has_pattern(&names) { pattern_at(rest) } else { None };
    let mut before = None;
    for (at, word) in rest.iter().enumerate() {
        match word {
            Word::Known(known) => {
                let (name, value) = known.split_once('=').unwrap_or((known, ""));
                let glob = if GLOBS.contains(&name) { Some(value) } else { None };
                if before.is_some_and(|flag| GLOBS.contains(&flag))
                    || glob.is_some_and(|glob| !glob.is_empty())
                {
                    parts.push(Part::MayMention(Mention { word, how: How::Glob, from }));
                } else if !LEAVES_OUT.contains(&name)
                    && !before.is_some_and(|flag| LEAVES_OUT.contains(&flag))
                {
                    let whole = Some(known.as_str()).filter(|word| !is_flag(word));
                    let each = [whole, known.split_once('=').map(|(_, value)| value)];
                    parts.extend(each.into_iter().flatten().filter(|w| !w.is_empty()).map(Part::Mentions));
                    if !text && (!from.is_empty() || is_flag(known) || known.contains(PARTED)) {
                        parts.push(Part::MayMention(Mention { word, how, from }));
                    }
                }
                before = Some(known.as_str());
            }
            Word::Unknown { shape, .. } => {
                before = None;
                let splits = shape.0.iter().flatten().any(|atom| *atom == Atom::Loose);
                if !text && (pattern != Some(at) || splits) {
                    parts.push(Part::MayMention(Mention { word, how, from }));
                }
            }
        }
    }
}

/// What may stand between a path and the rest of a word.
const PARTED: [char; 4] = ['=', ',', ':', '@'];

/// Whether the glob of a rule may be about a word.
pub(super) fn concerns(by: &Judging<'_>, glob: &str, mention: &Mention<'_>) -> Fit {
    let may = match mention.word {
        Word::Known(word) if mention.how == How::Glob => {
            let glob_of = word.split_once('=').map_or(word.as_str(), |(_, value)| value);
            let plain = glob_of.starts_with('!') || glob_of.chars().all(|c| "*/?".contains(c));
            !plain && shape_concerns(by, glob, &Shape::found_by(glob_of), How::File)
        }
        Word::Known(word) => parts_of(word).any(|part| {
            let about = |cwd: &str| is_about(by, glob, &absolute(cwd, part)) == Fit::Yes;
            about(by.cwd) || mention.from.iter().any(|from| about(&absolute(by.cwd, from)))
        }),
        Word::Unknown { shape, .. } => {
            shape_concerns(by, glob, shape, mention.how)
                || mention.from.iter().any(|from| {
                    let there = absolute(by.cwd, from);
                    shape_concerns(&Judging { cwd: &there, ..*by }, glob, shape, mention.how)
                })
        }
    };
    if may { Fit::Maybe } else { Fit::No }
}

/// The parts of a known word that may be a path: all of it, behind a flag, between signs.
fn parts_of(word: &str) -> impl Iterator<Item = &str> {
    let glued = word.strip_prefix('-').filter(|rest| !rest.starts_with('-')).and_then(|rest| rest.get(1..));
    let whole = Some(word).filter(|word| !is_flag(word));
    let parts = word.split(PARTED).filter(move |part| part.len() < word.len() && !is_flag(part));
    whole.into_iter().chain(glued).chain(parts).filter(|part| !part.is_empty())
}

/// Whether the file that the shell opens may be one that a glob names.
pub(super) fn opens(by: &Judging<'_>, glob: &str, shape: &Shape) -> Fit {
    if shape_concerns(by, glob, shape, How::File) { Fit::Maybe } else { Fit::No }
}

/// Whether what a word can become could be what a glob names.
fn shape_concerns(by: &Judging<'_>, glob: &str, shape: &Shape, how: How) -> bool {
    if shape.0.is_empty() {
        return false;
    }
    let mut bases = vec![by.cwd];
    bases.extend(by.scope.allow.iter().map(|rule| rule.target.as_str()));
    let named = Named::read(glob, &bases);
    shape.0.iter().any(|atoms| {
        variants(atoms).any(|atoms| {
            if says_nothing(atoms) {
                return how == How::File;
            }
            if is_skipped(atoms, how) {
                return false;
            }
            let word = pattern_of(by.cwd, atoms);
            let open = word.iter().any(|token| matches!(token, Token::Any | Token::Deep));
            let placed = placed(&bases, atoms);
            named.paths.iter().any(|path| match &placed {
                Some(placed) if path.ends_with(&[Token::Char('/'), Token::Any]) => {
                    placed.iter().any(|word| meet(word, path))
                }
                _ => meet(&word, path) || (!open && below(&word, path)),
            })
        })
    })
}

/// A word that begins with a directory of the environment, at each place where that could count for a rule about a
/// directory: above where the line begins, or above a grant. Else every `$HOME/x` would be asked about.
fn placed(bases: &[&str], atoms: &[Atom]) -> Option<Vec<Vec<Token>>> {
    let [Atom::Any, rest @ ..] = atoms else { return None };
    if rest.iter().any(|atom| matches!(atom, Atom::Any | Atom::Loose)) {
        return None;
    }
    let above = bases.iter().flat_map(|base| {
        base.char_indices()
            .filter(|(_, letter)| *letter == '/')
            .map(|(at, _)| base.get(..at).unwrap_or_default())
            .chain([*base])
    });
    let spelled = above.map(|directory| {
        let directory = directory.trim_end_matches('/').chars().map(Atom::Char);
        let atoms: Vec<Atom> = directory.chain(rest.iter().cloned()).collect();
        pattern_of("/", &atoms)
    });
    Some(spelled.collect())
}

/// Whether a word could lie below what a rule names.
fn below(word: &[Token], path: &[Token]) -> bool {
    // `src/*/a` does not lie below `**/*.pem`: such a rule is about files.
    let last = path.rsplit(|token| *token == Token::Char('/')).next().unwrap_or_default();
    if !last.iter().all(|token| matches!(token, Token::Char(_))) {
        return false;
    }
    meet(word, &[path, &[Token::Char('/'), Token::Any]].concat())
}

/// The parts of a word that may be a path.
fn variants(atoms: &[Atom]) -> impl Iterator<Item = &[Atom]> {
    let flag = matches!(atoms, [Atom::Char('-'), ..]);
    let whole = Some(atoms).filter(|_| !flag);
    let glued = atoms.get(2..).filter(|_| flag && !matches!(atoms.get(1), Some(Atom::Char('-'))));
    let parted = |atom: &Atom| matches!(atom, Atom::Char(letter) if PARTED.contains(letter));
    let parts = atoms
        .split(parted)
        .filter(move |part| part.len() < atoms.len() && !matches!(part, [Atom::Char('-'), ..]));
    whole.into_iter().chain(glued).chain(parts).filter(|part| !part.is_empty())
}

/// Whether nothing is known of a word but signs.
fn says_nothing(atoms: &[Atom]) -> bool {
    let sign = |letter: &char| !letter.is_alphanumeric() && *letter != '.';
    let nothing = |atom: &Atom| match atom {
        Atom::Any | Atom::Loose | Atom::Several | Atom::Variable(_) => true,
        Atom::Char(letter) => sign(letter),
        Atom::One | Atom::Star | Atom::Deep | Atom::Name | Atom::Digits | Atom::Cwd => false,
    };
    atoms.iter().any(|atom| matches!(atom, Atom::Any | Atom::Loose)) && atoms.iter().all(nothing)
}

/// Words that are no paths although they could be one: addresses, sentences, and what a program that takes no files is
/// given with an end that is not known.
fn is_skipped(atoms: &[Atom], how: How) -> bool {
    let unknown = |atom: &Atom| matches!(atom, Atom::Any | Atom::Loose);
    let slash = |atom: &Atom| *atom == Atom::Char('/');
    let last = atoms.rsplit(slash).next().unwrap_or_default();
    // `ls *`: names are looked up, and none is named.
    if how == How::Other
        && !last.is_empty()
        && last.iter().all(|a| matches!(a, Atom::One | Atom::Star | Atom::Deep))
    {
        return true;
    }
    let Some(first) = atoms.iter().position(unknown) else { return false };
    let text: String = atoms
        .iter()
        .take(first)
        .map(|atom| match atom {
            Atom::Char(letter) => *letter,
            _ => '*',
        })
        .collect();
    let sentence = text.rsplit('/').next().is_some_and(|last| last.contains(char::is_whitespace));
    let address = text.contains("://") && !text.starts_with("file:");
    let ended = how == How::Other && atoms.last().is_some_and(unknown);
    sentence || address || ended
}
