//! Brace expansion: `{a,b}` and `{1..3}`. Plain forms are expanded as bash does; of all others it is only known that
//! something happens; `alternatives` then says what may come out, for the shape of the word.

use super::shape::{Hole, Piece};

/// The most words that one word is expanded to.
const WORDS: usize = 64;

/// Whether bash might expand braces in the word. Balance is not looked at: bash finds pairs where people see none.
pub(super) fn expands(text: &[(char, bool)]) -> bool {
    let plain = |wanted: &[char], from: usize| {
        text.iter().skip(from).position(|(c, quoted)| !quoted && wanted.contains(c)).map(|at| from + at)
    };
    let Some(open) = plain(&['{'], 0) else { return false };
    let dots = |at: usize| text.get(at) == Some(&('.', false)) && text.get(at + 1) == Some(&('.', false));
    let parted = plain(&[','], open).or_else(|| (open..text.len()).find(|at| dots(*at)));
    parted.is_some_and(|parted| plain(&['}'], parted).is_some())
}

/// What the word becomes, if it is of a plain form: one pair of braces with words or small numbers in it.
pub(super) fn expanded(text: &[(char, bool)]) -> Option<Vec<String>> {
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
        numbers(inner)?
    };
    if inner.len() > WORDS {
        return None;
    }
    // A word that comes out empty is no word at all.
    let words = inner.iter().map(|item| format!("{before}{item}{after}"));
    Some(words.filter(|word| !word.is_empty()).collect())
}

/// `1..3`.
fn numbers(inner: &str) -> Option<Vec<String>> {
    let (first, last) = inner.split_once("..")?;
    let number = |text: &str| {
        let plain = text.len() <= 4 && !text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit());
        plain.then(|| text.parse::<usize>().ok()).flatten()
    };
    let (first, last) = (number(first)?, number(last)?);
    if first.abs_diff(last) >= WORDS {
        return None;
    }
    let range: Vec<usize> =
        if first <= last { (first..=last).collect() } else { (last..=first).rev().collect() };
    Some(range.into_iter().map(|number| number.to_string()).collect())
}

/// Every word that braces make of the pieces of one; none if they are too many, or stand in an odd way.
pub(super) fn alternatives(pieces: &[Piece]) -> Option<Vec<Vec<Piece>>> {
    let mut done = Vec::new();
    let mut open = vec![(pieces.to_vec(), 0)];
    while let Some((pieces, from)) = open.pop() {
        let Some(at) = (from..pieces.len()).find(|at| is(&pieces, *at, '{')) else {
            done.push(pieces);
            if done.len() > WORDS {
                return None;
            }
            continue;
        };
        let (close, commas) = pair(&pieces, at)?;
        let before = pieces.get(..at)?;
        let after = pieces.get(close + 1..)?;
        if commas.is_empty() {
            let dots = (at..close).any(|at| is(&pieces, at, '.') && is(&pieces, at + 1, '.'));
            if dots {
                let range = [before, &[Piece::Hole(Hole::Range, true)], after].concat();
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
        if open.len() > WORDS {
            return None;
        }
    }
    Some(done)
}

fn is(pieces: &[Piece], at: usize, wanted: char) -> bool {
    matches!(pieces.get(at), Some(Piece::Char(letter, false)) if *letter == wanted)
}

/// Where the pair of a brace closes, and the commas that part what stands in it.
fn pair(pieces: &[Piece], open: usize) -> Option<(usize, Vec<usize>)> {
    let mut depth = 0_usize;
    let mut commas = Vec::new();
    for at in open..pieces.len() {
        if is(pieces, at, '{') {
            depth += 1;
        } else if is(pieces, at, '}') {
            depth -= 1;
            if depth == 0 {
                return Some((at, commas));
            }
        } else if depth == 1 && is(pieces, at, ',') {
            commas.push(at);
        }
    }
    None
}
