//! Unified diffs of a change, limited in size and time.

use std::fmt::Write as _;
use std::ops::Range;
use std::time::{Duration, Instant};

use similar::{Algorithm, DiffOp, DiffTag};

/// The number of context lines.
const CONTEXT_LINES: usize = 3;
/// The maximum size of a diff in a result.
const MAX_DIFF_BYTES: usize = 16 * 1024;
/// The maximum length of a line.
const MAX_LINE_BYTES: usize = 1_000;
/// The time limit for the shortest diff; after it the diff is correct but longer.
const TIME_LIMIT: Duration = Duration::from_millis(200);

/// A diff with its statistics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TextDiff {
    pub(crate) text: String,
    pub(crate) added: usize,
    pub(crate) removed: usize,
    /// The first changed line, numbered as in the new text.
    pub(crate) line: usize,
}

/// Compares two texts with LF line endings.
pub(crate) fn diff_texts(name: &str, before: &str, after: &str) -> TextDiff {
    let old: Vec<&str> = before.split_inclusive('\n').collect();
    let new: Vec<&str> = after.split_inclusive('\n').collect();
    let same = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let rest = old.len().min(new.len()) - same;
    let tail = old.iter().rev().zip(new.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    // Compare only the changed middle part: most changes of a large file are small.
    let (old_end, new_end) = (old.len() - tail, new.len() - tail);
    let middle = (old.get(same..old_end).unwrap_or_default(), new.get(same..new_end).unwrap_or_default());
    let until = Some(Instant::now() + TIME_LIMIT);
    let mut ops = vec![DiffOp::Equal { old_index: 0, new_index: 0, len: same }];
    let compared = similar::capture_diff_slices_deadline(Algorithm::Myers, middle.0, middle.1, until);
    ops.extend(compared.into_iter().map(|op| shift_op(op, same)));
    ops.push(DiffOp::Equal { old_index: old_end, new_index: new_end, len: tail });
    let diff = TextDiff { text: String::new(), added: 0, removed: 0, line: 0 };
    let mut writer = DiffWriter { old: &old, new: &new, diff, dropped_lines: 0 };
    writer.push_text(&format!("--- {name}\n+++ {name}\n"));
    if before != after {
        similar::group_diff_ops(ops, CONTEXT_LINES).iter().for_each(|group| writer.push_hunk(group));
    }
    let DiffWriter { mut diff, dropped_lines, .. } = writer;
    if dropped_lines > 0 {
        writeln!(diff.text, "[{dropped_lines} more lines of the diff are left out]")
            .expect("writing to a string cannot fail");
    }
    diff
}

/// Shifts an operation by a number of lines.
fn shift_op(op: DiffOp, lines: usize) -> DiffOp {
    let (_, old, new) = op.as_tag_tuple();
    let (old_index, new_index) = (old.start + lines, new.start + lines);
    match op.tag() {
        DiffTag::Equal => DiffOp::Equal { old_index, new_index, len: old.len() },
        DiffTag::Delete => DiffOp::Delete { old_index, old_len: old.len(), new_index },
        DiffTag::Insert => DiffOp::Insert { old_index, new_index, new_len: new.len() },
        DiffTag::Replace => DiffOp::Replace { old_index, old_len: old.len(), new_index, new_len: new.len() },
    }
}

struct DiffWriter<'a> {
    old: &'a [&'a str],
    new: &'a [&'a str],
    diff: TextDiff,
    dropped_lines: usize,
}

impl DiffWriter<'_> {
    fn push_hunk(&mut self, ops: &[DiffOp]) {
        let (Some(first), Some(last)) = (ops.first(), ops.last()) else { return };
        let range = |range: Range<usize>| {
            let length = range.len();
            // A hunk without lines has the number of the preceding line.
            let start = range.start + usize::from(length > 0);
            if length == 1 { start.to_string() } else { format!("{start},{length}") }
        };
        let old = range(first.old_range().start..last.old_range().end);
        let new = range(first.new_range().start..last.new_range().end);
        self.push_text(&format!("@@ -{old} +{new} @@\n"));
        for op in ops {
            let (old, new) = (op.old_range(), op.new_range());
            if op.tag() == DiffTag::Equal {
                self.push_lines(' ', self.old, old);
                continue;
            }
            if self.diff.line == 0 {
                self.diff.line = new.start + 1;
            }
            self.diff.removed += old.len();
            self.diff.added += new.len();
            self.push_lines('-', self.old, old);
            self.push_lines('+', self.new, new);
        }
    }

    fn push_lines(&mut self, sign: char, side: &[&str], range: Range<usize>) {
        for line in side.get(range).unwrap_or_default() {
            let text = line.strip_suffix('\n');
            let shown = cut_line(text.unwrap_or(line));
            let end = if text.is_some() { "\n" } else { "\n\\ No newline at end of file\n" };
            self.push_text(&format!("{sign}{shown}{end}"));
        }
    }

    fn push_text(&mut self, line: &str) {
        if self.dropped_lines > 0 || self.diff.text.len() + line.len() > MAX_DIFF_BYTES {
            self.dropped_lines += 1;
        } else {
            self.diff.text.push_str(line);
        }
    }
}

fn cut_line(line: &str) -> std::borrow::Cow<'_, str> {
    if line.len() <= MAX_LINE_BYTES {
        return line.into();
    }
    let kept = minke_text::cut_to_bytes(line, MAX_LINE_BYTES);
    format!("{kept}… [{} bytes of this line are left out]", line.len() - kept.len()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_names_the_lines_it_changes() {
        let before: String = (1..=20).map(|n| format!("line {n}\n")).collect();
        let after = before.replace("line 10\n", "ten\nand more\n");
        let got = diff_texts("f", &before, &after);
        assert_eq!(
            got.text,
            "--- f\n+++ f\n@@ -7,7 +7,8 @@\n line 7\n line 8\n line 9\n-line 10\n+ten\n+and more\n line 11\n line 12\n line 13\n"
        );
        assert_eq!((got.added, got.removed, got.line), (2, 1, 10));
        assert_eq!(
            diff_texts("f", "", "a").text,
            "--- f\n+++ f\n@@ -0,0 +1 @@\n+a\n\\ No newline at end of file\n"
        );
        assert_eq!(diff_texts("f", "a\n", "").text, "--- f\n+++ f\n@@ -1 +0,0 @@\n-a\n");
        assert_eq!(diff_texts("f", "a\n", "a\n").text, "--- f\n+++ f\n");
    }

    #[test]
    fn a_diff_is_bounded_in_size_and_time() {
        let before: String = (0..200_000).map(|n| format!("{}\n", n * 7 % 1_000)).collect();
        let after: String = (0..200_000).map(|n| format!("{}\n", n * 13 % 1_000)).collect();
        let start = Instant::now();
        let got = diff_texts("f", &before, &after);
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        assert!(
            got.text.len() < MAX_DIFF_BYTES + 100 && got.text.contains("more lines of the diff are left out")
        );
        let long = diff_texts("f", &"ä".repeat(100_000), "b");
        assert!(
            long.text.len() < 2 * MAX_LINE_BYTES && long.text.contains("bytes of this line are left out")
        );
    }
}
