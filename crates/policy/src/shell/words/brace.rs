//! Brace expansion: `{a,b}` and `{1..3}`. Plain forms are expanded as bash does. For other forms,
//! `alternatives` returns the possible results for the shape of the word.

use super::super::shape::{UnknownPart, WordPiece};

/// The maximum number of words that one word is expanded to.
const MAX_BRACE_WORDS: usize = 64;

/// Returns whether bash might expand braces in the word. Ignores balance, because bash finds pairs in
/// unbalanced text.
pub(in crate::shell) fn may_expand(text: &[(char, bool)]) -> bool {
    let plain = |wanted: &[char], from: usize| {
        text.iter().skip(from).position(|(c, quoted)| !quoted && wanted.contains(c)).map(|at| from + at)
    };
    let Some(open) = plain(&['{'], 0) else { return false };
    let dots = |at: usize| text.get(at) == Some(&('.', false)) && text.get(at + 1) == Some(&('.', false));
    let parted = plain(&[','], open).or_else(|| (open..text.len()).find(|at| dots(*at)));
    parted.is_some_and(|parted| plain(&['}'], parted).is_some())
}

/// Expands a word of a plain form: one pair of braces with words or small numbers in it.
pub(in crate::shell) fn expand_plain(text: &[(char, bool)]) -> Option<Vec<String>> {
    let marks = |wanted: char| text.iter().filter(|(c, quoted)| *c == wanted && !quoted).count();
    let odd = |(c, quoted): &(char, bool)| if *quoted { "{},.".contains(*c) } else { "*?[~".contains(*c) };
    if marks('{') != 1 || marks('}') != 1 || text.iter().any(odd) {
        return None;
    }
    let spelled: String = text.iter().map(|(c, _)| *c).collect();
    let (before, rest) = spelled.split_once('{')?;
    let (inner, after) = rest.split_once('}')?;
    let inner = if inner.contains(',') {
        if inner.contains("..") {
            return None;
        }
        inner.split(',').map(str::to_owned).collect()
    } else {
        number_range(inner)?
    };
    if inner.len() > MAX_BRACE_WORDS {
        return None;
    }
    // A word that expands to nothing is removed.
    let words = inner.iter().map(|item| format!("{before}{item}{after}"));
    Some(words.filter(|word| !word.is_empty()).collect())
}

/// Expands `1..3`.
fn number_range(inner: &str) -> Option<Vec<String>> {
    let (first, last) = inner.split_once("..")?;
    let number = |text: &str| {
        let plain = text.len() <= 4 && !text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit());
        plain.then(|| text.parse::<usize>().ok()).flatten()
    };
    let (first, last) = (number(first)?, number(last)?);
    if first.abs_diff(last) >= MAX_BRACE_WORDS {
        return None;
    }
    let range: Vec<usize> =
        if first <= last { (first..=last).collect() } else { (last..=first).rev().collect() };
    Some(range.into_iter().map(|number| number.to_string()).collect())
}

/// Returns every word that braces make of these pieces, or `None` if there are too many or the syntax is
/// unusual.
pub(in crate::shell) fn brace_alternatives(pieces: &[WordPiece]) -> Option<Vec<Vec<WordPiece>>> {
    let mut done = Vec::new();
    let mut open = vec![(pieces.to_vec(), 0)];
    while let Some((pieces, from)) = open.pop() {
        let Some(at) = (from..pieces.len()).find(|at| is_unquoted(&pieces, *at, '{')) else {
            done.push(pieces);
            if done.len() > MAX_BRACE_WORDS {
                return None;
            }
            continue;
        };
        let (close, commas) = closing_brace(&pieces, at)?;
        let before = pieces.get(..at)?;
        let after = pieces.get(close + 1..)?;
        if commas.is_empty() {
            let dots =
                (at..close).any(|at| is_unquoted(&pieces, at, '.') && is_unquoted(&pieces, at + 1, '.'));
            if dots {
                let range = [before, &[WordPiece::Unknown(UnknownPart::Range, true)], after].concat();
                open.push((range, at + 1));
            } else {
                open.push((pieces, at + 1));
            }
            continue;
        }
        let mut start = at + 1;
        for end in commas.into_iter().chain([close]) {
            open.push(([before, pieces.get(start..end)?, after].concat(), at));
            start = end + 1;
        }
        if open.len() > MAX_BRACE_WORDS {
            return None;
        }
    }
    Some(done)
}

fn is_unquoted(pieces: &[WordPiece], at: usize, wanted: char) -> bool {
    matches!(pieces.get(at), Some(WordPiece::Char(letter, false)) if *letter == wanted)
}

/// Returns the position of the closing brace and of the commas between.
fn closing_brace(pieces: &[WordPiece], open: usize) -> Option<(usize, Vec<usize>)> {
    let mut depth = 0_usize;
    let mut commas = Vec::new();
    for at in open..pieces.len() {
        if is_unquoted(pieces, at, '{') {
            depth += 1;
        } else if is_unquoted(pieces, at, '}') {
            depth -= 1;
            if depth == 0 {
                return Some((at, commas));
            }
        } else if depth == 1 && is_unquoted(pieces, at, ',') {
            commas.push(at);
        }
    }
    None
}
