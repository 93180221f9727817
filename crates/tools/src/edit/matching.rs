//! Matching: where an edit applies, and the text that comes of it. Exact first; where nothing is, a unique place that
//! differs only in white space (`loose`); else words about the nearest lines (`closest`).
//!
//! Line ends: an `old_string` with LF matches lines that end in CRLF or CR, and what is put there ends as its neighbours
//! do. Lines that stay the same keep their bytes.
//! Invariant: outside of the replaced place nothing changes (`generated_edits_are_exact`).

use std::borrow::Cow;
use std::ops::Range;

use super::closest;
use super::loose;
use crate::text::Ending;

/// The most line numbers that an error lists.
const LISTED: usize = 10;

/// One replacement that was asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) old: &'a str,
    pub(crate) new: &'a str,
    pub(crate) all: bool,
}

/// A text after a replacement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Applied {
    pub(crate) text: String,
    pub(crate) places: usize,
    /// It matched only when white space was left out of account.
    pub(crate) loosely: bool,
}

/// A place in the text, and what comes there.
pub(super) struct Change<'a> {
    pub(super) range: Range<usize>,
    pub(super) new: Cow<'a, str>,
}

/// Replaces, or says why not.
pub(crate) fn apply(text: &str, wanted: Wanted<'_>) -> Result<Applied, String> {
    if !text.contains('\r') || (wanted.old.contains('\r') && text.contains(wanted.old)) {
        let (changes, loosely) = find(text, wanted)?;
        return finish(text, replace(text, &changes, None), changes.len(), loosely);
    }
    let flat = Flat::new(text);
    let (old, new) = (flat.normal(wanted.old), flat.normal(wanted.new));
    let (changes, loosely) = find(&flat.text, Wanted { old: &old, new: &new, all: wanted.all })?;
    let changes: Vec<Change<'_>> =
        changes.into_iter().map(|change| only_what_differs(&flat.text, change)).collect();
    finish(text, replace(text, &changes, Some(&flat)), changes.len(), loosely)
}

fn finish(before: &str, text: String, places: usize, loosely: bool) -> Result<Applied, String> {
    if text == before {
        return Err("the edit would change nothing: the file already has `new_string` there".to_owned());
    }
    Ok(Applied { text, places, loosely })
}

/// The places of an edit, and whether white space was left out of account.
fn find<'a>(text: &str, wanted: Wanted<'a>) -> Result<(Vec<Change<'a>>, bool), String> {
    let Wanted { old, new, all } = wanted;
    let change = |from: usize| Change { range: from..from + old.len(), new: Cow::Borrowed(new) };
    let mut found = memchr::memmem::find_iter(text.as_bytes(), old.as_bytes());
    let Some(first) = found.next() else {
        return match loose::find(text, wanted) {
            loose::Found::One(change) => Ok((vec![change], true)),
            loose::Found::Several(lines) => Err(several(&lines, ", with other white space,")),
            loose::Found::None => Err(closest::describe(text, old)),
        };
    };
    if all {
        return Ok((std::iter::once(first).chain(found).map(change).collect(), false));
    }
    // Overlapping places are different places, too.
    let step = text.get(first..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8);
    let rest = text.as_bytes().get(first + step..).unwrap_or_default();
    if memchr::memmem::find(rest, old.as_bytes()).is_none() {
        return Ok((vec![change(first)], false));
    }
    let mut at: Vec<usize> = std::iter::once(first).chain(found).collect();
    if at.len() == 1 {
        at.extend(memchr::memmem::find(rest, old.as_bytes()).map(|more| first + step + more));
    }
    Err(several(&lines_of(text, &at), ""))
}

fn several(lines: &[usize], how: &str) -> String {
    let mut listed: Vec<String> = lines.iter().take(LISTED).map(usize::to_string).collect();
    if lines.len() > LISTED {
        listed.push("…".to_owned());
    }
    format!(
        "`old_string` occurs{how} {} times, at lines {}: add lines around it until it is unique, or set `replace_all`",
        lines.len(),
        listed.join(", ")
    )
}

/// The line of each offset; offsets rise.
pub(super) fn lines_of(text: &str, offsets: &[usize]) -> Vec<usize> {
    let (mut line, mut from) = (1, 0);
    let mut lines = Vec::with_capacity(offsets.len());
    for offset in offsets {
        line += memchr::memchr_iter(b'\n', text.as_bytes().get(from..*offset).unwrap_or_default()).count();
        from = *offset;
        lines.push(line);
    }
    lines
}

/// A text whose lines all end in LF, and the way back.
struct Flat<'a> {
    raw: &'a str,
    text: String,
    ending: Ending,
}

impl<'a> Flat<'a> {
    fn new(raw: &'a str) -> Flat<'a> {
        let ending = Ending::of(raw);
        let text = if ending == Ending::Cr { raw.replace('\r', "\n") } else { raw.replace("\r\n", "\n") };
        Flat { raw, text, ending }
    }

    fn normal<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if !text.contains('\r') {
            return text.into();
        }
        let text = text.replace("\r\n", "\n");
        if self.ending == Ending::Cr { text.replace('\r', "\n").into() } else { text.into() }
    }

    /// Offsets of the raw text for rising offsets of the flat one. One that follows an LF follows the whole line end.
    fn raw_offsets(&self, offsets: &[usize]) -> Vec<usize> {
        if self.ending == Ending::Cr {
            return offsets.to_vec();
        }
        let mut pairs = memchr::memmem::find_iter(self.raw.as_bytes(), "\r\n").peekable();
        let mut dropped = 0;
        let mut raw = Vec::with_capacity(offsets.len());
        for offset in offsets {
            // A pair at raw `at` is the flat LF at `at - dropped`.
            while pairs.next_if(|at| at - dropped < *offset).is_some() {
                dropped += 1;
            }
            raw.push(offset + dropped);
        }
        raw
    }

    /// How lines end at a place: as most of those that are replaced do, else as the line itself, else as the file.
    fn ending_at(&self, place: Range<usize>) -> Ending {
        if self.ending == Ending::Cr {
            return Ending::Cr;
        }
        let replaced = self.raw.get(place.clone()).unwrap_or_default();
        if replaced.contains('\n') {
            return Ending::of(replaced);
        }
        let bytes = self.raw.as_bytes();
        let after =
            memchr::memchr(b'\n', bytes.get(place.end..).unwrap_or_default()).map(|at| place.end + at);
        let before = || memchr::memrchr(b'\n', bytes.get(..place.start).unwrap_or_default());
        match after.or_else(before) {
            Some(at) if at > 0 && bytes.get(at - 1) == Some(&b'\r') => Ending::CrLf,
            Some(_) => Ending::Lf,
            None => self.ending,
        }
    }
}

/// The change without the whole lines at its beginning and end that stay as they are.
fn only_what_differs<'a>(flat: &str, change: Change<'a>) -> Change<'a> {
    let Change { range, new } = change;
    let old = flat.get(range.clone()).unwrap_or_default();
    let same = |(a, b): &(&str, &str)| a == b && a.ends_with('\n');
    let head: usize =
        old.split_inclusive('\n').zip(new.split_inclusive('\n')).take_while(same).map(|(a, _)| a.len()).sum();
    let (old_rest, new_rest) = (old.get(head..).unwrap_or_default(), new.get(head..).unwrap_or_default());
    let tail: usize = old_rest
        .split_inclusive('\n')
        .rev()
        .zip(new_rest.split_inclusive('\n').rev())
        .take_while(|(a, b)| a == b)
        .map(|(a, _)| a.len())
        .sum();
    let new = new_rest.get(..new_rest.len() - tail).unwrap_or_default().to_owned();
    Change { range: range.start + head..range.end - tail, new: new.into() }
}

/// The raw text with its changes. Places are those of the flat text, if there is one.
fn replace(raw: &str, changes: &[Change<'_>], flat: Option<&Flat<'_>>) -> String {
    let ends: Vec<usize> = changes.iter().flat_map(|change| [change.range.start, change.range.end]).collect();
    let ends = flat.map_or_else(|| ends.clone(), |flat| flat.raw_offsets(&ends));
    let mut text = String::with_capacity(raw.len());
    let mut from = 0;
    for (change, place) in changes.iter().zip(ends.chunks_exact(2)) {
        let (start, end) = (place.first().copied().unwrap_or(from), place.last().copied().unwrap_or(from));
        text.push_str(raw.get(from..start).unwrap_or_default());
        match flat.map(|flat| flat.ending_at(start..end)) {
            Some(ending) if ending != Ending::Lf => text.push_str(&change.new.replace('\n', ending.as_str())),
            _ => text.push_str(&change.new),
        }
        from = end;
    }
    text.push_str(raw.get(from..).unwrap_or_default());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(text: &str, old: &str, new: &str) -> Result<String, String> {
        apply(text, Wanted { old, new, all: false }).map(|applied| applied.text)
    }

    #[test]
    fn line_ends_stay_as_they_are_around_a_change() {
        assert_eq!(edit("a\r\nb\r\nc\r\n", "a\nb\n", "a\nx\ny\n").unwrap(), "a\r\nx\r\ny\r\nc\r\n");
        assert_eq!(edit("a\rb\rc", "a\nb", "a\nx\ny").unwrap(), "a\rx\ry\rc");
        // Mixed: lines that stay keep theirs, new ones end as those they replace.
        assert_eq!(edit("a\r\nb\nc\r\nd\n", "a\nb\nc\n", "a\nx\ny\nc\n").unwrap(), "a\r\nx\ny\nc\r\nd\n");
        assert_eq!(edit("a\nb\r\nc", "b", "x\ny").unwrap(), "a\nx\r\ny\r\nc");
        assert_eq!(edit("a\r\nb", "b", "x\ny").unwrap(), "a\r\nx\r\ny");
        // What is asked for with CRLF is taken as it is.
        assert_eq!(edit("a\r\nb\n", "a\r\nb", "a\nb").unwrap(), "a\nb\n");
        assert_eq!(edit("a\r\nb\r\n", "a\r\n", "x\r\n").unwrap(), "x\r\nb\r\n");
        // A lone CR in a file with LF is a character.
        assert_eq!(edit("10%\r20%\nb\r\n", "20%", "30%").unwrap(), "10%\r30%\nb\r\n");
        let all = apply("a\r\nb\r\na\r\n", Wanted { old: "a\n", new: "x\ny\n", all: true }).unwrap();
        assert_eq!((all.text.as_str(), all.places), ("x\r\ny\r\nb\r\nx\r\ny\r\n", 2));
    }

    #[test]
    fn several_places_are_named_and_overlapping_ones_count() {
        let e = edit("x\ny\nx\nx\n", "x", "z").unwrap_err();
        assert!(e.contains("3 times, at lines 1, 3, 4"), "{e}");
        let e = edit("x\nx\nx\n", "x\nx\n", "z").unwrap_err();
        assert!(e.contains("2 times, at lines 1, 2"), "{e}");
        let e = edit("äää", "ää", "z").unwrap_err();
        assert!(e.contains("2 times, at lines 1, 1"), "{e}");
        let many = "x\n".repeat(100);
        let e = edit(&many, "x", "z").unwrap_err();
        assert!(e.contains("100 times") && e.contains("10, …"), "{e}");
        assert!(edit("a\r\n", "a\n", "a\r\n").unwrap_err().contains("change nothing"));
    }
}
