//! Brace expansion: `{a,b}` and `{1..3}`. Plain forms are expanded as bash does; of all others it is only known that
//! something happens.

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
