//! Diff: what a change did to a text, as unified lines with their numbers, bounded in size and time.

use std::fmt::Write as _;
use std::ops::Range;
use std::time::{Duration, Instant};

use similar::{Algorithm, DiffOp, DiffTag};

/// Lines around a change.
const CONTEXT: usize = 3;
/// The most that a diff puts into a result.
const BYTES: usize = 16 * 1024;
/// The longest line that it shows.
const LINE_BYTES: usize = 1_000;
/// After this the comparison is no longer the shortest, but it ends.
const TIME: Duration = Duration::from_millis(200);

/// A diff and its figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Diff {
    pub(crate) text: String,
    pub(crate) added: usize,
    pub(crate) removed: usize,
    /// The first changed line, as it is numbered afterwards.
    pub(crate) line: usize,
}

/// Compares two texts whose lines end in LF.
pub(crate) fn diff(name: &str, before: &str, after: &str) -> Diff {
    let old: Vec<&str> = before.split_inclusive('\n').collect();
    let new: Vec<&str> = after.split_inclusive('\n').collect();
    let same = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let rest = old.len().min(new.len()) - same;
    let tail = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    // Only what differs is compared: most changes of a large file are small.
    let (old_end, new_end) = (old.len() - tail, new.len() - tail);
    let middle = (old.get(same..old_end).unwrap_or_default(), new.get(same..new_end).unwrap_or_default());
    let until = Some(Instant::now() + TIME);
    let mut ops = vec![DiffOp::Equal { old_index: 0, new_index: 0, len: same }];
    let compared = similar::capture_diff_slices_deadline(Algorithm::Myers, middle.0, middle.1, until);
    ops.extend(compared.into_iter().map(|op| moved(op, same)));
    ops.push(DiffOp::Equal { old_index: old_end, new_index: new_end, len: tail });
    let diff = Diff { text: String::new(), added: 0, removed: 0, line: 0 };
    let mut writing = Writing { old: &old, new: &new, diff, dropped: 0 };
    writing.push(&format!("--- {name}\n+++ {name}\n"));
    if before != after {
        similar::group_diff_ops(ops, CONTEXT).iter().for_each(|group| writing.hunk(group));
    }
    let Writing { mut diff, dropped, .. } = writing;
    if dropped > 0 {
        writeln!(diff.text, "[{dropped} more lines of the diff are left out]")
            .expect("a string takes everything");
    }
    diff
}

/// The same, with so many lines before it.
fn moved(op: DiffOp, lines: usize) -> DiffOp {
    let (_, old, new) = op.as_tag_tuple();
    let (old_index, new_index) = (old.start + lines, new.start + lines);
    match op.tag() {
        DiffTag::Equal => DiffOp::Equal { old_index, new_index, len: old.len() },
        DiffTag::Delete => DiffOp::Delete { old_index, old_len: old.len(), new_index },
        DiffTag::Insert => DiffOp::Insert { old_index, new_index, new_len: new.len() },
        DiffTag::Replace => DiffOp::Replace { old_index, old_len: old.len(), new_index, new_len: new.len() },
    }
}

struct Writing<'a> {
    old: &'a [&'a str],
    new: &'a [&'a str],
    diff: Diff,
    dropped: usize,
}

impl Writing<'_> {
    fn hunk(&mut self, ops: &[DiffOp]) {
        let (Some(first), Some(last)) = (ops.first(), ops.last()) else { return };
        let range = |range: Range<usize>| {
            let length = range.len();
            // A hunk without lines is numbered by the line before it.
            let start = range.start + usize::from(length > 0);
            if length == 1 { start.to_string() } else { format!("{start},{length}") }
        };
        let old = range(first.old_range().start..last.old_range().end);
        let new = range(first.new_range().start..last.new_range().end);
        self.push(&format!("@@ -{old} +{new} @@\n"));
        for op in ops {
            let (old, new) = (op.old_range(), op.new_range());
            if op.tag() == DiffTag::Equal {
                self.lines(' ', self.old, old);
                continue;
            }
            if self.diff.line == 0 {
                self.diff.line = new.start + 1;
            }
            self.diff.removed += old.len();
            self.diff.added += new.len();
            self.lines('-', self.old, old);
            self.lines('+', self.new, new);
        }
    }

    fn lines(&mut self, sign: char, side: &[&str], range: Range<usize>) {
        for line in side.get(range).unwrap_or_default() {
            let text = line.strip_suffix('\n');
            let shown = shorten(text.unwrap_or(line));
            let end = if text.is_some() { "\n" } else { "\n\\ No newline at end of file\n" };
            self.push(&format!("{sign}{shown}{end}"));
        }
    }

    fn push(&mut self, line: &str) {
        if self.dropped > 0 || self.diff.text.len() + line.len() > BYTES {
            self.dropped += 1;
        } else {
            self.diff.text.push_str(line);
        }
    }
}

fn shorten(line: &str) -> std::borrow::Cow<'_, str> {
    if line.len() <= LINE_BYTES {
        return line.into();
    }
    let mut end = LINE_BYTES;
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}… [{} bytes of this line are left out]", line.get(..end).unwrap_or_default(), line.len() - end)
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_names_the_lines_it_changes() {
        let before: String = (1..=20).map(|n| format!("line {n}\n")).collect();
        let after = before.replace("line 10\n", "ten\nand more\n");
        let got = diff("f", &before, &after);
        assert_eq!(
            got.text,
            "--- f\n+++ f\n@@ -7,7 +7,8 @@\n line 7\n line 8\n line 9\n-line 10\n+ten\n+and more\n line 11\n line 12\n line 13\n"
        );
        assert_eq!((got.added, got.removed, got.line), (2, 1, 10));
        assert_eq!(
            diff("f", "", "a").text,
            "--- f\n+++ f\n@@ -0,0 +1 @@\n+a\n\\ No newline at end of file\n"
        );
        assert_eq!(diff("f", "a\n", "").text, "--- f\n+++ f\n@@ -1 +0,0 @@\n-a\n");
        assert_eq!(diff("f", "a\n", "a\n").text, "--- f\n+++ f\n");
    }

    #[test]
    fn a_diff_is_bounded_in_size_and_time() {
        let before: String = (0..200_000).map(|n| format!("{}\n", n * 7 % 1_000)).collect();
        let after: String = (0..200_000).map(|n| format!("{}\n", n * 13 % 1_000)).collect();
        let start = Instant::now();
        let got = diff("f", &before, &after);
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        assert!(got.text.len() < BYTES + 100 && got.text.contains("more lines of the diff are left out"));
        let long = diff("f", &"ä".repeat(100_000), "b");
        assert!(long.text.len() < 2 * LINE_BYTES && long.text.contains("bytes of this line are left out"));
    }
}
