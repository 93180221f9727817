//! Finds the place of an edit and applies it. An exact match comes first, then a unique place that differs
//! only in white space (`loose_match`); otherwise the error names the nearest lines (`closest`).
//!
//! An `old_string` with LF also matches lines with CRLF or CR endings, and the replacement gets the endings
//! of its neighbors. Unchanged lines keep their bytes.
//! Invariant: nothing outside the replaced place changes (`generated_edits_are_exact`).

use std::borrow::Cow;
use std::ops::Range;

use super::closest;
use super::loose_match;
use crate::text::LineEnding;

/// The maximum number of line numbers in an error.
const MAX_LISTED_LINES: usize = 10;

/// A requested replacement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TextReplacement<'a> {
    pub(crate) old: &'a str,
    pub(crate) new: &'a str,
    pub(crate) all: bool,
}

/// The text after a replacement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AppliedEdit {
    pub(crate) text: String,
    pub(crate) replaced: usize,
    /// It matched only when ignoring white space.
    pub(crate) is_loose: bool,
}

/// A place in the text with its replacement.
pub(super) struct TextChange<'a> {
    pub(super) range: Range<usize>,
    pub(super) new: Cow<'a, str>,
}

/// Applies a replacement, or returns an error text.
pub(crate) fn apply_replacement(text: &str, wanted: TextReplacement<'_>) -> Result<AppliedEdit, String> {
    if !text.contains('\r') || (wanted.old.contains('\r') && text.contains(wanted.old)) {
        let (changes, is_loose) = find_places(text, wanted)?;
        return finish_edit(text, replace_places(text, &changes, None), changes.len(), is_loose);
    }
    let normalized = NormalizedText::new(text);
    let (old, new) = (normalized.normalize(wanted.old), normalized.normalize(wanted.new));
    let (changes, loosely) =
        find_places(&normalized.text, TextReplacement { old: &old, new: &new, all: wanted.all })?;
    let changes: Vec<TextChange<'_>> =
        changes.into_iter().map(|change| trim_equal_lines(&normalized.text, change)).collect();
    finish_edit(text, replace_places(text, &changes, Some(&normalized)), changes.len(), loosely)
}

fn finish_edit(before: &str, text: String, replaced: usize, is_loose: bool) -> Result<AppliedEdit, String> {
    if text == before {
        return Err("the edit would change nothing: the file already has `new_string` there".to_owned());
    }
    Ok(AppliedEdit { text, replaced, is_loose })
}

/// Returns the places of an edit, and whether they match only when ignoring white space.
fn find_places<'a>(text: &str, wanted: TextReplacement<'a>) -> Result<(Vec<TextChange<'a>>, bool), String> {
    let TextReplacement { old, new, all } = wanted;
    let change = |from: usize| TextChange { range: from..from + old.len(), new: Cow::Borrowed(new) };
    let mut found = memchr::memmem::find_iter(text.as_bytes(), old.as_bytes());
    let Some(first) = found.next() else {
        return match loose_match::find_loose(text, wanted) {
            loose_match::LooseMatch::One(change) => Ok((vec![change], true)),
            loose_match::LooseMatch::Several(lines) => {
                Err(ambiguous_error(&lines, ", with other white space,"))
            }
            loose_match::LooseMatch::NotFound => Err(closest::describe_missing(text, old)),
        };
    };
    if all {
        return Ok((std::iter::once(first).chain(found).map(change).collect(), false));
    }
    // Overlapping places count separately.
    let step = text.get(first..).and_then(|rest| rest.chars().next()).map_or(1, char::len_utf8);
    let rest = text.as_bytes().get(first + step..).unwrap_or_default();
    if memchr::memmem::find(rest, old.as_bytes()).is_none() {
        return Ok((vec![change(first)], false));
    }
    let mut at: Vec<usize> = std::iter::once(first).chain(found).collect();
    if at.len() == 1 {
        at.extend(memchr::memmem::find(rest, old.as_bytes()).map(|more| first + step + more));
    }
    Err(ambiguous_error(&line_numbers(text, &at), ""))
}

fn ambiguous_error(lines: &[usize], qualifier: &str) -> String {
    let mut listed: Vec<String> = lines.iter().take(MAX_LISTED_LINES).map(usize::to_string).collect();
    if lines.len() > MAX_LISTED_LINES {
        listed.push("…".to_owned());
    }
    format!(
        "`old_string` occurs{qualifier} {} times, at lines {}: add lines around it until it is unique, or set `replace_all`",
        lines.len(),
        listed.join(", ")
    )
}

/// Returns the line number of each offset; offsets increase.
pub(super) fn line_numbers(text: &str, offsets: &[usize]) -> Vec<usize> {
    let (mut line, mut from) = (1, 0);
    let mut lines = Vec::with_capacity(offsets.len());
    for offset in offsets {
        line += memchr::memchr_iter(b'\n', text.as_bytes().get(from..*offset).unwrap_or_default()).count();
        from = *offset;
        lines.push(line);
    }
    lines
}

/// A text with LF line endings, and the mapping to its original.
struct NormalizedText<'a> {
    raw: &'a str,
    text: String,
    ending: LineEnding,
}

impl<'a> NormalizedText<'a> {
    fn new(raw: &'a str) -> NormalizedText<'a> {
        let ending = LineEnding::detect(raw);
        let text = if ending == LineEnding::Cr { raw.replace('\r', "\n") } else { raw.replace("\r\n", "\n") };
        NormalizedText { raw, text, ending }
    }

    fn normalize<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if !text.contains('\r') {
            return text.into();
        }
        let text = text.replace("\r\n", "\n");
        if self.ending == LineEnding::Cr { text.replace('\r', "\n").into() } else { text.into() }
    }

    /// Maps increasing offsets to the original text. An offset after an LF maps to the end of the whole line
    /// ending.
    fn raw_offsets(&self, offsets: &[usize]) -> Vec<usize> {
        if self.ending == LineEnding::Cr {
            return offsets.to_vec();
        }
        let mut pairs = memchr::memmem::find_iter(self.raw.as_bytes(), "\r\n").peekable();
        let mut dropped = 0;
        let mut raw = Vec::with_capacity(offsets.len());
        for offset in offsets {
            // A pair at `at` in the original is the LF at `at - dropped` here.
            while pairs.next_if(|at| at - dropped < *offset).is_some() {
                dropped += 1;
            }
            raw.push(offset + dropped);
        }
        raw
    }

    /// Returns the line ending for a place: the most frequent one of the replaced lines, else of the line,
    /// else of the file.
    fn ending_at(&self, place: Range<usize>) -> LineEnding {
        if self.ending == LineEnding::Cr {
            return LineEnding::Cr;
        }
        let replaced = self.raw.get(place.clone()).unwrap_or_default();
        if replaced.contains('\n') {
            return LineEnding::detect(replaced);
        }
        let bytes = self.raw.as_bytes();
        let after =
            memchr::memchr(b'\n', bytes.get(place.end..).unwrap_or_default()).map(|at| place.end + at);
        let before = || memchr::memrchr(b'\n', bytes.get(..place.start).unwrap_or_default());
        match after.or_else(before) {
            Some(at) if at > 0 && bytes.get(at - 1) == Some(&b'\r') => LineEnding::CrLf,
            Some(_) => LineEnding::Lf,
            None => self.ending,
        }
    }
}

/// Returns the change without unchanged whole lines at its start and end.
fn trim_equal_lines<'a>(normalized: &str, change: TextChange<'a>) -> TextChange<'a> {
    let TextChange { range, new } = change;
    let old = normalized.get(range.clone()).unwrap_or_default();
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
    TextChange { range: range.start + head..range.end - tail, new: new.into() }
}

/// Returns the original text with its changes. Places refer to the normalized text, if there is one.
fn replace_places(raw: &str, changes: &[TextChange<'_>], normalized: Option<&NormalizedText<'_>>) -> String {
    let ends: Vec<usize> = changes.iter().flat_map(|change| [change.range.start, change.range.end]).collect();
    let ends = normalized.map_or_else(|| ends.clone(), |flat| flat.raw_offsets(&ends));
    let mut text = String::with_capacity(raw.len());
    let mut from = 0;
    for (change, place) in changes.iter().zip(ends.chunks_exact(2)) {
        let (start, end) = (place.first().copied().unwrap_or(from), place.last().copied().unwrap_or(from));
        text.push_str(raw.get(from..start).unwrap_or_default());
        match normalized.map(|flat| flat.ending_at(start..end)) {
            Some(ending) if ending != LineEnding::Lf => {
                text.push_str(&change.new.replace('\n', ending.as_str()))
            }
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

    fn edit_text(text: &str, old: &str, new: &str) -> Result<String, String> {
        apply_replacement(text, TextReplacement { old, new, all: false }).map(|applied| applied.text)
    }

    #[test]
    fn line_ends_stay_as_they_are_around_a_change() {
        assert_eq!(edit_text("a\r\nb\r\nc\r\n", "a\nb\n", "a\nx\ny\n").unwrap(), "a\r\nx\r\ny\r\nc\r\n");
        assert_eq!(edit_text("a\rb\rc", "a\nb", "a\nx\ny").unwrap(), "a\rx\ry\rc");
        // Mixed endings: unchanged lines keep theirs, new lines take those of the replaced lines.
        assert_eq!(
            edit_text("a\r\nb\nc\r\nd\n", "a\nb\nc\n", "a\nx\ny\nc\n").unwrap(),
            "a\r\nx\ny\nc\r\nd\n"
        );
        assert_eq!(edit_text("a\nb\r\nc", "b", "x\ny").unwrap(), "a\nx\r\ny\r\nc");
        assert_eq!(edit_text("a\r\nb", "b", "x\ny").unwrap(), "a\r\nx\r\ny");
        // A request with CRLF is applied literally.
        assert_eq!(edit_text("a\r\nb\n", "a\r\nb", "a\nb").unwrap(), "a\nb\n");
        assert_eq!(edit_text("a\r\nb\r\n", "a\r\n", "x\r\n").unwrap(), "x\r\nb\r\n");
        // In a file with LF endings a single CR is an ordinary character.
        assert_eq!(edit_text("10%\r20%\nb\r\n", "20%", "30%").unwrap(), "10%\r30%\nb\r\n");
        let all =
            apply_replacement("a\r\nb\r\na\r\n", TextReplacement { old: "a\n", new: "x\ny\n", all: true })
                .unwrap();
        assert_eq!((all.text.as_str(), all.replaced), ("x\r\ny\r\nb\r\nx\r\ny\r\n", 2));
    }

    #[test]
    fn several_places_are_named_and_overlapping_ones_count() {
        let e = edit_text("x\ny\nx\nx\n", "x", "z").unwrap_err();
        assert!(e.contains("3 times, at lines 1, 3, 4"), "{e}");
        let e = edit_text("x\nx\nx\n", "x\nx\n", "z").unwrap_err();
        assert!(e.contains("2 times, at lines 1, 2"), "{e}");
        let e = edit_text("äää", "ää", "z").unwrap_err();
        assert!(e.contains("2 times, at lines 1, 1"), "{e}");
        let many = "x\n".repeat(100);
        let e = edit_text(&many, "x", "z").unwrap_err();
        assert!(e.contains("100 times") && e.contains("10, …"), "{e}");
        assert!(edit_text("a\r\n", "a\n", "a\r\n").unwrap_err().contains("change nothing"));
    }
}
