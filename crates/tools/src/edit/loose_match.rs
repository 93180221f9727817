//! Loose matching: finds a unique place with the words of `old_string` and other white space. The replacement
//! gets the indentation of the place.
//!
//! Line breaks must match, indentation and spacing may differ. Words must match as a whole: `return x` is not
//! `returnx`.

use std::borrow::Cow;
use std::iter::Peekable;
use std::str::Chars;

use super::replacement::{TextChange, TextReplacement, line_numbers};

/// The maximum size of a text for loose matching.
const MAX_TEXT_BYTES: usize = 16 * 1024 * 1024;
/// The maximum number of places that are compared.
const MAX_PLACES: usize = 1_000;

pub(super) enum LooseMatch<'a> {
    NotFound,
    One(TextChange<'a>),
    /// The lines of the matching places.
    Several(Vec<usize>),
}

pub(super) fn find_loose<'a>(text: &str, wanted: TextReplacement<'a>) -> LooseMatch<'a> {
    let TextReplacement { old, new, .. } = wanted;
    let key = strip_spaces(old);
    if text.len() > MAX_TEXT_BYTES || key.chars().all(|c| c == '\n') {
        return LooseMatch::NotFound;
    }
    let squeezed = strip_spaces(text);
    let offsets: Vec<usize> =
        memchr::memmem::find_iter(squeezed.as_bytes(), key.as_bytes()).take(MAX_PLACES).collect();
    let ends: Vec<usize> = offsets.iter().flat_map(|from| [*from, from + key.len()]).collect();
    let places: Vec<(usize, usize)> = original_offsets(text, &ends)
        .chunks_exact(2)
        .filter_map(|place| Some((*place.first()?, *place.last()?)))
        .filter(|(from, to)| same_words(text, *from, *to, old))
        .collect();
    match places.as_slice() {
        [] => LooseMatch::NotFound,
        [(from, to)] => {
            let (from, to) = widen_to_spaces(text, *from, *to, old);
            let place = text.get(from..to).unwrap_or_default();
            let at_start = text.get(..from).is_none_or(|before| before.is_empty() || before.ends_with('\n'));
            LooseMatch::One(TextChange { range: from..to, new: reindent(place, old, new, at_start) })
        }
        several => LooseMatch::Several(line_numbers(
            text,
            &several.iter().map(|(from, _)| *from).collect::<Vec<_>>(),
        )),
    }
}

fn is_space(c: char) -> bool {
    c.is_whitespace() && c != '\n'
}

/// Removes white space except line breaks.
fn strip_spaces(text: &str) -> String {
    text.chars().filter(|c| !is_space(*c)).collect()
}

/// Returns offsets in the text for offsets in the stripped text, in pairs of a first character and an end.
/// Offsets increase; an end may precede the next start.
fn original_offsets(text: &str, ends: &[usize]) -> Vec<usize> {
    let mut offsets = Vec::with_capacity(ends.len());
    let mut chars = text.char_indices().filter(|(_, c)| !is_space(*c));
    let (mut squeezed, mut last_end) = (0, 0);
    let mut next = chars.next();
    for (index, end) in ends.iter().enumerate() {
        while let Some((at, c)) = next
            && squeezed < *end
        {
            squeezed += c.len_utf8();
            last_end = at + c.len_utf8();
            next = chars.next();
        }
        let is_start = index % 2 == 0;
        offsets.push(if is_start { next.map_or(text.len(), |(at, _)| at) } else { last_end });
    }
    offsets
}

fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns whether the place has the same words as `old` and does not cut a word.
fn same_words(text: &str, from: usize, to: usize, old: &str) -> bool {
    let Some((before, rest)) = text.split_at_checked(from) else { return false };
    let Some((place, after)) = rest.split_at_checked(to - from) else { return false };
    let joined =
        |a: Option<char>, b: Option<char>| a.is_some_and(is_word_char) && b.is_some_and(is_word_char);
    if joined(before.chars().next_back(), place.chars().next())
        || joined(place.chars().next_back(), after.chars().next())
    {
        return false;
    }
    WordTokens::new(place).eq(WordTokens::new(old))
}

/// Iterates over words, punctuation and line breaks of a text.
struct WordTokens<'a> {
    chars: Peekable<Chars<'a>>,
}

impl WordTokens<'_> {
    fn new(text: &str) -> WordTokens<'_> {
        WordTokens { chars: text.chars().peekable() }
    }
}

impl Iterator for WordTokens<'_> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        while self.chars.next_if(|c| is_space(*c)).is_some() {}
        let first = self.chars.next()?;
        let mut word = String::from(first);
        if is_word_char(first) {
            while let Some(c) = self.chars.next_if(|c| is_word_char(*c)) {
                word.push(c);
            }
        }
        Some(word)
    }
}

/// Extends the place by the indentation of its first line and trailing spaces, if `old` has them.
fn widen_to_spaces(text: &str, from: usize, to: usize, old: &str) -> (usize, usize) {
    let (mut from, mut to) = (from, to);
    if old.starts_with(is_space) {
        let before = text.get(..from).unwrap_or_default();
        let indented = before.trim_end_matches(is_space);
        if indented.is_empty() || indented.ends_with('\n') {
            from = indented.len();
        }
    }
    if old.ends_with(is_space) {
        let after = text.get(to..).unwrap_or_default();
        to += after.len() - after.trim_start_matches(is_space).len();
    }
    (from, to)
}

fn indentation(line: &str) -> &str {
    let rest = line.trim_start_matches(is_space);
    line.get(..line.len() - rest.len()).unwrap_or_default()
}

/// Returns `new` with the indentation of the place. `at_start`: the place begins at the start of its line.
fn reindent<'a>(place: &str, old: &str, new: &'a str, at_start: bool) -> Cow<'a, str> {
    let pairs: Vec<(&str, &str)> = old
        .split('\n')
        .zip(place.split('\n'))
        .enumerate()
        .filter(|(index, (line, _))| (at_start || *index > 0) && !line.trim().is_empty())
        .map(|(_, (old, place))| (indentation(old), indentation(place)))
        .collect();
    if pairs.iter().all(|(old, place)| old == place) {
        return new.into();
    }
    let unit = tab_width(&pairs);
    let mut lines = Vec::new();
    for (index, line) in new.split('\n').enumerate() {
        let own = indentation(line);
        let rest = line.get(own.len()..).unwrap_or_default();
        if rest.is_empty() || (index == 0 && !at_start) {
            lines.push(line.to_owned());
        } else {
            lines.push(format!("{}{rest}", shift_indentation(own, &pairs, unit)));
        }
    }
    lines.join("\n").into()
}

/// Returns how many spaces of `old` a tab of the place replaces, if they differ in that way.
fn tab_width(pairs: &[(&str, &str)]) -> Option<usize> {
    let (old, place) = pairs.iter().find(|(old, place)| !old.is_empty() && !place.is_empty())?;
    let tabs = place.chars().all(|c| c == '\t') && old.chars().all(|c| c == ' ');
    (tabs && old.len() % place.len() == 0).then(|| old.len() / place.len())
}

/// Converts an indentation of `new` to that of the place.
fn shift_indentation(own: &str, pairs: &[(&str, &str)], unit: Option<usize>) -> String {
    let nearest = pairs.iter().filter(|(old, _)| own.starts_with(old)).max_by_key(|(old, _)| old.len());
    if let Some((old, place)) = nearest {
        let more = own.get(old.len()..).unwrap_or_default();
        return match unit {
            Some(unit) if more.chars().all(|c| c == ' ') && more.len() % unit == 0 => {
                format!("{place}{}", "\t".repeat(more.len() / unit))
            }
            _ => format!("{place}{more}"),
        };
    }
    // Less indented than any line of `old`: reduce the indentation of the outermost line.
    let Some((old, place)) = pairs.iter().min_by_key(|(old, _)| old.len()) else { return own.to_owned() };
    let less = old.chars().count().saturating_sub(own.chars().count());
    match unit {
        Some(unit) => place.chars().take(place.chars().count().saturating_sub(less.div_ceil(unit))).collect(),
        None => place.chars().take(place.chars().count().saturating_sub(less)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::replacement::apply_replacement;
    use super::*;

    fn edit_text(text: &str, old: &str, new: &str) -> Result<(String, bool), String> {
        apply_replacement(text, TextReplacement { old, new, all: false })
            .map(|applied| (applied.text, applied.is_loose))
    }

    fn edit_loosely(text: &str, old: &str, new: &str) -> String {
        let (text, loosely) = edit_text(text, old, new).unwrap();
        assert!(loosely);
        text
    }

    #[test]
    fn what_replaces_is_indented_as_the_place_is() {
        let file = "fn f() {\n        if a {\n            b();\n        }\n}\n";
        assert_eq!(
            edit_loosely(file, "if a {\n    b();\n}", "if a {\n    c();\n    if d {\n        e();\n    }\n}"),
            "fn f() {\n        if a {\n            c();\n            if d {\n                e();\n            }\n        }\n}\n"
        );
        assert_eq!(
            edit_loosely(
                file,
                "    if a {\n        b();\n    }\n",
                "    if a {\n        c();\n    }\n    d();\n"
            ),
            "fn f() {\n        if a {\n            c();\n        }\n        d();\n}\n"
        );
        let tabs = "class A:\n\tdef f(self):\n\t\treturn 1\n";
        assert_eq!(
            edit_loosely(
                tabs,
                "    def f(self):\n        return 1\n",
                "    def f(self):\n        if x:\n            return 2\n        return 1\n"
            ),
            "class A:\n\tdef f(self):\n\t\tif x:\n\t\t\treturn 2\n\t\treturn 1\n"
        );
        // Less indented than the quoted lines.
        assert_eq!(
            edit_loosely("a\n\t\tb\n\t\tc\n", "        b\n        c\n", "    x\n        b\n"),
            "a\n\tx\n\t\tb\n"
        );
    }

    #[test]
    fn spaces_inside_and_at_the_end_of_lines_do_not_matter() {
        assert_eq!(edit_loosely("x = foo(a,b)   \ny\n", "foo( a, b )\ny", "bar(a)\ny"), "x = bar(a)\ny\n");
        assert_eq!(edit_loosely("a\u{a0}b\n", "a b", "c"), "c\n");
        assert_eq!(edit_loosely("a  b  c\n", "b c ", "d"), "a  d\n");
    }

    #[test]
    fn words_stay_whole_and_places_unique() {
        assert!(edit_text("returnx\n", "return x", "y").is_err());
        assert!(edit_text("xreturn  x\n", "return x", "y").is_err());
        assert!(edit_text("a\n", "  \n", "y").is_err());
        let e = edit_text("  a b\n\ta  b\n", "a   b", "y").unwrap_err();
        assert!(e.contains("2 times, at lines 1, 2"), "{e}");
        // One exact place takes precedence over loose ones.
        assert_eq!(edit_text("a  b\na b\n", "a b", "y").unwrap(), ("a  b\ny\n".to_owned(), false));
        // Line breaks must match.
        assert!(edit_text("a\n\nb\n", "a\nb", "y").is_err());
    }
}
